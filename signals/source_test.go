package signals_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/drainit/drainit/signals"
)

// patience bounds every wait; it is only ever used up by a failure.
const patience = 30 * time.Second

// childEnv makes the test binary a program that uses the package as main would.
const childEnv = "SIGNALS_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "":
		os.Exit(m.Run())
	case "flood":
		floodChild()
	case "ignored":
		ignoredChild()
	case "pipe":
		pipeChild()
	case "closed":
		closedChild()
	}
}

// testChild prepares the test binary as a child; pre is shell code run before it.
func testChild(t *testing.T, role, pre string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", pre+` exec "$0"`, os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+role)
	return cmd
}

// floodChild reads nothing until it is told to, then reports what it has received
// once everything that has to arrive has arrived.
func floodChild() {
	src := signals.Listen(nil)
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		os.Exit(1)
	}
	seen := map[string]bool{}
	for !seen["SIGTERM"] || !seen["SIGUSR2"] {
		seen[signals.Name(<-src.Signals())] = true
	}
	<-src.Child()
	fmt.Println(strings.Join(slices.Sorted(maps.Keys(seen)), " "))
}

// Invariant 1 and SIGURG, SIGPIPE: neither reach the reader.
func TestFloodPushesNothingOut(t *testing.T) {
	const flood = 10_000
	for _, tt := range []struct {
		about  string
		before bool // the reader starts before the flood, not after it
	}{
		{"reading all the time", true},
		{"reading only afterwards", false},
	} {
		t.Run(tt.about, func(t *testing.T) {
			cmd := testChild(t, "flood", "")
			stdin, err := cmd.StdinPipe()
			require.NoError(t, err)
			stdout, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			out := bufio.NewReader(stdout)
			line, err := out.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "ready\n", line)
			read := func() {
				_, err := io.WriteString(stdin, "\n")
				require.NoError(t, err)
			}
			if tt.before {
				read()
			}
			for i := range flood {
				burst := []signals.Signal{unix.SIGWINCH, unix.SIGCHLD, unix.SIGUSR1, unix.SIGURG, unix.SIGPIPE}
				if i == flood/2 {
					burst = append(burst, unix.SIGTERM, unix.SIGUSR2)
				}
				for _, sig := range burst {
					err := unix.Kill(cmd.Process.Pid, sig)
					if errors.Is(err, unix.ESRCH) {
						break
					}
					require.NoError(t, err)
				}
			}
			if !tt.before {
				read()
			}
			got, err := io.ReadAll(out)
			require.NoError(t, err)
			require.NoError(t, cmd.Wait())
			assert.Subset(t, strings.Fields(string(got)), []string{"SIGTERM", "SIGUSR2"})
			assert.Subset(t, []string{"SIGTERM", "SIGUSR1", "SIGUSR2", "SIGWINCH"}, strings.Fields(string(got)))
		})
	}
}

// sigIgn gives the mask of ignored signals in a /proc/PID/status.
func sigIgn(status []byte) string {
	for line := range strings.Lines(string(status)) {
		if mask, ok := strings.CutPrefix(line, "SigIgn:"); ok {
			bits, _ := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			// 32 and 33 are the C library's own; make 4.3 leaves them ignored in what it starts.
			return fmt.Sprintf("%016x", bits&^(3<<31))
		}
	}
	return ""
}

// ignoredChild prints the signals left ignored and the masks of ignored signals
// before Listen, after it, and in a child of its own.
func ignoredChild() {
	before, err1 := os.ReadFile("/proc/self/status")
	src := signals.Listen(nil)
	after, err2 := os.ReadFile("/proc/self/status")
	child, err3 := exec.Command("cat", "/proc/self/status").Output()
	if err := errors.Join(err1, err2, err3); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	var left []string
	for _, sig := range src.Ignored() {
		left = append(left, signals.Name(sig))
	}
	fmt.Println(sigIgn(before), sigIgn(after), sigIgn(child), strings.Join(left, " "))
}

// Invariants 3 and 4.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	for _, tt := range []struct{ about, pre, want string }{
		{"nohup", "trap '' HUP;", "SIGHUP"},
		{"job control", "trap '' INT TTOU TSTP CONT TTIN;", "SIGINT SIGCONT SIGTSTP SIGTTIN SIGTTOU"},
		{"nothing more", "", ""},
		{"what Go cannot keep", "trap '' TERM USR1 PIPE CHLD;", ""},
	} {
		t.Run(tt.about, func(t *testing.T) {
			cmd := testChild(t, "ignored", tt.pre)
			got, err := cmd.CombinedOutput()
			require.NoError(t, err, string(got))
			fields := strings.Fields(string(got))
			require.GreaterOrEqual(t, len(fields), 3, string(got))
			before, after, child, left := fields[0], fields[1], fields[2], fields[3:]
			// The tests may themselves be run with some ignored: then there are more.
			assert.Subset(t, left, strings.Fields(tt.want))
			var bits uint64
			for _, name := range left {
				sig, err := signals.Parse(name)
				require.NoError(t, err)
				bits |= 1 << (sig - 1)
			}
			want := fmt.Sprintf("%016x", bits)
			assert.Equal(t, want, before, "before Listen")
			assert.Equal(t, want, after, "after Listen")
			assert.Equal(t, want, child, "in the child")
		})
	}
}

func pipeChild() {
	signals.Listen(nil)
	_, err := fmt.Println("nobody reads this")
	fmt.Fprint(os.Stderr, errors.Is(err, unix.EPIPE))
}

func TestBrokenStdoutDoesNotKill(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	defer w.Close()
	var stderr strings.Builder
	cmd := testChild(t, "pipe", "")
	cmd.Stdout, cmd.Stderr = w, &stderr
	require.NoError(t, cmd.Run())
	assert.Equal(t, "true", stderr.String(), "the write was to fail with EPIPE")
}

// next gives the next signal from src, or fails the test.
func next(t *testing.T, src *signals.Source) signals.Signal {
	t.Helper()
	select {
	case sig := <-src.Signals():
		return sig
	case <-time.After(patience):
		require.FailNow(t, "no signal")
	}
	return 0
}

func TestEverySignalPassedOnIsReceived(t *testing.T) {
	src := signals.Listen(nil)
	defer src.Close()
	for sig := signals.Signal(1); sig <= 64; sig++ {
		if !signals.Catchable(sig) || slices.Contains(src.Ignored(), sig) {
			continue
		}
		require.NoError(t, unix.Kill(os.Getpid(), sig))
		require.Equal(t, signals.Name(sig), signals.Name(next(t, src)))
	}
	require.NoError(t, unix.Kill(os.Getpid(), unix.SIGCHLD))
	select {
	case <-src.Child():
	case <-time.After(patience):
		require.FailNow(t, "no SIGCHLD")
	}
}

// One signal waiting for a reader and one more in its slot: repeats merge, and what
// comes in while the reader is away is all there when it comes back.
func TestRepeatsMergeWhileNobodyReads(t *testing.T) {
	src := signals.Listen(nil)
	defer src.Close()
	const sent = 100
	for range sent {
		require.NoError(t, unix.Kill(os.Getpid(), unix.SIGUSR1))
	}
	count := map[signals.Signal]int{}
	for _, last := range []signals.Signal{unix.SIGUSR2, unix.SIGWINCH} {
		require.NoError(t, unix.Kill(os.Getpid(), last))
		for count[last] == 0 {
			count[next(t, src)]++
		}
	}
	assert.Less(t, count[unix.SIGUSR1], sent/2)
}

func TestClose(t *testing.T) {
	first := signals.Listen(nil)
	second := signals.Listen(nil)
	defer second.Close()
	require.NoError(t, unix.Kill(os.Getpid(), unix.SIGWINCH))
	assert.Equal(t, unix.SIGWINCH, next(t, second)) // now first holds one that nobody takes
	first.Close()
	first.Close()
	_, open := <-first.Signals()
	assert.False(t, open)
	require.NoError(t, unix.Kill(os.Getpid(), unix.SIGUSR1))
	assert.Equal(t, unix.SIGUSR1, next(t, second), "Close of one ended the other")
}

func closedChild() {
	signals.Listen(nil).Close()
	fmt.Println("closed")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestAfterCloseTermEndsTheProgramAgain(t *testing.T) {
	cmd := testChild(t, "closed", "")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(unix.SIGTERM))
	assert.EqualError(t, cmd.Wait(), "signal: terminated")
}

func BenchmarkListen(b *testing.B) {
	for b.Loop() {
		signals.Listen(nil).Close()
	}
}
