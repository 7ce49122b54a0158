package signals_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/drainit/drainit/signals"
)

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"TERM", "sigquit", "15", "RTMIN+3", "RTMAX-14", "32", "0", "", " TERM", "QIUT", "RTMIN+", "SIGSIG", "\xff", "ſIGTERM"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		sig, err := signals.Parse(s)
		if err != nil {
			if !strings.Contains(err.Error(), strconv.Quote(s)) {
				t.Fatalf("the error does not quote %q: %v", s, err)
			}
			return
		}
		if sig < 1 || sig > 64 || sig == 32 || sig == 33 {
			t.Fatalf("Parse(%q) = %d", s, int(sig))
		}
		if again, err := signals.Parse(signals.Name(sig)); err != nil || again != sig {
			t.Fatalf("Parse(%q) = %d, but its name %q parses to %d, %v", s, int(sig), signals.Name(sig), int(again), err)
		}
	})
}

func FuzzParseRewrite(f *testing.F) {
	for _, seed := range []string{"TERM:QUIT", "15:3", "HUP:0", "KILL:TERM", "CHLD:0", ":", "::", "TERM", "RTMIN:RTMAX", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		from, to, err := signals.ParseRewrite(s)
		if err != nil {
			if !strings.Contains(err.Error(), strconv.Quote(s)) {
				t.Fatalf("the error does not quote %q: %v", s, err)
			}
			return
		}
		if !signals.Catchable(from) {
			t.Fatalf("ParseRewrite(%q) rewrites %s, which is never received", s, signals.Name(from))
		}
		target := "0"
		if to != 0 {
			target = signals.Name(to)
		}
		from2, to2, err := signals.ParseRewrite(signals.Name(from) + ":" + target)
		if err != nil || from2 != from || to2 != to {
			t.Fatalf("ParseRewrite(%q) = %d, %d, but in words it is %d, %d, %v", s, int(from), int(to), int(from2), int(to2), err)
		}
		if out, drop := (signals.Rewrite{from: to}).Apply(from); out != to || drop != (to == 0) {
			t.Fatalf("%q applied gives %d, %v", s, int(out), drop)
		}
	})
}
