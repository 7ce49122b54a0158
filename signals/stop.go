package signals

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Entry says that Signal asks the program called Name to stop gracefully. Name is
// matched on /proc/PID/comm; a * at its end stands for any rest.
type Entry struct {
	Name   string
	Signal Signal
}

// Table is a stop-signal table. Of the entries that match a program the last wins.
type Table []Entry

// DefaultTable has the programs for which SIGTERM is not the graceful way to stop.
// SIGQUIT is the fast way, or worse, for others (gunicorn, uwsgi, celery, postgres):
// never guess, a program belongs in here only with a source that says so.
var DefaultTable = Table{
	{"nginx", unix.SIGQUIT},     // nginx src/os/unix/ngx_process_cycle.c; openresty and angie run as nginx
	{"php-fpm*", unix.SIGQUIT},  // php-src sapi/fpm/fpm/fpm_events.c; Debian calls it php-fpm8.2
	{"httpd", unix.SIGWINCH},    // httpd: "caught SIGWINCH, shutting down gracefully"; STOPSIGNAL of docker-library/httpd
	{"apache2", unix.SIGWINCH},  // the same program's name in Debian
	{"haproxy", unix.SIGUSR1},   // haproxy doc/management.txt section 4, soft stop
	{"postgres", unix.SIGINT},   // docker-library/postgres Dockerfile-debian.template: fast shutdown; TERM waits for every session
	{"lighttpd", unix.SIGINT},   // lighttpd doc/initscripts.txt
	{"unicorn", unix.SIGQUIT},   // unicorn SIGNALS
	{"memcached", unix.SIGUSR1}, // memcached.c sig_usrhandler, graceful shutdown
	{"systemd", rtmin + 3},      // systemd docs/CONTAINER_INTERFACE.md
}

// commLen is the longest comm: TASK_COMM_LEN is 16 with the NUL, proc_pid_comm(5).
// Names are cut the same way, else the entry of a longer one would never match.
const commLen = 15

func cut(name string) string {
	return name[:min(len(name), commLen)]
}

// pattern takes a Name apart.
func pattern(name string) (prefix string, wildcard bool) {
	prefix, wildcard = strings.CutSuffix(name, "*")
	return cut(prefix), wildcard
}

// ParseEntry reads "NAME=SIG", the signal as Parse reads it. NAME is the name in
// /proc/PID/comm, of which a trailing * makes a prefix.
func ParseEntry(s string) (Entry, error) {
	eq := strings.LastIndexByte(s, '=') // no signal has one in its name, a program may
	if eq < 0 {
		return Entry{}, fmt.Errorf("cannot read stop signal %q: want NAME=SIG", s)
	}
	name := s[:eq]
	prefix, _ := strings.CutSuffix(name, "*")
	switch {
	case name == "*":
		return Entry{}, fmt.Errorf("cannot read stop signal %q: * alone is every program, for which there is --stop-signal", s)
	case name == "" || strings.TrimSpace(name) != name:
		return Entry{}, fmt.Errorf("cannot read stop signal %q: want NAME=SIG, without spaces around NAME", s)
	case strings.Contains(name, "/"):
		return Entry{}, fmt.Errorf("cannot read stop signal %q: want the program's name as in /proc/PID/comm, not a path", s)
	case strings.Contains(prefix, "*"):
		return Entry{}, fmt.Errorf("cannot read stop signal %q: * is allowed at the end of NAME only", s)
	}
	sig, err := Parse(s[eq+1:])
	if err != nil {
		return Entry{}, fmt.Errorf("cannot read stop signal %q: %w", s, err)
	}
	return Entry{Name: name, Signal: sig}, nil
}

// With returns a table in which rules come after, and so override, what t has; t is
// left as it is. A rule replaces the one of the same name.
func (t Table) With(rules ...Entry) Table {
	out := slices.Clone(t)
	for _, rule := range rules {
		prefix, wildcard := pattern(rule.Name)
		out = slices.DeleteFunc(out, func(e Entry) bool {
			p, w := pattern(e.Name)
			return p == prefix && w == wildcard
		})
		out = append(out, rule)
	}
	return out
}

// For gives the signal that stops the program whose /proc/PID/comm is comm, false
// where the table does not know it.
func (t Table) For(comm string) (Signal, bool) {
	comm = cut(comm)
	for _, e := range slices.Backward(t) {
		prefix, wildcard := pattern(e.Name)
		if comm == prefix || wildcard && strings.HasPrefix(comm, prefix) {
			return e.Signal, true
		}
	}
	return 0, false
}

// StopSignal is For with SIGTERM for a program the table does not know.
func (t Table) StopSignal(comm string) Signal {
	if sig, ok := t.For(comm); ok {
		return sig
	}
	return unix.SIGTERM
}

// Signals gives the signals that occur in t, each once, in ascending order.
func (t Table) Signals() []Signal {
	var sigs []Signal
	for _, e := range t {
		sigs = append(sigs, e.Signal)
	}
	slices.Sort(sigs)
	return slices.Compact(sigs)
}
