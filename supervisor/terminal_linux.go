package supervisor

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal, where there is one.
//
// The command has a process group of its own, so it has to be made the foreground group: otherwise reading from the
// terminal would stop it (SIGTTIN), and Ctrl-C would reach drainit instead. A shell that started drainit sees only drainit,
// so when Ctrl-Z stops the command, drainit has to stop too, and to hand the terminal over again when the shell says fg.
type terminal struct {
	// fd is /dev/tty, and not stdin, which may be elsewhere while the command asks for a password; -1 is no terminal.
	fd int
	// handOver: the command starts in the foreground.
	handOver bool
	group    int // the command's process group
	own      int // our own
}

func findTerminal() terminal {
	t := terminal{own: unix.Getpgrp()}
	var err error
	if t.fd, err = unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		t.fd = -1
		return t
	}
	// With stdin or stdout elsewhere drainit may be part of a pipeline (drainit cmd | less) whose other members read the
	// terminal as part of our group. Then the command gets it when it asks for it, by reading.
	t.handOver = t.foreground() == t.own && isTerminal(0) && isTerminal(1)
	return t
}

func isTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

func (t *terminal) present() bool { return t.fd >= 0 }

// ignoreBackgroundStops lets drainit use the terminal although its group is in the background. A blocked SIGTTOU is let
// through by the kernel. Blocked on this thread only and after the command was started, so that nobody inherits it;
// signal.Ignore would be for the whole process.
func (t *terminal) ignoreBackgroundStops() {
	if !t.present() {
		return
	}
	var set unix.Sigset_t
	set.Val[0] = 1 << (uint(unix.SIGTTOU) - 1)
	_ = unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil)
}

func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

func (t *terminal) give(group int) { _ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) }

// reclaim takes the terminal back at the end, for a script that goes on after us.
func (t *terminal) reclaim() {
	if t.present() && t.group != 0 && t.foreground() == t.group {
		t.give(t.own)
	}
}

// suspended acts on the command having been stopped by s.
func (t *terminal) suspended(s unix.Signal) {
	if !t.present() || s == unix.SIGSTOP {
		return // somebody has stopped it on purpose, and will continue it
	}
	switch {
	case t.foreground() == t.own:
		// It read from or wrote to a terminal that the shell gave to us (fg, or a pipeline).
		t.give(t.group)
	case !orphaned():
		// The shell sees only drainit: stop as well, so that it takes the terminal and offers fg and bg.
		t.reclaim()
		_ = unix.Kill(0, unix.SIGSTOP) // returns when somebody has continued us
		if t.foreground() == t.own {
			t.give(t.group)
		}
	case s != unix.SIGTSTP:
		return // it has no terminal to read from, and nobody who could give it one
	}
	// Left over is Ctrl-Z with nobody there to say fg. A process alone in its terminal's session ignores it for that
	// reason (the kernel discards it for orphaned groups); the command is in a group of its own only because of us.
	t.resume()
}

func (t *terminal) resume() { _ = unix.Kill(-t.group, unix.SIGCONT) }

// orphaned says whether our process group is orphaned (setpgid(2)), so that nobody would continue us if we stopped: no
// ancestor of our session is outside our group.
func orphaned() bool {
	session, err := unix.Getsid(0)
	if err != nil {
		return true
	}
	own := unix.Getpgrp()
	for pid := os.Getppid(); pid > 0; {
		if s, err := unix.Getsid(pid); err != nil || s != session {
			return true
		}
		if group, err := unix.Getpgid(pid); err != nil || group != own {
			return err != nil
		}
		status, err := readStatus(procPID(pid))
		if err != nil {
			return true
		}
		pid = status.parent
	}
	return true
}
