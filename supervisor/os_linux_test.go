package supervisor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/drainit/drainit/logs"
	"github.com/drainit/drainit/signals"
)

// patience is how long a test waits for what has to come; nothing takes as long.
const patience = 20 * time.Second

// childVariable makes the test program one of children: what reaps every child cannot run beside other tests.
const childVariable = "SUPERVISOR_TEST_CHILD"

var children = map[string]func(args []string){
	"run":         childRun,
	"codes":       childCodes,
	"descriptors": childDescriptors,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(childVariable); name != "" {
		os.Unsetenv(childVariable)
		children[name](os.Args[1:])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child prepares the test program to run as one of children.
func child(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	require.Contains(t, children, name)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), childVariable+"="+name)
	return cmd
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func shell(t *testing.T) string {
	t.Helper()
	const sh = "/bin/sh"
	if _, err := os.Stat(sh); err != nil {
		t.Skipf("needs a POSIX shell (Debian: apt-get install dash): %v", err)
	}
	return sh
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "waited in vain for: %s", what)
	}
}

func TestStatusCode(t *testing.T) {
	for code := range 256 {
		assert.Equal(t, code, exitedWith(code).Code())
		assert.Equal(t, fmt.Sprintf("exited with %d", code), exitedWith(code).String())
	}
	const core = 0x80
	for sig := signals.Signal(1); sig <= 64; sig++ {
		assert.Equal(t, 128+int(sig), endedBy(sig).Code())
		assert.Equal(t, 128+int(sig), (endedBy(sig) | core).Code())
		assert.Equal(t, "was ended by "+signals.Name(sig), endedBy(sig).String())
		assert.Equal(t, "was ended by "+signals.Name(sig)+" (core dumped)", (endedBy(sig) | core).String())
	}
}

// TestRealExitCodes holds what the kernel reports against the table: every exit code, and every signal that ends a process.
func TestRealExitCodes(t *testing.T) {
	shell(t)
	cmd := child(t, "codes")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	var want strings.Builder
	for code := range 256 {
		fmt.Fprintf(&want, "exit %d: %d\n", code, code)
	}
	for sig := 1; sig <= 64; sig++ {
		if ends(signals.Signal(sig)) {
			fmt.Fprintf(&want, "kill -%d $$; exit 0: %d\n", sig, 128+sig)
		}
	}
	require.Equal(t, want.String(), string(out))
}

// ends says whether the default action of s ends a process, signal(7).
func ends(s signals.Signal) bool {
	switch s {
	case unix.SIGCHLD, unix.SIGCONT, unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGURG, unix.SIGWINCH:
		return false
	case 32, 33:
		return false // the C library's own; make 4.3 leaves them ignored in what it starts
	}
	return true
}

func childCodes([]string) {
	fatal(unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}))
	var scripts []string
	for code := range 256 {
		scripts = append(scripts, fmt.Sprintf("exit %d", code))
	}
	for sig := signals.Signal(1); sig <= 64; sig++ {
		if ends(sig) {
			scripts = append(scripts, fmt.Sprintf("kill -%d $$; exit 0", int(sig)))
		}
	}
	for _, script := range scripts {
		h := &host{adopts: true, config: Config{Command: []string{"/bin/sh", "-c", script}}}
		var err error
		h.pid, err = syscall.ForkExec("/bin/sh", h.config.Command, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
		fatal(err)
		into := make([]Exited, 1)
		for n, left := 0, true; n == 0; {
			if n, _, left = h.reap(into); n == 0 && !left {
				fatal(fmt.Errorf("%s: nothing to reap", script))
			}
		}
		if into[0].PID != h.pid || !h.ended {
			fatal(fmt.Errorf("%s: reaped %v, ended %v", script, into[0], h.ended))
		}
		fmt.Printf("%s: %d\n", script, into[0].Status.Code())
	}
}

// childRun runs a command and writes the summary to stderr, which drainit keeps.
func childRun(args []string) {
	c := defaults()
	c.Command, c.DrainDelay, c.Subreaper = args, 0, SubreaperOn
	c.WarnOnReap, c.Verbose = true, true
	log := logs.New(2, logs.Text)
	summary, err := Run(c, NewPlan(c), signals.Listen(nil), noReadiness{}, NewHeartbeat(), log)
	fatal(err)
	log.Flush(patience)
	b, err := json.Marshal(summary)
	fatal(err)
	fmt.Fprintf(os.Stderr, "%s\n", b)
	os.Exit(summary.Code)
}

type noReadiness struct{}

func (noReadiness) Open() {}
func (noReadiness) Fail() {}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

func TestRunReapsAndEndsOrphans(t *testing.T) {
	cmd := child(t, "run", shell(t), "-c", "sleep 300 & sleep 300 & (exit 1) & exit 3")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.Error(t, cmd.Run())
	require.Equal(t, 3, cmd.ProcessState.ExitCode(), stderr.String())
	var got struct {
		Orphans int  `json:"orphans_reaped"`
		Forced  bool `json:"forced"`
	}
	require.NoError(t, json.Unmarshal([]byte(lastLine(stderr.String())), &got), stderr.String())
	assert.GreaterOrEqual(t, got.Orphans, 2, stderr.String())
	assert.False(t, got.Forced, stderr.String())
	assert.Contains(t, stderr.String(), "it was ended by SIGTERM")
}

func TestRunStopsTheCommand(t *testing.T) {
	cmd := child(t, "run", shell(t), "-c", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.ReadFull(out, make([]byte, len("ready\n")))
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(unix.SIGTERM))
	require.Error(t, cmd.Wait())
	assert.Equal(t, 7, cmd.ProcessState.ExitCode(), stderr.String())
	assert.Contains(t, stderr.String(), `"asked":"SIGTERM"`)
}

func TestInheritedDescriptors(t *testing.T) {
	cmd := child(t, "descriptors")
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	cmd.ExtraFiles = []*os.File{r, w}
	out, err := cmd.Output()
	require.NoError(t, err)
	var got struct{ Inherited, Own []int }
	require.NoError(t, json.Unmarshal(out, &got))
	// What the test itself has inherited is there, too.
	require.Subset(t, got.Inherited, []int{3, 4})
	require.Len(t, got.Own, 1)
	require.NotContains(t, got.Inherited, got.Own[0])
	for _, standard := range []int{0, 1, 2} {
		require.NotContains(t, got.Inherited, standard)
	}
}

func childDescriptors([]string) {
	own, err := os.Open("/")
	fatal(err)
	b, err := json.Marshal(struct{ Inherited, Own []int }{inheritedDescriptors(), []int{int(own.Fd())}})
	fatal(err)
	fmt.Println(string(b))
}

func TestKillEverythingIsForPID1(t *testing.T) {
	if os.Getpid() == 1 {
		t.Skip("this process is PID 1: run the test below a shell or an init (docker run --init)")
	}
	// Signal 0 reaches nobody, should the check be gone.
	require.Panics(t, func() { _ = killEverything(0) })
}

func TestNothingIsSentToWhatWasReaped(t *testing.T) {
	// Our own pid stands for the stranger who got it. The kernel knows no such signal, so sending it is an error.
	const noSignal = signals.Signal(65)
	require.ErrorIs(t, (&host{pid: os.Getpid()}).send(noSignal), unix.EINVAL)
	for _, group := range []bool{false, true} {
		h := &host{pid: os.Getpid(), ended: true, config: Config{Group: group}}
		require.NoError(t, h.send(noSignal), "it has been reaped")
		h = &host{config: Config{Group: group}}
		require.NoError(t, h.send(noSignal), "not started yet: pid 0 would be our own group")
	}
}

func TestHandlerState(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), shell(t), "-c", "trap : QUIT; trap '' HUP; echo ready; read line")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = in.Close()
		_ = cmd.Wait()
	}()
	_, err = io.ReadFull(out, make([]byte, len("ready\n")))
	require.NoError(t, err)

	table := signals.Table{{Name: "sh*", Signal: unix.SIGQUIT}}
	h := &host{pid: cmd.Process.Pid, procPID: procPID(cmd.Process.Pid), config: Config{Command: []string{"/x/nginx"}, StopTable: table}}
	if h.procPID == 0 {
		t.Skip("needs /proc (mount -t proc proc /proc)")
	}
	assert.Equal(t, HandlerState{Signal: unix.SIGQUIT, Program: "sh", Handled: true}, h.handlerState(unix.SIGQUIT))
	assert.Equal(t, HandlerState{Signal: unix.SIGHUP, Program: "sh", Handled: true}, h.handlerState(unix.SIGHUP), "ignored counts")
	assert.Equal(t, HandlerState{Signal: unix.SIGUSR1, Program: "sh"}, h.handlerState(unix.SIGUSR1))
	assert.Equal(t, HandlerState{Signal: unix.SIGKILL, Program: "sh", Handled: true}, h.handlerState(unix.SIGKILL))
	assert.Equal(t, HandlerState{Signal: unix.SIGQUIT, Program: "sh", Handled: true}, h.handlerState(0), "auto")
	assert.True(t, h.stopsMain(unix.SIGQUIT))
	assert.False(t, h.stopsMain(unix.SIGHUP))
	h.config.StopSignal = unix.SIGTERM
	assert.False(t, h.stopsMain(unix.SIGQUIT), "only auto goes by the program")
	h.config.StopSignal = 0

	require.NoError(t, h.send(unix.SIGSTOP))
	eventually(t, "a suspended process", func() bool { return h.handlerState(unix.SIGQUIT).Suspended })
}

func TestHandlerStateWithoutProc(t *testing.T) {
	log, logged := testLog(t)
	h := &host{log: log, config: Config{Command: []string{"/usr/sbin/nginx"}, StopTable: signals.DefaultTable}}
	for range 3 {
		assert.Equal(t, HandlerState{Signal: unix.SIGQUIT, Handled: true}, h.handlerState(0))
	}
	assert.Equal(t, HandlerState{Signal: unix.SIGUSR1, Handled: true}, h.handlerState(unix.SIGUSR1))
	assert.True(t, h.stopsMain(unix.SIGQUIT), "by the name of the command")
	assert.False(t, h.stopsMain(unix.SIGWINCH))
	assert.Len(t, logged(), 1, "said once")
}

func TestLookPath(t *testing.T) {
	root := t.TempDir()
	at := func(elements ...string) string { return filepath.Join(append([]string{root}, elements...)...) }
	for _, dir := range []string{"a/dir", "b", "c"} {
		require.NoError(t, os.MkdirAll(at(dir), 0o755))
	}
	for name, mode := range map[string]os.FileMode{"a/plain": 0o644, "a/mixed": 0o644, "b/mixed": 0o755, "b/dir": 0o755, "b/tool": 0o755, "c/here": 0o755, "file": 0o755} {
		require.NoError(t, os.WriteFile(at(name), []byte("#!/bin/sh\n"), mode))
	}
	require.NoError(t, os.Symlink("nowhere", at("a/dangling")))
	require.NoError(t, os.Symlink("loop", at("a/loop")))
	t.Chdir(at("c"))

	ab := at("a") + ":" + at("b")
	for _, c := range []struct {
		path, name, want string
		code             int
		says             string
	}{
		{path: ab, name: "tool", want: at("b/tool")},
		{path: ab, name: "mixed", want: at("b/mixed")}, // not executable in a: passed over
		{path: ab, name: "dir", want: at("b/dir")},     // a directory in a: passed over
		{path: ab, name: "plain", code: CodeCannotExec, says: "permission denied"},
		{path: at("a"), name: "dir", code: CodeCannotExec, says: "is a directory"},
		{path: ab, name: "dangling", code: CodeNotFound, says: "not found in PATH"},
		{path: ab, name: "loop", code: CodeCannotExec, says: "too many levels of symbolic links"},
		{path: ab, name: "absent", code: CodeNotFound, says: "not found in PATH (" + ab + ")"},
		{path: at("file") + ":" + at("b"), name: "tool", want: at("b/tool")},
		{path: at("file") + ":" + at("a"), name: "absent", code: CodeNotFound, says: "not found in PATH"},
		{path: ab + ":", name: "here", want: "./here"}, // an empty element is the current directory
		{path: ":" + ab, name: "here", want: "./here"},
		{path: at("a") + "::" + at("b"), name: "here", want: "./here"},
		{path: "../b", name: "tool", want: "../b/tool"},
		{path: ab, name: "here", code: CodeNotFound, says: "not found"},
		{path: "", name: "here", code: CodeNotFound, says: "not found"},
		{path: ab, name: "", code: CodeNotFound, says: "the command is empty"},
		{path: "", name: at("b/tool"), want: at("b/tool")},
		{path: "", name: "./here", want: "./here"},
		{path: ab, name: at("a/dangling"), code: CodeNotFound, says: "no such file or directory"},
		{path: ab, name: at("a/loop"), code: CodeCannotExec, says: "too many levels of symbolic links"},
		{path: ab, name: at("a/plain"), code: CodeCannotExec, says: "noexec"},
		{path: ab, name: at("a/dir"), code: CodeCannotExec, says: "is a directory"},
		{path: ab, name: at("a/absent"), code: CodeNotFound, says: "no such file or directory"},
	} {
		t.Setenv("PATH", c.path)
		got, err := LookPath(c.name)
		if c.code == 0 {
			assert.NoError(t, err, "%q in %q", c.name, c.path)
			assert.Equal(t, c.want, got, "%q in %q", c.name, c.path)
			continue
		}
		if assert.Error(t, err, "%q in %q", c.name, c.path) {
			assert.Equal(t, c.code, exitCodeOf(err), "%q in %q: %v", c.name, c.path, err)
			assert.ErrorContains(t, err, c.says)
			assert.ErrorContains(t, err, "cannot execute ")
		}
	}
}

func TestLookPathWithoutPATH(t *testing.T) {
	shell(t)
	t.Setenv("PATH", "") // restored at the end
	require.NoError(t, os.Unsetenv("PATH"))
	got, err := LookPath("sh")
	require.NoError(t, err)
	require.Equal(t, "/bin/sh", got)
	_, err = LookPath("surely-no-such-command")
	require.ErrorContains(t, err, defaultPath)
}

func TestExplainExec(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
		return path
	}
	// An ELF header of no machine at all.
	elf := "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\xff\xfe" + strings.Repeat("\x00", 100)
	locked := file("locked", "#!"+file("interpreter", "")+"\n")
	require.NoError(t, os.Chmod(filepath.Join(dir, "interpreter"), 0o644))
	for _, c := range []struct {
		path string
		code int
		says []string
	}{
		{file("interpreterless", "#!/no/such/shell -e\necho\n"), CodeNotFound, []string{`interpreter "/no/such/shell"`, "does not exist"}},
		{file("windows", "#!/bin/sh\r\necho\r\n"), CodeNotFound, []string{`interpreter "/bin/sh\r"`, "Windows line ends"}},
		{file("bare", "echo\n"), CodeCannotExec, []string{"exec format error", "without a #! line"}},
		{file("foreign", elf), CodeCannotExec, []string{"exec format error", "another architecture"}},
		{file("empty", ""), CodeCannotExec, []string{"exec format error"}},
		{locked, CodeCannotExec, []string{"permission denied", "or its interpreter"}},
		{filepath.Join(dir, "absent"), CodeNotFound, []string{"no such file"}},
	} {
		h := &host{config: Config{Command: []string{c.path}}}
		pid, code, err := h.start()
		assert.Zero(t, pid, c.path)
		assert.Equal(t, c.code, code, "%s: %v", c.path, err)
		for _, says := range append(c.says, fmt.Sprintf("cannot execute %q", c.path)) {
			assert.ErrorContains(t, err, says)
		}
	}

	elfPath := filepath.Join(dir, "foreign")
	err := explainExec(elfPath, unix.ENOENT)
	assert.ErrorContains(t, err, "dynamic loader does not exist")
	assert.Equal(t, CodeNotFound, exitCodeOf(err))
	err = explainExec(elfPath, unix.EAGAIN)
	assert.ErrorContains(t, err, "pids limit")
	assert.ErrorIs(t, err, unix.EAGAIN)
	assert.Equal(t, CodeCannotExec, exitCodeOf(err))
}

func TestInterpreterOf(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"#!/bin/sh\n": "/bin/sh", "#!/bin/sh": "/bin/sh", "#! \t/usr/bin/env\tpython\n": "/usr/bin/env", "#!\n": "",
		"#!/" + strings.Repeat("x", 300): "/" + strings.Repeat("x", 253),
	} {
		path := filepath.Join(dir, "script")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		got, script := interpreterOf(path)
		assert.True(t, script, text)
		assert.Equal(t, want, got)
	}
	for _, path := range []string{dir, filepath.Join(dir, "absent"), "/dev/null"} {
		_, script := interpreterOf(path)
		assert.False(t, script, path)
	}
}
