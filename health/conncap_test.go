package health

import (
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func newTestConns(n int) []net.Conn {
	conns := make([]net.Conn, n)
	for i := range conns {
		conns[i] = &net.TCPConn{} // an identity is all that note needs
	}
	return conns
}

func TestConnCapEvictsTheLongestWaiting(t *testing.T) {
	c := connCap{max: maxConns, open: make(map[net.Conn]standing)}
	conns := newTestConns(maxConns + 4)
	for _, conn := range conns[:maxConns] {
		require.Nil(t, c.note(conn, http.StateNew))
	}
	require.Nil(t, c.note(conns[0], http.StateActive))
	require.Nil(t, c.note(conns[1], http.StateActive))
	require.Nil(t, c.note(conns[1], http.StateIdle)) // waits again, but not for long

	require.Same(t, conns[2], c.note(conns[maxConns], http.StateNew), "0 is in a request, 1 has just had one")
	require.Same(t, conns[3], c.note(conns[maxConns+1], http.StateNew))
	require.Len(t, c.open, maxConns)

	require.Nil(t, c.note(conns[2], http.StateActive), "a victim that was about to read a request")
	require.Nil(t, c.note(conns[2], http.StateIdle))
	require.Nil(t, c.note(conns[2], http.StateClosed))
	require.Len(t, c.open, maxConns, "does not come back")

	require.Nil(t, c.note(conns[4], http.StateClosed))
	require.Nil(t, c.note(conns[maxConns+2], http.StateNew), "there is a free place")
	require.Same(t, conns[5], c.note(conns[maxConns+3], http.StateNew))
}

func TestConnCapAllActive(t *testing.T) {
	c := connCap{max: maxConns, open: make(map[net.Conn]standing)}
	conns := newTestConns(maxConns + 1)
	for _, conn := range conns[:maxConns] {
		c.note(conn, http.StateNew)
		c.note(conn, http.StateActive)
	}
	require.Nil(t, c.note(conns[0], http.StateIdle))
	require.Nil(t, c.note(conns[0], http.StateActive))
	require.Same(t, conns[1], c.note(conns[maxConns], http.StateNew), "the longest in its request; 0 has just begun another")
	for _, conn := range conns {
		c.note(conn, http.StateClosed)
	}
	require.Empty(t, c.open, "nothing is remembered of closed connections")
}
