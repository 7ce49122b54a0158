package supervisor

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drainit/drainit/signals"
)

// Rung is one signal of a stop schedule and how long the main process gets to act on it.
type Rung struct {
	Signal signals.Signal // 0: the stop signal, whatever it is
	Wait   time.Duration
}

// Schedule is the ladder of signals after the drain. The first rung is the stop signal.
type Schedule []Rung

const scheduleForm = "signals and times in turn, as in QUIT/20/TERM/3/KILL (a time is seconds or a duration; auto is the stop signal; a lone time T means auto/T/KILL)"

// ParseSchedule reads the form of start-stop-daemon's --retry: signals and times separated by slashes. A
// signal is a name with or without SIG and with or without a leading dash, or a number with one (-15); a time is
// seconds or a duration. A lone time T means auto/T/KILL, and a time at the end is followed by KILL.
func ParseSchedule(s string) (Schedule, error) {
	bad := func(why string) (Schedule, error) {
		return nil, fmt.Errorf("%s; accepted: %s", why, scheduleForm)
	}
	items := strings.Split(s, "/")
	if d, err := ParseDuration(s); err == nil {
		return Schedule{{Wait: d}, {Signal: unix.SIGKILL}}, nil
	}
	var out Schedule
	for _, item := range items {
		if item == "forever" {
			return bad("\"forever\" has no place in a stop that must end inside the grace period")
		}
		if d, err := ParseDuration(item); err == nil {
			if len(out) == 0 {
				return bad(fmt.Sprintf("%q begins with a time", s))
			}
			last := &out[len(out)-1]
			if last.Wait > maxDuration-d {
				return bad(fmt.Sprintf("%q is too long", s))
			}
			last.Wait += d
			continue
		}
		if strings.EqualFold(item, "auto") {
			out = append(out, Rung{})
			continue
		}
		sig, err := signals.Parse(strings.TrimPrefix(item, "-"))
		if err != nil {
			return bad(fmt.Sprintf("%q is neither a time nor a signal: %v", item, err))
		}
		out = append(out, Rung{Signal: sig})
	}
	if last := out[len(out)-1]; last.Wait > 0 && last.Signal != unix.SIGKILL {
		out = append(out, Rung{Signal: unix.SIGKILL})
	}
	for i, r := range out {
		if r.Signal == unix.SIGSTOP {
			return bad("SIGSTOP stops nothing for good")
		}
		if i > 0 && r.Signal == 0 {
			return bad("auto can only be the first signal")
		}
		if r.Signal == unix.SIGKILL && i < len(out)-1 {
			return bad(fmt.Sprintf("%q goes on after KILL", s))
		}
	}
	return out, nil
}

// String gives the schedule in the form ParseSchedule reads.
func (s Schedule) String() string {
	var b strings.Builder
	for i, r := range s {
		if i > 0 {
			b.WriteByte('/')
		}
		if r.Signal == 0 {
			b.WriteString("auto")
		} else {
			b.WriteString(strings.TrimPrefix(signals.Name(r.Signal), "SIG"))
		}
		if r.Wait > 0 {
			b.WriteByte('/')
			b.WriteString(r.Wait.String())
		}
	}
	return b.String()
}

// maxDuration bounds every duration a user can give, so that sums of a few cannot overflow.
const maxDuration = 365 * 24 * time.Hour

// ParseDuration reads a Go duration ("1m30s", "500ms") or plain seconds ("5", "0.5"), from 0 to a year.
func ParseDuration(s string) (time.Duration, error) {
	const accepted = "accepted: 5s, 500ms, 1m30s, or plain seconds, from 0 to 8760h"
	if len(s) > 0 && s[0] != '+' && s[0] != '-' {
		d, err := time.ParseDuration(s)
		if err != nil && strings.Trim(s, "0123456789.") == "" {
			var seconds float64
			if seconds, err = strconv.ParseFloat(s, 64); err == nil {
				d = time.Duration(min(seconds, maxDuration.Seconds()+1) * float64(time.Second))
			}
		}
		if err == nil && d <= maxDuration {
			return d, nil
		}
	}
	return 0, errors.New("not a duration; " + accepted)
}
