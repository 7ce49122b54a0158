package supervisor

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/drainit/drainit/signals"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with a golden file, or writes it with -update.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "%s: run with -update if the change is wanted", file)
}

const mainPID = 7

// defaults is the configuration of drainit nginx without any flag.
func defaults() Config {
	return Config{
		Command:      []string{"/usr/sbin/nginx", "-g", "daemon off;"},
		StopTable:    signals.DefaultTable,
		StopOn:       []signals.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGQUIT},
		DrainDelay:   5 * time.Second,
		GracePeriod:  30 * time.Second,
		SweepTimeout: time.Second,
	}
}

// epoch is when every test's run begins.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func exitedWith(code int) Status            { return Status(code << 8) }
func endedBy(s signals.Signal) Status       { return Status(s) }
func short(s signals.Signal) string         { return strings.TrimPrefix(signals.Name(s), "SIG") }
func sinceEpoch(t time.Time) time.Duration  { return t.Sub(epoch) }
func clockAt(since time.Duration) time.Time { return epoch.Add(since) }
func isPoll(actions []Action) (a Action, ok bool) {
	if len(actions) != 1 {
		return nil, false
	}
	_, ok = actions[0].(CheckHandler)
	return actions[0], ok
}

func describeAction(a Action) string {
	switch a := a.(type) {
	case OpenReadiness:
		return "open readiness"
	case FailReadiness:
		return "fail readiness"
	case Send:
		return "send " + short(a.Signal)
	case CheckHandler:
		if a.Signal == 0 {
			return "check handler auto"
		}
		return "check handler " + short(a.Signal)
	case KillTree:
		return "kill tree"
	case SignalLeftovers:
		return "leftovers " + short(a.Signal)
	case Log:
		return fmt.Sprintf("%s: %s", a.Level, a.Message)
	case Exit:
		return "exit: " + a.Summary.String()
	}
	panic(fmt.Sprintf("unknown action %T", a))
}

// script runs the machine as a file of testdata/machine says. Its lines:
//
//	config KEY=VALUE ...   before all others; the keys are those of scriptConfig
//	handler SIG yes|no|blocked [program=NAME] [suspended]
//	                       how CheckHandler is answered from here on (where it asks for another signal: for that one)
//	at TIME EVENT          timers fire at their time until TIME, then EVENT happens
//	freeze until TIME      no timer fires until TIME, when the one that is due fires late
//
// The actions stand below the line that they come after, with the time. Looks for a handler that bring nothing new are
// left out. After the last line timers fire until nothing is armed.
type script struct {
	t       *testing.T
	config  Config
	m       Machine
	now     time.Duration
	handler HandlerState
	out     strings.Builder
}

func TestMachineScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/machine/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			s := &script{t: t, config: defaults(), handler: HandlerState{Signal: unix.SIGQUIT, Program: "nginx", Handled: true}}
			s.m = NewMachine(s.config, NewPlan(s.config))
			lines := slices.DeleteFunc(strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), func(line string) bool {
				return strings.HasPrefix(line, "  ")
			})
			for i, line := range lines {
				s.out.WriteString(line + "\n")
				s.run(strings.Fields(line))
				if strings.HasPrefix(line, "at ") || strings.HasPrefix(line, "freeze ") {
					s.timersUntil(nextTime(t, lines[i+1:]))
				}
			}
			golden(t, file, s.out.String())
		})
	}
}

// nextTime is until when timers fire by themselves: the time of the next event, or for ever. Not in a freeze.
func nextTime(t *testing.T, lines []string) time.Duration {
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) >= 2 && fields[0] == "at" {
			return scriptTime(t, fields[1])
		}
		if len(fields) == 3 && fields[0] == "freeze" {
			return -1
		}
	}
	return 1 << 62
}

func scriptTime(t *testing.T, s string) time.Duration {
	d, err := time.ParseDuration(s)
	require.NoError(t, err)
	return d
}

func (s *script) run(fields []string) {
	if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
		return
	}
	switch fields[0] {
	case "config":
		for _, field := range fields[1:] {
			s.set(field)
		}
		s.m = NewMachine(s.config, NewPlan(s.config))
	case "handler":
		s.handler = HandlerState{Signal: s.signal(fields[1]), Program: "nginx", Handled: fields[2] == "yes", Blocked: fields[2] == "blocked"}
		for _, field := range fields[3:] {
			if name, ok := strings.CutPrefix(field, "program="); ok {
				s.handler.Program = name
			} else {
				require.Equal(s.t, "suspended", field)
				s.handler.Suspended = true
			}
		}
	case "at":
		s.now = max(s.now, scriptTime(s.t, fields[1]))
		s.next(s.event(fields[2:]))
	case "freeze":
		s.now = scriptTime(s.t, fields[2])
		s.next(TimerFired{})
	default:
		require.Fail(s.t, "unknown line", strings.Join(fields, " "))
	}
}

func (s *script) set(field string) {
	key, value, _ := strings.Cut(field, "=")
	duration := func(d *time.Duration) {
		var err error
		*d, err = ParseDuration(value)
		require.NoError(s.t, err)
	}
	switch key {
	case "command":
		s.config.Command = []string{value}
	case "stop":
		if value != "auto" {
			s.config.StopSignal = s.signal(value)
		}
	case "drain":
		duration(&s.config.DrainDelay)
	case "unready":
		duration(&s.config.UnreadyDelay)
	case "grace":
		duration(&s.config.GracePeriod)
	case "sweep":
		duration(&s.config.SweepTimeout)
	case "schedule":
		var err error
		s.config.Schedule, err = ParseSchedule(value)
		require.NoError(s.t, err)
	case "rewrite":
		from, to, err := signals.ParseRewrite(value)
		require.NoError(s.t, err)
		s.config.Rewrite = signals.Rewrite{from: to}
	case "remap":
		s.config.RemapExit = map[int]bool{s.number(value): true}
	case "warn-on-reap":
		s.config.WarnOnReap = true
	case "verbose":
		s.config.Verbose = true
	default:
		require.Fail(s.t, "unknown setting", field)
	}
}

func (s *script) event(words []string) Event {
	switch words[0] {
	case "started":
		return Started{PID: s.number(words[1])}
	case "failed":
		return StartFailed{Code: s.number(words[1]), Reason: strings.Join(words[2:], " ")}
	case "signal":
		return Signalled{Signal: s.signal(words[1]), StopsMain: len(words) > 2 && words[2] == "stops-main"}
	case "exited":
		require.Len(s.t, words, 4)
		exited := Exited{PID: s.number(words[1])}
		if words[2] == "code" {
			exited.Status = exitedWith(s.number(words[3]))
		} else {
			exited.Status = endedBy(s.signal(words[3]))
		}
		return exited
	case "reaped":
		return Reaped{Left: words[1] == "left"}
	case "timer":
		return TimerFired{}
	}
	require.Fail(s.t, "unknown event", strings.Join(words, " "))
	return nil
}

func (s *script) signal(name string) signals.Signal {
	sig, err := signals.Parse(name)
	require.NoError(s.t, err)
	return sig
}

func (s *script) number(text string) int {
	n, err := strconv.Atoi(text)
	require.NoError(s.t, err)
	return n
}

// next gives the machine an event and answers CheckHandler as the loop does: at once, in the middle of the actions.
func (s *script) next(ev Event) {
	var actions []Action
	s.m, actions = s.m.Next(clockAt(s.now), ev)
	_, fired := ev.(TimerFired)
	poll, quiet := isPoll(actions)
	quiet = quiet && fired && s.m.told
	for _, a := range actions {
		if !quiet {
			fmt.Fprintf(&s.out, "  %v %s\n", s.now, describeAction(a))
		}
		if check, ok := a.(CheckHandler); ok {
			answer := s.handler
			if check.Signal != 0 {
				answer.Signal = check.Signal
			}
			before := s.out.Len()
			s.next(answer)
			if quiet && s.out.Len() > before {
				text := s.out.String()
				s.out.Reset()
				fmt.Fprintf(&s.out, "%s  %v %s\n%s", text[:before], s.now, describeAction(poll), text[before:])
			}
		}
	}
}

func (s *script) timersUntil(end time.Duration) {
	for {
		due, armed := s.m.Deadline()
		if !armed || sinceEpoch(due) >= end {
			return
		}
		s.now = sinceEpoch(due)
		s.next(TimerFired{})
	}
}

func TestTimersOfNothingAskedForDoNothing(t *testing.T) {
	c := defaults()
	m := NewMachine(c, NewPlan(c))
	m, actions := m.Next(epoch, Started{PID: mainPID})
	require.Equal(t, []Action{OpenReadiness{}}, actions)
	_, armed := m.Deadline()
	require.False(t, armed, "an idle drainit has no timer")
	m, actions = m.Next(epoch.Add(1000*time.Hour), TimerFired{})
	require.Empty(t, actions)
	require.Equal(t, Running, m.Phase())
	_, requested := m.StopRequested()
	require.False(t, requested)
}

func TestClockNeverGoesBack(t *testing.T) {
	c := defaults()
	m := NewMachine(c, NewPlan(c))
	m, _ = m.Next(epoch.Add(time.Hour), Started{PID: mainPID})
	m, _ = m.Next(epoch, Signalled{Signal: unix.SIGTERM})
	requested, ok := m.StopRequested()
	require.True(t, ok)
	require.Equal(t, epoch.Add(time.Hour), requested)
	due, _ := m.Deadline()
	require.Equal(t, requested.Add(c.DrainDelay), due)
}

func TestUnknownEventPanics(t *testing.T) {
	c := defaults()
	m := NewMachine(c, NewPlan(c))
	require.PanicsWithValue(t, "unknown event <nil>", func() { m.Next(epoch, nil) })
}
