package supervisor

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/drainit/drainit/signals"
)

// world is a machine with a clock, and what has been seen of it so far. It is a value: a copy is a branch. step holds the
// invariants of doc.go.
type world struct {
	config Config
	m      Machine
	now    time.Duration
	twice  bool // take each step twice, to see that it does the same

	started, opened, failed bool
	mainGone                bool
	checked                 bool          // the stop signal step has been taken
	requests                int           // stop signals received
	requested               time.Duration // when the first came
	lost                    time.Duration // time in which timers were held up
	exit                    *Exit
	exitAt                  time.Duration
}

func newWorld(c Config) world {
	return world{config: c, m: NewMachine(c, NewPlan(c))}
}

// passedOn are the signals that worlds receive without meaning stop.
var passedOn = []signals.Signal{unix.SIGUSR1, unix.SIGHUP}

// step gives the machine an event, and returns what is wrong with its answer.
func (w *world) step(ev Event) error {
	before := w.m
	m, actions := w.m.Next(clockAt(w.now), ev)
	if w.exit != nil && len(actions) > 0 {
		return fmt.Errorf("%T after the end: %d actions", ev, len(actions))
	}
	if w.twice {
		if !reflect.DeepEqual(before, w.m) {
			return fmt.Errorf("%T changed the machine it was given to", ev)
		}
		again, sameActions := w.m.Next(clockAt(w.now), ev)
		if !reflect.DeepEqual(m, again) || !reflect.DeepEqual(actions, sameActions) {
			return fmt.Errorf("%T has two outcomes", ev)
		}
	}
	w.m = m
	switch e := ev.(type) {
	case Started:
		w.started = true
	case Exited:
		w.mainGone = w.mainGone || e.PID == mainPID
	case Signalled:
		if !slices.Contains(passedOn, e.Signal) && w.exit == nil {
			if w.requests == 0 {
				w.requested = w.now
			}
			w.requests++
		}
	}
	for i, a := range actions {
		if err := w.see(a); err != nil {
			return fmt.Errorf("%v: %w", w.now, err)
		}
		if _, end := a.(Exit); end && i < len(actions)-1 {
			return fmt.Errorf("%v: %s comes after the exit", w.now, describeAction(actions[i+1]))
		}
	}
	if w.requests > 0 && w.exit == nil && w.now > w.requested+w.m.plan.GiveUpAt+w.lost {
		return fmt.Errorf("%v: still %s, although the stop was asked for at %v", w.now, w.m.Phase(), w.requested)
	}
	return nil
}

func (w *world) see(a Action) error {
	switch a := a.(type) {
	case OpenReadiness:
		if w.opened || w.failed {
			return fmt.Errorf("readiness opens again")
		}
		w.opened = true
	case FailReadiness:
		if w.failed || !w.opened {
			return fmt.Errorf("readiness fails without having been open")
		}
		w.failed = true
	case CheckHandler:
		w.checked = true
		return w.toMain(a, true)
	case Send:
		switch a.Signal {
		case unix.SIGCHLD, unix.SIGURG, unix.SIGPIPE:
			return fmt.Errorf("%s is passed on", describeAction(a))
		}
		return w.toMain(a, !slices.Contains(passedOn, a.Signal))
	case KillTree:
		if err := w.toMain(a, true); err != nil {
			return err
		}
		if !w.checked {
			return fmt.Errorf("killed before the stop signal")
		}
		if killAt := w.requested + w.m.plan.timeOf(DoKillTree); w.requests < 2 && w.now < killAt {
			return fmt.Errorf("killed before %v, and nobody hurries", killAt)
		}
	case SignalLeftovers:
		if !w.mainGone {
			return fmt.Errorf("%s while the main process is there", describeAction(a))
		}
	case Exit:
		if w.exit != nil {
			return fmt.Errorf("a second exit")
		}
		if w.opened && !w.failed {
			return fmt.Errorf("exit while ready")
		}
		w.exit, w.exitAt = &a, w.now
	}
	return nil
}

// toMain holds what is true of everything that the main process gets; stop: it is part of a stop.
func (w *world) toMain(a Action, stop bool) error {
	switch {
	case !w.started || w.mainGone:
		return fmt.Errorf("%s without a main process", describeAction(a))
	case stop && !w.failed:
		return fmt.Errorf("%s while ready", describeAction(a))
	case stop && w.requests == 0:
		return fmt.Errorf("%s, and nobody asked", describeAction(a))
	}
	return nil
}

func (p *Plan) timeOf(do Do) time.Duration {
	for i, at := range p.Timeline() {
		if p.Steps[i].Do == do {
			return at
		}
	}
	panic("no step " + do)
}

// advance lets timers fire on time until the time is now.
func (w *world) advance(now time.Duration) error {
	for {
		if last := clockAt(now); w.m.waiting && w.m.poll.Before(last) {
			w.m.poll = last // hundreds of looks for a handler are all alike: only the last is taken
		}
		due, armed := w.m.Deadline()
		if !armed || sinceEpoch(due) > now {
			w.now = now
			return nil
		}
		w.now = max(w.now, sinceEpoch(due))
		if err := w.step(TimerFired{}); err != nil {
			return err
		}
		if again, armed := w.m.Deadline(); armed && sinceEpoch(again) <= w.now && !w.m.waiting {
			return fmt.Errorf("%v: what was due is still due", w.now)
		}
	}
}

// end lets timers fire until the run is over or waits for an event.
func (w *world) end() error {
	if err := w.advance(w.now + 2*w.config.GracePeriod + time.Hour); err != nil {
		return err
	}
	switch {
	case w.exit == nil && (w.requests > 0 || w.mainGone):
		return fmt.Errorf("never ends: %s", w.m.Phase())
	case w.requests > 0 && w.exitAt-w.requested > w.m.plan.GiveUpAt+w.lost:
		return fmt.Errorf("ended %v after the stop request, and %v were lost", w.exitAt-w.requested, w.lost)
	}
	return nil
}

// letter is one thing that can happen in the small world.
type letter struct {
	name string
	do   func(w *world) error
}

func happens(name string, ev Event) letter {
	return letter{name, func(w *world) error { return w.step(ev) }}
}

var alphabet = []letter{
	happens("TERM", Signalled{Signal: unix.SIGTERM}),
	happens("USR1", Signalled{Signal: unix.SIGUSR1}),
	happens("main exits", Exited{PID: mainPID, Status: exitedWith(3)}),
	happens("orphan exits", Exited{PID: 99, Status: endedBy(unix.SIGKILL)}),
	happens("reaped, left", Reaped{Left: true}),
	happens("reaped, none", Reaped{}),
	happens("handler", HandlerState{Signal: unix.SIGQUIT, Handled: true}),
	happens("no handler", HandlerState{Signal: unix.SIGQUIT}),
	{"deadline", func(w *world) error {
		if due, armed := w.m.Deadline(); armed {
			return w.advance(max(w.now, sinceEpoch(due)))
		}
		return nil
	}},
	{"1s", func(w *world) error { return w.advance(w.now + time.Second) }},
	{"freeze 3s", func(w *world) error {
		w.now += 3 * time.Second
		w.lost += 3 * time.Second
		return w.step(TimerFired{})
	}},
}

func TestSmallWorld(t *testing.T) {
	configs := map[string]func(*Config){
		"default":       func(*Config) {},
		"no drain":      func(c *Config) { c.DrainDelay = 0 },
		"unready-delay": func(c *Config) { c.UnreadyDelay = 1500 * time.Millisecond },
		"tiny grace":    func(c *Config) { c.GracePeriod = 700 * time.Millisecond },
		"short grace, drain clipped, long sweep": func(c *Config) {
			c.GracePeriod, c.SweepTimeout = 4*time.Second, time.Minute
		},
		"schedule":     func(c *Config) { c.Schedule = Schedule{{Wait: time.Second}, {Signal: unix.SIGKILL}} },
		"TERM is QUIT": func(c *Config) { c.Rewrite = signals.Rewrite{unix.SIGTERM: unix.SIGQUIT} },
	}
	length := 5 // after Started
	if testing.Short() || raceEnabled() {
		length = 4
	}
	for name, change := range configs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := defaults()
			change(&c)
			w := newWorld(c)
			w.twice = true
			require.NoError(t, w.step(Started{PID: mainPID}))
			explore(t, w, nil, length)
		})
	}
}

// explore tries every sequence of letters up to length from w.
func explore(t *testing.T, w world, path []string, length int) {
	commutes(t, w, path)
	end := w
	end.twice = false
	if err := end.end(); err != nil {
		t.Fatalf("%v: %v", path, err)
	}
	if length == 0 {
		return
	}
	for _, l := range alphabet {
		next := w
		nextPath := append(slices.Clip(path), l.name)
		if err := l.do(&next); err != nil {
			t.Fatalf("%v: %v", nextPath, err)
		}
		explore(t, next, nextPath, length-1)
	}
}

// commutes holds that the end of the main process and a stop signal give the same exit code in either order.
func commutes(t *testing.T, w world, path []string) {
	if w.mainGone || w.exit != nil {
		return
	}
	exited, signalled := Exited{PID: mainPID, Status: exitedWith(3)}, Signalled{Signal: unix.SIGTERM}
	a, b := w, w
	a.twice, b.twice = false, false
	for _, err := range []error{
		a.step(exited), a.step(signalled), a.step(Reaped{}),
		b.step(signalled), b.step(exited), b.step(Reaped{}),
	} {
		if err != nil {
			t.Fatalf("%v, main exits and TERM: %v", path, err)
		}
	}
	if a.exit == nil || b.exit == nil || a.exit.Summary.Code != b.exit.Summary.Code {
		t.Fatalf("%v: main exits, TERM gives %v; TERM, main exits gives %v", path, a.exit, b.exit)
	}
}

// randomDuration is up to most, often 0 or exactly most.
func randomDuration(r *rand.Rand, most time.Duration) time.Duration {
	switch r.IntN(6) {
	case 0:
		return 0
	case 1:
		return most
	}
	return time.Duration(r.Int64N(int64(most) + 1))
}

// randomConfig has everything that fits and much that does not.
func randomConfig(r *rand.Rand) Config {
	c := defaults()
	c.GracePeriod = 1 + randomDuration(r, []time.Duration{time.Second, 10 * time.Second, 2 * time.Minute}[r.IntN(3)])
	c.DrainDelay = randomDuration(r, 40*time.Second)
	if r.IntN(2) == 0 {
		c.UnreadyDelay = randomDuration(r, 20*time.Second)
	}
	c.SweepTimeout = randomDuration(r, 5*time.Second)
	c.StopSignal = []signals.Signal{0, unix.SIGTERM, unix.SIGQUIT, unix.SIGINT}[r.IntN(4)]
	if r.IntN(2) == 0 {
		c.StopSignal = 0
		c.Schedule = Schedule{{Signal: []signals.Signal{0, unix.SIGQUIT, unix.SIGTERM}[r.IntN(3)], Wait: randomDuration(r, 20*time.Second)}}
		for range r.IntN(4) {
			c.Schedule = append(c.Schedule, Rung{Signal: []signals.Signal{unix.SIGTERM, unix.SIGINT}[r.IntN(2)], Wait: randomDuration(r, 20*time.Second)})
		}
		if r.IntN(2) == 0 {
			c.Schedule = append(c.Schedule, Rung{Signal: unix.SIGKILL})
		}
	}
	return c
}

// TestPlanIsWhatHappens is why --plan can be believed: a command that ignores everything gets exactly what
// the plan says, when it says so.
func TestPlanIsWhatHappens(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	configs := []Config{defaults()}
	for range 3000 {
		configs = append(configs, randomConfig(r))
	}
	for i, c := range configs {
		p := NewPlan(c)
		auto := unix.SIGQUIT
		type entry struct {
			at time.Duration
			do string
		}
		var want, got []entry
		stop := p.stopSignal()
		if stop == 0 {
			stop = auto
		}
		timeline := p.Timeline()
		for i, at := range timeline {
			if i > 0 {
				require.GreaterOrEqual(t, at, timeline[i-1], "%+v: the timeline goes back", c)
			}
			require.LessOrEqual(t, at, c.GracePeriod, "%+v", c)
			switch s := p.Steps[i]; s.Do {
			case DoFailReadiness:
				want = append(want, entry{at, "fail readiness"})
			case DoSendStop:
				want = append(want, entry{at, "send " + short(stop)})
			case DoSendSignal:
				if !s.OnlyIfNew || s.Signal != stop {
					want = append(want, entry{at, "send " + short(s.Signal)})
				}
			case DoKillTree:
				want = append(want, entry{at, "kill tree"})
			case DoGiveUp:
				want = append(want, entry{at, "exit"})
			}
		}

		m := NewMachine(c, p)
		start := clockAt(time.Hour)
		m, _ = m.Next(epoch, Started{PID: mainPID})
		now := start
		var next func(Event)
		next = func(ev Event) {
			var actions []Action
			m, actions = m.Next(now, ev)
			for _, a := range actions {
				switch a := a.(type) {
				case Log:
				case CheckHandler:
					signal := a.Signal
					if signal == 0 {
						signal = auto
					}
					next(HandlerState{Signal: signal, Handled: true})
				case Exit:
					require.Equal(t, CodeKilled, a.Summary.Code)
					got = append(got, entry{now.Sub(start), "exit"})
				default:
					got = append(got, entry{now.Sub(start), describeAction(a)})
				}
			}
		}
		next(Signalled{Signal: unix.SIGTERM})
		for m.Phase() != Done {
			due, armed := m.Deadline()
			require.True(t, armed)
			require.False(t, due.Before(now), "%+v: a deadline in the past", c)
			now = due
			next(TimerFired{})
		}
		require.Equal(t, want, got, "config %d: %+v", i, c)
	}
}

// TestOneMoreStopSignalIsNeverLater compares runs that differ in one stop signal alone.
func TestOneMoreStopSignalIsNeverLater(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	type timed struct {
		at time.Duration
		ev Event
	}
	run := func(c Config, events []timed) (world, error) {
		w := newWorld(c)
		if err := w.step(Started{PID: mainPID}); err != nil {
			return w, err
		}
		for _, e := range events {
			if err := w.advance(e.at); err != nil {
				return w, err
			}
			if err := w.step(e.ev); err != nil {
				return w, err
			}
		}
		return w, w.end()
	}
	sooner := 0
	for range 4000 {
		c := randomConfig(r)
		c.GracePeriod = min(c.GracePeriod, 20*time.Second)
		within := func() time.Duration { return randomDuration(r, c.GracePeriod+2*time.Second) }
		events := []timed{{0, Signalled{Signal: unix.SIGTERM}}}
		for range r.IntN(3) {
			events = append(events, timed{within(), Signalled{Signal: unix.SIGTERM}})
		}
		if r.IntN(3) > 0 {
			exit := within()
			events = append(events, timed{exit, Exited{PID: mainPID, Status: exitedWith(0)}}, timed{exit, Reaped{Left: r.IntN(3) > 0}})
			if r.IntN(2) == 0 {
				events = append(events, timed{exit + randomDuration(r, 3*time.Second), Reaped{}})
			}
		}
		if r.IntN(2) == 0 {
			events = append(events, timed{within(), HandlerState{Signal: unix.SIGQUIT, Handled: true}})
		}
		byTime := func(a, b timed) int { return int(a.at - b.at) }
		slices.SortStableFunc(events, byTime)
		more := append(slices.Clone(events), timed{within(), Signalled{Signal: unix.SIGTERM}})
		slices.SortStableFunc(more, byTime)

		without, err := run(c, events)
		require.NoError(t, err, "%+v\n%+v", c, events)
		with, err := run(c, more)
		require.NoError(t, err, "%+v\n%+v", c, more)
		require.LessOrEqual(t, with.exitAt, without.exitAt, "%+v\n%+v\n%+v", c, events, more)
		if with.exitAt < without.exitAt {
			sooner++
		}
	}
	require.Greater(t, sooner, 20, "the scenarios show no difference at all")
}
