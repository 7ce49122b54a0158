package supervisor

import (
	"time"

	"github.com/drainit/drainit/logs"
	"github.com/drainit/drainit/signals"
)

// Action is something the loop has to do, in the order given; the machine's only output.
type Action interface{ action() }

// OpenReadiness lets the readiness endpoint answer 200.
type OpenReadiness struct{}

// FailReadiness makes the readiness endpoint answer 503, for good.
type FailReadiness struct{}

// Send sends a signal to the main process, or to its process group with --process-group.
type Send struct{ Signal signals.Signal }

// CheckHandler asks whether the main process would survive the stop signal; answered by HandlerState.
// Signal 0 means auto: what the program that the main process is right now wants.
type CheckHandler struct{ Signal signals.Signal }

// KillTree sends SIGKILL to the main process and everything that came from it.
type KillTree struct{}

// SignalLeftovers sends a signal to every process left behind that has not had it yet.
type SignalLeftovers struct{ Signal signals.Signal }

// Log is a line for the log, and the phase it speaks of.
type Log struct {
	Level   logs.Level
	Phase   Phase
	Message string
}

// Exit ends drainit. It is the last action of every run.
type Exit struct{ Summary Summary }

func (OpenReadiness) action()   {}
func (FailReadiness) action()   {}
func (Send) action()            {}
func (CheckHandler) action()    {}
func (KillTree) action()        {}
func (SignalLeftovers) action() {}
func (Log) action()             {}
func (Exit) action()            {}

// Summary is what is said of a whole run at its end.
type Summary struct {
	// Code is drainit's exit code.
	Code int
	// Asked is the signal that asked for the stop; 0 where nobody asked.
	Asked signals.Signal
	// Cause says in words how the main process ended, or why it did not start.
	Cause string
	// Forced: something had to be killed, the main process or what it left behind.
	Forced bool
	// Phases are the phases of the stop in order, with how long each took.
	Phases []PhaseTime
	// Deadline is the end of the grace period: by then drainit has to be gone. Zero where no stop was asked for.
	Deadline time.Time
	// Orphans is the number of processes reaped besides the main process.
	Orphans int
}

// PhaseTime is how long a phase took.
type PhaseTime struct {
	Phase Phase
	Took  time.Duration
}
