package health

import (
	"net"
	"net/http"
	"sync"
)

// maxConns is far above what probers need, and bounds the memory of the endpoint to a few MB.
const maxConns = 256

// connCap keeps the number of open connections at maxConns or below, so that idle and slow clients cost a bounded
// amount of memory and descriptors, and cannot keep an honest probe out: a new connection over the cap takes the place
// of the one that has waited longest for a request. Only if every other one is in the middle of a request is the new
// one closed.
//
// One gap is left: net/http counts a connection as in a request for the 500 ms it lingers after it has refused a header
// that is too long, so a steady flood of those can turn an honest probe away.
type connCap struct {
	mu   sync.Mutex
	turn uint64
	open map[net.Conn]uint64 // the turn in which it began to wait for a request; 0 while it is in one
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
	case state == http.StateNew, known && state == http.StateIdle:
		c.turn++
		c.open[conn] = c.turn
	case known && state == http.StateActive:
		c.open[conn] = 0
	default:
		delete(c.open, conn)
	}
	if len(c.open) <= maxConns {
		return nil
	}
	victim = conn
	for other, turn := range c.open {
		if turn != 0 && turn < c.open[victim] {
			victim = other
		}
	}
	delete(c.open, victim)
	return victim
}
