package supervisor

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/drainit/drainit/logs"
)

const (
	// lingerPoll is how often the kernel's table is looked at. Only at the end of a stop, and only while data is left.
	lingerPoll = 20 * time.Millisecond
	// lingerStall is how long nothing may be taken until a client counts as gone.
	lingerStall = 2 * time.Second
)

// linger waits until the network has taken the last answers. A server closes a connection and exits as soon as the
// kernel has the rest of an answer in its buffer, up to some MB of it. The kernel sends it on alone, but only as long as
// the network namespace exists, and a container's ends with its PID 1: a client that is a little slow would lose the
// end of its answer. It stops at the time given, or when there has not been less left for lingerStall: with the host's network
// (docker run --network host) strangers' connections come and go in the same table for ever.
func (l *loop) linger(until time.Time) (took time.Duration) {
	begin := time.Now()
	left, moved := unsentBytes(), begin
	if left == 0 {
		return 0
	}
	l.say(logs.Info, Lingering, fmt.Sprintf("%d bytes are still on their way to clients", left))
	tick := time.NewTicker(lingerPoll)
	defer tick.Stop()
	for now := begin; left > 0 && now.Before(until) && now.Sub(moved) < lingerStall; now = time.Now() {
		select {
		case <-tick.C:
			if n := unsentBytes(); n < left {
				left, moved = n, time.Now()
			}
		case <-l.source.Signals(): // the time is short and has an end
		case <-l.heartbeat:
		}
	}
	if left > 0 {
		l.say(logs.Warn, Lingering, fmt.Sprintf("%d bytes were not taken by clients in time", left))
	}
	return time.Since(begin)
}

// unsentBytes is how much data the connections still have to send that no process holds any more. 0 where nobody can
// know.
func unsentBytes() (sum int) {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if text, err := os.ReadFile(table); err == nil {
			sum += unsentIn(text)
		}
	}
	return sum
}

// unsentIn reads a table in the form of /proc/net/tcp (proc_pid_net(5)): the fourth column is the state, the fifth the
// send queue and the receive queue.
func unsentIn(table []byte) (sum int) {
	for line := range bytes.Lines(table) {
		fields := bytes.Fields(line)
		if len(fields) < 5 {
			continue
		}
		switch string(fields[3]) {
		case "04", "09", "0B": // FIN_WAIT1, LAST_ACK, CLOSING: closed by us, and not all of it acknowledged
		default:
			continue
		}
		queue, _, _ := bytes.Cut(fields[4], []byte(":"))
		n, err := strconv.ParseUint(string(queue), 16, 32)
		if err == nil && n > 1 { // the FIN itself counts as one
			sum += int(n) - 1
		}
	}
	return sum
}
