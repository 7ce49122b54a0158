package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fullPipe is a pipe that takes nothing more.
func fullPipe(t *testing.T) (reader, writer *os.File) {
	t.Helper()
	var fds [2]int
	require.NoError(t, unix.Pipe2(fds[:], unix.O_CLOEXEC))
	_, err := unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, 4096)
	require.NoError(t, err)
	require.NoError(t, unix.SetNonblock(fds[1], true))
	for {
		_, err := unix.Write(fds[1], []byte{'\n'})
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		require.NoError(t, err)
	}
	require.NoError(t, unix.SetNonblock(fds[1], false))
	reader, writer = os.NewFile(uintptr(fds[0]), "reader"), os.NewFile(uintptr(fds[1]), "writer")
	t.Cleanup(func() { _ = reader.Close(); _ = writer.Close() })
	return reader, writer
}

// TestBrokenStderr: a stop goes as it always does, whatever happens to the log.
func TestBrokenStderr(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"full", "closed", "not open", "dev full"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reader, stderr := fullPipe(t)
			w := world{}
			switch name {
			case "closed":
				require.NoError(t, reader.Close())
			case "not open":
				w.via = []string{"sh", "-c", `exec "$@" 2>&-`, "sh"}
			case "dev full":
				var err error
				stderr, err = os.OpenFile("/dev/full", os.O_WRONLY, 0)
				require.NoError(t, err)
				defer stderr.Close()
			}
			w.setup = func(cmd *exec.Cmd) { cmd.Stdout, cmd.Stderr = cmd.Stderr, stderr } // stdout is collected
			p := start(t, w, append([]string{"-v", "--drain-delay", "100ms"}, shell(polite)...)...)
			p.line(t, "^up$")
			p.waitReady(200)
			for range 5 { // each is worth a line
				p.signal(syscall.SIGPIPE)
				p.signal(syscall.SIGCONT)
			}
			begin := time.Now()
			p.signal(syscall.SIGTERM)
			p.waitReady(503)
			require.Equal(t, 7, p.exit())
			require.Less(t, time.Since(begin), 10*time.Second)
		})
	}
}

// TestLostLines: lines that stderr did not take are counted, and the number is said once somebody reads.
func TestLostLines(t *testing.T) {
	t.Parallel()
	reader, stderr := fullPipe(t)
	w := world{helper: "watch", setup: func(cmd *exec.Cmd) { cmd.Stdout, cmd.Stderr = cmd.Stderr, stderr }}
	p := start(t, w, "-v", "--drain-delay", "0", "--", "SIGTERM")
	require.NoError(t, stderr.Close())
	p.line(t, "^up$")
	const rounds, kinds = 15, 30
	for round := 1; round <= rounds; round++ {
		for n := syscall.Signal(35); n < 35+kinds; n++ {
			p.signal(n)
		}
		eventually(t, func() bool { return p.count("^got SIGRT") == round*kinds }, "round %d is passed on", round)
	}
	read := newOutput()
	go read.collect(reader)
	p.signal(syscall.SIGTERM)
	read.line(t, `^drainit: [1-9]\d* log lines lost: stderr did not take them$`)
	read.line(t, "stopped as SIGTERM asked")
	require.Equal(t, 0, p.exit())
}

func TestLogFormats(t *testing.T) {
	t.Parallel()
	stop := func(t *testing.T, flags ...string) string {
		p := start(t, world{stdout: devNull(t)}, append(flags, shell(`echo up >&2; `+polite)...)...)
		p.line(t, "^up$")
		p.signal(syscall.SIGTERM)
		require.Equal(t, 7, p.exit())
		return strings.Replace(p.text(), "up\n", "", 1)
	}
	t.Run("json", func(t *testing.T) {
		t.Parallel()
		type line struct {
			Time    time.Time `json:"time"`
			Level   string    `json:"level"`
			Phase   string    `json:"phase"`
			Offset  *float64  `json:"since_stop_request_s"`
			Message string    `json:"msg"`
			Summary *struct {
				Code   int                `json:"exit_code"`
				Asked  string             `json:"asked"`
				Forced *bool              `json:"forced"`
				Phases map[string]float64 `json:"phases_s"`
			} `json:"summary"`
		}
		lines := strings.Split(stop(t, "--log-format", "json", "-v", "--drain-delay", "50ms"), "\n")
		require.Greater(t, len(lines), 3)
		for i, text := range lines {
			var l line
			require.NoError(t, json.Unmarshal([]byte(text), &l), text)
			require.NotZero(t, l.Time)
			require.Contains(t, []string{"debug", "info", "warn"}, l.Level)
			require.NotEmpty(t, l.Message)
			if i < len(lines)-1 {
				continue
			}
			require.NotNil(t, l.Summary)
			require.Equal(t, 7, l.Summary.Code)
			require.Equal(t, "SIGTERM", l.Summary.Asked)
			require.GreaterOrEqual(t, l.Summary.Phases["draining"], 0.05)
		}
	})
	t.Run("text", func(t *testing.T) {
		t.Parallel()
		text := stop(t, "--drain-delay", "50ms")
		for _, line := range strings.Split(text, "\n") {
			require.Regexp(t, `^drainit: (t=\+\d+\.\d{3}s )?(running|draining|stopping|sweeping|done): `, line)
		}
		require.NotContains(t, text, "started sh")
	})
	t.Run("verbose", func(t *testing.T) {
		t.Parallel()
		require.Contains(t, stop(t, "-v", "--drain-delay", "50ms"), "started sh (pid ")
	})
	t.Run("quiet", func(t *testing.T) {
		t.Parallel()
		p := start(t, world{}, "--", "true")
		require.Equal(t, 0, p.exit())
		require.Empty(t, p.text())
	})
}

func devNull(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestTerminationLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	t.Run("a path", func(t *testing.T) {
		path := filepath.Join(dir, "log")
		require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("old ", 1000)), 0o600))
		code, _ := runToEnd(t, world{dir: dir}, append([]string{"--termination-log", "log"}, shell("exit 6")...)...)
		require.Equal(t, 6, code)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Regexp(t, `^sh exited with 6; sweeping \d+\.\d{3}s; exit code 6\n$`, string(text))
	})
	t.Run("where the command could not start", func(t *testing.T) {
		path := filepath.Join(dir, "log2")
		code, _ := runToEnd(t, world{}, "--termination-log", path, "--", "/does/not/exist")
		require.Equal(t, 127, code)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Contains(t, string(text), `cannot execute "/does/not/exist"`)
	})
	t.Run("a full disk", func(t *testing.T) {
		code, out := runToEnd(t, world{}, append([]string{"--termination-log", "/dev/full"}, shell("exit 6")...)...)
		require.Equal(t, 6, code)
		require.Contains(t, out, "cannot write the termination log: write /dev/full: no space left on device")
	})
	t.Run("a FIFO that nobody reads", func(t *testing.T) {
		path := filepath.Join(dir, "fifo")
		require.NoError(t, unix.Mkfifo(path, 0o600))
		code, out := runToEnd(t, world{}, append([]string{"--termination-log", path}, shell("exit 6")...)...)
		require.Equal(t, 6, code)
		require.Contains(t, out, "cannot write the termination log")
	})
}

// TestProbe asks endpoints with --probe.
func TestProbe(t *testing.T) {
	t.Parallel()
	probeWith := func(env []string, args ...string) (int, string) {
		cmd := exec.Command(binary, args...)
		cmd.Env = append(cleanEnvironment(), env...)
		out, _ := cmd.CombinedOutput()
		return cmd.ProcessState.ExitCode(), string(out)
	}
	for _, tcp := range []bool{false, true} {
		t.Run(map[bool]string{true: "tcp", false: "unix"}[tcp], func(t *testing.T) {
			t.Parallel()
			p := start(t, world{tcp: tcp}, append([]string{"--drain-delay", "60s", "--grace-period", "120s"}, shell(polite)...)...)
			p.line(t, "^up$")
			p.waitReady(200)
			forms := [][]string{{"--probe=" + p.health}, {"--probe", p.health}, {"--health-listen", p.health, "--probe"}}
			for _, form := range forms {
				code, out := probeWith(nil, form...)
				require.Equal(t, 0, code, out)
				require.Empty(t, out)
			}
			code, out := probeWith([]string{"DRAINIT_HEALTH_LISTEN=" + p.health}, "--probe")
			require.Equal(t, 0, code, out)
			p.signal(syscall.SIGTERM)
			p.waitReady(503)
			code, out = probeWith(nil, forms[0]...)
			require.Equal(t, 1, code)
			require.Equal(t, "drainit: not ready: draining\n", out)
			p.signal(syscall.SIGTERM)
			require.Equal(t, 7, p.exit())
			code, out = probeWith(nil, forms[0]...)
			require.Equal(t, 1, code)
			require.Contains(t, out, "drainit: cannot reach "+p.health)
		})
	}
}
