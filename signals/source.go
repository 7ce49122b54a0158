package signals

import (
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Source is a subscription to all signals, made by Listen.
type Source struct {
	slots   []chan os.Signal // one for each signal passed on: invariant 1 in doc.go
	child   chan os.Signal
	pipe    chan os.Signal
	out     chan Signal
	quit    chan struct{}
	close   sync.Once
	ignored []Signal
}

// Listen subscribes to every signal of class Forward, to SIGCHLD and to SIGPIPE. It
// is meant to be the first statement of main: before it, SIGTERM ends a Go program
// on the spot. It cannot fail; all it reads is /proc/self/status, and without /proc
// it takes it that no job control signal is ignored.
//
// Left alone are SIGHUP, SIGINT and the job control signals where they were ignored
// at the start (nohup): Notify would end that, and a child then starts with the
// default instead. Go replaces every other inherited SIG_IGN before main runs.
//
// already has the one-slot channels of signals that are subscribed to already, from package early; nil is none.
func Listen(already map[Signal]chan os.Signal) *Source {
	s := &Source{
		child: make(chan os.Signal, 1),
		pipe:  make(chan os.Signal, 1),
		out:   make(chan Signal),
		quit:  make(chan struct{}),
	}
	// Each subscription is a round trip to a thread of the runtime (runtime.sigenable),
	// tens of microseconds, so the order counts. SIGTERM first, it is the one that ends
	// a container; SIGHUP, SIGINT and SIGQUIT, the others that would end drainit here
	// and now, have the lowest numbers.
	s.subscribe(unix.SIGTERM, signal.Ignored(unix.SIGTERM), already)
	jobControl := []Signal{unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU}
	for sig := Signal(1); sig <= rtmax; sig++ {
		if sig != unix.SIGTERM && Catchable(sig) && !slices.Contains(jobControl, sig) {
			s.subscribe(sig, signal.Ignored(sig), already)
		}
	}
	signal.Notify(s.child, unix.SIGCHLD)
	// Nobody reads this one. With a subscription a write to a broken stdout or stderr
	// is just an error; without, os.File raises SIGPIPE and ends the program, with
	// status 2 as PID 1 (runtime.sigpipe). Ignoring it would be inherited by the child.
	signal.Notify(s.pipe, unix.SIGPIPE)
	// The runtime leaves these four as they were and signal.Ignored knows nothing of
	// them (_SigDefault in runtime.initsig), so it takes the kernel's word. Last, so
	// that reading a file does not delay the others.
	mask := sigIgn()
	for _, sig := range jobControl {
		s.subscribe(sig, mask&(1<<(sig-1)) != 0, already)
	}
	slices.Sort(s.ignored)
	go s.pump()
	return s
}

func (s *Source) subscribe(sig Signal, ignored bool, already map[Signal]chan os.Signal) {
	if ignored {
		s.ignored = append(s.ignored, sig)
		return
	}
	slot, subscribed := already[sig]
	if !subscribed {
		slot = make(chan os.Signal, 1)
		signal.Notify(slot, sig)
	}
	s.slots = append(s.slots, slot)
}

// sigIgn reads the mask of ignored signals, bit n-1 for signal n; 0 without /proc.
func sigIgn() uint64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if hex, ok := strings.CutPrefix(line, "SigIgn:"); ok {
			mask, _ := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return mask
		}
	}
	return 0
}

// Signals hands on, one by one, the signals received that are of class Forward. It
// is closed by Close.
func (s *Source) Signals() <-chan Signal { return s.out }

// Child gets SIGCHLD. One receive may stand for any number of children.
func (s *Source) Child() <-chan os.Signal { return s.child }

// Ignored gives the signals that were found, and left, ignored, in ascending order.
func (s *Source) Ignored() []Signal { return s.ignored }

// Close ends the subscription; signals get the runtime's treatment again. It may be
// called more than once.
func (s *Source) Close() {
	s.close.Do(func() {
		for _, c := range slices.Concat(s.slots, []chan os.Signal{s.child, s.pipe}) {
			signal.Stop(c)
		}
		close(s.quit)
		for range s.out { // frees a pump that waits for a reader, until it has ended
		}
	})
}

// pump moves signals from the slots to out. While it waits for the reader, every
// slot still takes its signal: nothing can be lost here that would not be a repeat.
func (s *Source) pump() {
	defer close(s.out)
	var cases []reflect.SelectCase
	for _, slot := range s.slots {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(slot)})
	}
	cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(s.quit)})
	for {
		i, v, _ := reflect.Select(cases)
		if i == len(s.slots) {
			return
		}
		s.out <- v.Interface().(Signal)
		// Select picks at random, which makes a long wait unlikely; a round over all
		// slots makes it impossible (invariant 2).
		for _, slot := range s.slots {
			select {
			case sig := <-slot:
				s.out <- sig.(Signal)
			default:
			}
		}
	}
}
