package signals_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/drainit/drainit/signals"
)

func TestParseRewrite(t *testing.T) {
	for in, want := range map[string][2]signals.Signal{
		"TERM:QUIT":       {unix.SIGTERM, unix.SIGQUIT},
		"15:3":            {15, 3},
		"sigterm:RTMIN+3": {unix.SIGTERM, 37},
		"HUP:0":           {unix.SIGHUP, 0},
		"1:0":             {1, 0},
		"TERM:KILL":       {unix.SIGTERM, unix.SIGKILL},
		"TSTP:STOP":       {unix.SIGTSTP, unix.SIGSTOP},
		"USR1:RTMIN":      {unix.SIGUSR1, 34},
		"USR1:URG":        {unix.SIGUSR1, unix.SIGURG},
		"RTMAX:TERM":      {64, unix.SIGTERM},
		"TERM:TERM":       {unix.SIGTERM, unix.SIGTERM},
	} {
		from, to, err := signals.ParseRewrite(in)
		if assert.NoError(t, err, in) {
			assert.Equal(t, want, [2]signals.Signal{from, to}, in)
		}
	}
}

func TestParseRewriteErrors(t *testing.T) {
	for in, want := range map[string]string{
		"TERM":        `cannot read rewrite "TERM": want S:R, two signals with a colon between them, or S:0 to drop S`,
		"":            `cannot read rewrite "": want S:R`,
		":TERM":       `cannot read rewrite ":TERM": unknown signal ""`,
		"TERM:":       `cannot read rewrite "TERM:": unknown signal ""`,
		"TERM:QIUT":   `cannot read rewrite "TERM:QIUT": unknown signal "QIUT": did you mean SIGQUIT?`,
		"TREM:QUIT":   `cannot read rewrite "TREM:QUIT": unknown signal "TREM": did you mean SIGTERM?`,
		"TERM:INT:0":  `cannot read rewrite "TERM:INT:0": unknown signal "INT:0"`,
		"0:TERM":      `cannot read rewrite "0:TERM": unknown signal "0"`,
		"TERM:32":     `cannot read rewrite "TERM:32": cannot use signal "32"`,
		"TERM: QUIT":  `cannot read rewrite "TERM: QUIT": unknown signal " QUIT"`,
		"KILL:TERM":   `cannot rewrite SIGKILL in "KILL:TERM", as drainit does not pass it on: the kernel lets no process catch it`,
		"STOP:TERM":   `cannot rewrite SIGSTOP in "STOP:TERM", as drainit does not pass it on: the kernel`,
		"CHLD:0":      `cannot rewrite SIGCHLD in "CHLD:0", as drainit does not pass it on: it tells drainit about its own children`,
		"URG:TERM":    `golang/go#37942`,
		"PIPE:TERM":   `it is about drainit's own output`,
		"PROF:TERM":   `profiler`,
		"SEGV:TERM":   `drainit itself is broken`,
		"RTMIN:TERM":  `cannot rewrite SIGRTMIN in "RTMIN:TERM", as drainit does not pass it on: the Go runtime leaves 34 to musl`,
		"STKFLT:TERM": `"STKFLT`,
	} {
		_, _, err := signals.ParseRewrite(in)
		assert.ErrorContains(t, err, want)
	}
}

func TestRewriteApply(t *testing.T) {
	rules := signals.Rewrite{}
	for _, rule := range []string{"TERM:INT", "HUP:0", "INT:TERM", "TERM:QUIT"} {
		from, to, err := signals.ParseRewrite(rule)
		require.NoError(t, err)
		rules[from] = to
	}
	for _, tt := range []struct {
		about    string
		rules    signals.Rewrite
		in, want signals.Signal
		drop     bool
	}{
		{"the second rule for a signal replaces the first", rules, unix.SIGTERM, unix.SIGQUIT, false},
		{"rules do not chain", rules, unix.SIGINT, unix.SIGTERM, false},
		{"dropped", rules, unix.SIGHUP, 0, true},
		{"no rule", rules, unix.SIGUSR1, unix.SIGUSR1, false},
		{"no rules at all", nil, unix.SIGTERM, unix.SIGTERM, false},
	} {
		out, drop := tt.rules.Apply(tt.in)
		assert.Equal(t, tt.want, out, tt.about)
		assert.Equal(t, tt.drop, drop, tt.about)
	}
}
