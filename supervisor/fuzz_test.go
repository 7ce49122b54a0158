package supervisor

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/drainit/drainit/signals"
)

// FuzzMachine holds the invariants for long runs of any configuration: the first two numbers make the configuration,
// and each byte is an event or a piece of time.
func FuzzMachine(f *testing.F) {
	f.Add(uint64(0), uint64(0), []byte{0, 8, 6, 8, 2, 5})
	f.Add(uint64(1), uint64(2), []byte{1, 0, 0, 0, 0, 2, 4, 8, 5})
	f.Add(uint64(3), uint64(9), []byte{2, 4, 3, 0, 8, 8})
	f.Add(uint64(5), uint64(7), []byte{0, 7, 9, 10, 7, 200, 6, 150, 10, 2, 4, 255, 8})
	f.Fuzz(func(t *testing.T, seed1, seed2 uint64, script []byte) {
		if len(script) > 200 {
			return
		}
		r := rand.New(rand.NewPCG(seed1, seed2))
		c := randomConfig(r)
		c.Verbose, c.WarnOnReap = r.IntN(2) == 0, r.IntN(2) == 0
		if r.IntN(4) == 0 {
			c.Rewrite = signals.Rewrite{unix.SIGTERM: unix.SIGINT}
		}
		if r.IntN(4) == 0 {
			c.RemapExit = map[int]bool{3: true, 143: true}
		}
		w := newWorld(c)
		w.twice = true
		if err := w.step(Started{PID: mainPID}); err != nil {
			t.Fatal(err)
		}
		for i, b := range script {
			var err error
			if int(b) < len(alphabet) {
				err = alphabet[b].do(&w)
			} else {
				err = w.advance(w.now + time.Duration(b)*10*time.Millisecond)
			}
			if err != nil {
				t.Fatalf("%+v\nstep %d (%d): %v", c, i, b, err)
			}
		}
		if err := w.end(); err != nil {
			t.Fatalf("%+v\n%v", c, err)
		}
	})
}

func FuzzParseSchedule(f *testing.F) {
	for _, seed := range []string{"QUIT/20/TERM/3/KILL", "5", "auto/1m/-15/0.5/9", "TERM", "TERM/1/2/KILL", "", "/", "KILL/TERM", "forever", "QUIT/8760h/1s", "-RTMIN+3/1ns"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSchedule(text)
		if err != nil {
			if !strings.Contains(err.Error(), scheduleForm) {
				t.Fatalf("%q: the error does not say what is accepted: %v", text, err)
			}
			return
		}
		if len(s) == 0 {
			t.Fatalf("%q is a schedule without a signal", text)
		}
		for i, rung := range s {
			if rung.Wait < 0 || rung.Wait > maxDuration {
				t.Fatalf("%q: wait %v", text, rung.Wait)
			}
			if rung.Signal == unix.SIGKILL && i < len(s)-1 || rung.Signal == unix.SIGSTOP || rung.Signal == 0 && i > 0 {
				t.Fatalf("%q: signal %v at %d", text, rung.Signal, i)
			}
		}
		again, err := ParseSchedule(s.String())
		if err != nil || again.String() != s.String() || len(again) != len(s) {
			t.Fatalf("%q is %q, which is %q, %v", text, s, again, err)
		}
		for i := range s {
			if again[i] != s[i] {
				t.Fatalf("%q is %q, rung %d of which is read as %v", text, s, i, again[i])
			}
		}
		c := defaults()
		c.Schedule = s
		NewPlan(c).Text()
	})
}

func FuzzParseDuration(f *testing.F) {
	for _, seed := range []string{"5", "0.5", "1m30s", "500ms", "8760h", "8760h1ns", "31536000", "31536001", "-1", "+1", "1e3", ".", "", "0", ".5s", "99999999999999999999", "1h-1s", "NaN", "0x10"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDuration(text)
		if err != nil {
			if d != 0 {
				t.Fatalf("%q: %v and %v", text, d, err)
			}
			return
		}
		if d < 0 || d > maxDuration {
			t.Fatalf("%q is %v", text, d)
		}
		if again, err := ParseDuration(d.String()); err != nil || again != d {
			t.Fatalf("%q is %v, which is %v, %v", text, d, again, err)
		}
	})
}

func FuzzParseStatus(f *testing.F) {
	if own, err := os.ReadFile("/proc/self/status"); err == nil {
		f.Add(own)
	}
	f.Add([]byte("Name:\tnginx\nState:\tS (sleeping)\nPPid:\t1\nSigBlk:\t0\nSigIgn:\t1\nSigCgt:\tffffffffffffffff\n"))
	f.Add([]byte("State:\t\n"))
	f.Add([]byte("PPid:\t99999999999999999999\n"))
	f.Add([]byte("SigCgt:\tg\n"))
	f.Add([]byte("Name:\t\nName:\t\nName:\t\nName:\t\nName:\t\nName:\t\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseStatus(text)
		if err != nil {
			return
		}
		// What was understood is understood again when it comes as the kernel writes it, among other lines.
		again, err := parseStatus(fmt.Appendf(nil, "Name:\t%s\nUmask:\t0022\nState:\t%c (x)\nPPid:\t%d\nSigBlk:\t%016x\nSigIgn:\t%016x\nSigCgt:\t%016x\n",
			s.name, s.state, s.parent, uint64(s.blocked), uint64(s.ignored), uint64(s.caught)))
		if s.state < utf8.RuneSelf && (err != nil || again != s) {
			t.Fatalf("%q is %+v, which is %+v, %v", text, s, again, err)
		}
	})
}
