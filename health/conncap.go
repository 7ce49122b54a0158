package health

import (
	"net"
	"net/http"
	"sync"
	"syscall"
)

// maxConns is far above what probers need, and bounds the memory of the endpoint to a few MB.
const maxConns = 256

// connLimit is maxConns, or less where that many connections could take every descriptor the process may have: others need
// some, to look at /proc and to write files.
func connLimit() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return maxConns
	}
	return int(max(1, min(maxConns, files.Cur/2)))
}

// connCap keeps the number of open connections at max or below, so that idle and slow clients cost a bounded
// amount of memory and descriptors, and cannot keep an honest probe out: a new connection over the cap takes the place
// of the one that has waited longest for a request, or, where every one is in the middle of a request, of the one that
// has been in it longest. (An honest request takes a millisecond. net/http counts a connection as in a request for the
// 500 ms it lingers after it has refused a header that is too long, so a flood of those are all in requests.)
type connCap struct {
	max  int
	mu   sync.Mutex
	turn uint64
	open map[net.Conn]standing
}

// standing is what a connection does, and since which turn.
type standing struct {
	active bool // in a request
	since  uint64
}

// goesBefore says whether s has to go before other.
func (s standing) goesBefore(other standing) bool {
	if s.active != other.active {
		return other.active
	}
	return s.since < other.since
}

// track is the http.Server's ConnState hook.
func (c *connCap) track(conn net.Conn, state http.ConnState) {
	if victim := c.note(conn, state); victim != nil {
		_ = victim.Close() // its goroutine ends with a read error
	}
}

// note records the change and returns the connection to close for it, if any.
func (c *connCap) note(conn net.Conn, state http.ConnState) (victim net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.open[conn] // false for a victim that goes on until it notices
	switch {
	case state == http.StateNew, known && (state == http.StateIdle || state == http.StateActive):
		c.turn++
		c.open[conn] = standing{active: state == http.StateActive, since: c.turn}
	default:
		delete(c.open, conn)
	}
	if len(c.open) <= c.max {
		return nil
	}
	for other, s := range c.open {
		if other != conn && (victim == nil || s.goesBefore(c.open[victim])) {
			victim = other
		}
	}
	delete(c.open, victim)
	return victim
}
