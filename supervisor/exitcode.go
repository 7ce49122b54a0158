package supervisor

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/drainit/drainit/signals"
)

// drainit's own exit codes, as docker, env and nohup use them.
const (
	CodeUsage      = 125 // bad flag, variable or combination; the readiness address cannot be bound
	CodeCannotExec = 126 // found, but cannot be executed
	CodeNotFound   = 127 // not found
	CodeKilled     = 137 // 128 + SIGKILL: had to be killed, or could not even be killed
	codeSignalBase = 128
)

// Status is how a process ended.
type Status unix.WaitStatus

// Code is the exit code a shell would report: the process's own, or 128+n when signal n ended it.
// (WaitStatus.ExitStatus gives -1 for the latter, which os.Exit would turn into 255.)
func (s Status) Code() int {
	w := unix.WaitStatus(s)
	if w.Signaled() {
		return codeSignalBase + int(w.Signal())
	}
	return w.ExitStatus()
}

func (s Status) String() string {
	w := unix.WaitStatus(s)
	if w.Signaled() {
		text := "was ended by " + signals.Name(w.Signal())
		if w.CoreDump() {
			text += " (core dumped)"
		}
		return text
	}
	return fmt.Sprintf("exited with %d", w.ExitStatus())
}
