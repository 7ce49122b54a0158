package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// forkOrphans is a script that leaves $1 processes to drainit, most of which have ended by then. The subshell
// is gone before, or right after, what it started.
const forkOrphans = `i=0; while [ $i -lt $1 ]; do (: &); i=$((i+1)); done; echo forked; exec sleep 1000`

func zombiesOf(t *testing.T, pid int) (n int) {
	t.Helper()
	for _, child := range childrenOf(t, pid) {
		if strings.HasPrefix(status(child, "State"), "Z") {
			n++
		}
	}
	return n
}

func TestReapsOrphans(t *testing.T) {
	t.Parallel()
	p := start(t, world{noProbe: true}, append([]string{"--drain-delay", "0"}, shell(forkOrphans, "1000")...)...)
	p.line(t, "^forked$")
	eventually(t, func() bool { return len(childrenOf(t, p.cmd.Process.Pid)) == 1 }, "sleep is the only process left")
	require.Zero(t, zombiesOf(t, p.cmd.Process.Pid))
	p.signal(syscall.SIGTERM)
	require.Equal(t, 143, p.exit())
	p.line(t, "; 1000 orphans reaped; exit code 143$")
}

func TestWarnOnReap(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{{"-v=false"}, {"-w"}} {
		p := start(t, world{noProbe: true}, append(append(flags, "--drain-delay", "0"), shell(`(: &); (sh -c "kill -9 \$\$" &); echo forked; exec sleep 1000`)...)...)
		p.line(t, "^forked$")
		eventually(t, func() bool { return len(childrenOf(t, p.cmd.Process.Pid)) == 1 }, "sleep is the only process left")
		p.signal(syscall.SIGTERM)
		require.Equal(t, 143, p.exit())
		want := 0
		if flags[0] == "-w" {
			want = 2
		}
		require.Equal(t, want, p.count("reaped orphan pid [0-9]+: it (exited with 0|was ended by SIGKILL)"))
	}
}

// orphan starts drainit outside a PID namespace of its own, and returns a process that it may adopt.
func orphan(t *testing.T, script string, flags ...string) (p *process, pid int) {
	t.Helper()
	p = start(t, world{notInit: true, noProbe: true}, append(flags, shell(script)...)...)
	pid, err := strconv.Atoi(p.line(t, `^orphan (\d+)$`)[1])
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	return p, pid
}

// leaveOrphan starts a process, in a session of its own, that becomes an orphan at once and stays.
const leaveOrphan = `(setsid sleep 500 </dev/null >/dev/null 2>&1 & echo orphan $!); exec sleep 1000`

func TestSubreaper(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		flag   string
		adopts bool
	}{{"--subreaper=auto", true}, {"-s", true}, {"--subreaper=off", false}} {
		t.Run(test.flag, func(t *testing.T) {
			t.Parallel()
			p, pid := orphan(t, leaveOrphan, test.flag, "--drain-delay", "0")
			drainit := strconv.Itoa(p.cmd.Process.Pid)
			if !test.adopts {
				// The negative control: the same process is then adopted by somebody else, and not signalled.
				shell := childrenOf(t, p.cmd.Process.Pid)
				require.Len(t, shell, 1)
				eventually(t, func() bool {
					parent := status(pid, "PPid")
					return parent != drainit && parent != strconv.Itoa(shell[0])
				}, "somebody else adopts it")
				require.Len(t, childrenOf(t, p.cmd.Process.Pid), 1)
				p.signal(syscall.SIGTERM)
				require.Equal(t, 143, p.exit())
				require.Regexp(t, "^[SR]", status(pid, "State"))
				return
			}
			eventually(t, func() bool { return status(pid, "PPid") == drainit }, "drainit adopts it")
			p.signal(syscall.SIGTERM)
			require.Equal(t, 143, p.exit())
			require.Empty(t, status(pid, "State"), "it was ended and reaped")
		})
	}
}

// TestOutsidersAreSafe: not PID 1, drainit kills all that came from it, and nobody else.
func TestOutsidersAreSafe(t *testing.T) {
	t.Parallel()
	outsider := exec.Command("sleep", "500")
	require.NoError(t, outsider.Start())
	t.Cleanup(func() { _ = outsider.Process.Kill(); _ = outsider.Wait() })
	script := `(setsid sh -c 'trap "" TERM; echo orphan $$; while :; do sleep 0.05; done' &); ` + stubborn
	p, pid := orphan(t, script, "--drain-delay", "0", "--stop-schedule", "TERM/0.1/KILL")
	p.line(t, "^up$")
	p.signal(syscall.SIGTERM)
	require.Equal(t, 137, p.exit())
	require.Empty(t, status(pid, "State"), "the orphan was killed and reaped")
	require.Regexp(t, "^[SR]", status(outsider.Process.Pid, "State"))
}

func TestSweep(t *testing.T) {
	t.Parallel()
	daemon := func(trap string) string {
		return `setsid sh -c 'trap "` + trap + `" TERM; echo daemon up; while :; do sleep 0.02; done' & read _; exit 4`
	}
	for _, test := range []struct {
		name    string
		trap    string
		timeout string
		stop    bool // asked for; otherwise the main process ends by itself
		forced  bool
	}{
		{"handles TERM", "sleep 0.3; echo cleaned; exit", "20s", false, false},
		{"handles TERM, stop", "sleep 0.3; echo cleaned; exit", "20s", true, false},
		{"ignores TERM", "", "200ms", false, true},
		{"ignores TERM, stop", "", "200ms", true, true},
	} {
		for _, notInit := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, notInit=%t", test.name, notInit), func(t *testing.T) {
				t.Parallel()
				stdin, input, err := os.Pipe()
				require.NoError(t, err)
				defer stdin.Close()
				w := world{stdin: stdin, notInit: notInit}
				p := start(t, w, append([]string{"--drain-delay", "0", "--sweep-timeout", test.timeout}, shell(daemon(test.trap))...)...)
				p.line(t, "^daemon up$")
				begin := time.Now()
				if test.stop {
					p.signal(syscall.SIGTERM)
					require.Equal(t, 143, p.exit())
				} else {
					require.NoError(t, input.Close())
					require.Equal(t, 4, p.exit())
					p.line(t, "ended and left processes behind.*must stay in the foreground")
				}
				if test.forced {
					p.line(t, "leftover processes are still there: SIGKILL")
					p.line(t, "SIGKILL was needed")
					require.GreaterOrEqual(t, time.Since(begin), 200*time.Millisecond)
				} else {
					p.line(t, "^cleaned$")
					require.Zero(t, p.count("SIGKILL was needed"))
				}
				require.Less(t, time.Since(begin), 15*time.Second)
				_ = input.Close()
			})
		}
	}
}
