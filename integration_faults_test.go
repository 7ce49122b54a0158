package main

import (
	"fmt"
	"net"
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

// TestStopSignalTwice: what a supervisor and the platform both send must not kill an app that is finishing.
func TestStopSignalTwice(t *testing.T) {
	t.Parallel()
	const finishing = `trap "echo got TERM; sleep 1; exit 5" TERM; echo up; while :; do sleep 0.05; done`
	p := start(t, world{}, append([]string{"--drain-delay", "0"}, shell(finishing)...)...)
	p.line(t, "^up$")
	p.signal(syscall.SIGTERM)
	p.line(t, "^got TERM$")
	p.signal(syscall.SIGTERM)
	require.Equal(t, 5, p.exit())
}

// TestEndpointLeavesDescriptors: connections to the endpoint cannot take the descriptors that the stop needs.
func TestEndpointLeavesDescriptors(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "nginx")
	require.NoError(t, os.Symlink(self(t), link))
	p := start(t, world{
		env: []string{helperVariable + "=watch"},
		via: []string{"sh", "-c", `ulimit -n 64; exec "$@"`, "sh"},
	}, "--drain-delay", "100ms", "--", link, "SIGQUIT")
	p.line(t, "^up$")
	for range 200 {
		conn, err := net.Dial("unix", strings.TrimPrefix(p.health, "unix:"))
		require.NoError(t, err)
		defer conn.Close()
	}
	p.signal(syscall.SIGTERM)
	p.line(t, "^got SIGQUIT$")
	require.Equal(t, 0, p.exit())
	require.Zero(t, p.count("cannot"))
}

// TestLimitsOfItsOwn: the signals of drainit's own limits are not for the app.
func TestLimitsOfItsOwn(t *testing.T) {
	t.Parallel()
	stderr, err := os.CreateTemp(t.TempDir(), "log")
	require.NoError(t, err)
	defer stderr.Close()
	p := start(t, world{
		via:   []string{"sh", "-c", `ulimit -f 0; exec "$@"`, "sh"},
		setup: func(cmd *exec.Cmd) { cmd.Stdout, cmd.Stderr = cmd.Stderr, stderr },
	}, append([]string{"-v", "--drain-delay", "0"}, shell(polite)...)...)
	p.line(t, "^up$")
	p.signal(syscall.SIGXCPU)
	p.signal(syscall.SIGTERM)
	require.Equal(t, 7, p.exit())
}

// TestWithoutProc: the command's name stands in for what /proc would say.
func TestWithoutProc(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		skip(t, "mounts", "run as root")
	}
	link := filepath.Join(t.TempDir(), "httpd")
	require.NoError(t, os.Symlink(self(t), link))
	p := start(t, world{
		env: []string{helperVariable + "=watch"},
		sys: syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS},
		via: []string{"sh", "-c", `mount -t tmpfs none /proc && exec "$@"`, "sh"},
	}, "--drain-delay", "100ms", "--", link, "SIGWINCH")
	p.line(t, "^up$")
	p.signal(syscall.SIGWINCH)
	p.line(t, "SIGWINCH asks for a stop")
	p.line(t, "cannot see how the command takes signals")
	p.line(t, "^got SIGWINCH$")
	require.Equal(t, 0, p.exit())
}

// TestForeignChildren: what was started by the program that became drainit is neither waited for nor ended without a subreaper.
func TestForeignChildren(t *testing.T) {
	t.Parallel()
	p := start(t, world{
		notInit: true, noProbe: true,
		via: []string{"sh", "-c", `sleep 500 >/dev/null 2>&1 & echo foreign $!; exec "$@"`, "sh"},
	}, "--subreaper=off", "--", "true")
	var pid int
	_, err := fmt.Sscan(p.line(t, `^foreign (\d+)$`)[1], &pid)
	require.NoError(t, err)
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	require.Equal(t, 0, p.exit())
	require.Zero(t, p.count("leftover|SIGKILL"), p.text())
	require.NoError(t, syscall.Kill(pid, 0))
}

// TestStuckEnd: neither a stuck stderr nor a stuck termination log makes drainit outlive its grace period.
func TestStuckEnd(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	hold, err := os.OpenFile(fifo, os.O_RDWR, 0)
	require.NoError(t, err)
	defer hold.Close()
	_, err = unix.FcntlInt(hold.Fd(), unix.F_SETPIPE_SZ, 4096)
	require.NoError(t, err)
	_, err = hold.Write(make([]byte, 4096))
	require.NoError(t, err)
	_, stderr := fullPipe(t)
	p := start(t, world{setup: func(cmd *exec.Cmd) { cmd.Stdout, cmd.Stderr = cmd.Stderr, stderr }},
		append([]string{"--drain-delay", "0", "--grace-period", "3s", "--termination-log", fifo}, shell(`trap "" TERM; echo up; while :; do sleep 0.05; done`)...)...)
	p.line(t, "^up$")
	begin := time.Now()
	p.signal(syscall.SIGTERM)
	require.Equal(t, 137, p.exit())
	require.Less(t, time.Since(begin), 3*time.Second)
}

// TestTerminalWithoutStdin: a command that asks for a password on /dev/tty can, also where stdin is a file.
func TestTerminalWithoutStdin(t *testing.T) {
	t.Parallel()
	tty := newPTY(t)
	p := start(t, world{setup: func(cmd *exec.Cmd) { tty.take(cmd); cmd.SysProcAttr.Ctty = 1; cmd.Stdin = nil }},
		shell(`echo up; read x </dev/tty; echo "read $x"`)...)
	tty.line(t, "^up$")
	tty.typeKeys("secret\n")
	tty.line(t, "^read secret$")
	require.Equal(t, 0, p.exit())
}

// TestUsageErrorWithStuckStderr: nobody hangs over an error that cannot be told.
func TestUsageErrorWithStuckStderr(t *testing.T) {
	t.Parallel()
	_, stderr := fullPipe(t)
	p := start(t, world{setup: func(cmd *exec.Cmd) { cmd.Stderr = stderr }}, "--bogus")
	require.Equal(t, 125, p.exit())
}
