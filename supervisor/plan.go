package supervisor

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/drainit/drainit/signals"
)

// Phase is where a run stands. Phases are strings so that logs, plans and JSON show them as they are.
type Phase string

const (
	Starting Phase = "starting" // the command does not run yet
	Running  Phase = "running"  // nobody has asked for a stop
	Draining Phase = "draining" // a stop was asked for; the app serves as before
	Stopping Phase = "stopping" // the stop signal is due or sent
	Killing  Phase = "killing"  // everything was killed
	Sweeping Phase = "sweeping" // the main process is gone, leftovers are ended
	// Lingering: every process is gone, the network still takes the last answers.
	Lingering Phase = "lingering"
	Done      Phase = "done" // nothing is ever emitted again
)

// Config is what a user asked for, checked flag by flag.
type Config struct {
	Command []string
	// StopSignal asks the command to stop gracefully; 0 is auto: by StopTable at the moment of the stop.
	StopSignal signals.Signal
	StopTable  signals.Table
	// StopOn are the signals that mean "stop" when drainit receives them.
	StopOn  []signals.Signal
	Rewrite signals.Rewrite

	DrainDelay   time.Duration
	UnreadyDelay time.Duration
	GracePeriod  time.Duration
	SweepTimeout time.Duration
	// Schedule is the ladder after the drain; nil derives one from GracePeriod.
	Schedule Schedule

	// Group sends signals to the process group of the command instead of to its first process.
	Group bool
	// Subreaper makes drainit adopt orphans when it is not PID 1.
	Subreaper SubreaperMode
	// ParentDeathSignal is sent to drainit itself when its parent dies; 0 is none.
	ParentDeathSignal signals.Signal
	WarnOnReap        bool
	// Verbose logs signals passed on and the start and end of the main process, too.
	Verbose bool
	// RemapExit lists the exit codes of the command that become 0.
	RemapExit map[int]bool
}

// Step is one entry of the timeline of a stop.
type Step struct {
	// Phase is the phase the step opens.
	Phase Phase
	Do    Do
	// Signal is what SendStop and SendSignal send; 0 is auto.
	Signal signals.Signal
	// OnlyIfNew skips a SendSignal whose signal has been sent as the stop signal already.
	OnlyIfNew bool
	// A step is due when After has passed since the step before it, and At, counted from the stop request,
	// at the latest.
	After time.Duration
	At    time.Duration
}

// Do is what a step does.
type Do string

const (
	DoFailReadiness Do = "fail readiness"
	DoSendStop      Do = "send stop signal"
	DoSendSignal    Do = "send signal"
	DoKillTree      Do = "kill everything"
	DoGiveUp        Do = "give up"
)

// onlyAt as Step.After: the step waits for its absolute time.
const onlyAt = time.Duration(1<<63 - 1)

// Plan is a stop as data: made before the command starts, printed by --plan, executed by the Machine. It is
// never changed after NewPlan.
type Plan struct {
	// Steps in order; the first is taken when a stop is asked for.
	Steps []Step
	// GracePeriod is the whole budget, counted from the stop request.
	GracePeriod time.Duration
	// SweepTimeout is the time leftovers get between TERM and KILL.
	SweepTimeout time.Duration
	// KillAt and GiveUpAt end the grace period: everything is killed, drainit exits whatever is left.
	KillAt, GiveUpAt time.Duration
	// Expected is the stop signal of Command as it is named, where it is chosen automatically; 0 where only TERM is known
	// for it, or it is a script that may become another program.
	Expected signals.Signal
	Command  []string
	Problems []Problem
}

// Problem is something about a plan that looks wrong.
type Problem struct {
	// Fatal: the stop as asked for does not fit the grace period.
	Fatal   bool   `json:"fatal"`
	Message string `json:"message"`
}

// The end of the grace period is reserved: TERM goes out 3 s and KILL 1 s before it, so that drainit still
// exits in order and can say what happened. A grace period under 5 s gives them the same share of it that they have
// of 5 s.
const (
	termReserve      = 3 * time.Second
	killReserve      = 1 * time.Second
	fullReserveGrace = 5 * time.Second
)

func reserve(full, grace time.Duration) time.Duration {
	if grace >= fullReserveGrace {
		return full
	}
	return time.Duration(float64(grace) * full.Seconds() / fullReserveGrace.Seconds())
}

// NewPlan lays out the stop that c asks for. What does not fit the grace period is cut so that it does, and named
// in Problems.
func NewPlan(c Config) *Plan {
	p := &Plan{GracePeriod: c.GracePeriod, SweepTimeout: c.SweepTimeout, Command: c.Command}
	if len(c.Command) > 0 {
		p.Expected, _ = c.StopTable.For(filepath.Base(c.Command[0]))
	}

	afterKill := reserve(killReserve, c.GracePeriod)
	killAt := c.GracePeriod - afterKill
	latestStop := c.GracePeriod - reserve(termReserve, c.GracePeriod)
	giveUpAt := c.GracePeriod - afterKill/2 // the rest is for saying so
	p.KillAt, p.GiveUpAt = killAt, giveUpAt

	stopAt := c.UnreadyDelay + c.DrainDelay
	if stopAt > latestStop {
		p.Problems = append(p.Problems, Problem{Fatal: true, Message: fmt.Sprintf(
			"the drain (unready-delay %v + drain-delay %v) leaves the command less than %v of the grace-period %v: it is cut to end at %v; lower the delay, or raise grace-period here and on the platform",
			c.UnreadyDelay, c.DrainDelay, c.GracePeriod-latestStop, c.GracePeriod, latestStop)})
		stopAt = latestStop
	}

	ladder := c.Schedule
	derived := ladder == nil
	if derived {
		ladder = Schedule{{Signal: c.StopSignal}}
	} else if ladder[0].Signal == 0 {
		ladder = append(Schedule{{Signal: c.StopSignal, Wait: ladder[0].Wait}}, ladder[1:]...)
	}

	add := func(s Step) { p.Steps = append(p.Steps, s) }
	add(Step{Phase: Draining, Do: DoFailReadiness, After: c.UnreadyDelay, At: min(c.UnreadyDelay, latestStop)})
	add(Step{Phase: Stopping, Do: DoSendStop, Signal: ladder[0].Signal, After: c.DrainDelay, At: stopAt})
	if derived {
		// Halfway where the drain ends so late that the stop signal would have no time of its own.
		termAt := max(latestStop, (stopAt+killAt)/2)
		if ladder[0].Signal != sigTERM && ladder[0].Signal != sigKILL {
			add(Step{Phase: Stopping, Do: DoSendSignal, Signal: sigTERM, OnlyIfNew: true, After: onlyAt, At: termAt})
		}
	}
	planned := stopAt
	for i := 1; i < len(ladder); i++ {
		planned = min(planned+ladder[i-1].Wait, maxDuration) // no sum of many may overflow
		step := Step{Phase: Stopping, Do: DoSendSignal, Signal: ladder[i].Signal, After: ladder[i-1].Wait, At: killAt}
		if step.Signal == sigKILL {
			step = Step{Phase: Killing, Do: DoKillTree, After: step.After, At: killAt}
		}
		add(step)
	}
	if last := ladder[len(ladder)-1]; last.Signal != sigKILL {
		planned += last.Wait
	}
	if planned > killAt {
		p.Problems = append(p.Problems, Problem{Fatal: true, Message: fmt.Sprintf(
			"the stop-schedule %v needs %v from the stop request, but everything is killed at %v so that the grace-period %v holds",
			c.Schedule, planned, killAt, c.GracePeriod)})
	}
	if last := p.Steps[len(p.Steps)-1]; last.Do != DoKillTree {
		add(Step{Phase: Killing, Do: DoKillTree, After: onlyAt, At: killAt})
	}
	add(Step{Phase: Done, Do: DoGiveUp, After: onlyAt, At: giveUpAt})
	return p
}

// due is when step i is due, given when the step before it was taken; both counted from the stop request.
func (p *Plan) due(i int, previous time.Duration) time.Duration {
	s := p.Steps[i]
	if s.After == onlyAt {
		return s.At
	}
	return min(previous+s.After, s.At)
}

// Timeline is when each step is taken when the command ignores everything and nobody hurries: the worst case.
func (p *Plan) Timeline() []time.Duration {
	at := make([]time.Duration, len(p.Steps))
	var previous time.Duration
	for i := range p.Steps {
		previous = p.due(i, previous)
		at[i] = previous
	}
	return at
}

// Fits says whether the stop as asked for fits the grace period.
func (p *Plan) Fits() bool {
	for _, problem := range p.Problems {
		if problem.Fatal {
			return false
		}
	}
	return true
}
