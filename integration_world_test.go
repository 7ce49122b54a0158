package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCommandSeesTheSameWorld runs commands with and without drainit and compares what they see of it.
func TestCommandSeesTheSameWorld(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "inherited")
	require.NoError(t, os.WriteFile(file, []byte("content"), 0o600))
	signalMasks := []string{"grep", "-E", "^Sig(Blk|Ign):", "/proc/self/status"}
	for _, test := range []struct {
		name    string
		via     []string
		command []string
	}{
		{"arguments", nil, []string{"sh", "-c", `for a; do printf '<%s>\n' "$a"; done`, "sh", "", "a b", "\xff\xfe", "--", "-v", "--drain-delay", "\n", "ü"}},
		{"argv[0] and no more", nil, []string{"cat", "/proc/self/cmdline"}},
		{"environment", []string{"env", "-i", "A=1", "PATH=" + os.Getenv("PATH"), "DRAINIT_DRAIN_DELAY=1", "EMPTY=", "BYTES=\xff\xfe", "A.B=odd"}, []string{"cat", "/proc/self/environ"}},
		{"no environment", []string{"env", "-i"}, []string{"/bin/cat", "/proc/self/environ"}},
		{"directory", nil, []string{"pwd", "-P"}},
		{"umask", []string{"sh", "-c", `umask 031; exec "$@"`, "sh"}, []string{"grep", "Umask", "/proc/self/status"}},
		{"open files", []string{"sh", "-c", `ulimit -Sn 333; exec "$@"`, "sh"}, []string{"grep", "open files", "/proc/self/limits"}},
		{"open files, hard", []string{"sh", "-c", `ulimit -n 444; exec "$@"`, "sh"}, []string{"cat", "/proc/self/limits"}},
		{"descriptors", nil, []string{"ls", "/proc/self/fd"}},
		{"descriptor 5", nil, []string{"sh", "-c", "cat <&5"}},
		{"signals", nil, signalMasks},
		{"HUP, INT ignored", []string{"env", "--ignore-signal=HUP,INT"}, signalMasks},
		{"job control ignored", []string{"env", "--ignore-signal=TSTP,TTIN,TTOU"}, signalMasks},
		{"blocked", []string{"env", "--block-signal=USR1,RTMIN+5"}, signalMasks},
		{"credentials", nil, []string{"grep", "-E", "^(Uid|Gid|Groups|Cap.*|NoNewPrivs):", "/proc/self/status"}},
		{"nice", []string{"nice", "-n", "5"}, []string{"nice"}},
	} {
		for _, notInit := range []bool{false, true} {
			t.Run(test.name+map[bool]string{true: ", not PID 1"}[notInit], func(t *testing.T) {
				t.Parallel()
				see := func(program ...string) string {
					line := append(append(append([]string{}, test.via...), program...), test.command...)
					cmd := exec.Command(line[0], line[1:]...)
					cmd.Dir = dir
					cmd.Env = append(cleanEnvironment(), "X=y")
					var stderr bytes.Buffer
					cmd.Stderr = &stderr
					for range 3 { // 3, 4 and 5
						f, err := os.Open(file)
						require.NoError(t, err)
						defer f.Close()
						cmd.ExtraFiles = append(cmd.ExtraFiles, f)
					}
					if !notInit {
						attr := syscall.SysProcAttr{Cloneflags: pidNamespace(t)}
						if os.Getuid() != 0 {
							attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
							attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
						}
						cmd.SysProcAttr = &attr
					}
					out, err := cmd.Output()
					require.NoError(t, err, "%q: %s", line, stderr.String())
					return string(out)
				}
				want := see()
				require.Equal(t, want, see(binary, "--health-listen", "off", "--"))
			})
		}
	}
}

// TestIgnoredSignalsGoKeeps: the rest of an inherited SIG_IGN is lost to the Go runtime, as the README says.
func TestIgnoredSignalsGoKeeps(t *testing.T) {
	t.Parallel()
	p := start(t, world{noProbe: true, via: []string{"env", "--ignore-signal=HUP,USR1"}}, "--", "grep", "SigIgn", "/proc/self/status")
	require.Equal(t, 0, p.exit())
	mask, err := strconv.ParseUint(p.line(t, `^SigIgn:\s+([0-9a-f]+)$`)[1], 16, 64)
	require.NoError(t, err)
	require.Equal(t, uint64(1), mask&(1|1<<(syscall.SIGUSR1-1)), "HUP is kept, USR1 is not")
}

// TestClosedStdin: the Go runtime opens /dev/null for a descriptor 0, 1 or 2 that is not open, so the command has it.
func TestClosedStdin(t *testing.T) {
	t.Parallel()
	p := start(t, world{noProbe: true, via: []string{"sh", "-c", `exec "$@" <&-`, "sh"}}, "--", "readlink", "/proc/self/fd/0")
	require.Equal(t, 0, p.exit())
	require.Equal(t, "/dev/null", p.text())
}

// TestHoldsNothing: what drainit was given for the command it lets go of.
func TestHoldsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, "inherited"))
	require.NoError(t, err)
	defer file.Close()
	reader, stdout, err := os.Pipe()
	require.NoError(t, err)
	stdin, input, err := os.Pipe()
	require.NoError(t, err)
	defer input.Close()
	p := start(t, world{dir: dir, stdin: stdin, stdout: stdout, setup: func(cmd *exec.Cmd) { cmd.ExtraFiles = []*os.File{file, input} }},
		shell("echo up >&2; exec >&-; exec sleep 1000")...)
	require.NoError(t, stdout.Close())
	require.NoError(t, stdin.Close())
	p.line(t, "^up$")
	p.waitReady(200)

	proc := filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid))
	cwd, err := os.Readlink(filepath.Join(proc, "cwd"))
	require.NoError(t, err)
	require.Equal(t, "/", cwd)
	fds, err := os.ReadDir(filepath.Join(proc, "fd"))
	require.NoError(t, err)
	for _, fd := range fds {
		target, _ := os.Readlink(filepath.Join(proc, "fd", fd.Name()))
		require.NotContains(t, target, dir)
		if fd.Name() != "2" {
			require.False(t, strings.HasPrefix(target, "pipe:"), "descriptor %s is %s", fd.Name(), target)
		}
	}
	// Nobody has the other end of stdout any more.
	n, err := reader.Read(make([]byte, 1))
	require.Zero(t, n)
	require.Error(t, err)
	p.signal(syscall.SIGKILL)
}
