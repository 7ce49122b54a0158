package supervisor

import (
	"fmt"
	"syscall"
	"time"

	"github.com/drainit/drainit/logs"
	"github.com/drainit/drainit/signals"
)

const (
	sigTERM = syscall.SIGTERM
	sigKILL = syscall.SIGKILL
	sigCONT = syscall.SIGCONT
	sigQUIT = syscall.SIGQUIT
)

const (
	// handlerPoll is how often the main process is looked at while the stop signal waits for its handler.
	// nginx needs about 3 ms after exec and php-fpm 20 ms, so this costs a handful of looks.
	handlerPoll = 5 * time.Millisecond
	// termPatience is how old the main process must be for TERM to be sent without a handler. A program that
	// has not asked for TERM by then wants its default action (sleep, a plain binary, an entrypoint script), and
	// waiting for the next rung would make every stop of it slow. For any other signal the default action is never
	// what was meant, so that waits until the next rung.
	termPatience = 2 * time.Second
	// remindAfter is when QUIT is sent once more to a program that got it young. nginx forgets a QUIT that comes after its
	// handler is installed and before it waits for signals: it logs that it shuts down, starts its workers, and serves
	// on until the next signal (ngx_master_process_cycle). No look at /proc can tell. Another QUIT means nothing new to
	// nginx, php-fpm and unicorn, the programs that auto sends it to.
	remindAfter = 500 * time.Millisecond
	// frozen is how late a deadline has to be noticed for the process to count as having been frozen
	// (docker pause, cgroup.freeze, a suspended host). The rest of the plan then moves by the time lost, so that
	// a thaw does not run through all of it at once and the app still gets its stop signal and time to act on it.
	frozen = 1 * time.Second
)

// Machine is a whole run as a pure state machine: Next takes an event and the time, and gives the new state and what
// is to be done. It is a value: a step returns a new one and leaves the old one as it was. doc.go lists its
// invariants.
type Machine struct {
	plan       *Plan
	stopOn     sigset
	rewrite    signals.Rewrite
	remapExit  map[int]bool
	warnOnReap bool
	verbose    bool

	phase Phase
	now   time.Time
	trail trail

	pid     int
	started time.Time
	held    sigset // signals that came before the command ran
	ready   bool   // readiness has been opened and not failed yet

	asked      signals.Signal // what asked for the stop; 0 while nobody has
	asks       int            // how often it was asked for
	acted      int            // the steps taken that did something to the processes
	origin     time.Time      // when it did
	next       int            // the next step of the plan
	taken      time.Time      // when the step before it was taken
	stopSignal signals.Signal // what the stop signal step sends; 0 is auto
	waiting    bool           // the stop signal is due, but has no handler yet
	poll       time.Time      // when to look again
	sent       signals.Signal // the stop signal, once sent
	blocked    bool           // at the last look the stop signal was blocked
	told       bool           // that it waits has been logged
	remind     time.Time      // when to send it once more; zero is never

	status   Status // of the main process, once it is reaped
	orphans  int
	forced   bool
	sweep    signals.Signal // what leftovers were sent last; 0 before the sweep
	sweepDue time.Time      // when the sweep goes on to KILL, and then gives up
}

// NewMachine gives the machine for a run of plan p, made from c.
func NewMachine(c Config, p *Plan) Machine {
	m := Machine{plan: p, rewrite: c.Rewrite, remapExit: c.RemapExit, warnOnReap: c.WarnOnReap, verbose: c.Verbose, phase: Starting}
	for _, s := range c.StopOn {
		m.stopOn.add(s)
	}
	// A stop signal that was named means stop when it is received, too: passing it on would stop the app without a
	// drain.
	if s := p.stopSignal(); s != 0 && s != sigKILL {
		m.stopOn.add(s)
	}
	return m
}

// stopSignal is the signal of the first stop step; 0 is auto.
func (p *Plan) stopSignal() signals.Signal {
	for _, s := range p.Steps {
		if s.Do == DoSendStop {
			return s.Signal
		}
	}
	return 0
}

// Phase is where the run stands.
func (m Machine) Phase() Phase { return m.phase }

// StopRequested is when a stop was asked for; false while nobody has.
func (m Machine) StopRequested() (time.Time, bool) { return m.origin, m.asked != 0 }

// Deadline is when the machine wants a TimerFired next; false when it waits for events alone.
func (m Machine) Deadline() (time.Time, bool) {
	switch m.phase {
	case Draining, Stopping, Killing:
		due := m.origin.Add(m.plan.due(m.next, m.taken.Sub(m.origin)))
		if m.waiting {
			due = earlier(due, m.poll)
		}
		if !m.remind.IsZero() {
			due = earlier(due, m.remind)
		}
		return due, true
	case Sweeping:
		return m.sweepDue, true
	}
	return time.Time{}, false
}

// Next is the machine's step function. It does no I/O, has no clock of its own, and is deterministic. A now before
// the latest one counts as that one.
func (m Machine) Next(now time.Time, ev Event) (Machine, []Action) {
	if m.phase == Done {
		return m, nil
	}
	t := turn{Machine: m}
	t.setClock(now)
	switch e := ev.(type) {
	case Started:
		t.onStarted(e)
	case StartFailed:
		t.finish(e.Code, e.Reason)
	case Signalled:
		t.onSignal(e)
	case Exited:
		t.onExit(e)
	case Reaped:
		t.onReaped(e)
	case HandlerState:
		t.onHandlerState(e)
	case TimerFired:
	default:
		panic(fmt.Sprintf("unknown event %T", ev))
	}
	t.takeDue()
	return t.Machine, t.out
}

// turn is one step being computed: the machine as it will be, and the actions so far.
type turn struct {
	Machine
	out []Action
}

func (t *turn) do(a Action) { t.out = append(t.out, a) }

func (t *turn) log(level logs.Level, format string, args ...any) {
	t.do(Log{Level: level, Phase: t.phase, Message: fmt.Sprintf(format, args...)})
}

func (t *turn) setClock(now time.Time) {
	if now.Before(t.now) {
		return
	}
	if due, armed := t.Deadline(); armed {
		if late := now.Sub(due); late > frozen {
			t.origin = t.origin.Add(late)
			t.taken = t.taken.Add(late)
			t.poll = t.poll.Add(late)
			t.sweepDue = t.sweepDue.Add(late)
			if !t.remind.IsZero() {
				t.remind = t.remind.Add(late)
			}
			t.log(logs.Warn, "was frozen for about %v: the rest of the stop moves by that", late.Round(time.Millisecond))
		}
	}
	t.now = now
}

// debug logs what only --verbose shows, and costs nothing otherwise: signals and orphans come in floods.
func (t *turn) debug(format string, args ...any) {
	if t.verbose {
		t.log(logs.Debug, format, args...)
	}
}

func (t *turn) enter(p Phase) {
	if t.phase == p {
		return
	}
	t.phase = p
	t.trail.add(p, t.now)
}

func (t *turn) onStarted(e Started) {
	t.pid, t.started = e.PID, t.now
	t.phase, t.ready = Running, true
	t.do(OpenReadiness{})
	t.debug("started %s (pid %d)", t.plan.name(), e.PID)
	for s := range t.held.all() {
		t.do(Send{s})
	}
}

func (t *turn) onSignal(e Signalled) {
	name := signals.Name(e.Signal)
	out, dropped := t.rewrite.Apply(e.Signal)
	switch {
	case dropped:
		t.debug("%s dropped, as --rewrite says", name)
	case t.stopOn.has(e.Signal) || e.StopsMain:
		t.onStopSignal(e.Signal, out)
	case t.phase == Starting:
		t.held.add(out)
	case t.phase == Sweeping:
		t.debug("%s not passed on: the main process is gone", name)
	case out != e.Signal:
		t.debug("%s passed on as %s", name, signals.Name(out))
		t.do(Send{out})
	default:
		t.debug("%s passed on", name)
		t.do(Send{out})
	}
}

// onStopSignal acts on a stop signal; rewritten is what --rewrite makes of it.
func (t *turn) onStopSignal(s, rewritten signals.Signal) {
	name := signals.Name(s)
	t.asks++
	if t.asked != 0 {
		t.hurry(name)
		return
	}
	t.asked = s
	switch t.phase {
	case Starting:
		t.finish(codeSignalBase+int(s), t.plan.name()+" was not started: the stop came first")
	case Running:
		t.origin, t.taken = t.now, t.now
		t.stopSignal = t.plan.stopSignal()
		if rewritten != s {
			t.stopSignal = rewritten
		}
		t.enter(Draining)
		timeline := t.plan.Timeline()
		if timeline[0] == 0 {
			t.take(t.plan.Steps[t.next]) // readiness fails before a word is said of it
		}
		t.log(logs.Info, "%s asks for a stop: readiness fails %s, stop signal %s, at most %v in all",
			name, after(timeline[0]), after(timeline[1]), t.plan.GracePeriod)
	case Sweeping:
		// The main process ended by itself a moment ago; the sweep is short enough as it is.
		t.origin = t.now
		t.sweepDue = earlier(t.sweepDue, t.origin.Add(t.plan.KillAt))
	}
}

// hurry takes the next step that does something to the processes ahead of its time, because the stop signal named
// came again. The second ends the drain, the third is for the rung after the stop signal, and so on; one whose step has
// been taken already does nothing. (A stop signal often comes twice: from a supervisor and the platform, from nested
// inits. The repeat must not kill an app that is finishing what it has to.)
func (t *turn) hurry(name string) {
	switch t.phase {
	case Draining, Stopping:
		if t.acted >= t.asks-1 {
			t.debug("%s again: the stop is that far already", name)
			return
		}
		t.log(logs.Info, "%s again: on to the next step", name)
		for acted := false; !acted; {
			t.taken = t.now
			acted = t.take(t.plan.Steps[t.next])
		}
	case Sweeping:
		if t.sweep == sigTERM && t.asks > 2 {
			t.sweepDue = t.now
			t.sweepOn()
		}
	}
}

// takeDue takes every step whose time has come.
func (t *turn) takeDue() {
	for {
		due, armed := t.Deadline()
		if !armed || due.After(t.now) {
			return
		}
		switch {
		case t.phase == Sweeping:
			t.sweepOn()
		case due.Equal(t.remind):
			t.remind = time.Time{}
			t.debug("%s once more, in case it came too early to be acted on", signals.Name(t.sent))
			t.do(Send{t.sent})
		case t.waiting && due.Equal(t.poll):
			// One look for each poll; the answer sets the next.
			t.poll = t.now.Add(handlerPoll)
			t.do(CheckHandler{t.stopSignal})
		default:
			t.taken = due
			t.take(t.plan.Steps[t.next])
			if t.waiting {
				return // the answer to CheckHandler comes before the next step, even if that is due at once
			}
		}
		if t.phase == Done {
			return
		}
	}
}

// take does the next step of the plan and says whether it did something to the processes.
func (t *turn) take(s Step) bool {
	t.next++
	switch s.Do {
	case DoFailReadiness:
		if !t.now.Equal(t.origin) {
			t.log(logs.Info, "readiness fails")
		}
		t.failReadiness()
		return false
	case DoSendStop:
		t.acted++
		t.enter(Stopping)
		t.waiting, t.poll = true, t.now.Add(handlerPoll)
		t.do(CheckHandler{t.stopSignal})
	case DoSendSignal:
		if s.OnlyIfNew && t.sent == s.Signal {
			return false
		}
		t.acted++
		t.waiting, t.remind = false, time.Time{}
		t.log(logs.Warn, "%s is still there: sending %s", t.plan.name(), signals.Name(s.Signal))
		t.do(Send{s.Signal})
	case DoKillTree:
		t.waiting, t.forced, t.remind = false, true, time.Time{}
		t.enter(Killing)
		t.log(logs.Warn, "%s is still there: killing it and everything that came from it", t.plan.name())
		t.do(KillTree{})
	case DoGiveUp:
		t.log(logs.Warn, "pid %d is still there after SIGKILL: giving up", t.pid)
		t.finish(CodeKilled, t.plan.name()+" did not end")
	}
	return true
}

func (t *turn) onHandlerState(e HandlerState) {
	if !t.waiting {
		return
	}
	name := signals.Name(e.Signal)
	program := e.Program
	if program == "" {
		program = t.plan.name()
	}
	// Blocked twice in a row is for good: a shell or a C library does it for the moment of a fork, too.
	handled := e.Handled || e.Blocked && t.blocked
	t.blocked = e.Blocked
	if !handled && (e.Signal != sigTERM || t.now.Sub(t.started) < termPatience) {
		if !t.told && !e.Blocked {
			t.told = true
			t.log(logs.Info, "%s waits: %s (pid %d) has no handler for it yet and would be killed by it", name, program, t.pid)
		}
		return
	}
	t.waiting, t.sent = false, e.Signal
	if young := t.now.Sub(t.started) < termPatience; t.stopSignal == 0 && e.Signal == sigQUIT && (young || t.told) {
		t.remind = t.now.Add(remindAfter)
	}
	t.log(logs.Info, "%s to %s (pid %d)", name, program, t.pid)
	t.do(Send{e.Signal})
	if e.Suspended {
		t.log(logs.Info, "%s is suspended: SIGCONT lets it act on %s", program, name)
		t.do(Send{sigCONT})
	}
}

func (t *turn) onExit(e Exited) {
	if e.PID != t.pid || t.phase == Sweeping {
		t.orphans++
		if t.warnOnReap {
			t.log(logs.Warn, "reaped orphan pid %d: it %v", e.PID, e.Status)
		}
		return
	}
	t.status, t.waiting = e.Status, false
	t.failReadiness()
	t.debug("%s (pid %d) %v", t.plan.name(), t.pid, e.Status)
	t.enter(Sweeping)
	// Whether anything is left is known when the batch ends. A flood of orphans (a fork bomb) may never let it end.
	t.sweepDue = t.lastChance()
}

// lastChance is how long leftovers that have been killed, or cannot even be counted, are waited for.
func (t *turn) lastChance() time.Time {
	due := t.now.Add(killReserve)
	if t.asked != 0 {
		due = earlier(due, t.origin.Add(t.plan.GiveUpAt))
	}
	return due
}

// onReaped moves the sweep on: it ends when no child is left.
func (t *turn) onReaped(e Reaped) {
	switch {
	case t.phase != Sweeping:
	case !e.Left:
		t.finishMain()
	case t.sweep == 0:
		if t.asked == 0 && !t.forced {
			t.log(logs.Warn, "%s ended and left processes behind, which are ended too; a server must stay in the foreground (nginx: -g 'daemon off;', php-fpm: -F)", t.plan.name())
		}
		t.sweep, t.sweepDue = sigTERM, t.now.Add(t.plan.SweepTimeout)
		if t.forced {
			t.sweepDue = t.now
			return
		}
		if t.asked != 0 {
			t.sweepDue = earlier(t.sweepDue, t.origin.Add(t.plan.KillAt))
		}
		t.log(logs.Info, "leftover processes get SIGTERM, and %v until SIGKILL", t.sweepDue.Sub(t.now))
		t.do(SignalLeftovers{sigTERM})
	default:
		t.do(SignalLeftovers{t.sweep})
	}
}

// sweepOn takes the sweep to its next stage when sweepDue has come.
func (t *turn) sweepOn() {
	if t.sweep == sigKILL {
		t.log(logs.Warn, "leftover processes are still there after SIGKILL: leaving them behind")
		t.finishMain()
		return
	}
	if !t.forced {
		t.log(logs.Warn, "leftover processes are still there: SIGKILL")
	}
	t.forced = true
	t.sweep, t.sweepDue = sigKILL, t.lastChance()
	t.do(SignalLeftovers{sigKILL})
}

func (t *turn) failReadiness() {
	if t.ready {
		t.ready = false
		t.do(FailReadiness{})
	}
}

// finishMain ends the run as the main process has ended.
func (t *turn) finishMain() {
	code := t.status.Code()
	if t.remapExit[code] {
		code = 0
	}
	t.finish(code, t.plan.name()+" "+t.status.String())
}

func (t *turn) finish(code int, cause string) {
	t.failReadiness()
	summary := Summary{Code: code, Asked: t.asked, Cause: cause, Forced: t.forced, Phases: t.trail.times(t.now), Orphans: t.orphans}
	if t.asked != 0 {
		summary.Deadline = t.origin.Add(t.plan.GracePeriod)
	}
	t.do(Exit{summary})
	t.phase = Done
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func after(d time.Duration) string {
	if d == 0 {
		return "at once"
	}
	return "after " + d.String()
}

// trail records when each phase of a stop began. A run passes through a phase at most once, so it has a fixed size
// and copies with the machine.
type trail struct {
	n     int
	phase [4]Phase
	at    [4]time.Time
}

func (t *trail) add(p Phase, at time.Time) {
	t.phase[t.n], t.at[t.n] = p, at
	t.n++
}

func (t *trail) times(end time.Time) []PhaseTime {
	out := make([]PhaseTime, t.n)
	for i := range out {
		until := end
		if i+1 < t.n {
			until = t.at[i+1]
		}
		out[i] = PhaseTime{t.phase[i], until.Sub(t.at[i])}
	}
	return out
}
