// drainit has no use for CPU limits, so the runtime need not keep the cgroup's files open and read them again and again
// (runtime/cgroup_linux.go).
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command drainit is the init process that makes a container stop without losing a request. README.md says how to use
// it; the packages say how it works, first of all supervisor.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/drainit/drainit/health"
	"github.com/drainit/drainit/logs"
	"github.com/drainit/drainit/signals"
	"github.com/drainit/drainit/signals/early"
	"github.com/drainit/drainit/supervisor"
)

// flushTime is how long the end waits for a reader of stderr that is stuck, and for a file system that hangs.
const flushTime = 200 * time.Millisecond

// The main goroutine stays on the main thread: only there has a SIGSTOP that drainit sends itself been acted on when
// kill(2) returns (complete_signal in the kernel prefers the main thread), which job control depends on.
func init() { runtime.LockOSThread() }

func main() {
	// First of all: until they are subscribed to, signals end a Go program or are lost.
	// Each subscription waits for another goroutine, which a locked thread makes several times slower: not on this one.
	listening := make(chan *signals.Source)
	go func() { listening <- signals.Listen(early.Slots) }()
	source := <-listening
	runtime.GOMAXPROCS(2)
	os.Exit(run(source, os.Args, os.Environ()))
}

func run(source *signals.Source, args, environ []string) int {
	o, err := parseOptions(args[1:], environ)
	if err != nil {
		return refuse(logs.New(2, logs.Text), err)
	}
	if o.mode == modeRun {
		return supervise(source, o)
	}
	source.Close() // the other modes end on Ctrl-C like any program
	switch o.mode {
	case modeHelp:
		fmt.Print(helpText())
	case modeVersion:
		fmt.Println("drainit " + version())
	case modeListSignals:
		fmt.Print(signals.List(append(o.config.StopOn, o.config.StopSignal)))
	case modeProbe:
		return probe(o.probe)
	case modePlan:
		return printPlan(o)
	}
	return 0
}

// supervise is what drainit is for.
func supervise(source *signals.Source, o options) int {
	log := logs.New(2, o.logFormat)
	termination, err := openTerminationLog(o.terminationLog)
	if err != nil {
		return refuse(log, err)
	}
	gate, heartbeat := new(health.Gate), supervisor.NewHeartbeat()
	if o.healthListen != listenOff {
		server, err := health.Listen(o.healthListen, gate, heartbeat.Alive)
		if err != nil {
			return refuse(log, fmt.Errorf("%w, see --health-listen", err))
		}
		defer server.Close() // the last thing before the exit: a refused probe looks like a crash
	}
	for _, s := range source.Ignored() {
		if o.config.Verbose && slices.Contains(o.config.StopOn, s) { // a shell script starts everything with & like that
			log.Log(logs.Line{Level: logs.Debug, Message: signals.Name(s) + " asks for no stop: it was ignored when drainit was started (nohup?), and is left so"})
		}
	}
	summary, err := supervisor.Run(o.config, supervisor.NewPlan(o.config), source, readiness{gate}, heartbeat, log)
	if err != nil {
		return refuse(log, err)
	}
	report(log, termination, summary)
	return summary.Code
}

// refuse says why nothing is started. Through the log, which does not wait for ever for a reader that is stuck.
func refuse(log *logs.Logger, err error) int {
	log.Log(logs.Line{Level: logs.Warn, Message: err.Error()})
	log.Flush(flushTime)
	return supervisor.CodeUsage
}

// report writes the one line that says what happened.
func report(log *logs.Logger, termination *terminationLog, summary supervisor.Summary) {
	if lost := log.Lost(); lost > 0 {
		summary.Cause += fmt.Sprintf(" (%d log lines lost so far: stderr did not take them)", lost)
	}
	if !summary.Quiet() {
		log.Log(logs.Line{Level: logs.Info, Phase: string(supervisor.Done), Message: summary.String(), Fields: summary})
	}
	// Both may be stuck, and the grace period is not to be outlived.
	patience := func() time.Duration {
		if summary.Deadline.IsZero() {
			return flushTime
		}
		return min(flushTime, max(time.Millisecond, time.Until(summary.Deadline)/2))
	}
	if err := termination.write(summary.String(), patience()); err != nil {
		log.Log(logs.Line{Level: logs.Warn, Message: err.Error()})
	}
	log.Flush(patience())
}

// readiness joins the machine's two words about readiness to the endpoint's gate.
type readiness struct{ gate *health.Gate }

func (r readiness) Open() { r.gate.Set(health.Ready) }
func (r readiness) Fail() { r.gate.Set(health.Draining) }

func probe(addr string) int {
	ctx, cancel := context.WithTimeout(context.Background(), health.ProbeTimeout)
	defer cancel()
	if err := health.Probe(ctx, addr); err != nil {
		fmt.Fprintf(os.Stderr, "drainit: %v\n", err)
		return 1
	}
	return 0
}

func printPlan(o options) int {
	plan := supervisor.NewPlan(o.config)
	if o.planFormat == "json" {
		b, err := plan.JSON()
		if err != nil {
			fmt.Fprintf(os.Stderr, "drainit: %v\n", err)
			return 1
		}
		_, _ = os.Stdout.Write(b)
	} else {
		fmt.Print(plan.Text())
	}
	if !plan.Fits() {
		return 1
	}
	return 0
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	text := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && (text == "" || text == "(devel)") {
			text = "(devel) " + s.Value
		}
	}
	return text
}
