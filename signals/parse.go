package signals

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/drainit/drainit/nearest"
)

// Signal is the standard library's type, so that it goes into os/signal and
// unix.Kill as it is. Print it with Name: its String method gives English prose.
type Signal = syscall.Signal

// The real-time signals as glibc, and so nearly everybody, counts them. The kernel
// starts at 32, but the C library keeps 32 and 33; musl says 35 for SIGRTMIN. One
// fixed base is what makes RTMIN+3 mean the same in every image.
const (
	rtmin Signal = 34
	rtmax Signal = 64
)

const accepted = "a name with or without SIG, a number 1..64, RTMIN+n or RTMAX-n"

// aliases are second names; x/sys knows one name for each number.
var aliases = map[string]string{"CLD": "CHLD", "IOT": "ABRT", "POLL": "IO", "UNUSED": "SYS"}

// Parse reads a signal: a name in any case with or without SIG (TERM, sigterm), a
// decimal number 1..64, or a real-time signal as RTMIN, RTMIN+n, RTMAX or RTMAX-n,
// n being 0..30. The numbers 32 and 33 are refused, and so is space around it. An
// error quotes s, says what is accepted and, where s looks like a slip, what was
// probably meant.
func Parse(s string) (Signal, error) {
	if digits(s) {
		n, err := strconv.Atoi(s)
		if n == 32 || n == 33 {
			return 0, fmt.Errorf("cannot use signal %q: %s", s, whyThreads)
		}
		if err != nil || n < 1 || n > int(rtmax) {
			return 0, unknown(s, "")
		}
		return Signal(n), nil
	}
	name := strings.TrimPrefix(strings.ToUpper(s), "SIG")
	if target, ok := aliases[name]; ok {
		name = target
	}
	if sig := unix.SignalNum("SIG" + name); sig != 0 {
		return sig, nil
	}
	switch {
	case name == "RTMIN":
		return rtmin, nil
	case name == "RTMAX":
		return rtmax, nil
	case strings.HasPrefix(name, "RTMIN+"), strings.HasPrefix(name, "RTMAX-"):
		n, err := strconv.Atoi(name[len("RTMIN+"):])
		if !digits(name[len("RTMIN+"):]) || err != nil || n > int(rtmax-rtmin) {
			return 0, fmt.Errorf("unknown signal %q: n is 0..%d in RTMIN+n and RTMAX-n", s, int(rtmax-rtmin))
		}
		if name[len("RTMIN")] == '+' {
			return rtmin + Signal(n), nil
		}
		return rtmax - Signal(n), nil
	}
	return 0, unknown(s, name)
}

// unknown is the error for s; name is s as it was looked up, for the suggestions.
func unknown(s, name string) error {
	candidates := []string{"RTMIN", "RTMAX"}
	for sig := Signal(1); sig < 32; sig++ {
		candidates = append(candidates, strings.TrimPrefix(unix.SignalName(sig), "SIG"))
	}
	near := nearest.Words(name, candidates)
	if len(near) == 0 {
		return fmt.Errorf("unknown signal %q: want %s", s, accepted)
	}
	return fmt.Errorf("unknown signal %q: did you mean SIG%s? (%s)", s, strings.Join(near, " or SIG"), accepted)
}

// digits says whether s is a plain decimal number: Atoi alone takes a sign as well.
func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// Name gives the name people write: SIGTERM, SIGRTMIN+3. Real-time signals are
// counted from the nearer end, as bash does. What has no name is "signal 32".
func Name(sig Signal) string {
	switch {
	case sig == rtmin:
		return "SIGRTMIN"
	case sig == rtmax:
		return "SIGRTMAX"
	case sig > rtmin && sig < 50:
		return fmt.Sprintf("SIGRTMIN+%d", int(sig-rtmin))
	case sig >= 50 && sig < rtmax:
		return fmt.Sprintf("SIGRTMAX-%d", int(rtmax-sig))
	}
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(sig))
}
