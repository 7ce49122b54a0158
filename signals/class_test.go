package signals_test

import (
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/drainit/drainit/signals"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestClassify(t *testing.T) {
	want := map[signals.Signal]signals.Class{
		unix.SIGCHLD: signals.Reap,
		unix.SIGURG:  signals.Swallow,
		unix.SIGPIPE: signals.Swallow,
		unix.SIGPROF: signals.Swallow,
		unix.SIGXCPU: signals.Swallow,
		unix.SIGXFSZ: signals.Swallow,
		unix.SIGILL:  signals.Fault,
		unix.SIGTRAP: signals.Fault,
		unix.SIGABRT: signals.Fault,
		unix.SIGBUS:  signals.Fault,
		unix.SIGFPE:  signals.Fault,
		unix.SIGSEGV: signals.Fault,
		unix.SIGSYS:  signals.Fault,
		unix.SIGKILL: signals.Uncatchable,
		unix.SIGSTOP: signals.Uncatchable,
		32:           signals.Reserved,
		33:           signals.Reserved,
		34:           signals.Reserved,
	}
	for _, name := range []string{"SIGSTKFLT", "SIGEMT"} { // not every architecture has them
		if sig := unix.SignalNum(name); sig != 0 {
			want[sig] = signals.Fault
		}
	}
	for sig := signals.Signal(1); sig <= 64; sig++ {
		class, special := want[sig]
		if !special {
			class = signals.Forward
		}
		assert.Equal(t, class, signals.Classify(sig), signals.Name(sig))
		assert.Equal(t, class == signals.Forward, signals.Catchable(sig), signals.Name(sig))
	}
	for _, sig := range []signals.Signal{-1, 0, 65} {
		assert.Empty(t, signals.Classify(sig))
		assert.False(t, signals.Catchable(sig))
	}
}

func TestList(t *testing.T) {
	if strings.HasPrefix(runtime.GOARCH, "mips") {
		t.Skip("the golden file has the signal numbers of all architectures but MIPS")
	}
	// KILL is never received: listed as a stop signal or not makes no difference.
	got := signals.List([]signals.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGKILL})
	golden := filepath.Join("testdata", "list.golden")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "run with -update if the change is wanted")
}

func TestListGoesByTheStopSignalsGiven(t *testing.T) {
	for _, sig := range usable() {
		if !signals.Catchable(sig) {
			continue
		}
		without := strings.Split(signals.List(nil), "\n")
		with := strings.Split(signals.List([]signals.Signal{sig}), "\n")
		require.Len(t, with, 65) // 64 and what follows the last newline
		assert.Regexp(t, `  passed on$`, without[sig-1])
		assert.Regexp(t, `  stop$`, with[sig-1])
		with[sig-1] = without[sig-1]
		assert.Equal(t, without, with)
	}
}
