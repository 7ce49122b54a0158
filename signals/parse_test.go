package signals_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/drainit/drainit/signals"
)

// usable are the signals that Parse accepts: all 64 but 32 and 33.
func usable() []signals.Signal {
	var sigs []signals.Signal
	for sig := signals.Signal(1); sig <= 64; sig++ {
		if sig != 32 && sig != 33 {
			sigs = append(sigs, sig)
		}
	}
	return sigs
}

func TestParse(t *testing.T) {
	for in, want := range map[string]signals.Signal{
		"TERM":       unix.SIGTERM,
		"SIGTERM":    unix.SIGTERM,
		"sigterm":    unix.SIGTERM,
		"Quit":       unix.SIGQUIT,
		"15":         15,
		"015":        15, // decimal, as kill(1) reads it
		"1":          1,
		"64":         64,
		"CLD":        unix.SIGCHLD,
		"SIGIOT":     unix.SIGABRT,
		"poll":       unix.SIGIO,
		"UNUSED":     unix.SIGSYS,
		"RTMIN":      34,
		"SIGRTMIN+0": 34,
		"RTMIN+3":    37,
		"rtmin+30":   64,
		"RTMAX":      64,
		"RTMAX-0":    64,
		"sigrtmax-1": 63,
		"RTMAX-30":   34,
	} {
		got, err := signals.Parse(in)
		if assert.NoError(t, err, in) {
			assert.Equal(t, want, got, in)
		}
	}
}

func TestParseErrors(t *testing.T) {
	const accepted = "a name with or without SIG, a number 1..64, RTMIN+n or RTMAX-n"
	for in, want := range map[string]string{
		"QIUT":                 `unknown signal "QIUT": did you mean SIGQUIT? (` + accepted + `)`,
		"sigusr3":              `unknown signal "sigusr3": did you mean SIGUSR1 or SIGUSR2? (` + accepted + `)`,
		" TERM":                `unknown signal " TERM": did you mean SIGTERM? (` + accepted + `)`,
		"TERM\n":               `unknown signal "TERM\n": did you mean SIGTERM? (` + accepted + `)`,
		"RTMIN-1":              `unknown signal "RTMIN-1": did you mean SIGRTMIN? (` + accepted + `)`,
		"":                     `unknown signal "": want ` + accepted,
		"SIG":                  `unknown signal "SIG": want ` + accepted,
		"banana":               `unknown signal "banana": want ` + accepted,
		"0":                    `unknown signal "0": want ` + accepted,
		"65":                   `unknown signal "65": want ` + accepted,
		"-1":                   `unknown signal "-1": want ` + accepted,
		"+15":                  `unknown signal "+15": want ` + accepted,
		"15 ":                  `unknown signal "15 ": want ` + accepted,
		"SIG15":                `unknown signal "SIG15": want ` + accepted,
		"99999999999999999999": `unknown signal "99999999999999999999": want ` + accepted,
		"RTMIN+31":             `unknown signal "RTMIN+31": n is 0..30 in RTMIN+n and RTMAX-n`,
		"RTMAX-31":             `unknown signal "RTMAX-31": n is 0..30 in RTMIN+n and RTMAX-n`,
		"RTMIN+":               `unknown signal "RTMIN+": n is 0..30 in RTMIN+n and RTMAX-n`,
		"RTMIN++3":             `unknown signal "RTMIN++3": n is 0..30 in RTMIN+n and RTMAX-n`,
		"RTMIN+-3":             `unknown signal "RTMIN+-3": n is 0..30 in RTMIN+n and RTMAX-n`,
		"32":                   `cannot use signal "32": the C library and the Go runtime keep 32 and 33 for their threads`,
		"33":                   `cannot use signal "33": the C library and the Go runtime keep 32 and 33 for their threads`,
	} {
		_, err := signals.Parse(in)
		assert.EqualError(t, err, want)
	}
}

func TestName(t *testing.T) {
	for sig, want := range map[signals.Signal]string{
		unix.SIGTERM: "SIGTERM",
		unix.SIGCHLD: "SIGCHLD",
		unix.SIGABRT: "SIGABRT",
		unix.SIGIO:   "SIGIO",
		unix.SIGSYS:  "SIGSYS",
		32:           "signal 32",
		33:           "signal 33",
		34:           "SIGRTMIN",
		35:           "SIGRTMIN+1",
		37:           "SIGRTMIN+3",
		49:           "SIGRTMIN+15",
		50:           "SIGRTMAX-14",
		63:           "SIGRTMAX-1",
		64:           "SIGRTMAX",
		0:            "signal 0",
		65:           "signal 65",
		-1:           "signal -1",
	} {
		assert.Equal(t, want, signals.Name(sig))
	}
}

func TestNamesAndNumbersParseBack(t *testing.T) {
	for _, sig := range usable() {
		got, err := signals.Parse(signals.Name(sig))
		require.NoError(t, err)
		assert.Equal(t, sig, got)
		got, err = signals.Parse(strconv.Itoa(int(sig)))
		require.NoError(t, err)
		assert.Equal(t, sig, got)
	}
}

func ExampleParse() {
	for _, s := range []string{"quit", "SIGRTMIN+3", "28", "QIUT"} {
		sig, err := signals.Parse(s)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(int(sig), signals.Name(sig))
	}
	// Output:
	// 3 SIGQUIT
	// 37 SIGRTMIN+3
	// 28 SIGWINCH
	// unknown signal "QIUT": did you mean SIGQUIT? (a name with or without SIG, a number 1..64, RTMIN+n or RTMAX-n)
}
