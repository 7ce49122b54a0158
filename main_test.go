package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds every wait for something that has to happen; machines are shared and slow at times.
const patience = 30 * time.Second

// helperVariable makes the test binary run as one of the helpers instead of running tests. (Not DRAINIT_...: drainit
// refuses variables it does not know.)
const helperVariable = "TEST_HELPER"

// helpers are the apps under test; each registers itself in an init function.
var helpers = map[string]func(args []string){}

var (
	binFlag = flag.String("drainit.bin", "", "the drainit binary to test; built from this tree by default")
	binary  string
)

func TestMain(m *testing.M) {
	if name := os.Getenv(helperVariable); name != "" {
		helper, ok := helpers[name]
		if !ok {
			fmt.Fprintf(os.Stderr, "no helper %q\n", name)
			os.Exit(99)
		}
		helper(os.Args[1:])
		os.Exit(0)
	}
	flag.Parse()
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	binary = *binFlag
	if binary == "" {
		dir, err := os.MkdirTemp("", "drainit-test")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o755); err != nil { // for tests that run it as another user
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		binary = filepath.Join(dir, "drainit")
		if err := build(binary); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// build makes the binary as users build it.
func build(path string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "nethttpomithttp2", "-ldflags", "-s -w", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build drainit: %w\n%s", err, out)
	}
	return nil
}

// skip skips the test because something is missing; where everything has to be there (REQUIRE_ALL_TESTS=1, in CI) it fails.
func skip(t *testing.T, missing, howToGetIt string) {
	t.Helper()
	if os.Getenv("REQUIRE_ALL_TESTS") != "" {
		t.Fatalf("missing: %s (%s)", missing, howToGetIt)
	}
	t.Skipf("missing: %s (%s)", missing, howToGetIt)
}

// needProgram skips the test unless one of the programs is installed, and returns its path.
func needProgram(t *testing.T, howToGetIt string, names ...string) string {
	t.Helper()
	for _, name := range names {
		for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/usr/local/sbin") {
			paths, _ := filepath.Glob(filepath.Join(dir, name))
			for _, path := range slices.Backward(paths) {
				if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
					return path
				}
			}
		}
	}
	skip(t, strings.Join(names, " or "), howToGetIt)
	return ""
}

// world says how drainit is started by start.
type world struct {
	notInit bool     // in the test's own PID namespace; default: as PID 1 of a new one
	helper  string   // the command is this helper of the test binary, with the arguments given after "--"
	env     []string // added to the environment
	dir     string
	stdin   io.Reader
	stdout  *os.File // default: collected with stderr
	sys     syscall.SysProcAttr
	setup   func(*exec.Cmd)
	via     []string // a program in front of drainit, which execs it (sh -c 'ulimit ...; exec "$@"' sh)
	noProbe bool     // no readiness endpoint
	tcp     bool     // endpoint on a free TCP port instead of a Unix socket
}

// process is a running drainit.
type process struct {
	*output
	t      *testing.T
	cmd    *exec.Cmd
	health string // address of the endpoint
	done   chan struct{}
	err    error
}

// start starts drainit with the arguments.
func start(t *testing.T, w world, args ...string) *process {
	t.Helper()
	p := &process{t: t, output: newOutput(), done: make(chan struct{})}
	if !w.noProbe {
		p.health = "unix:" + filepath.Join(shortTempDir(t), "health")
		if w.tcp {
			p.health = freeAddress(t)
		}
		args = append([]string{"--health-listen", p.health}, args...)
	} else {
		args = append([]string{"--health-listen", "off"}, args...)
	}
	if w.helper != "" {
		dash := slices.Index(args, "--")
		if dash < 0 {
			args, dash = append(args, "--"), len(args)
		}
		args = slices.Insert(args, dash+1, self(t))
		w.env = append(w.env, helperVariable+"="+w.helper)
	}
	line := append(append(slices.Clone(w.via), binary), args...)
	p.cmd = exec.Command(line[0], line[1:]...)
	p.cmd.Env = append(cleanEnvironment(), w.env...)
	p.cmd.Dir = w.dir
	p.cmd.Stdin = w.stdin
	attr := w.sys
	if !w.notInit {
		attr.Cloneflags |= pidNamespace(t)
		if attr.Cloneflags&syscall.CLONE_NEWUSER != 0 {
			attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
			attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		}
	}
	p.cmd.SysProcAttr = &attr
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	p.cmd.Stderr = writer
	if p.cmd.Stdout = writer; w.stdout != nil {
		p.cmd.Stdout = w.stdout
	}
	if w.setup != nil {
		w.setup(p.cmd)
	}
	require.NoError(t, p.cmd.Start(), "cannot start %v", line)
	_ = writer.Close()
	go p.output.collect(reader)
	go func() { p.err = p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // as PID 1 this ends its whole namespace
		<-p.done
		if t.Failed() {
			t.Logf("output of drainit %q:\n%s", args, p.text())
		}
	})
	return p
}

// signal sends a signal to drainit.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// exit waits for drainit to end and returns its exit code, 128+n where signal n ended it.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("drainit does not end; output so far:\n%s", p.text())
	}
	p.output.wait(p.t)
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// get asks the readiness endpoint; code 0 where it does not answer.
func (p *process) get(path string) (code int, body string) {
	p.t.Helper()
	network, address := "tcp", p.health
	if path, isUnix := strings.CutPrefix(p.health, "unix:"); isUnix {
		network, address = "unix", path
	}
	client := &http.Client{
		Timeout: patience,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}},
	}
	response, err := client.Get("http://drainit" + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	b, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(b)
}

// waitReady waits for /readyz to have the code.
func (p *process) waitReady(code int) {
	p.t.Helper()
	eventually(p.t, func() bool { got, _ := p.get("/readyz"); return got == code }, "/readyz answers %d", code)
}

// eventually polls a condition until patience is over.
func eventually(t *testing.T, condition func() bool, format string, args ...any) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("never true: "+format, args...)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// output collects lines and lets tests wait for them.
type output struct {
	mu      sync.Mutex
	lines   []string
	changed chan struct{} // closed and renewed at every line
	ended   bool
}

func newOutput() *output { return &output{changed: make(chan struct{})} }

func (o *output) collect(r io.ReadCloser) {
	defer r.Close()
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		o.add(scanner.Text(), false)
	}
	o.add("", true)
}

func (o *output) add(line string, end bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended = end; !end {
		o.lines = append(o.lines, line)
	}
	close(o.changed)
	o.changed = make(chan struct{})
}

// line waits for a line that matches and returns its submatches.
func (o *output) line(t *testing.T, pattern string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	timeout := time.After(patience)
	for from := 0; ; {
		o.mu.Lock()
		lines, changed, ended := o.lines[from:], o.changed, o.ended
		o.mu.Unlock()
		for _, l := range lines {
			if m := re.FindStringSubmatch(l); m != nil {
				return m
			}
		}
		from += len(lines)
		if ended {
			t.Fatalf("the output ended without a line that matches %q:\n%s", pattern, o.text())
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("no line matches %q:\n%s", pattern, o.text())
		}
	}
}

// wait waits for the end of the output: every process that could write to it has ended.
func (o *output) wait(t *testing.T) {
	t.Helper()
	timeout := time.After(patience)
	for {
		o.mu.Lock()
		changed, ended := o.changed, o.ended
		o.mu.Unlock()
		if ended {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("the output does not end:\n%s", o.text())
		}
	}
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.lines, "\n")
}

// count says how many lines match.
func (o *output) count(pattern string) int {
	re := regexp.MustCompile(pattern)
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, l := range o.lines {
		if re.MatchString(l) {
			n++
		}
	}
	return n
}

// self is the test binary, which is also the helpers.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	return path
}

// cleanEnvironment is the environment without what would change drainit or the helpers.
func cleanEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, envPrefix) || strings.HasPrefix(e, helperVariable+"=")
	})
}

// shortTempDir is a directory whose name is short enough for a Unix socket (108 bytes, unix(7)).
func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dt")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// freeAddress is a loopback address that was free a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// pidNamespace gives the clone flags for a PID namespace of one's own: as root just that, otherwise inside a user namespace.
func pidNamespace(t *testing.T) uintptr {
	t.Helper()
	flags := uintptr(syscall.CLONE_NEWPID)
	if os.Getuid() != 0 {
		flags |= syscall.CLONE_NEWUSER
	}
	pidNamespaceOnce.Do(func() {
		cmd := exec.Command("/bin/true")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		errPIDNamespace = cmd.Run()
	})
	if errPIDNamespace != nil {
		skip(t, "PID namespaces: "+errPIDNamespace.Error(), "run as root, or allow unprivileged user namespaces")
	}
	return flags
}

var (
	pidNamespaceOnce sync.Once
	errPIDNamespace  error
)

// status reads a field of /proc/PID/status as seen from outside; "" when the process is gone.
func status(pid int, field string) string {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
