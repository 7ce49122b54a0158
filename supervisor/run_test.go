package supervisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/drainit/drainit/logs"
	"github.com/drainit/drainit/signals"
)

// fakeSystem is a system in which nothing is real but the order and the time of what is asked of it. It and all its
// channels belong to one bubble; only the loop's goroutine calls it, and react runs there, too.
type fakeSystem struct {
	signals chan signals.Signal
	child   chan os.Signal

	startErr error
	sendErr  error
	dead     []Exited // what reap has not collected yet
	left     bool     // there are other children
	batches  int
	react    func(did string) // called for each thing done; may add to dead

	begin time.Time
	did   []string
}

func newFakeSystem() *fakeSystem {
	return &fakeSystem{signals: make(chan signals.Signal), child: make(chan os.Signal, 1), begin: time.Now(), left: true}
}

func (f *fakeSystem) Signals() <-chan signals.Signal { return f.signals }
func (f *fakeSystem) Child() <-chan os.Signal        { return f.child }
func (f *fakeSystem) Open()                          { f.note("open") }
func (f *fakeSystem) Fail()                          { f.note("fail") }

func (f *fakeSystem) note(what string) {
	f.did = append(f.did, fmt.Sprintf("%v %s", time.Since(f.begin), what))
	if f.react != nil {
		f.react(what)
	}
}

// dies ends a process, as the loop sees it.
func (f *fakeSystem) dies(pid int, status Status) {
	f.dead = append(f.dead, Exited{PID: pid, Status: status})
	if pid == mainPID {
		f.left = false
	}
	select {
	case f.child <- unix.SIGCHLD:
	default:
	}
}

func (f *fakeSystem) start() (int, int, error) {
	f.note("start")
	return mainPID, CodeNotFound, f.startErr
}

func (f *fakeSystem) reap(into []Exited) (n int, more, left bool) {
	f.batches++
	n = copy(into, f.dead)
	f.dead = f.dead[n:]
	if n == len(into) {
		return n, true, true
	}
	return n, false, f.left
}

func (f *fakeSystem) send(s signals.Signal) error {
	f.note("send " + short(s))
	return f.sendErr
}

func (f *fakeSystem) killTree() error {
	f.note("kill tree")
	return f.sendErr
}

func (f *fakeSystem) signalLeftovers(s signals.Signal) error {
	f.note("leftovers " + short(s))
	return f.sendErr
}

func (f *fakeSystem) handlerState(s signals.Signal) HandlerState {
	if s == 0 {
		s = unix.SIGQUIT
	}
	return HandlerState{Signal: s, Program: "nginx", Handled: true}
}

func (f *fakeSystem) stopsMain(s signals.Signal) bool { return s == unix.SIGWINCH }

// testLog gives a logger, made outside of any bubble, and what it has logged. Its writer writes into a pipe, which a
// bubble must not wait for.
func testLog(t *testing.T) (*logs.Logger, func() []string) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	fd, err := unix.FcntlInt(w.Fd(), unix.F_DUPFD_CLOEXEC, 3) // a logger keeps its descriptor for ever
	require.NoError(t, err)
	require.NoError(t, w.Close())
	t.Cleanup(func() { _ = r.Close() })
	log := logs.New(fd, logs.Text)
	return log, func() []string {
		log.Log(logs.Line{Message: "end of test"})
		var lines []string
		for scanner := bufio.NewScanner(r); scanner.Scan() && scanner.Text() != "drainit: end of test"; {
			lines = append(lines, scanner.Text())
		}
		return lines
	}
}

func newLoop(f *fakeSystem, log *logs.Logger, c Config) *loop {
	return &loop{sys: f, source: f, readiness: f, log: log, heartbeat: NewHeartbeat(), m: NewMachine(c, NewPlan(c))}
}

func TestRunOfAWholePlan(t *testing.T) {
	log, logged := testLog(t)
	var did []string
	var summary Summary
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSystem()
		source := f.signals
		go func() {
			time.Sleep(time.Second)
			source <- unix.SIGTERM
		}()
		summary = newLoop(f, log, defaults()).run()
		did = f.did
	})
	assert.Equal(t, []string{"0s start", "0s open", "1s fail", "6s send QUIT", "28s send TERM", "30s kill tree"}, did)
	assert.Equal(t, CodeKilled, summary.Code)
	assert.Equal(t, []PhaseTime{{Draining, 5 * time.Second}, {Stopping, 24 * time.Second}, {Killing, 500 * time.Millisecond}}, summary.Phases)
	assert.Equal(t, []string{
		"drainit: t=+0.000s draining: SIGTERM asks for a stop: readiness fails at once, stop signal after 5s, at most 30s in all",
		"drainit: t=+5.000s stopping: SIGQUIT to nginx (pid 7)",
		"drainit: t=+27.000s stopping: nginx is still there: sending SIGTERM",
		"drainit: t=+29.000s killing: nginx is still there: killing it and everything that came from it",
		"drainit: t=+29.500s killing: pid 7 is still there after SIGKILL: giving up",
	}, logged())
}

func TestRunEndsWithTheCommand(t *testing.T) {
	log, _ := testLog(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSystem()
		f.react = func(what string) {
			if what == "send QUIT" {
				f.dies(mainPID, exitedWith(0))
			}
		}
		source := f.signals
		go func() {
			time.Sleep(time.Second)
			source <- unix.SIGWINCH // stopsMain says that it means stop
		}()
		summary := newLoop(f, log, defaults()).run()
		assert.Equal(t, []string{"0s start", "0s open", "1s fail", "6s send QUIT"}, f.did)
		assert.Equal(t, 0, summary.Code)
		assert.EqualValues(t, unix.SIGWINCH, summary.Asked)
	})
}

func TestRunStopBeforeStart(t *testing.T) {
	log, _ := testLog(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSystem()
		f.signals = make(chan signals.Signal, 3)
		f.signals <- unix.SIGHUP
		f.signals <- unix.SIGTERM
		summary := newLoop(f, log, defaults()).run()
		assert.Empty(t, f.did, "nothing was started")
		assert.Equal(t, 128+15, summary.Code)
	})
}

func TestRunSignalBeforeStartIsRemembered(t *testing.T) {
	log, _ := testLog(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSystem()
		f.signals = make(chan signals.Signal, 1)
		f.signals <- unix.SIGHUP
		f.react = func(what string) {
			if what == "send HUP" {
				f.dies(mainPID, exitedWith(1))
			}
		}
		summary := newLoop(f, log, defaults()).run()
		assert.Equal(t, []string{"0s start", "0s open", "0s send HUP", "0s fail"}, f.did)
		assert.Equal(t, 1, summary.Code)
	})
}

func TestRunCannotStart(t *testing.T) {
	log, _ := testLog(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSystem()
		f.startErr = errors.New("not found")
		summary := newLoop(f, log, defaults()).run()
		assert.Equal(t, Summary{Code: CodeNotFound, Cause: "not found", Phases: []PhaseTime{}}, summary)
		assert.Equal(t, []string{"0s start"}, f.did)
	})
}

// TestRunExitBeforeFirstSIGCHLD: the command ended before anybody listened, and no SIGCHLD ever comes.
func TestRunExitBeforeFirstSIGCHLD(t *testing.T) {
	log, _ := testLog(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSystem()
		f.dead, f.left = []Exited{{PID: mainPID, Status: exitedWith(42)}}, false
		summary := newLoop(f, log, defaults()).run()
		assert.Equal(t, 42, summary.Code)
	})
}

// TestRunLooksAtSignalsBetweenBatches: a flood of orphans holds up neither the stop nor a question for the heartbeat.
func TestRunLooksAtSignalsBetweenBatches(t *testing.T) {
	log, _ := testLog(t)
	synctest.Test(t, func(t *testing.T) {
		const batches = 100
		f := newFakeSystem()
		f.signals = make(chan signals.Signal, 1)
		failedAfter := 0
		f.react = func(what string) {
			switch what {
			case "open":
				for i := range batches * reapBatch {
					f.dead = append(f.dead, Exited{PID: 1000 + i})
				}
				f.signals = nil
			case "fail":
				failedAfter = f.batches
			case "send QUIT":
				f.dies(mainPID, exitedWith(0))
			}
		}
		term := make(chan signals.Signal, 1)
		term <- unix.SIGTERM
		l := newLoop(f, log, defaults())
		l.source = lateSource{f, term}
		summary := l.run()
		assert.Equal(t, 0, summary.Code)
		assert.Equal(t, batches*reapBatch, summary.Orphans)
		assert.Equal(t, 1, failedAfter, "the stop signal waited for all orphans")
	})
}

// lateSource has its signals from when the command runs.
type lateSource struct {
	*fakeSystem
	later chan signals.Signal
}

func (s lateSource) Signals() <-chan signals.Signal {
	if len(s.did) == 0 {
		return s.signals
	}
	return s.later
}

// TestRunFloodWithoutEnd: a fork bomb is left behind, each batch is full, and the run ends all the same.
func TestRunFloodWithoutEnd(t *testing.T) {
	log, _ := testLog(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSystem()
		f.dies(mainPID, exitedWith(0))
		summary := newLoop(f, log, defaults())
		summary.sys = flood{f}
		got := summary.run()
		assert.Equal(t, 0, got.Code)
		assert.True(t, got.Forced)
		assert.Equal(t, []string{"start", "open", "fail", "leftovers KILL"}, words(f.did))
		assert.WithinDuration(t, f.begin.Add(2*time.Second), time.Now(), 100*time.Millisecond)
	})
}

// flood has as many dead orphans as anybody wants.
type flood struct{ *fakeSystem }

func (f flood) reap(into []Exited) (n int, more, left bool) {
	time.Sleep(time.Millisecond)
	n = copy(into, f.dead)
	f.dead = nil
	for ; n < len(into); n++ {
		into[n] = Exited{PID: 5000 + n}
	}
	return n, true, true
}

func words(did []string) []string {
	var out []string
	for _, d := range did {
		_, what, _ := strings.Cut(d, " ")
		out = append(out, what)
	}
	return out
}

func TestRunGoesOnWhenKillFails(t *testing.T) {
	log, logged := testLog(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSystem()
		f.sendErr = errors.New("operation not permitted")
		source := f.signals
		go func() {
			time.Sleep(time.Second)
			source <- unix.SIGTERM
		}()
		summary := newLoop(f, log, defaults()).run()
		assert.Equal(t, []string{"0s start", "0s open", "1s fail", "6s send QUIT", "28s send TERM", "30s kill tree"}, f.did)
		assert.Equal(t, CodeKilled, summary.Code)
	})
	lines := logged()
	for _, want := range []string{
		"drainit: t=+5.000s stopping: cannot send SIGQUIT to the command: operation not permitted",
		"drainit: t=+29.000s killing: cannot kill the command: operation not permitted",
	} {
		assert.True(t, slices.Contains(lines, want), "%q is not in\n%s", want, strings.Join(lines, "\n"))
	}
}

func TestHeartbeat(t *testing.T) {
	log, _ := testLog(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSystem()
		l := newLoop(f, log, defaults())
		alive := func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return l.heartbeat.Alive(ctx)
		}
		assert.False(t, alive(), "not running yet")
		ended := make(chan Summary)
		go func() { ended <- l.run() }()
		for range 3 { // running, draining, stopping
			assert.True(t, alive())
			f.signals <- unix.SIGTERM
		}
		assert.True(t, alive())
		f.dies(mainPID, exitedWith(0))
		<-ended
		assert.False(t, alive(), "over")
	})
}

// TestRunSurvivesAPanic: after a panic signals still reach the command, and its end is the end.
func TestRunSurvivesAPanic(t *testing.T) {
	log, logged := testLog(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSystem()
		f.react = func(what string) {
			switch what {
			case "send USR1":
				panic("a bug")
			case "send QUIT":
				f.dies(mainPID, exitedWith(3))
			}
		}
		source := f.signals
		go func() {
			for _, s := range []signals.Signal{unix.SIGUSR1, unix.SIGHUP, unix.SIGTERM} {
				time.Sleep(time.Second)
				source <- s
			}
		}()
		summary := newLoop(f, log, defaults()).run()
		assert.Equal(t, []string{"0s start", "0s open", "1s send USR1", "1s fail", "2s send HUP", "3s send QUIT"}, f.did)
		assert.Equal(t, 3, summary.Code)
	})
	assert.Equal(t, []string{"drainit: internal error: a bug; from here on signals are only passed on, and processes reaped"}, logged())
}

// TestRunPanicOverTheEnd: the end of the command is not lost with the panic that it causes.
func TestRunPanicOverTheEnd(t *testing.T) {
	log, _ := testLog(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSystem()
		f.react = func(what string) {
			switch {
			case what == "send HUP":
				f.dies(mainPID, exitedWith(4))
			case what == "fail" && len(f.did) == 4: // what the end of the command leads to
				panic("a bug")
			}
		}
		source := f.signals
		go func() { source <- unix.SIGHUP }()
		assert.Equal(t, 4, newLoop(f, log, defaults()).run().Code)
	})
}
