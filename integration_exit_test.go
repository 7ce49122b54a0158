package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/drainit/drainit/signals"
)

// TestExitCodes runs every exit code, with --remap-exit for it, and with --remap-exit for another. Not PID 1 and from one
// shell, because that is cheap.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	const script = `
		check() { want=$1; shift; "$@" 2>/dev/null; got=$?; [ $got = $want ] || { echo "$*: $got instead of $want"; exit 1; }; }
		n=0
		while [ $n -le 255 ]; do
			check $n "$0" -e $(((n + 1) % 256)) -- sh -c "exit $n"
			check 0 "$0" --remap-exit $n -- sh -c "exit $n"
			n=$((n + 1))
		done
		echo checked $n`
	cmd := exec.Command("sh", "-c", script, binary)
	cmd.Env = append(cleanEnvironment(), "DRAINIT_HEALTH_LISTEN=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, "checked 256\n", string(out))
}

// runToEnd runs drainit as PID 1 to its end and returns its exit code and output.
func runToEnd(t *testing.T, w world, args ...string) (int, string) {
	t.Helper()
	w.noProbe = true
	p := start(t, w, args...)
	return p.exit(), p.text()
}

func TestExitCodesAsInit(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 42, 125, 126, 127, 128, 130, 143, 254, 255} {
		code, out := runToEnd(t, world{}, shell(fmt.Sprintf("exit %d", n))...)
		require.Equal(t, n, code)
		if n == 0 {
			require.Empty(t, out, "quiet where nothing happens")
		} else {
			require.Equal(t, fmt.Sprintf("drainit: done: sh exited with %d; sweeping 0.000s; exit code %d", n, n), regexp.MustCompile(`0\.\d{3}s`).ReplaceAllString(out, "0.000s"))
		}
	}
}

func TestDeathBySignal(t *testing.T) {
	t.Parallel()
	for n := syscall.Signal(1); n <= 64; n++ {
		switch n {
		case syscall.SIGCHLD, syscall.SIGCONT, syscall.SIGURG, syscall.SIGWINCH, // ignored by default
			syscall.SIGSTOP, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, // stop
			32, 33: // kept by the C library: kill(1) of some shells refuses them
			continue
		}
		script := fmt.Sprintf("ulimit -c 0; kill -%d $$; sleep 100", n)
		code, out := runToEnd(t, world{notInit: n%2 == 0}, shell(script)...)
		require.Equal(t, 128+int(n), code)
		require.Contains(t, out, "sh was ended by "+signals.Name(n)+";")
		require.Contains(t, out, fmt.Sprintf("; exit code %d", code))
	}
	code, out := runToEnd(t, world{}, append([]string{"-e", "137"}, shell("kill -9 $$")...)...)
	require.Equal(t, 0, code, out)

	t.Run("with a core file", func(t *testing.T) {
		code, out := runToEnd(t, world{dir: t.TempDir()}, shell("ulimit -c unlimited; kill -ABRT $$; sleep 100")...)
		require.Equal(t, 134, code, "the core bit is no part of it")
		require.Regexp(t, `sh was ended by SIGABRT( \(core dumped\))?;`, out)
	})
}

func TestCannotExecute(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), mode))
		return path
	}
	noInterpreter := file("no-interpreter", "#!/does/not/exist -x\n", 0o755)
	windows := file("windows", "#!/bin/sh\r\nexit 0\r\n", 0o755)
	noLine := file("no-line", "exit 0\n", 0o755)
	notExecutable := file("not-executable", "#!/bin/sh\n", 0o644)
	file("works", "#!/bin/sh\nexit 33\n", 0o755)
	shadow := filepath.Join(dir, "shadow")
	require.NoError(t, os.Mkdir(shadow, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(shadow, "works"), nil, 0o644))

	for _, test := range []struct {
		name    string
		command string
		path    string // PATH; default: as it is
		code    int
		message string
	}{
		{"not found, a path", "/does/not/exist", "", 127, `cannot execute "/does/not/exist": no such file or directory`},
		{"not found in PATH", "no-such-command", "/nowhere:" + dir, 127, `cannot execute "no-such-command": not found in PATH (/nowhere:` + dir + `)`},
		{"empty", "", "", 127, `cannot execute "": the command is empty`},
		{"interpreter missing", noInterpreter, "", 127, `its interpreter "/does/not/exist", from the #! line, does not exist`},
		{"Windows line ends", windows, "", 127, `its interpreter "/bin/sh\r", from the #! line, does not exist (the script has Windows line ends)`},
		{"no #! line", noLine, "", 126, "exec format error (a script without a #! line, or a program for another architecture)"},
		{"a directory", dir, "", 126, `cannot execute "` + dir + `": it is a directory`},
		{"not executable", notExecutable, "", 126, `cannot execute "` + notExecutable + `": permission denied (is it executable, on a file system mounted without noexec?)`},
		{"not executable, in PATH", "not-executable", dir, 126, `cannot execute "` + notExecutable + `": permission denied`},
		{"below a file", noLine + "/x", "", 126, "not a directory"},
		{"empty element of PATH", "works", "/nowhere::/bin", 33, ""},
		{"empty PATH", "works", "", 127, "not found in PATH"},
		{"relative element of PATH", "works", "shadow:.", 33, ""},
		{"match passed over", "works", shadow + ":" + dir, 33, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := world{dir: dir}
			if test.path != "" {
				w.env = []string{"PATH=" + test.path}
			}
			code, out := runToEnd(t, w, "--", test.command)
			require.Equal(t, test.code, code, out)
			require.Contains(t, out, test.message)
			if test.message != "" {
				require.Equal(t, 1, strings.Count(out+"\n", "\n"), "one line: %s", out)
				require.Contains(t, out, fmt.Sprintf("exit code %d", test.code))
			}
		})
	}
}

// TestUsage: what is wrong with the command line, the environment or the endpoint ends drainit with 125 before anything
// is started.
func TestUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	socket := filepath.Join(shortTempDir(t), "s")
	unixListener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer unixListener.Close()
	started := filepath.Join(dir, "started")
	for _, test := range []struct {
		name    string
		env     string
		args    []string
		message string
	}{
		{"unknown flag", "", []string{"--drain-dely", "5s"}, "did you mean --drain-delay?"},
		{"bad value", "", []string{"--drain-delay", "soon"}, "not a duration"},
		{"unknown variable", "DRAINIT_DRAIN_DELY=1", nil, `unknown variable "DRAINIT_DRAIN_DELY" (did you mean DRAINIT_DRAIN_DELAY?)`},
		{"bad variable", "DRAINIT_DRAIN_DELAY=soon", nil, `invalid value "soon" for DRAINIT_DRAIN_DELAY: not a duration`},
		{"port in use", "", []string{"--health-listen", listener.Addr().String()}, "cannot listen on " + listener.Addr().String() + ": address already in use (choose another address), see --health-listen"},
		{"socket in use", "", []string{"--health-listen", "unix:" + socket}, "cannot listen on unix:" + socket},
		{"address of another host", "", []string{"--health-listen", "192.0.2.1:80"}, "cannot listen on 192.0.2.1:80: cannot assign requested address"},
		{"no directory for the termination log", "", []string{"--termination-log", dir + "/none/log"}, `"` + dir + `/none" is not a directory`},
		{"a directory as termination log", "", []string{"--termination-log", dir}, "it is a directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := world{}
			if test.env != "" {
				w.env = []string{test.env}
			}
			code, out := runToEnd(t, w, append(test.args, "--", "touch", started)...)
			require.Equal(t, 125, code, out)
			require.Contains(t, out, test.message)
			require.Equal(t, 1, strings.Count(out+"\n", "drainit: "), out)
			require.NoFileExists(t, started)
		})
	}
}
