package supervisor

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/drainit/drainit/logs"
	"github.com/drainit/drainit/signals"
)

// SubreaperMode says whether drainit adopts the orphans of its command when it is not PID 1.
type SubreaperMode string

const (
	SubreaperAuto SubreaperMode = "auto" // if possible
	SubreaperOn   SubreaperMode = "on"   // or do not start
	SubreaperOff  SubreaperMode = "off"
)

// Run starts the command of c, sees it through to its end as p says, and returns what happened. It belongs to the main
// goroutine of a process: it locks the thread (PR_SET_PDEATHSIG and the signal mask belong to threads), reaps every
// child, closes inherited descriptors and moves to /. An error means that nothing was started; Code then is CodeUsage.
func Run(c Config, p *Plan, source *signals.Source, readiness Readiness, heartbeat Heartbeat, log *logs.Logger) (Summary, error) {
	runtime.LockOSThread()
	reserveThreads()
	h := &host{config: c, inherited: inheritedDescriptors(), isInit: os.Getpid() == 1, log: log}
	if err := h.prepare(); err != nil {
		return Summary{Code: CodeUsage}, err
	}
	l := &loop{sys: h, source: source, readiness: readiness, log: log, heartbeat: heartbeat, m: NewMachine(c, p)}
	for _, problem := range p.Problems {
		l.say(logs.Warn, Starting, problem.Message)
	}
	summary := l.run()
	if h.isInit && summary.Asked != 0 && !summary.Forced {
		killAt := summary.Deadline.Add(p.KillAt - p.GracePeriod)
		if took := l.linger(killAt); took > 0 {
			summary.Phases = append(summary.Phases, PhaseTime{Lingering, took})
		}
	}
	h.terminal.reclaim()
	return summary, nil
}

// host is the real system. All of drainit's fork, wait and kill are in this file.
type host struct {
	config    Config
	log       *logs.Logger
	isInit    bool // PID 1: the kernel gives us every orphan, and kill(-1) reaches our namespace only
	adopts    bool // orphans come to us, as PID 1 or as subreaper
	pid       int  // the main process, and its process group
	procPID   int  // its number in /proc; 0 where /proc does not show it
	ended     bool // it has been reaped: its pid may belong to somebody else
	inherited []int
	terminal  terminal
	signalled map[int]signals.Signal // what each leftover was sent last
	sentAll   signals.Signal         // what kill(-1) sent last
	noProc    bool                   // that /proc is missing has been said
}

// reserveThreads makes the runtime start more threads than it needs now. It never gives them back, and takes them later
// instead of new ones: with the pids limit reached (docker run --pids-limit, a fork bomb) clone(2) fails with EAGAIN, and
// then the runtime ends the program, as PID 1 with everything in the container.
func reserveThreads() {
	const spare = 4 // 50 probes at once take 3 (measured)
	var locked, released sync.WaitGroup
	release := make(chan struct{})
	locked.Add(spare)
	for range spare {
		released.Go(func() {
			runtime.LockOSThread() // a goroutine that waits keeps its thread, so the next one needs another
			locked.Done()
			<-release
			runtime.UnlockOSThread()
		})
	}
	locked.Wait()
	close(release)
	released.Wait()
}

// prepare does what has to come before the command.
func (h *host) prepare() error {
	h.adopts = h.isInit
	if !h.isInit && h.config.Subreaper != SubreaperOff {
		err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
		if err != nil && h.config.Subreaper == SubreaperOn {
			return fmt.Errorf("cannot become a subreaper (--subreaper on): %w", err)
		}
		if err != nil {
			h.log.Log(logs.Line{Level: logs.Warn, Message: fmt.Sprintf("cannot become a subreaper, orphans will not be reaped: %v", err)})
		}
		h.adopts = err == nil
	}
	if s := h.config.ParentDeathSignal; s != 0 {
		parent := os.Getppid()
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(s), 0, 0, 0); err != nil {
			return fmt.Errorf("cannot ask for %s at the parent's death (--parent-death-signal): %w", signals.Name(s), err)
		}
		if os.Getppid() != parent { // it died just before
			_ = unix.Kill(os.Getpid(), s)
		}
	}
	return nil
}

func (h *host) start() (pid int, code int, err error) {
	path, err := LookPath(h.config.Command[0])
	if err != nil {
		return 0, exitCodeOf(err), err
	}
	h.terminal = findTerminal()
	pid, err = syscall.ForkExec(path, h.config.Command, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, 1, 2},
		// A group of its own, so that a command that signals its group (kill 0) does not stop drainit, and so that
		// --process-group and the last kill have something to aim at.
		Sys: &syscall.SysProcAttr{Setpgid: true, Foreground: h.terminal.handOver, Ctty: h.terminal.fd},
	})
	if err != nil {
		err = explainExec(path, err)
		return 0, exitCodeOf(err), err
	}
	h.pid, h.procPID = pid, procPID(pid)
	h.terminal.group = pid
	h.letGo()
	return pid, 0, nil
}

// letGo gives up what drainit only held for the command, so that it keeps nothing busy or open: the other end of an
// inherited pipe sees its end, and the file system drainit was started in can be unmounted.
func (h *host) letGo() {
	for _, fd := range h.inherited {
		_ = unix.Close(fd)
	}
	if null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Dup3(null, 0, unix.O_CLOEXEC)
		_ = unix.Dup3(null, 1, unix.O_CLOEXEC)
		_ = unix.Close(null)
	}
	_ = unix.Chdir("/")
	h.terminal.ignoreBackgroundStops()
}

// inheritedDescriptors lists the descriptors above 2 that the command inherits. Go's own are close-on-exec.
func inheritedDescriptors() []int {
	var fds []int
	keep := func(fd int) {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			fds = append(fds, fd)
		}
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		for fd := 3; fd < 256; fd++ { // no /proc: a guess that covers what shells and managers hand on
			keep(fd)
		}
		return fds
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			keep(fd)
		}
	}
	return fds
}

func (h *host) reap(into []Exited) (n int, more, left bool) {
	for n < len(into) {
		var status unix.WaitStatus
		// Never __WALL: Go's own helper clones end without a signal and are not ours to wait for.
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WUNTRACED, nil)
		switch {
		case err == unix.EINTR:
		case err != nil: // ECHILD
			return n, false, false
		case pid == 0:
			// Children of the program that became drainit by exec (foo & exec drainit ...) are not ours to end.
			return n, false, h.adopts
		case status.Stopped():
			if pid == h.pid && !h.ended {
				h.terminal.suspended(status.StopSignal())
			}
		default:
			if pid == h.pid {
				h.ended = true
			}
			delete(h.signalled, pid)
			into[n] = Exited{PID: pid, Status: Status(status)}
			n++
		}
	}
	return n, true, true
}

func (h *host) send(s signals.Signal) error {
	if h.config.Group {
		return h.kill(-h.pid, s)
	}
	return h.kill(h.pid, s)
}

// kill sends a signal to the main process or its group, unless it has been reaped.
func (h *host) kill(pid int, s signals.Signal) error {
	if h.ended || h.pid == 0 {
		return nil
	}
	if err := unix.Kill(pid, s); err != nil && err != unix.ESRCH {
		return err
	}
	return nil
}

func (h *host) killTree() error {
	if h.isInit {
		return killEverything(unix.SIGKILL)
	}
	err := h.kill(-h.pid, unix.SIGKILL)
	if h.adopts {
		err = cmp.Or(err, h.signalLeftovers(unix.SIGKILL))
	}
	return err
}

// killEverything signals every process of the PID namespace but ourselves; only for PID 1. For anybody else kill(-1)
// reaches everything the user may signal (kill(2)).
func killEverything(s signals.Signal) error {
	if os.Getpid() != 1 {
		panic("kill(-1) by a process that is not PID 1")
	}
	if err := unix.Kill(-1, s); err != nil && err != unix.ESRCH {
		return err
	}
	return nil
}

func (h *host) signalLeftovers(s signals.Signal) error {
	if h.isInit {
		// KILL again and again until no child is left; another signal once, because what it was sent to may be
		// busy with it and a second one often means "at once".
		if h.sentAll == s && s != unix.SIGKILL {
			return nil
		}
		h.sentAll = s
		return killEverything(s)
	}
	if !h.adopts {
		return nil
	}
	// Only our own children, which nobody but us can reap, so that no pid can have been recycled. What a child leaves
	// behind when it ends becomes our child, and gets its signal then.
	children, err := ownChildren()
	if err != nil {
		return err
	}
	var failed error
	for _, pid := range children {
		if h.signalled[pid] == s {
			continue
		}
		if h.signalled == nil {
			h.signalled = make(map[int]signals.Signal)
		}
		h.signalled[pid] = s
		if err := unix.Kill(pid, s); err != nil && err != unix.ESRCH {
			failed = fmt.Errorf("pid %d: %w", pid, err) // one line says enough
		}
	}
	return failed
}

// procPID gives a process's number in /proc, 0 where there is none. It is the pid itself unless /proc was mounted for
// another PID namespace (unshare --pid without --mount-proc), where the pid may be the number of a stranger.
func procPID(pid int) int {
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return 0
	}
	if self == strconv.Itoa(os.Getpid()) {
		return pid
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	// "Pid: the process that the PID file descriptor refers to, in the PID namespace of the procfs instance", pidfd_open(2).
	info, err := os.ReadFile(filepath.Join("/proc/self/fdinfo", strconv.Itoa(fd)))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(info)) {
		if text, ok := strings.CutPrefix(line, "Pid:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(text))
			if err == nil && n > 0 {
				return n
			}
		}
	}
	return 0
}

// ownChildren finds our children by the parent that each process names. (/proc/PID/task/TID/children needs a kernel
// option that not every kernel has.)
func ownChildren() ([]int, error) {
	self := os.Getpid()
	if procPID(self) != self {
		return nil, errors.New("cannot look for them: no /proc of this PID namespace")
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("cannot look for them: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("cannot look for them: %w", err)
	}
	var pids []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if status, err := readStatus(pid); err == nil && status.parent == self {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// processStatus is what drainit needs of /proc/PID/status (proc_pid_status(5)).
type processStatus struct {
	name                     string
	state                    byte
	parent                   int
	blocked, ignored, caught sigset
}

func readStatus(pid int) (processStatus, error) {
	if pid == 0 {
		return processStatus{}, errors.New("no /proc that shows the process")
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return processStatus{}, err
	}
	return parseStatus(text)
}

func parseStatus(text []byte) (processStatus, error) {
	var s processStatus
	found := 0
	for line := range bytes.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), ":\t")
		var mask *sigset
		switch key {
		case "Name":
			s.name = value
		case "State":
			if value == "" {
				return s, errors.New("cannot read the state of the process")
			}
			s.state = value[0]
		case "PPid":
			parent, err := strconv.Atoi(value)
			if err != nil {
				return s, fmt.Errorf("cannot read the parent of the process: %w", err)
			}
			s.parent = parent
		case "SigBlk":
			mask = &s.blocked
		case "SigIgn":
			mask = &s.ignored
		case "SigCgt":
			mask = &s.caught
		default:
			continue
		}
		if mask != nil {
			bits, err := strconv.ParseUint(value, 16, 64)
			if err != nil {
				return s, fmt.Errorf("cannot read %s of the process: %w", key, err)
			}
			*mask = sigset(bits)
		}
		found++
	}
	if found < 6 {
		return s, errors.New("the status of the process is incomplete")
	}
	return s, nil
}

func (h *host) handlerState(s signals.Signal) HandlerState {
	status, err := readStatus(h.procPID)
	if err != nil {
		if !h.noProc {
			h.noProc = true
			h.log.Log(logs.Line{Level: logs.Warn, Message: fmt.Sprintf("cannot see how the command takes signals, so it gets its stop signal at once: %v", err)})
		}
		if s == 0 {
			s = h.config.StopTable.StopSignal(h.startedAs())
		}
		return HandlerState{Signal: s, Handled: true}
	}
	if s == 0 {
		s = h.config.StopTable.StopSignal(status.name)
	}
	return HandlerState{
		Signal: s, Program: status.name,
		Handled: (status.caught | status.ignored).has(s) || s == unix.SIGKILL || s == unix.SIGSTOP, // which can have no handler
		Blocked: status.blocked.has(s), Suspended: status.state == 'T',
	}
}

func (h *host) stopsMain(s signals.Signal) bool {
	// Most signals stop nothing, and a look at /proc for each would be too dear.
	stops := func(e signals.Entry) bool { return e.Signal == s }
	if h.config.StopSignal != 0 || h.ended || !slices.ContainsFunc(h.config.StopTable, stops) {
		return false
	}
	program := h.startedAs()
	if status, err := readStatus(h.procPID); err == nil {
		program = status.name
	}
	return h.config.StopTable.StopSignal(program) == s
}

// startedAs is the name of the command: all that is known of it before it runs and without /proc.
func (h *host) startedAs() string { return filepath.Base(h.config.Command[0]) }
