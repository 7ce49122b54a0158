package health

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whatever one client sends, the next honest probe is answered, and nothing but the two right requests yields success.
func FuzzHTTPHead(f *testing.F) {
	for _, seed := range []string{
		"", "\r\n\r\n", "GET", "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n", "GET //readyz HTTP/1.0\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x02\x00\x01",
		"POST /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
		"HEAD /livez?verbose HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n",
		"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\nGET /x HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	s, err := Listen("127.0.0.1:0", gateIn(Ready), nil)
	require.NoError(f, err)
	f.Cleanup(s.Close)
	f.Fuzz(func(t *testing.T, data []byte) {
		conn, err := net.Dial("tcp", s.Addr())
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, _ = conn.Write(data)
		_ = conn.(*net.TCPConn).CloseWrite()
		answer, err := io.ReadAll(conn)
		if !isReset(err) {
			require.NoError(t, err, "the server closes in the end")
		}
		require.NotContains(t, string(answer), "\r\nLocation:")
		require.NoError(t, Probe(t.Context(), s.Addr()))
	})
}

func FuzzCheckAddr(f *testing.F) {
	for _, seed := range []string{":8081", "[::1]:0", "unix:/x", "unix:", "a:b:c", "[", "http://x:1", "\x00:1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, addr string) {
		network, address, err := parseAddr(addr)
		if err != nil {
			require.Contains(t, err.Error(), "accepted are")
			return
		}
		if network == "unix" {
			require.LessOrEqual(t, len(address), maxUnixPath)
			return
		}
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		require.NotEmpty(t, port)
	})
}
