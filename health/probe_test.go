package health

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProbeStates(t *testing.T) {
	gate := new(Gate)
	s := listen(t, gate, nil)
	require.EqualError(t, Probe(t.Context(), s.Addr()), "not ready: starting")
	gate.Set(Ready)
	require.NoError(t, Probe(t.Context(), s.Addr()))
	gate.Set(Draining)
	require.EqualError(t, Probe(t.Context(), s.Addr()), "not ready: draining")
}

func TestProbeTakesAllAddressesAsLoopback(t *testing.T) {
	s, err := Listen(":0", gateIn(Ready), nil)
	require.NoError(t, err)
	defer s.Close()
	_, port, err := net.SplitHostPort(s.Addr())
	require.NoError(t, err)
	for _, host := range []string{"", "0.0.0.0", "[::]", "127.0.0.1"} {
		require.NoError(t, Probe(t.Context(), host+":"+port), host)
	}
}

func TestProbeOverIPv6(t *testing.T) {
	s, err := Listen("[::1]:0", gateIn(Ready), nil)
	if err != nil {
		t.Skipf("no IPv6 loopback (%v): enable net.ipv6.conf.lo.disable_ipv6=0", err)
	}
	defer s.Close()
	require.NoError(t, Probe(t.Context(), s.Addr()))
}

func TestProbeUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	require.EqualError(t, Probe(t.Context(), addr), "cannot reach "+addr+": connection refused")
	require.EqualError(t, Probe(t.Context(), "unix:/nonexistent"), "cannot reach unix:/nonexistent: no such file or directory")
}

// stranger answers every connection with what it is given, after the request, and then hangs up or not.
func stranger(t *testing.T, answer string, hangUp bool) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, answer)
			if hangUp {
				_ = conn.Close()
			} else {
				t.Cleanup(func() { _ = conn.Close() })
			}
		}
	}()
	return l.Addr().String()
}

func TestProbeOfAStranger(t *testing.T) {
	for answer, want := range map[string]string{
		"HTTP/1.1 200 OK\r\n\r\n": "",
		"HTTP/1.1 301 Gone\r\nLocation: /\r\nContent-Length: 0\r\n\r\n": "not ready: 301 Moved Permanently",
		"HTTP/1.1 204 No\r\n\r\n":                                    "not ready: 204 No Content",
		"HTTP/1.1 404 \x1b[2J\r\nContent-Length: 2\r\n\r\nhi":        "not ready: 404 Not Found",
		"HTTP/1.1 503 X\r\nContent-Length: 4\r\n\r\n\x1b[2J":         "not ready: 503 Service Unavailable",
		"HTTP/1.1 503 X\r\n\r\n" + strings.Repeat("x", 81):           "not ready: 503 Service Unavailable",
		"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n":                "not ready: 503 Service Unavailable",
		"HTTP/1.1 503 X\r\nContent-Length: 13\r\n\r\ncheck failed\n": "not ready: check failed",
		"": "no answer from ADDR: unexpected EOF",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxAnswer) + "\r\n\r\n": "no answer from ADDR: unexpected EOF",
		"220 mail.example.com ESMTP\r\n":                                       "no answer from ADDR: not HTTP",
		"HTTP/1.1 200 OK\r\n\x1b[2J\r\n\r\n":                                   "no answer from ADDR: not HTTP",
	} {
		addr := stranger(t, answer, true)
		err := Probe(t.Context(), addr)
		if want == "" {
			require.NoError(t, err, "%q", answer)
		} else {
			require.EqualError(t, err, strings.Replace(want, "ADDR", addr, 1), "%q", answer)
		}
	}
}

func TestProbeDoesNotWaitForTheEndOfABody(t *testing.T) {
	begin := time.Now()
	require.NoError(t, Probe(t.Context(), stranger(t, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", false)))
	require.Less(t, time.Since(begin), ProbeTimeout)
}

func TestProbeEndsWithItsContext(t *testing.T) {
	addr := stranger(t, "HTTP/1.1 200", false) // and never more
	ctx, cancel := context.WithCancel(t.Context())
	stop := time.AfterFunc(20*time.Millisecond, cancel)
	defer stop.Stop()
	begin := time.Now()
	err := Probe(ctx, addr)
	require.EqualError(t, err, "no answer from "+addr+": context canceled")
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(begin), ProbeTimeout)

	err = Probe(ctx, addr)
	require.ErrorContains(t, err, "cannot reach "+addr, "a context that has ended already")

	err = Probe(t.Context(), addr) // no deadline of its own
	require.EqualError(t, err, "no answer from "+addr+": context deadline exceeded")
}
