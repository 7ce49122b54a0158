package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// pty is the keyboard and screen of a terminal.
type pty struct {
	*output
	t      *testing.T
	master *os.File
	slave  *os.File
}

// newPTY opens a terminal, without echo, so that what is read is what programs wrote.
func newPTY(t *testing.T) *pty {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		skip(t, "/dev/ptmx: "+err.Error(), "mount devpts")
	}
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	termios, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	require.NoError(t, err)
	termios.Lflag &^= unix.ECHO
	termios.Oflag &^= unix.OPOST // no \r before \n
	require.NoError(t, unix.IoctlSetTermios(int(slave.Fd()), unix.TCSETS, termios))

	p := &pty{output: newOutput(), t: t, master: os.NewFile(uintptr(fd), "ptmx"), slave: slave}
	again, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(t, err)
	go p.collect(os.NewFile(uintptr(again), "ptmx")) // a read ends with EIO once nobody has the slave
	t.Cleanup(func() {
		_ = p.slave.Close()
		_ = p.master.Close()
		if t.Failed() {
			t.Logf("the terminal:\n%s", p.text())
		}
	})
	return p
}

// take makes the terminal a command's stdin, stdout and controlling terminal.
func (p *pty) take(cmd *exec.Cmd) {
	cmd.Stdin, cmd.Stdout = p.slave, p.slave
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
}

func (p *pty) typeKeys(keys string) {
	p.t.Helper()
	_, err := p.master.WriteString(keys)
	require.NoError(p.t, err)
}

// foreground waits until the program of this name is the leader of the foreground group, not suspended, and gives its pid.
func (p *pty) foreground(name string) (pid int) {
	p.t.Helper()
	eventually(p.t, func() bool {
		var err error
		pid, err = unix.IoctlGetInt(int(p.master.Fd()), unix.TIOCGPGRP)
		state := status(pid, "State")
		return err == nil && status(pid, "Name") == name && state != "" && state[0] != 'T'
	}, "%s is in the foreground", name)
	return pid
}

const (
	ctrlC = "\x03"
	ctrlD = "\x04"
	ctrlZ = "\x1a"
)

func TestTerminalOfInit(t *testing.T) {
	t.Parallel()
	t.Run("Ctrl-C and size", func(t *testing.T) {
		t.Parallel()
		tty := newPTY(t)
		p := start(t, world{helper: "watch", setup: tty.take}, "-v", "--", "SIGINT")
		tty.line(t, "^up$")
		require.NoError(t, unix.IoctlSetWinsize(int(tty.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 44}))
		tty.line(t, "^got SIGWINCH$")
		tty.typeKeys(ctrlC)
		tty.line(t, "^got SIGINT$")
		require.Equal(t, 0, p.exit())
		require.Equal(t, 1, tty.count("^got SIGINT$"))
		require.Zero(t, p.count("passed on|asks for a stop"), "the keys go to the command only")
	})
	t.Run("Ctrl-Z", func(t *testing.T) {
		t.Parallel()
		tty := newPTY(t)
		p := start(t, world{setup: tty.take}, "--", "cat")
		tty.foreground("cat")
		for i := range 3 {
			tty.typeKeys(ctrlZ + fmt.Sprintf("line %d\n", i))
			tty.line(t, fmt.Sprintf("^line %d$", i))
		}
		tty.typeKeys(ctrlD)
		require.Equal(t, 0, p.exit())
	})
	t.Run("Ctrl-C for a program without a handler", func(t *testing.T) {
		t.Parallel()
		tty := newPTY(t)
		p := start(t, world{setup: tty.take}, "--", "sleep", "1000")
		tty.foreground("sleep")
		tty.typeKeys(ctrlC)
		require.Equal(t, 130, p.exit())
	})
	t.Run("TERM while it reads", func(t *testing.T) {
		t.Parallel()
		tty := newPTY(t)
		p := start(t, world{setup: tty.take}, append([]string{"--drain-delay", "0"}, shell(`trap "exit 8" TERM; echo up; while :; do read x; done`)...)...)
		tty.line(t, "^up$")
		p.signal(syscall.SIGTERM)
		require.Equal(t, 8, p.exit())
	})
	t.Run("TOSTOP", func(t *testing.T) {
		t.Parallel()
		tty := newPTY(t)
		termios, err := unix.IoctlGetTermios(int(tty.slave.Fd()), unix.TCGETS)
		require.NoError(t, err)
		termios.Lflag |= unix.TOSTOP
		require.NoError(t, unix.IoctlSetTermios(int(tty.slave.Fd()), unix.TCSETS, termios))
		p := start(t, world{setup: func(cmd *exec.Cmd) { tty.take(cmd); cmd.Stderr = tty.slave }}, append([]string{"-v", "--drain-delay", "0"}, shell(polite)...)...)
		tty.line(t, "^up$")
		p.signal(syscall.SIGTERM)
		require.Equal(t, 7, p.exit())
		tty.line(t, "stopped as SIGTERM asked") // a write from the background
	})
}

// TestJobControl types commands at an interactive shell.
func TestJobControl(t *testing.T) {
	t.Parallel()
	bash := needProgram(t, "apt-get install bash", "bash")
	shellAt := func(t *testing.T) *pty {
		t.Helper()
		tty := newPTY(t)
		cmd := exec.Command(bash, "--norc", "--noprofile", "--noediting", "-i")
		cmd.Env = append(cleanEnvironment(), "PS1=", "TERM=dumb", "DRAINIT_HEALTH_LISTEN=off", "DRAINIT="+binary)
		tty.take(cmd)
		cmd.Stderr = tty.slave
		require.NoError(t, cmd.Start())
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		t.Cleanup(func() {
			// The jobs first: a group that is orphaned while it is stopped gets HUP, but drainit may ignore nothing of it.
			for _, child := range childrenOf(t, cmd.Process.Pid) {
				for _, grandchild := range childrenOf(t, child) {
					_ = syscall.Kill(grandchild, syscall.SIGKILL)
				}
				_ = syscall.Kill(child, syscall.SIGKILL)
			}
			_ = cmd.Process.Kill()
			<-ended
		})
		tty.typeKeys("echo shell up\n")
		tty.line(t, "^shell up$")
		return tty
	}
	t.Run("Ctrl-Z, fg, Ctrl-C", func(t *testing.T) {
		t.Parallel()
		tty := shellAt(t)
		tty.typeKeys("$DRAINIT -v -- sleep 100\n")
		sleep := tty.foreground("sleep")
		for i := 1; i <= 2; i++ {
			tty.typeKeys(ctrlZ)
			eventually(t, func() bool { return tty.count("Stopped") == 2*i-1 }, "the shell has the terminal back")
			require.Equal(t, "T", status(sleep, "State")[:1])
			tty.typeKeys("jobs\n")
			eventually(t, func() bool { return tty.count("Stopped") == 2*i }, "jobs lists it")
			tty.typeKeys("fg\n")
			require.Equal(t, sleep, tty.foreground("sleep"))
			// The shell's CONT is passed on a moment later, and would undo a Ctrl-Z that no hand is quick enough for.
			eventually(t, func() bool { return tty.count("SIGCONT passed on") == i }, "CONT is passed on")
		}
		tty.typeKeys(ctrlC)
		tty.foreground("bash")
		tty.typeKeys("echo status=$?\n")
		tty.line(t, "^status=130$")
	})
	t.Run("in the background, then fg", func(t *testing.T) {
		t.Parallel()
		tty := shellAt(t)
		tty.typeKeys("$DRAINIT -- cat &\n")
		// It stops when it reads; the shell says so at its next prompt.
		eventually(t, func() bool { tty.typeKeys("jobs\n"); return tty.count("Stopped") > 0 }, "cat is stopped as it reads")
		tty.typeKeys("fg\n")
		tty.foreground("cat")
		tty.typeKeys("typed\n")
		tty.line(t, "^typed$")
		tty.typeKeys(ctrlC)
		tty.foreground("bash")
		tty.typeKeys("echo status=$?\n")
		tty.line(t, "^status=130$")
	})
	t.Run("bg", func(t *testing.T) {
		t.Parallel()
		tty := shellAt(t)
		tty.typeKeys("$DRAINIT -- sleep 0.5\n")
		sleep := tty.foreground("sleep")
		tty.typeKeys(ctrlZ)
		tty.line(t, "Stopped")
		tty.typeKeys("bg\n")
		eventually(t, func() bool { return status(sleep, "State") == "" }, "it goes on in the background, and ends")
		tty.typeKeys("wait %1; echo status=$?\n")
		tty.line(t, "^status=(0|127)$") // 127: the shell has told of its end already
	})
	t.Run("pipeline", func(t *testing.T) {
		t.Parallel()
		tty := shellAt(t)
		tty.typeKeys("$DRAINIT -- cat | tr a-z A-Z\n")
		eventually(t, func() bool {
			pid, err := unix.IoctlGetInt(int(tty.master.Fd()), unix.TIOCGPGRP)
			return err == nil && status(pid, "Name") == "cat"
		}, "cat gets the terminal when it reads")
		tty.typeKeys("typed\n" + ctrlD)
		tty.line(t, "^TYPED$")
		tty.foreground("bash")
		tty.typeKeys("echo status=${PIPESTATUS[*]}\n")
		tty.line(t, "^status=0 0$")
	})
	t.Run("script goes on after it", func(t *testing.T) {
		t.Parallel()
		tty := shellAt(t)
		tty.typeKeys("sh -c '$DRAINIT -- cat; echo after; exec cat'\n")
		tty.foreground("cat")
		tty.typeKeys("one\n")
		tty.line(t, "^one$")
		tty.typeKeys(ctrlD)
		tty.line(t, "^after$")
		tty.typeKeys("two\n")
		tty.line(t, "^two$")
		require.NotContains(t, strings.ToLower(tty.text()), "stopped")
	})
}
