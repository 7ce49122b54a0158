// Package logs writes drainit's log lines to stderr without ever holding anything up.
//
// The contract:
//
//   - Logging never blocks the caller and never fails. One goroutine writes; a bounded queue is between it and
//     everybody else. A reader of stderr that is stuck (a full pipe, a terminal stopped with Ctrl-S) costs lines, not
//     time.
//   - Nothing is lost silently: lines that found the queue full, or that stderr refused, are counted, and the count is
//     written as a line of its own as soon as one can be written, and is there for the summary (Lost).
//   - A closed pipe does not kill: write(2) is called directly. An os.File on descriptor 1 or 2 ends a Go program
//     with SIGPIPE when the reader has gone (package os/signal, "SIGPIPE"), and when PID 1 ends the container ends.
//   - The descriptor's flags are left alone. O_NONBLOCK belongs to the open file description, which the app shares.
package logs
