package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/drainit/drainit/signals"
)

func init() {
	// watch prints "up", then each signal it gets; unlike print-signals it misses none of a kind in a flood, and only
	// the signals named end it, with 0.
	helpers["watch"] = func(args []string) {
		var mu sync.Mutex
		for n := syscall.Signal(1); n <= 64; n++ {
			if n == syscall.SIGURG || n == syscall.SIGCHLD {
				continue
			}
			c := make(chan os.Signal, 1)
			signal.Notify(c, n)
			go func() {
				for range c {
					mu.Lock()
					fmt.Println("got", signals.Name(n))
					if slices.Contains(args, signals.Name(n)) {
						os.Exit(0)
					}
					mu.Unlock()
				}
			}()
		}
		fmt.Println("up")
		select {}
	}
}

// shell gives a command line for sh.
func shell(script string, args ...string) []string {
	return append([]string{"--", "sh", "-c", script, "sh"}, args...)
}

// stubborn is a script that only SIGKILL ends.
const stubborn = `trap "" TERM INT QUIT HUP USR1 USR2; echo up; while :; do sleep 0.05; done`

// polite is a script that ends with 7 on TERM.
const polite = `trap "exit 7" TERM; echo up; while :; do sleep 0.01; done`

// violation watches a stop from outside: it says what was wrong with the order in which readiness failed and the
// command got its stop signal, "" where nothing was.
func violation(p *process) string {
	for {
		// In this order: readiness may fail between the two, and the signal come after both.
		told := p.count("^got SIG")
		code, body := p.get("/readyz")
		switch {
		case told > 0 && code == 200:
			return "the stop signal came while /readyz answered " + body
		case code == 503:
			return ""
		case code != 200:
			return fmt.Sprintf("/readyz answered %d before 503: %s", code, body)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestReadinessFailsFirst(t *testing.T) {
	t.Parallel()
	p := start(t, world{helper: "watch"}, "--drain-delay", "200ms")
	p.line(t, "^up$")
	p.waitReady(200)
	p.signal(syscall.SIGTERM)
	require.Empty(t, violation(p))
	p.line(t, "^got SIGTERM$")
}

// TestOrderCheckNotices: violation itself works; a command that is told by somebody else while drainit is ready is one.
func TestOrderCheckNotices(t *testing.T) {
	t.Parallel()
	p := start(t, world{helper: "watch"}, "--unready-delay", "20s", "--drain-delay", "0", "--grace-period", "60s")
	p.line(t, "^up$")
	p.waitReady(200)
	p.signal(syscall.SIGTERM)
	p.line(t, "asks for a stop")
	for _, pid := range childrenOf(t, p.cmd.Process.Pid) {
		require.NoError(t, syscall.Kill(pid, syscall.SIGTERM))
	}
	p.line(t, "^got SIGTERM$")
	require.Contains(t, violation(p), "while /readyz answered ready")
}

func TestUnreadyDelay(t *testing.T) {
	t.Parallel()
	p := start(t, world{helper: "watch"}, "--unready-delay", "300ms", "--drain-delay", "200ms")
	p.line(t, "^up$")
	p.waitReady(200)
	begin := time.Now()
	p.signal(syscall.SIGTERM)
	p.line(t, "asks for a stop")
	p.waitReady(503)
	require.GreaterOrEqual(t, time.Since(begin), 300*time.Millisecond)
	require.Zero(t, p.count("^got SIG"))
	p.line(t, "^got SIGTERM$")
	require.GreaterOrEqual(t, time.Since(begin), 500*time.Millisecond)
}

// TestEndpointInEveryPhase walks through a stop and asks both paths in each phase.
func TestEndpointInEveryPhase(t *testing.T) {
	t.Parallel()
	for _, tcp := range []bool{false, true} {
		t.Run(fmt.Sprintf("tcp=%t", tcp), func(t *testing.T) {
			t.Parallel()
			leftover := `trap "" TERM; setsid sh -c 'trap "" TERM; while :; do sleep 0.05; done' & trap "exit 3" QUIT; echo up; while :; do sleep 0.02; done`
			p := start(t, world{tcp: tcp}, append([]string{"--drain-delay", "60s", "--grace-period", "120s", "--sweep-timeout", "20s", "--stop-schedule", "USR1/60/QUIT"}, shell("trap '' USR1;"+leftover)...)...)
			phases := []struct {
				name  string
				do    func()
				line  string
				ready int
				body  string
			}{
				{"running", nil, "^up$", 200, "ready\n"},
				{"draining", func() { p.signal(syscall.SIGTERM) }, "asks for a stop", 503, "draining\n"},
				{"stopping", func() { p.signal(syscall.SIGTERM) }, "SIGUSR1 to sh", 503, "draining\n"},
				{"sweeping", func() { p.signal(syscall.SIGTERM) }, "leftover processes get SIGTERM", 503, "draining\n"},
			}
			p.waitReady(200) // the command may be up before drainit has noted its start
			for _, phase := range phases {
				if phase.do != nil {
					phase.do()
				}
				p.line(t, phase.line)
				code, body := p.get("/readyz")
				require.Equal(t, phase.ready, code, phase.name)
				require.Equal(t, phase.body, body, phase.name)
				code, _ = p.get("/livez")
				require.Equal(t, 200, code, phase.name)
			}
			p.signal(syscall.SIGTERM) // on to KILL
			require.Equal(t, 3, p.exit())
		})
	}
}

// TestEndpointAnswersToTheEnd: nobody is refused as long as the command is there.
func TestEndpointAnswersToTheEnd(t *testing.T) {
	t.Parallel()
	p := start(t, world{tcp: true}, append([]string{"--drain-delay", "100ms"}, shell(polite)...)...)
	p.line(t, "^up$")
	p.waitReady(200)
	command := childrenOf(t, p.cmd.Process.Pid)
	require.Len(t, command, 1)
	p.signal(syscall.SIGTERM)
	for p.running() {
		conn, err := net.Dial("tcp", p.health)
		if err != nil {
			require.Empty(t, status(command[0], "State"), "refused before the end: %v", err)
			break
		}
		_ = conn.Close()
	}
	require.Equal(t, 7, p.exit())
}

func TestLadder(t *testing.T) {
	t.Parallel()
	t.Run("everything ignored", func(t *testing.T) {
		t.Parallel()
		const grace = 3 * time.Second
		p := start(t, world{}, append([]string{"--drain-delay", "0", "--grace-period", grace.String()}, shell(stubborn)...)...)
		p.line(t, "^up$")
		begin := time.Now()
		p.signal(syscall.SIGTERM)
		require.Equal(t, 137, p.exit())
		require.Less(t, time.Since(begin), grace)
		p.line(t, `stopped as SIGTERM asked: sh was ended by SIGKILL, SIGKILL was needed.*; exit code 137$`)
	})
	t.Run("schedule", func(t *testing.T) {
		t.Parallel()
		p := start(t, world{helper: "watch"}, "--drain-delay", "0", "--stop-schedule", "HUP/100ms/USR2/0.1/TERM/100ms/KILL")
		p.line(t, "^up$")
		p.signal(syscall.SIGTERM)
		require.Equal(t, 137, p.exit())
		require.Equal(t, []string{"got SIGHUP", "got SIGUSR2", "got SIGTERM"}, p.matching("^got"))
	})
	t.Run("the stop signal again and again", func(t *testing.T) {
		t.Parallel()
		p := start(t, world{helper: "watch"}, "--drain-delay", "100s", "--grace-period", "200s", "--stop-signal", "QUIT")
		p.line(t, "^up$")
		begin := time.Now()
		for _, line := range []string{"asks for a stop", "^got SIGQUIT$", "^got SIGTERM$"} {
			p.signal(syscall.SIGTERM)
			p.line(t, line)
		}
		p.signal(syscall.SIGTERM)
		require.Equal(t, 137, p.exit())
		require.Less(t, time.Since(begin), patience)
	})
	t.Run("a handler that comes late", func(t *testing.T) {
		t.Parallel()
		// Without a handler QUIT would kill it: 131.
		const script = `echo up; sleep 0.3; trap "echo got it; exit 9" QUIT; while :; do sleep 0.01; done`
		p := start(t, world{}, append([]string{"--drain-delay", "0", "--stop-signal", "QUIT"}, shell(script)...)...)
		p.line(t, "^up$")
		p.signal(syscall.SIGTERM)
		p.line(t, "SIGQUIT waits: sh .* has no handler for it yet")
		p.line(t, "^got it$")
		require.Equal(t, 9, p.exit())
	})
	t.Run("a program without a handler", func(t *testing.T) {
		t.Parallel()
		p := start(t, world{}, "--drain-delay", "100ms", "--", "sleep", "1000")
		p.waitReady(200)
		begin := time.Now()
		p.signal(syscall.SIGTERM)
		require.Equal(t, 143, p.exit())
		require.Less(t, time.Since(begin), 15*time.Second) // 2 s; the next rung is at 29 s
	})
	t.Run("a suspended program", func(t *testing.T) {
		t.Parallel()
		p := start(t, world{}, append([]string{"--drain-delay", "0"}, shell(polite)...)...)
		p.line(t, "^up$")
		child := childrenOf(t, p.cmd.Process.Pid)
		require.Len(t, child, 1)
		require.NoError(t, syscall.Kill(child[0], syscall.SIGSTOP))
		eventually(t, func() bool { return strings.HasPrefix(status(child[0], "State"), "T") }, "the command is stopped")
		p.signal(syscall.SIGTERM)
		require.Equal(t, 7, p.exit())
	})
}

// TestFasterThanTheDrain: the end of the command is the end, nothing waits for the rest of the drain.
func TestFasterThanTheDrain(t *testing.T) {
	t.Parallel()
	p := start(t, world{}, append([]string{"--drain-delay", "25s"}, shell(`trap "exit 5" USR1; echo up; while :; do sleep 0.01; done`)...)...)
	p.line(t, "^up$")
	begin := time.Now()
	p.signal(syscall.SIGTERM)
	p.line(t, "asks for a stop")
	p.signal(syscall.SIGUSR1) // still passed on
	require.Equal(t, 5, p.exit())
	require.Less(t, time.Since(begin), 20*time.Second)
}

func TestStopSignals(t *testing.T) {
	t.Parallel()
	named := func(name string) []string {
		link := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.Symlink(self(t), link))
		return []string{"--", link}
	}
	const usr1, usr2, winch = syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH
	for _, test := range []struct {
		name    string
		flags   []string
		command []string // named(...), default: named("app")
		send    syscall.Signal
		got     string // what the command gets as stop signal
	}{
		{"TERM", nil, nil, syscall.SIGTERM, "SIGTERM"},
		{"inherited STOPSIGNAL INT", nil, nil, syscall.SIGINT, "SIGTERM"},
		{"inherited STOPSIGNAL QUIT", nil, nil, syscall.SIGQUIT, "SIGTERM"},
		{"QUIT to nginx", nil, named("nginx"), syscall.SIGQUIT, "SIGQUIT"},
		{"TERM to nginx", nil, named("nginx"), syscall.SIGTERM, "SIGQUIT"},
		{"TERM to php-fpm8.2", nil, named("php-fpm8.2"), syscall.SIGTERM, "SIGQUIT"},
		{"WINCH to httpd", nil, named("httpd"), winch, "SIGWINCH"},
		{"TERM to httpd", nil, named("httpd"), syscall.SIGTERM, "SIGWINCH"},
		{"USR1 to haproxy", nil, named("haproxy"), usr1, "SIGUSR1"},
		{"stop-on", []string{"--stop-on", "USR1,USR2"}, nil, usr2, "SIGTERM"},
		{"named stop signal received", []string{"--stop-signal", "RTMIN+3"}, nil, 37, "SIGRTMIN+3"},
		{"stop-signal-for", []string{"--stop-signal-for", "app=HUP"}, nil, syscall.SIGTERM, "SIGHUP"},
		{"rewrite of a stop signal", []string{"--rewrite", "TERM:USR2"}, nil, syscall.SIGTERM, "SIGUSR2"},
		{"by the environment", nil, nil, syscall.SIGTERM, "SIGTERM"},
	} {
		command := test.command
		if command == nil {
			command = named("app")
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--drain-delay", "50ms"}, test.flags...)
			args = append(append(args, command...), test.got)
			p := start(t, world{env: []string{helperVariable + "=watch"}}, args...)
			p.line(t, "^up$")
			p.signal(test.send)
			require.Equal(t, 0, p.exit())
			require.Equal(t, []string{"got " + test.got}, p.matching("^got"), "exactly the stop signal")
			p.line(t, "asks for a stop")
		})
	}
}

// TestPassedOn: what is no stop signal goes to the command as it is, or as --rewrite says.
func TestPassedOn(t *testing.T) {
	t.Parallel()
	p := start(t, world{helper: "watch"}, "--rewrite", "HUP:USR1", "--rewrite", "ALRM:0", "-r", "VTALRM:RTMIN+7")
	p.line(t, "^up$")
	pass := []syscall.Signal{syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGIO, syscall.SIGPWR}
	for n := syscall.Signal(35); n <= 64; n++ {
		pass = append(pass, n)
	}
	for _, n := range pass {
		p.signal(n)
		p.line(t, "^got "+strings.ReplaceAll(signals.Name(n), "+", `\+`)+"$")
	}
	p.signal(syscall.SIGVTALRM)
	eventually(t, func() bool { return p.count(`^got SIGRTMIN\+7$`) == 2 }, "VTALRM comes as RTMIN+7")
	p.signal(syscall.SIGHUP)
	p.line(t, "^got SIGUSR1$")
	for _, n := range []syscall.Signal{syscall.SIGALRM, syscall.SIGURG, syscall.SIGPIPE, syscall.SIGCHLD, syscall.SIGPROF} {
		p.signal(n)
	}
	// USR2 after each of them: it is passed on later than they would be, or at least once they are in.
	for range 3 {
		before := p.count("^got SIGUSR2$")
		p.signal(syscall.SIGUSR2)
		eventually(t, func() bool { return p.count("^got SIGUSR2$") > before }, "USR2 comes")
	}
	require.Zero(t, p.count("^got SIG(ALRM|URG|PIPE|CHLD|PROF|HUP|VTALRM)$"))
	require.Zero(t, p.count("asks for a stop"))
}

// TestFlood: the kernel merges signals of a kind, so a flood may thin itself out, but never a TERM or USR2 in it.
func TestFlood(t *testing.T) {
	t.Parallel()
	p := start(t, world{helper: "watch"}, "--drain-delay", "500ms", "--", "SIGTERM")
	p.line(t, "^up$")
	flood := []syscall.Signal{syscall.SIGUSR1, syscall.SIGWINCH, syscall.SIGCHLD}
	for i := range 10_000 {
		p.signal(flood[i%len(flood)])
		switch i {
		case 4_000:
			p.signal(syscall.SIGUSR2)
		case 5_000:
			p.signal(syscall.SIGTERM)
		}
		if i > 5_000 && !p.running() {
			t.Fatal("ended in the drain")
		}
		if i%1000 == 999 { // let the command print, or the stop would be over before the flood is
			p.line(t, "^got SIGUSR1$")
		}
	}
	require.Equal(t, 0, p.exit())
	require.Equal(t, 1, p.count("^got SIGUSR2$"))
	require.Equal(t, 1, p.count("^got SIGTERM$"))
	p.line(t, "stopped as SIGTERM asked: .* exited with 0")
}

// TestProcessGroup: with -g the group of the command gets the signals, else its first process only.
func TestProcessGroup(t *testing.T) {
	t.Parallel()
	const script = `trap "" USR1; (trap - USR1; exec sleep 1000) & echo up; wait $!; exit $(($? - 100))`
	for flag, want := range map[string]bool{"-g": true, "--single-child": false} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			// dash cannot reset a signal that was ignored at its start, but one that it ignored itself.
			p := start(t, world{}, append([]string{flag, "--drain-delay", "0", "--stop-on", "TERM"}, shell(script)...)...)
			p.line(t, "^up$")
			var grandchild int
			eventually(t, func() bool {
				for _, pid := range childrenOf(t, childrenOf(t, p.cmd.Process.Pid)[0]) {
					if status(pid, "Name") == "sleep" {
						grandchild = pid
						return true
					}
				}
				return false
			}, "sleep runs")
			p.signal(syscall.SIGUSR1)
			if want {
				require.Equal(t, 38, p.exit(), "128+10-100")
				return
			}
			p.signal(syscall.SIGTERM) // ends the shell; USR1 was passed on before
			require.Equal(t, 143, p.exit())
			require.Zero(t, p.count("exit code 38"))
			require.NotZero(t, grandchild)
		})
	}
}

// childrenOf lists the processes whose parent is pid, as seen from outside.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	var found []int
	entries, err := os.ReadDir("/proc")
	require.NoError(t, err)
	for _, e := range entries {
		var n int
		if _, err := fmt.Sscanf(e.Name(), "%d", &n); err == nil && status(n, "PPid") == fmt.Sprint(pid) {
			found = append(found, n)
		}
	}
	return found
}

// matching gives the lines that match, in order.
func (o *output) matching(pattern string) []string {
	return slices.DeleteFunc(strings.Split(o.text(), "\n"), func(line string) bool {
		return !regexp.MustCompile(pattern).MatchString(line)
	})
}

// TestUnprivileged runs part of the suite as nobody, in user namespaces where they can be had.
func TestUnprivileged(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		skip(t, "root", "run as root: as another user the whole suite is this test")
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("", "dt")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	tmp := filepath.Join(dir, "tmp")
	require.NoError(t, os.Mkdir(tmp, 0o755))
	require.NoError(t, os.Chown(tmp, nobody, nobody))
	test := filepath.Join(dir, "drainit.test")
	image, err := os.ReadFile(self(t))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(test, image, 0o755))
	program := filepath.Join(dir, "drainit")
	image, err = os.ReadFile(binary)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, image, 0o755))

	for _, part := range []struct{ name, run string }{
		{"in a user namespace", "^(TestStopInOrder|TestLadder|TestStopSignals|TestReapsOrphans|TestSweep)$"},
		{"not PID 1", "^(TestSubreaper|TestExitCodes)$"},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(test, "-test.run", part.run, "-test.v", "-drainit.bin", program)
			cmd.Dir = tmp
			cmd.Env = append(cleanEnvironment(), "TMPDIR="+tmp, "HOME="+tmp)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			if bytes.Contains(out, []byte("--- SKIP")) {
				skip(t, "user namespaces for uid 65534", "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces)")
			}
			require.Contains(t, string(out), "--- PASS", "something was run")
		})
	}
}
