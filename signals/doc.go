// Package signals knows what every Linux signal is called, what drainit does with
// it, which one asks which program to stop gracefully, and receives them without
// losing one.
//
//   - Parse and Name turn text into signals and back.
//   - Classify says what drainit does with a signal it receives; List prints that.
//   - Rewrite is --rewrite: a received signal becomes another one, or nothing.
//   - Table is the stop-signal table: nginx wants QUIT, httpd WINCH, most TERM.
//   - Listen subscribes.
//
// Invariants, each held by a test:
//
//  1. Every signal number has its own one-slot channel, from the runtime to the
//     pump. os/signal drops what does not fit into a channel, so with a shared one a
//     burst of SIGWINCH could push out the SIGTERM. Repeats of one signal merge, as
//     they do in the kernel: nobody may count on two quick SIGTERMs being seen as two.
//  2. A signal received is handed on after at most two rounds over all the others,
//     however fast these keep coming in.
//  3. What was ignored when the program started, and Go is able to leave so, stays
//     ignored: a command started by nohup and drainit still survives SIGHUP.
//  4. Nothing is ever passed to signal.Ignore: the child would inherit it.
//
// Signal numbers are those of glibc: SIGRTMIN is 34, SIGRTMAX is 64.
package signals
