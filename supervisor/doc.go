// Package supervisor runs a command to its end: it starts it, passes signals on, stops it in order inside the grace
// period, reaps, and says how it went.
//
// Three layers, from pure to dirty:
//
//   - Plan is a stop as data. NewPlan makes it from a Config before anything is started; --plan prints it.
//   - Machine is a whole run as a pure function. Next takes an Event and the time, and gives the next Machine and the
//     Actions to do. Deadline says when it wants a TimerFired.
//   - The loop is the only place with a clock, a timer and a select. It turns what happens into events, does the actions
//     on a host, and answers CheckHandler with HandlerState at once. host is Linux: fork, wait4, kill and /proc.
//
// # Phases
//
//	Starting ──► Running ──► Draining ──► Stopping ──► Killing ──► Done (gave up)
//	   │            │            │            │            │
//	   │            └────────────┴────────────┴────────────┴──► Sweeping ──► Done
//	   └──► Done (could not start, or the stop came first)
//
// A stop signal leads from Running to Draining; from there the steps of the Plan lead on when they are due, or sooner
// when the stop signal comes again. The end of the main process leads to Sweeping from wherever it happens; there
// leftover processes are ended (TERM, then KILL). After Done, outside the machine because no process is left to decide
// about, PID 1 lingers until the network has taken the last answers (linger_linux.go).
//
// # Invariants
//
// Tests hold each of these for every short sequence of events, and by fuzzing for long ones:
//
//  1. Readiness fails before the stop signal is sent, and before the run ends; it opens once and fails once.
//  2. Exit happens once and is the last action; in Done nothing is ever emitted again.
//  3. Nothing is sent to the main process after it was reaped: its pid may belong to somebody else.
//  4. When timers fire on time, Exit comes at most Plan.GiveUpAt, and so less than the grace period, after the stop
//     request. Where the process was frozen (a deadline noticed more than a second late) the time lost is added.
//  5. One more stop signal never makes the end come later. The n-th takes a step only where fewer than n-1 steps that do
//     something to the processes have been taken: a repeat for a step that is over does nothing.
//  6. SIGKILL comes no sooner than the step of the plan that says so, except to leftovers and where the stop signal
//     came again.
//  7. SIGCHLD, SIGURG and SIGPIPE are not passed on: signals.Source does not deliver them as signals.
//  8. Next is deterministic, reads no clock, and leaves the Machine it was called on as it was.
//  9. The end of the main process and a stop signal that happen at once give the same exit code in either order.
//  10. A command that ignores everything sees exactly the steps of Plan.Timeline, at exactly these times.
//
// # Who may wait and kill
//
// Only host and its terminal call wait4, fork and kill, and only the loop calls host, from one goroutine, which is the main
// one with its thread locked. So a pid that has not been reaped cannot be recycled between the decision to signal it and the signal.
// Nobody else in the process may wait for a child: os/exec would lose it to host.reap. kill(-1) is for PID 1 alone.
//
// Nothing that fails after the start ends the run: it is logged, and the stop goes on to its next step.
package supervisor
