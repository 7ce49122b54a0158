package logs

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// patience is how long a test waits for what has to come; nothing takes as long.
const patience = 20 * time.Second

// pipe gives a pipe that a Logger writes to. Loggers never stop, so the write end stays open.
func pipe(t *testing.T) (read *os.File, write int) {
	t.Helper()
	var fds [2]int
	require.NoError(t, unix.Pipe2(fds[:], unix.O_CLOEXEC))
	// Without O_NONBLOCK on the write end: a logger gets what it is given.
	require.NoError(t, unix.SetNonblock(fds[0], true))
	read = os.NewFile(uintptr(fds[0]), "pipe")
	t.Cleanup(func() { _ = read.Close() })
	return read, fds[1]
}

func fill(t *testing.T, fd int) {
	t.Helper()
	require.NoError(t, unix.SetNonblock(fd, true))
	for {
		if _, err := unix.Write(fd, []byte{'x'}); err != nil {
			require.ErrorIs(t, err, unix.EAGAIN)
			break
		}
	}
	require.NoError(t, unix.SetNonblock(fd, false))
}

func inTime(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s blocks", what)
	}
}

func readLine(t *testing.T, r *os.File, b *bufio.Reader) string {
	t.Helper()
	require.NoError(t, r.SetReadDeadline(time.Now().Add(patience)))
	line, err := b.ReadString('\n')
	require.NoError(t, err)
	return line
}

func TestText(t *testing.T) {
	r, w := pipe(t)
	b := bufio.NewReader(r)
	l := New(w, Text)
	offset := 5*time.Second + 2400*time.Microsecond
	for _, c := range []struct {
		line Line
		want string
	}{
		{Line{Level: Info, Message: "hello"}, "drainit: hello\n"},
		{Line{Level: Warn, Phase: "stopping", Message: "still there"}, "drainit: stopping: still there\n"},
		{Line{Level: Info, Phase: "draining", Offset: &offset, Message: "x", Fields: 1}, "drainit: t=+5.002s draining: x\n"},
		{Line{Level: Info, Offset: new(time.Duration), Message: "now"}, "drainit: t=+0.000s now\n"},
	} {
		l.Log(c.line)
		assert.Equal(t, c.want, readLine(t, r, b))
	}
	assert.Zero(t, l.Lost())
}

func TestJSON(t *testing.T) {
	r, w := pipe(t)
	b := bufio.NewReader(r)
	l := New(w, JSON)
	offset := 1500 * time.Millisecond
	before := time.Now()
	l.Log(Line{Level: Warn, Phase: "stopping", Offset: &offset, Message: "a \"quoted\"\nline \x01 ü", Fields: map[string]int{"exit_code": 3}})
	l.Log(Line{Level: Info, Message: "plain"})

	text := readLine(t, r, b)
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &got), text)
	at, err := time.Parse(time.RFC3339Nano, got["time"].(string))
	require.NoError(t, err)
	assert.WithinDuration(t, before, at, patience)
	assert.Equal(t, time.UTC, at.Location())
	delete(got, "time")
	assert.Equal(t, map[string]any{
		"level": "warn", "phase": "stopping", "since_stop_request_s": 1.5, "msg": "a \"quoted\"\nline \x01 ü",
		"summary": map[string]any{"exit_code": 3.0},
	}, got)

	text, got = readLine(t, r, b), nil
	require.NoError(t, json.Unmarshal([]byte(text), &got), text)
	delete(got, "time")
	assert.Equal(t, map[string]any{"level": "info", "msg": "plain"}, got)
}

func TestJSONThatCannotBeMadeIsStillALine(t *testing.T) {
	r, w := pipe(t)
	l := New(w, JSON)
	l.Log(Line{Level: Info, Message: "x", Fields: func() {}})
	var got any
	require.NoError(t, json.Unmarshal([]byte(readLine(t, r, bufio.NewReader(r))), &got))
	assert.Contains(t, got, "unsupported type")
}

func TestStuckReaderHoldsNobodyUp(t *testing.T) {
	r, w := pipe(t)
	fill(t, w)
	l := New(w, Text)
	const lines = 3 * queued
	inTime(t, "Log", func() {
		for i := range lines {
			l.Log(Line{Level: Info, Message: fmt.Sprintf("line %d", i)})
		}
	})
	// One line may be in the writer's hands.
	lost := l.Lost()
	require.GreaterOrEqual(t, lost, int64(lines-queued-1))
	require.Less(t, lost, int64(lines))

	start := time.Now()
	inTime(t, "Flush", func() { l.Flush(50 * time.Millisecond) })
	require.GreaterOrEqual(t, time.Since(start), 50*time.Millisecond)

	// Somebody reads again: first what filled the pipe, then the lines in order, and how many are missing.
	b := bufio.NewReader(r)
	var got []string
	read := make(chan error, 1)
	go func() {
		require.NoError(t, r.SetReadDeadline(time.Now().Add(patience)))
		for {
			line, err := b.ReadString('\n')
			if err != nil {
				read <- err
				return
			}
			line = strings.TrimLeft(line, "x")
			if line == "drainit: last\n" {
				read <- nil
				return
			}
			got = append(got, line)
		}
	}()
	inTime(t, "Flush", func() { l.Flush(patience) })
	l.Log(Line{Level: Info, Message: "last"})
	require.NoError(t, <-read)
	written, reported, previous := 0, 0, -1
	for _, line := range got {
		var n int
		if _, err := fmt.Sscanf(line, "drainit: %d log lines lost: stderr did not take them\n", &n); err == nil {
			reported += n
			continue
		}
		_, err := fmt.Sscanf(line, "drainit: line %d\n", &n)
		require.NoError(t, err, line)
		require.Greater(t, n, previous, "out of order")
		previous = n
		written++
	}
	require.EqualValues(t, lost, reported)
	require.Equal(t, lines, written+reported)
	require.Zero(t, l.Lost(), "reported as lost, so no longer counted")
}

func TestClosedPipe(t *testing.T) {
	// As main does; without a subscription SIGPIPE on descriptors above 2 is an error anyway.
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGPIPE)
	defer signal.Stop(c)
	r, w := pipe(t)
	require.NoError(t, r.Close())
	l := New(w, Text)
	inTime(t, "Log", func() {
		for range 10 {
			l.Log(Line{Level: Info, Message: "nobody reads this"})
		}
		l.Flush(patience)
	})
	require.EqualValues(t, 10, l.Lost())
}

// TestClosedStderr is the real thing: descriptor 2 is what the runtime treats specially.
func TestClosedStderr(t *testing.T) {
	if os.Getenv("LOGS_TEST_CHILD") == "1" {
		l := New(2, Text)
		l.Log(Line{Level: Info, Message: "nobody reads this"})
		l.Flush(patience)
		fmt.Printf("lost %d\n", l.Lost())
		os.Exit(0)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	var broken [2]int
	require.NoError(t, unix.Pipe2(broken[:], unix.O_CLOEXEC))
	out, in, err := os.Pipe()
	require.NoError(t, err)
	stderr := os.NewFile(uintptr(broken[1]), "broken pipe")
	child, err := os.StartProcess(self, []string{self, "-test.run=^TestClosedStderr$"}, &os.ProcAttr{
		Env: append(os.Environ(), "LOGS_TEST_CHILD=1"), Files: []*os.File{nil, in, stderr},
	})
	require.NoError(t, err)
	require.NoError(t, unix.Close(broken[0]))
	require.NoError(t, in.Close())
	require.NoError(t, stderr.Close())
	text, err := io.ReadAll(out)
	require.NoError(t, err)
	state, err := child.Wait()
	require.NoError(t, err)
	require.Equal(t, "exit status 0", state.String())
	require.Contains(t, string(text), "lost 1\n")
}

func TestNonblockingDescriptor(t *testing.T) {
	// The app shares the open file description and may set O_NONBLOCK on it: lines are whole all the same.
	r, w := pipe(t)
	fill(t, w)
	require.NoError(t, unix.SetNonblock(w, true))
	l := New(w, Text)
	l.Log(Line{Level: Info, Message: "whole"})
	start := time.Now()
	l.Flush(100 * time.Millisecond)
	require.GreaterOrEqual(t, time.Since(start), 100*time.Millisecond, "the line was given up")
	line := readLine(t, r, bufio.NewReader(r))
	require.Equal(t, "drainit: whole\n", strings.TrimLeft(line, "x"))
	require.Zero(t, l.Lost())
	flags, err := unix.FcntlInt(uintptr(w), unix.F_GETFL, 0)
	require.NoError(t, err)
	require.NotZero(t, flags&unix.O_NONBLOCK, "its flags are left alone")
}

func TestFlushWaitsForEveryLine(t *testing.T) {
	r, w := pipe(t)
	l := New(w, Text)
	for range 100 {
		l.Log(Line{Level: Info, Message: "x"})
	}
	l.Flush(patience)
	n, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
	require.NoError(t, err)
	require.Equal(t, 100*len("drainit: x\n"), n)
}

func TestFlushIsBounded(t *testing.T) {
	_, w := pipe(t)
	fill(t, w)
	l := New(w, Text)
	l.Log(Line{Level: Info, Message: "stuck"})
	inTime(t, "Flush", func() { l.Flush(50 * time.Millisecond) }) // the queue has room, but nothing is written
}
