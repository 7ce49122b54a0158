package supervisor

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/drainit/drainit/logs"
	"github.com/drainit/drainit/signals"
)

// Readiness is what the machine opens and fails; health.Gate through main.
type Readiness interface {
	Open()
	Fail()
}

// Signals is the part of signals.Source that the loop reads.
type Signals interface {
	Signals() <-chan signals.Signal
	Child() <-chan os.Signal
}

// system is the loop's whole view of the operating system. Only the loop calls it, from one goroutine: because the same
// goroutine reaps and signals, a pid cannot be recycled between the decision to signal it and the signal.
type system interface {
	// start starts the command and returns its pid, or an error and drainit's exit code for it.
	start() (pid int, code int, err error)
	// reap collects processes that have ended, at most len(into). more: there may be others to collect right away;
	// left: there are children that have not ended.
	reap(into []Exited) (n int, more, left bool)
	// send sends a signal to the main process or its group.
	send(signals.Signal) error
	// killTree sends SIGKILL to the main process and everything that came from it.
	killTree() error
	// signalLeftovers sends a signal to each leftover process that has not had it yet.
	signalLeftovers(signals.Signal) error
	// handlerState looks at how the main process would take the signal; 0 is auto.
	handlerState(signals.Signal) HandlerState
	// stopsMain says whether the signal is the one that stops the program the main process is now.
	stopsMain(signals.Signal) bool
}

// Heartbeat lets anybody ask whether the loop turns. The zero value is not usable; make one with NewHeartbeat.
type Heartbeat chan struct{}

// NewHeartbeat makes a Heartbeat for Run.
func NewHeartbeat() Heartbeat { return make(Heartbeat) }

// Alive says whether the loop answers before ctx ends.
func (h Heartbeat) Alive(ctx context.Context) bool {
	select {
	case h <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// reapBatch is how many processes are collected before the loop looks at signals and the timer again, so that a fork bomb
// cannot hold up a stop.
const reapBatch = 64

// loop runs a Machine against a system. It is the only place where time, signals and processes come together.
type loop struct {
	sys       system
	source    Signals
	readiness Readiness
	log       *logs.Logger
	heartbeat Heartbeat

	m       Machine
	timer   *time.Timer
	exited  []Exited
	pid     int     // the main process, 0 before it runs
	ended   *Status // how it ended
	summary *Summary
}

// run starts the command, supervises it to its end, and returns the summary. A panic must not take the app down with it,
// as the exit of PID 1 would: what is left then is to pass signals on and to wait.
func (l *loop) run() (s Summary) {
	defer func() {
		if cause := recover(); cause != nil {
			s = l.degraded(cause)
		}
	}()
	return l.supervise()
}

func (l *loop) supervise() Summary {
	l.exited = make([]Exited, reapBatch)
	l.timer = time.NewTimer(time.Hour)
	l.timer.Stop()

	// A stop that came before the command exists is answered without starting it.
	for pending := true; pending && l.summary == nil; {
		select {
		case s := <-l.source.Signals():
			l.step(Signalled{Signal: s, StopsMain: l.sys.stopsMain(s)})
		default:
			pending = false
		}
	}
	if l.summary == nil {
		pid, code, err := l.sys.start()
		if err != nil {
			l.step(StartFailed{Code: code, Reason: err.Error()})
		} else {
			l.pid = pid
			l.step(Started{PID: pid})
			l.reap() // a child that ended before the first SIGCHLD was looked at
		}
	}
	for l.summary == nil {
		if deadline, armed := l.m.Deadline(); armed {
			l.timer.Reset(time.Until(deadline))
		} else {
			l.timer.Stop()
		}
		select {
		case s := <-l.source.Signals():
			l.step(Signalled{Signal: s, StopsMain: l.sys.stopsMain(s)})
		case <-l.source.Child():
			l.reap()
		case <-l.timer.C:
			l.step(TimerFired{})
		case <-l.heartbeat:
		}
	}
	return *l.summary
}

// reap hands every process that has ended to the machine, in batches with a look at everything else in between.
func (l *loop) reap() {
	for l.summary == nil {
		n, more, left := l.collect()
		for _, e := range l.exited[:n] {
			l.step(e)
		}
		if !more {
			l.step(Reaped{Left: left})
			return
		}
		select {
		case s := <-l.source.Signals():
			l.step(Signalled{Signal: s, StopsMain: l.sys.stopsMain(s)})
		case <-l.timer.C:
			l.step(TimerFired{})
		case <-l.heartbeat:
		default:
		}
	}
}

// collect reaps a batch, and notes the end of the main process before anything can go wrong with it.
func (l *loop) collect() (n int, more, left bool) {
	n, more, left = l.sys.reap(l.exited)
	for _, e := range l.exited[:n] {
		if e.PID == l.pid && l.ended == nil {
			status := e.Status
			l.ended = &status
		}
	}
	return n, more, left
}

// degraded is what remains after a panic: readiness fails, a stop signal becomes the command's own at once, other signals
// are passed on, everything is reaped, and the command's end is the end. There is no ladder; the platform has its own.
func (l *loop) degraded(cause any) Summary {
	l.readiness.Fail()
	l.log.Log(logs.Line{Level: logs.Warn, Message: fmt.Sprintf(
		"internal error: %v; from here on signals are only passed on, and processes reaped", cause)})
	if l.pid == 0 {
		return Summary{Code: CodeUsage, Cause: "the command was not started"}
	}
	for {
		for more := true; more; {
			_, more, _ = l.collect()
		}
		if l.ended != nil {
			return Summary{Code: l.ended.Code(), Asked: l.m.asked, Cause: l.m.plan.name() + " " + l.ended.String()}
		}
		select {
		case s := <-l.source.Signals():
			if l.m.stopOn.has(s) {
				s = l.sys.handlerState(l.m.plan.stopSignal()).Signal
			}
			_ = l.sys.send(s)
		case <-l.source.Child():
		case <-l.heartbeat:
		}
	}
}

func (l *loop) step(ev Event) {
	var actions []Action
	l.m, actions = l.m.Next(time.Now(), ev)
	for _, a := range actions {
		if answer := l.act(a); answer != nil {
			l.step(answer)
		}
	}
}

// act does one action and returns the event that answers it, if any. From here on nothing bails out: what fails is
// logged, and the stop goes on to its next step.
func (l *loop) act(a Action) Event {
	switch a := a.(type) {
	case OpenReadiness:
		l.readiness.Open()
	case FailReadiness:
		l.readiness.Fail()
	case Send:
		l.report("cannot send "+signals.Name(a.Signal)+" to the command", l.sys.send(a.Signal))
	case KillTree:
		l.report("cannot kill the command", l.sys.killTree())
	case SignalLeftovers:
		l.report("cannot send "+signals.Name(a.Signal)+" to leftover processes", l.sys.signalLeftovers(a.Signal))
	case CheckHandler:
		return l.sys.handlerState(a.Signal)
	case Log:
		l.say(a.Level, a.Phase, a.Message)
	case Exit:
		l.summary = &a.Summary
	}
	return nil
}

func (l *loop) report(what string, err error) {
	if err != nil {
		l.say(logs.Warn, l.m.Phase(), what+": "+err.Error())
	}
}

func (l *loop) say(level logs.Level, phase Phase, message string) {
	line := logs.Line{Level: level, Phase: string(phase), Message: message}
	if requested, ok := l.m.StopRequested(); ok {
		offset := max(0, time.Since(requested))
		line.Offset = &offset
	}
	l.log.Log(line)
}
