package supervisor

import "github.com/drainit/drainit/signals"

// Event is something that happened; the machine's only input besides the time.
// The set is closed: Next panics on a type it does not know.
type Event interface{ event() }

// Started: the main process runs and has this pid.
type Started struct{ PID int }

// StartFailed: the command could not be executed; Code is drainit's exit code (126 or 127).
type StartFailed struct {
	Code   int
	Reason string
}

// Signalled: drainit received a signal.
type Signalled struct {
	Signal signals.Signal
	// StopsMain says that the signal is the one that stops the program the main process is at this
	// moment, so that it asks for a stop even where --stop-on does not list it: an image that inherits
	// STOPSIGNAL SIGWINCH from httpd is stopped by WINCH.
	StopsMain bool
}

// Exited: a process was reaped, the main process or an adopted orphan.
type Exited struct {
	PID    int
	Status Status
}

// Reaped ends a batch of Exited. Left says whether drainit still has children.
type Reaped struct{ Left bool }

// HandlerState answers CheckHandler.
type HandlerState struct {
	// Signal is the stop signal: the one asked for, or what "auto" stands for right now.
	Signal signals.Signal
	// Program is the main process's name (/proc/PID/comm), "" where it cannot be read.
	Program string
	// Handled: the main process catches or ignores Signal, so that it cannot be killed by it. Also true where nobody can
	// know (no /proc).
	Handled bool
	// Blocked: it blocks Signal. A program that waits for its signals (sigwait, signalfd) always does, and needs no
	// handler; any other may for the moment of a fork.
	Blocked bool
	// Suspended: the main process is stopped (state T) and cannot act on any signal until it is continued.
	Suspended bool
}

// TimerFired: the time Deadline asked for may have come. Early, late and repeated firing is harmless.
type TimerFired struct{}

func (Started) event()      {}
func (StartFailed) event()  {}
func (Signalled) event()    {}
func (Exited) event()       {}
func (Reaped) event()       {}
func (HandlerState) event() {}
func (TimerFired) event()   {}
