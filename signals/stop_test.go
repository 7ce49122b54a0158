package signals_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/drainit/drainit/signals"
)

func TestDefaultTable(t *testing.T) {
	for comm, want := range map[string]signals.Signal{
		"nginx":      unix.SIGQUIT,
		"php-fpm":    unix.SIGQUIT,
		"php-fpm8.2": unix.SIGQUIT,
		"httpd":      unix.SIGWINCH,
		"apache2":    unix.SIGWINCH,
		"haproxy":    unix.SIGUSR1,
		"postgres":   unix.SIGINT,
		"lighttpd":   unix.SIGINT,
		"unicorn":    unix.SIGQUIT,
		"memcached":  unix.SIGUSR1,
		"systemd":    37,
	} {
		got, ok := signals.DefaultTable.For(comm)
		assert.True(t, ok, comm)
		assert.Equal(t, want, got, comm)
		assert.Equal(t, want, signals.DefaultTable.StopSignal(comm), comm)
	}
	assert.Len(t, signals.DefaultTable, 10)
	assert.ElementsMatch(t, []signals.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGWINCH, 37}, signals.DefaultTable.Signals())
	// QUIT is not graceful for these, and a name is matched whole.
	for _, comm := range []string{"gunicorn", "uwsgi", "celery", "sh", "nginx-debug", "ngin", "php", "systemd-journal", "", "NGINX"} {
		_, ok := signals.DefaultTable.For(comm)
		assert.False(t, ok, comm)
		assert.Equal(t, unix.SIGTERM, signals.DefaultTable.StopSignal(comm), comm)
	}
}

func TestTableWith(t *testing.T) {
	base := signals.Table{{"a", 1}, {"php-fpm*", 3}}
	for _, tt := range []struct {
		about string
		rules []signals.Entry
		comm  string
		want  signals.Signal
	}{
		{"untouched", nil, "a", 1},
		{"added", []signals.Entry{{"b", 2}}, "b", 2},
		{"replaced", []signals.Entry{{"a", 2}}, "a", 2},
		{"the later of two rules", []signals.Entry{{"a", 2}, {"a", 3}}, "a", 3},
		{"a name after a wildcard", []signals.Entry{{"php-fpm8.2", 15}}, "php-fpm8.2", 15},
		{"which goes on matching the others", []signals.Entry{{"php-fpm8.2", 15}}, "php-fpm7.4", 3},
		{"a wildcard after a name", []signals.Entry{{"b2", 2}, {"b*", 4}}, "b2", 4},
		{"a wildcard set again comes last", []signals.Entry{{"php-fpm8.2", 15}, {"php-fpm*", 2}}, "php-fpm8.2", 2},
		{"a wildcard matches nothing more as well", nil, "php-fpm", 3},
		{"a wildcard and a name are two", []signals.Entry{{"php-fpm", 2}}, "php-fpm8.2", 3},
		{"a long name is cut as the kernel does", []signals.Entry{{"a-very-long-program", 2}}, "a-very-long-pro", 2},
		{"so is what is asked for", []signals.Entry{{"a-very-long-program", 2}}, "a-very-long-program", 2},
		{"a long prefix too", []signals.Entry{{"a-very-long-program*", 2}}, "a-very-long-pro", 2},
		{"names that are the same once cut", []signals.Entry{{"a-very-long-program", 2}, {"a-very-long-prose", 4}}, "a-very-long-pro", 4},
	} {
		got, ok := base.With(tt.rules...).For(tt.comm)
		assert.True(t, ok, tt.about)
		assert.Equal(t, tt.want, got, tt.about)
	}
	assert.Equal(t, signals.Table{{"a", 1}, {"php-fpm*", 3}}, base, "With changes its receiver")
	// What is overridden must not count as a stop signal any more.
	assert.Equal(t, []signals.Signal{2, 3}, base.With(signals.Entry{Name: "a", Signal: 2}).Signals())
	assert.Equal(t, []signals.Signal{1, 3}, base.With(signals.Entry{Name: "b", Signal: 3}).Signals(), "one twice")
	assert.Empty(t, signals.Table(nil).Signals())
}

func TestParseEntry(t *testing.T) {
	for in, want := range map[string]signals.Entry{
		"nginx=TERM":     {"nginx", unix.SIGTERM},
		"php-fpm*=quit":  {"php-fpm*", unix.SIGQUIT},
		"init=RTMIN+3":   {"init", 37},
		"a=b=15":         {"a=b", 15},
		"Web Content=15": {"Web Content", 15},
	} {
		got, err := signals.ParseEntry(in)
		if assert.NoError(t, err, in) {
			assert.Equal(t, want, got, in)
		}
	}
	for in, want := range map[string]string{
		"":                     `cannot read stop signal "": want NAME=SIG`,
		"nginx":                `cannot read stop signal "nginx": want NAME=SIG`,
		"=QUIT":                `cannot read stop signal "=QUIT": want NAME=SIG`,
		"nginx =QUIT":          `without spaces around NAME`,
		"nginx=":               `cannot read stop signal "nginx=": unknown signal ""`,
		"nginx=QIUT":           `cannot read stop signal "nginx=QIUT": unknown signal "QIUT": did you mean SIGQUIT?`,
		"/usr/sbin/nginx=QUIT": `not a path`,
		"n*x=QUIT":             `* is allowed at the end of NAME only`,
		"n**=QUIT":             `* is allowed at the end of NAME only`,
		"*=QUIT":               `--stop-signal`,
	} {
		_, err := signals.ParseEntry(in)
		assert.ErrorContains(t, err, want)
	}
}

func ExampleTable() {
	rule, err := signals.ParseEntry("gunicorn=TERM")
	if err != nil {
		panic(err)
	}
	table := signals.DefaultTable.With(rule)
	for _, comm := range []string{"nginx", "php-fpm8.2", "gunicorn", "some-app"} {
		_, known := table.For(comm)
		fmt.Println(comm, signals.Name(table.StopSignal(comm)), known)
	}
	// Output:
	// nginx SIGQUIT true
	// php-fpm8.2 SIGQUIT true
	// gunicorn SIGTERM true
	// some-app SIGTERM false
}

// What the kernel makes of a long name is what the table looks for.
func TestTableMatchesTheKernelsCut(t *testing.T) {
	// The name belongs to the thread. A locked goroutine that ends takes it along.
	type result struct {
		comm []byte
		err  error
	}
	results := make(chan result)
	go func() {
		runtime.LockOSThread()
		name, err := unix.BytePtrFromString("a-very-long-program")
		if err == nil {
			err = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0)
		}
		if err != nil {
			results <- result{err: err}
			return
		}
		comm, err := os.ReadFile("/proc/thread-self/comm")
		results <- result{comm, err}
	}()
	r := <-results
	require.NoError(t, r.err)
	got, ok := signals.Table{{"a-very-long-program", 2}}.For(strings.TrimSuffix(string(r.comm), "\n"))
	assert.True(t, ok)
	assert.Equal(t, signals.Signal(2), got)
}
