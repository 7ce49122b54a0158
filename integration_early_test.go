package main

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/drainit/drainit/signals"
)

// earlyOutcome is how drainit took a signal sent soon after its exec.
type earlyOutcome string

const (
	earlyStopped    earlyOutcome = "full graceful stop"
	earlyNotStarted earlyOutcome = "128+n, the command never started"
	// What follows comes from the time before os/signal is subscribed to, which no Go program can avoid.
	earlyRuntime earlyOutcome = "ended by the Go runtime (2, or 128+n from the kernel)"
	earlyDropped earlyOutcome = "dropped by the kernel (PID 1 without a handler)"
)

// TestEarlySignal sends TERM and QUIT at every age of drainit, from its exec on.
func TestEarlySignal(t *testing.T) {
	t.Parallel()
	const (
		steps   = 75
		longest = 40 * time.Millisecond
		// bound is the age after which the runtime's own reactions are a bug; its start takes about 1 ms of CPU.
		bound = 500 * time.Millisecond
	)
	for _, notInit := range []bool{false, true} {
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGQUIT} {
			t.Run(fmt.Sprintf("notInit=%t/%s", notInit, signals.Name(s)), func(t *testing.T) {
				t.Parallel()
				var mu sync.Mutex
				ages := map[earlyOutcome][]time.Duration{}
				one := func(age time.Duration) {
					begin := time.Now()
					p := start(t, world{notInit: notInit, noProbe: true}, append([]string{"-v", "--drain-delay", "0"}, shell(polite)...)...)
					for time.Since(begin) < age { // closer than a sleep
						time.Sleep(50 * time.Microsecond)
					}
					handled, started := hasHandler(p.cmd.Process.Pid, s), p.count("started sh") > 0
					_ = p.cmd.Process.Signal(s) // it may have been ended already only where that is what is looked for
					sent := time.Since(begin)
					outcome := earlyOutcomeOf(t, p, s, !notInit)
					if outcome == earlyRuntime || outcome == earlyDropped {
						require.Less(t, sent, bound, "%s: %s", outcome, p.text())
						require.False(t, outcome == earlyDropped && handled, "lost although there was a handler: %s", p.text())
						// The runtime's end may take so long that the command is started meanwhile, by another thread.
						require.False(t, started, "%s: after the subscription: %s", outcome, p.text())
					}
					mu.Lock()
					defer mu.Unlock()
					ages[outcome] = append(ages[outcome], sent)
				}
				for i := range steps {
					// Squared, so that most are near the exec.
					one(longest * time.Duration(i*i) / (steps * steps))
				}
				total := 0
				for outcome, of := range ages {
					total += len(of)
					t.Logf("%-55s %3d times, signal sent %v to %v after the exec", outcome, len(of), slices.Min(of).Round(10*time.Microsecond), slices.Max(of).Round(10*time.Microsecond))
				}
				require.Equal(t, steps, total)
				require.NotEmpty(t, ages[earlyStopped], "some were late enough for a full stop")
			})
		}
	}
}

// hasHandler says whether a process has a handler for a signal.
func hasHandler(pid int, s syscall.Signal) bool {
	mask, err := strconv.ParseUint(status(pid, "SigCgt"), 16, 64)
	return err == nil && mask&(1<<(s-1)) != 0
}

func earlyOutcomeOf(t *testing.T, p *process, s syscall.Signal, isInit bool) earlyOutcome {
	t.Helper()
	// Where the command came up and no stop is under way, INT ends it and tells whether s has been seen: the summary names
	// what asked first.
	eventually(t, func() bool {
		return !p.running() || p.count("^up$") > 0
	}, "the command is up, or drainit has ended")
	if isInit {
		grace := time.Now().Add(200 * time.Millisecond)
		eventually(t, func() bool { return p.count("asks for a stop") > 0 || !p.running() || time.Now().After(grace) }, "it has had time")
		if p.count("asks for a stop") == 0 && p.running() {
			_ = p.cmd.Process.Signal(syscall.SIGINT)
		}
	}
	code := p.exit()
	text := p.text()
	name := signals.Name(s)
	switch {
	case code == 7 && p.count("stopped as "+name+" asked: sh exited with 7;.*; exit code 7$") == 1:
		return earlyStopped
	case code == 137 && p.count("SIGINT again") == 1 && p.count("stopped as "+name+" asked: ") == 1:
		return earlyStopped // it was acted on just before INT hurried it
	case code == 7 && isInit && p.count("stopped as SIGINT asked: sh exited with 7;.*; exit code 7$") == 1:
		return earlyDropped
	case code == 128+int(s) && p.count("stopped as "+name+" asked: sh was not started: the stop came first; exit code") == 1:
		return earlyNotStarted
	case code == 2 && (isInit || s == syscall.SIGQUIT) && (s != syscall.SIGQUIT && p.count("stopp|goroutine") == 0 || s == syscall.SIGQUIT && p.count("^(SIGQUIT: quit|goroutine )") > 0):
		return earlyRuntime
	case code == 128+int(s) && text == "" && !isInit:
		return earlyRuntime
	}
	t.Fatalf("exit code %d after an early %s:\n%s", code, name, text)
	return ""
}
