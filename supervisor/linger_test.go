package supervisor

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUnsentIn(t *testing.T) {
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	row := func(state, tx string) string {
		return "   0: 0100007F:1F90 0100007F:D431 " + state + " " + tx + ":00000000 01:00000014 00000000     0        0 0 4\n"
	}
	for _, c := range []struct {
		about, table string
		want         int
	}{
		{"empty", "", 0},
		{"no connections", head, 0},
		{"closed, some left", head + row("04", "00000101"), 256},
		{"only the FIN left", head + row("04", "00000001"), 0},
		{"all acknowledged", head + row("05", "00000000"), 0},
		{"two of them, and one that a process holds", head + row("09", "00000011") + row("01", "00000FFF") + row("0B", "00000005"), 20},
		{"garbage", head + "x\n 1: a b 04 zz:1\n 1: a b 04\n", 0},
	} {
		assert.Equal(t, c.want, unsentIn([]byte(c.table)), c.about)
	}
}

// TestUnsentBytes: what the real kernel says of a connection that was closed with data in its buffer.
func TestUnsentBytes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	server, err := l.Accept()
	require.NoError(t, err)
	before := unsentBytes()
	require.NoError(t, server.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	_, err = io.Copy(server, zeroes{}) // until both buffers are full
	require.Error(t, err)
	require.NoError(t, server.Close())
	eventually := func(what string, ok func(n int) bool) {
		for deadline := time.Now().Add(20 * time.Second); !ok(unsentBytes() - before); time.Sleep(5 * time.Millisecond) {
			require.True(t, time.Now().Before(deadline), what)
		}
	}
	eventually("the rest is on its way", func(n int) bool { return n > 10000 })
	_, err = io.Copy(io.Discard, client)
	require.NoError(t, err)
	eventually("the client has all of it", func(n int) bool { return n <= 0 })
}

type zeroes struct{}

func (zeroes) Read(b []byte) (int, error) { return len(b), nil }
