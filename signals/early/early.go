// Package early subscribes to the signals that would end drainit, TERM, INT, QUIT and HUP, the moment a Go program can:
// when package os/signal has been initialized, and not only when main begins.
//
// In between the runtime's handlers are there, and end the process: with status 2 as PID 1, and for QUIT with a dump of
// all goroutines (runtime.dieFromSignal, runtime.sighandler). Packages are initialized in the order of their import
// paths as soon as all they import is, so this one imports nothing but os and os/signal, and comes before net/http and
// most others: TestEarlyIsInitializedFirst.
//
// Importing it changes the process, so only a main package may.
package early

import (
	"os"
	"os/signal"
	"syscall"
)

// Slots has a one-slot channel for each signal subscribed to, for signals.Listen. A signal that was inherited as
// ignored (nohup, a background job) is left alone.
var Slots = map[syscall.Signal]chan os.Signal{}

func init() {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			Slots[s] = make(chan os.Signal, 1)
			signal.Notify(Slots[s], s)
		}
	}
}
