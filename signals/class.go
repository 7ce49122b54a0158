package signals

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Class is what drainit does with a signal it receives, by the signal's nature.
// Which signals mean "stop" is configuration: any of class Forward can.
type Class string

// The classes.
const (
	Forward     Class = "forward"     // passed on to the command, or taken as a request to stop
	Reap        Class = "reap"        // SIGCHLD: drainit's own children
	Swallow     Class = "swallow"     // about drainit itself, so of no use to the command
	Fault       Class = "fault"       // drainit is broken: the Go runtime ends it
	Uncatchable Class = "uncatchable" // the kernel lets no process catch it
	Reserved    Class = "reserved"    // the C library or the Go runtime keeps it
)

const whyThreads = "the C library and the Go runtime keep 32 and 33 for their threads"

// classify gives the class of sig and, unless it is Forward, why it is not passed on.
// It goes by name because the numbers differ between architectures (MIPS).
func classify(sig Signal) (class Class, why string) {
	switch unix.SignalName(sig) {
	case "SIGCHLD":
		return Reap, "it tells drainit about its own children"
	case "SIGURG":
		// The runtime's handler cannot tell its preemption signal from one that somebody
		// sent and reports both: passing it on would be a storm.
		return Swallow, "the Go runtime sends it to itself all the time (golang/go#37942)"
	case "SIGPIPE":
		return Swallow, "it is about drainit's own output"
	case "SIGXCPU", "SIGXFSZ":
		// The kernel sends them for the limits of the process that gets them (setrlimit(2)), here drainit's.
		return Swallow, "it is about drainit's own use of CPU or files"
	case "SIGPROF":
		// runtime.sighandler returns on it before it looks at subscriptions.
		return Swallow, "the Go runtime keeps it for its profiler, so it cannot be received"
	case "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGSEGV", "SIGSYS", "SIGSTKFLT", "SIGEMT":
		return Fault, "it would mean that drainit itself is broken, and is left to the Go runtime"
	case "SIGKILL", "SIGSTOP":
		return Uncatchable, "the kernel lets no process catch it"
	}
	switch {
	case sig < 1 || sig > rtmax:
		return "", "there is no such signal"
	case sig == 32 || sig == 33:
		return Reserved, whyThreads
	case sig == rtmin: // golang/go#39343, runtime/sigtab_linux_generic.go
		return Reserved, "the Go runtime leaves 34 to musl, so it can be sent but not received"
	}
	return Forward, ""
}

// Classify gives the class of sig, "" outside 1..64.
func Classify(sig Signal) Class {
	class, _ := classify(sig)
	return class
}

// Catchable says whether drainit can receive sig and act on it: whether its class
// is Forward.
func Catchable(sig Signal) bool {
	return Classify(sig) == Forward
}

// List is the table --list-signals prints: for each of the 64 signals a line with
// its number, its name and what drainit does with it, where stop are the signals
// that mean "stop".
func List(stop []Signal) string {
	var b strings.Builder
	for sig := Signal(1); sig <= rtmax; sig++ {
		class, why := classify(sig)
		does := "not passed on: " + why
		switch {
		case class == Reap:
			does = "reaped: " + why
		case class == Forward && slices.Contains(stop, sig):
			does = "stop"
		case class == Forward:
			does = "passed on"
		}
		fmt.Fprintf(&b, "%2d  %-11s  %s\n", int(sig), Name(sig), does)
	}
	return b.String()
}
