package health

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const patience = 30 * time.Second // for what must happen, on a machine that is busy

func gateIn(s State) *Gate {
	g := new(Gate)
	g.Set(s)
	return g
}

func listen(t testing.TB, gate *Gate, alive func(context.Context) bool) *Server {
	t.Helper()
	s, err := Listen("127.0.0.1:0", gate, alive)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func dial(t testing.TB, s *Server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// exchange sends data and returns everything that comes back until the server closes.
func exchange(t testing.TB, s *Server, data string) string {
	t.Helper()
	conn := dial(t, s)
	_, _ = io.WriteString(conn, data)
	got, err := io.ReadAll(conn)
	if !isReset(err) {
		require.NoError(t, err, "after %q", got)
	}
	return string(got)
}

func isReset(err error) bool { return err != nil && strings.Contains(err.Error(), "connection reset") }

// do sends one request with the real client, which must not follow redirects on its own.
func do(t testing.TB, method, url string) (*http.Response, string) {
	t.Helper()
	client := &http.Client{
		Timeout:       patience,
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequest(method, url, nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(body)
}

func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "timed out: %s", what)
	}
}

func TestAnswers(t *testing.T) {
	yes, no := true, false
	for _, tc := range []struct {
		state        State
		alive        *bool // nil: no function
		method, path string
		code         int
		body         string
	}{
		{Starting, nil, "GET", "/readyz", 503, "starting\n"},
		{Ready, nil, "GET", "/readyz", 200, "ready\n"},
		{Draining, nil, "GET", "/readyz", 503, "draining\n"},
		{Ready, &no, "GET", "/readyz", 200, "ready\n"},
		{Starting, nil, "GET", "/livez", 200, "ok\n"},
		{Draining, &yes, "GET", "/livez", 200, "ok\n"},
		{Ready, &no, "GET", "/livez", 503, "main loop does not answer\n"},
		{Ready, nil, "GET", "/readyz?verbose", 200, "[+]process ok\nreadyz check passed\n"},
		{Ready, nil, "GET", "/readyz?timeout=1s&verbose=1", 200, "[+]process ok\nreadyz check passed\n"},
		{Draining, nil, "GET", "/readyz?verbose", 503, "[-]process failed: draining\nreadyz check failed\n"},
		{Draining, &yes, "GET", "/livez?verbose", 200, "[+]process ok\nlivez check passed\n"},
		{Ready, &no, "GET", "/livez?verbose", 503, "[-]process failed: main loop does not answer\nlivez check failed\n"},
		{Ready, nil, "GET", "/readyz?x;y=%zz", 200, "ready\n"},
		{Ready, nil, "POST", "/readyz", 405, "method not allowed\n"},
		{Ready, nil, "OPTIONS", "/livez", 405, "method not allowed\n"},
		{Ready, nil, "BREW", "/readyz", 405, "method not allowed\n"},
		{Ready, nil, "GET", "/", 404, "not found\n"},
		{Ready, nil, "POST", "/", 404, "not found\n"},
		{Ready, nil, "GET", "//readyz", 404, "not found\n"},
		{Ready, nil, "GET", "/readyz/", 404, "not found\n"},
		{Ready, nil, "GET", "/x/../readyz", 404, "not found\n"},
		{Ready, nil, "GET", "/healthz", 404, "not found\n"},
		{Ready, nil, "GET", "/debug/pprof/", 404, "not found\n"},
	} {
		t.Run(fmt.Sprintf("%s %s %s", tc.state, tc.method, tc.path), func(t *testing.T) {
			var alive func(context.Context) bool
			if tc.alive != nil {
				alive = func(context.Context) bool { return *tc.alive }
			}
			s := listen(t, gateIn(tc.state), alive)
			resp, body := do(t, tc.method, "http://"+s.Addr()+tc.path)
			require.Equal(t, tc.code, resp.StatusCode)
			require.Equal(t, tc.body, body)
			want := http.Header{
				"Content-Type":           {"text/plain; charset=utf-8"},
				"Content-Length":         {fmt.Sprint(len(tc.body))},
				"Cache-Control":          {"no-store"},
				"X-Content-Type-Options": {"nosniff"},
				"Date":                   resp.Header["Date"],
			}
			if tc.code == 405 {
				want["Allow"] = []string{"GET, HEAD"}
			}
			require.Equal(t, want, resp.Header, "these headers and no other")
		})
	}
}

func TestHead(t *testing.T) {
	s := listen(t, gateIn(Ready), nil)
	resp, body := do(t, "HEAD", "http://"+s.Addr()+"/readyz")
	require.Equal(t, 200, resp.StatusCode)
	require.Empty(t, body)
	require.EqualValues(t, len("ready\n"), resp.ContentLength)

	raw := exchange(t, s, "HEAD /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	require.True(t, strings.HasSuffix(raw, "\r\n\r\n"), "no body on the wire: %q", raw)
}

func TestLivezBoundsTheMainLoop(t *testing.T) {
	for name, late := range map[string]bool{"no": false, "a yes that is too late": true} {
		t.Run(name, func(t *testing.T) {
			s := listen(t, gateIn(Ready), func(ctx context.Context) bool {
				deadline, ok := ctx.Deadline()
				if !ok || time.Until(deadline) > time.Second {
					return true // makes the test fail: the context must end within 1 s
				}
				<-ctx.Done()
				return late
			})
			resp, body := do(t, "GET", "http://"+s.Addr()+"/livez")
			require.Equal(t, 503, resp.StatusCode)
			require.Equal(t, "main loop does not answer\n", body)
		})
	}
}

func TestPanicInAliveHitsOnlyThatRequest(t *testing.T) {
	s := listen(t, gateIn(Ready), func(context.Context) bool { panic("on purpose") })
	require.Empty(t, exchange(t, s, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"), "connection is closed without an answer")
	require.NoError(t, Probe(t.Context(), s.Addr()))
}

func TestKeepAliveEndsWithReadiness(t *testing.T) {
	var gate Gate
	gate.Set(Ready)
	s := listen(t, &gate, nil)
	conn := dial(t, s)
	br := bufio.NewReader(conn)
	ask := func() *http.Response {
		_, err := io.WriteString(conn, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		resp, err := http.ReadResponse(br, nil)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		return resp
	}
	for range 3 {
		resp := ask()
		require.Equal(t, 200, resp.StatusCode)
		require.False(t, resp.Close, "kept open while ready")
	}
	gate.Set(Draining)
	resp := ask() // on the same connection, at once
	require.Equal(t, 503, resp.StatusCode)
	require.True(t, resp.Close, "Connection: close while draining")
	_, err := br.ReadByte()
	require.ErrorIs(t, err, io.EOF)
}

func TestPipelining(t *testing.T) {
	s := listen(t, gateIn(Ready), nil)
	got := exchange(t, s, strings.Repeat("GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n", 20)+
		"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	require.Equal(t, 20, strings.Count(got, "\r\n\r\nready\n"))
	require.True(t, strings.HasSuffix(got, "\r\n\r\nok\n"), "in order")
}

func TestRawRequests(t *testing.T) {
	s := listen(t, gateIn(Ready), nil)
	const end = "Host: x\r\nConnection: close\r\n\r\n"
	for name, tc := range map[string]struct{ send, want string }{
		"HTTP/1.0 as HAProxy sends it": {"GET /readyz HTTP/1.0\r\n\r\n", "HTTP/1.0 200 OK\r\n"},
		"HAProxy's default check":      {"OPTIONS / HTTP/1.0\r\n\r\n", "HTTP/1.0 404 Not Found\r\n"},
		"OPTIONS *":                    {"OPTIONS * HTTP/1.1\r\n" + end, "HTTP/1.1 404 Not Found\r\n"},
		"CONNECT":                      {"CONNECT x:80 HTTP/1.1\r\n" + end, "HTTP/1.1 404 Not Found\r\n"},
		"CONNECT with a path":          {"CONNECT /readyz HTTP/1.1\r\n" + end, "HTTP/1.1 405 Method Not Allowed\r\n"},
		"absolute form":                {"GET http://x/readyz HTTP/1.1\r\n" + end, "HTTP/1.1 200 OK\r\n"},
		"absolute form, other path":    {"GET http://x//readyz HTTP/1.1\r\n" + end, "HTTP/1.1 404 Not Found\r\n"},
		"upgrade to h2c": {
			"GET /readyz HTTP/1.1\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nHost: x\r\nConnection: close, Upgrade, HTTP2-Settings\r\n\r\n",
			"HTTP/1.1 200 OK\r\n",
		},
		"HTTP/2 preface":      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 404 Not Found\r\n"},
		"no host":             {"GET /readyz HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request: missing required Host header\r\n"},
		"unknown expectation": {"GET /readyz HTTP/1.1\r\nExpect: tea\r\n" + end, "HTTP/1.1 417 Expectation Failed\r\n"},
		"newer version":       {"GET /readyz HTTP/9.9\r\n" + end, "HTTP/1.1 505 HTTP Version Not Supported: unsupported protocol version\r\n"},
		"garbage":             {"\x00\xff\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n"},
		"smuggling": {
			"GET /readyz HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n" + end,
			"HTTP/1.1 400 Bad Request\r\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := exchange(t, s, tc.send)
			require.True(t, strings.HasPrefix(got, tc.want), "%q", got)
			require.Equal(t, 1, strings.Count(got, "HTTP/1."), "one answer: %q", got)
		})
	}
	require.NoError(t, Probe(t.Context(), s.Addr()))
}

func TestHeaderLimit(t *testing.T) {
	s := listen(t, gateIn(Ready), nil)
	header := func(n int) string {
		return "GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: " + strings.Repeat("x", n) + "\r\n\r\n"
	}
	require.Contains(t, exchange(t, s, header(maxHeaderBytes-200)), "200 OK")
	require.NotContains(t, exchange(t, s, header(maxHeaderBytes+8<<10)), "200 OK")
	// An endless header ends too; the answer may be lost with what was sent after it.
	require.NotContains(t, exchange(t, s, header(8<<20)), "200 OK")
	require.NoError(t, Probe(t.Context(), s.Addr()))
}

func TestSlowHeaderAndTLSHelloAreCut(t *testing.T) {
	s := listen(t, gateIn(Ready), nil)
	for name, start := range map[string]string{
		"half a header": "GET /readyz HTTP/1.1\r\nHos",
		"TLS hello":     "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"nothing":       "",
	} {
		t.Run(name, func(t *testing.T) {
			require.NotContains(t, exchange(t, s, start), "200 OK") // returns when the server has closed
			require.NoError(t, Probe(t.Context(), s.Addr()))
		})
	}
}

func TestBodyIsNotWaitedFor(t *testing.T) {
	s := listen(t, gateIn(Ready), nil)
	for name, head := range map[string]string{
		"promised":  "POST /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
		"chunked":   "GET /readyz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
		"continued": "GET /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			got := exchange(t, s, head)
			require.Less(t, time.Since(begin), readTimeout, "net/http would wait for the body this long")
			require.Contains(t, got, "Connection: close")
			require.NotContains(t, got, "100 Continue")
		})
	}
}

// openFiles makes sure that n more descriptors can be opened.
func openFiles(t *testing.T, n uint64) {
	t.Helper()
	var lim syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim))
	if lim.Cur < n+200 {
		t.Skipf("RLIMIT_NOFILE is %d, this test needs %d: raise it with ulimit -n", lim.Cur, n+200)
	}
}

func TestThousandsOfIdleConnectionsLockNobodyOut(t *testing.T) {
	const clients = 2000
	openFiles(t, clients+maxConns)
	s := listen(t, gateIn(Ready), nil)
	base := runtime.NumGoroutine()
	conns := make([]net.Conn, clients)
	for i := range conns {
		conns[i] = dial(t, s)
		if i%2 == 1 { // every other one is slow with its header
			_, _ = io.WriteString(conns[i], "GET /readyz HT")
		} else { // and the rest had an answer and could stay for idleTimeout, which is longer than patience
			_, _ = io.WriteString(conns[i], "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
			_, err := conns[i].Read(make([]byte, 1000))
			require.NoError(t, err, "connection %d", i)
		}
		if i%100 == 99 {
			require.NoError(t, Probe(t.Context(), s.Addr()), "after %d", i+1) // within ProbeTimeout
		}
	}
	s.conns.mu.Lock()
	open := len(s.conns.open)
	s.conns.mu.Unlock()
	require.LessOrEqual(t, open, maxConns)
	// Memory is goroutines and their buffers. Victims end as soon as they notice.
	eventually(t, "one goroutine per connection in the cap at most", func() bool {
		return runtime.NumGoroutine() <= base+maxConns+1
	})
	_, err := conns[0].Read(make([]byte, 1))
	require.Error(t, err, "the oldest was closed")
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "by the server")

	for _, conn := range conns {
		_ = conn.Close()
	}
	eventually(t, "goroutines gone", func() bool { return runtime.NumGoroutine() <= base })
	eventually(t, "connections forgotten", func() bool {
		s.conns.mu.Lock()
		defer s.conns.mu.Unlock()
		return len(s.conns.open) == 0
	})
}

func TestOverlongHeadersLockNobodyOut(t *testing.T) {
	const clients = 600
	openFiles(t, clients+maxConns)
	s := listen(t, gateIn(Ready), nil)
	head := "GET /readyz HTTP/1.1\r\nX: " + strings.Repeat("x", 20<<10)
	for i := range clients {
		conn := dial(t, s)
		_, _ = io.WriteString(conn, head) // may be reset half-way
		if i%50 == 49 {
			require.NoError(t, Probe(t.Context(), s.Addr()), "after %d", i+1)
		}
	}
}

func TestMemoryDoesNotGrowWithProbes(t *testing.T) {
	s := listen(t, gateIn(Ready), nil)
	live := func() uint64 {
		runtime.GC()
		runtime.GC() // the first one only moves pooled buffers aside
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	burst := func() {
		for range 300 {
			require.NoError(t, Probe(t.Context(), s.Addr()))
		}
	}
	burst()
	before := live()
	burst()
	burst()
	require.Less(t, live(), before+512<<10, "600 probes more, 1 KiB for each would show")
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	base := runtime.NumGoroutine()
	s := listen(t, gateIn(Ready), nil)
	eventually(t, "serving", func() bool { return Probe(t.Context(), s.Addr()) == nil })
	eventually(t, "one goroutine while nobody is connected", func() bool { return runtime.NumGoroutine() <= base+1 })
	idle, slow := dial(t, s), dial(t, s)
	_, err := io.WriteString(slow, "GET /re")
	require.NoError(t, err)
	_, err = io.WriteString(idle, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	_, err = idle.Read(make([]byte, 1000))
	require.NoError(t, err)
	s.Close()
	s.Close() // again does nothing
	eventually(t, "goroutines gone", func() bool { return runtime.NumGoroutine() <= base })
	require.ErrorIs(t, Probe(t.Context(), s.Addr()), syscall.ECONNREFUSED)
}

func TestCloseBeforeServing(t *testing.T) {
	base := runtime.NumGoroutine()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the server's goroutine does not run until this one waits
	path := filepath.Join(t.TempDir(), "h.sock")
	for range 20 {
		s, err := Listen("unix:"+path, gateIn(Ready), nil)
		require.NoError(t, err)
		s.Close()
		require.NoFileExists(t, path)
	}
	eventually(t, "goroutines gone", func() bool { return runtime.NumGoroutine() <= base })
}

// flakyListener fails its first accepts with errors that accept(2) may report.
type flakyListener struct {
	net.Listener
	failures []syscall.Errno
}

func (l *flakyListener) Accept() (net.Conn, error) {
	if len(l.failures) > 0 {
		errno := l.failures[0]
		l.failures = l.failures[1:]
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", errno)}
	}
	return l.Listener.Accept()
}

func TestAcceptErrorsAreSurvived(t *testing.T) {
	l, err := bind("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := serve(&flakyListener{l, []syscall.Errno{syscall.ENOMEM, syscall.EMFILE, syscall.ENETDOWN, syscall.EPERM}}, gateIn(Ready), nil)
	defer s.Close()
	require.NoError(t, Probe(t.Context(), s.Addr()))
}

func TestRunningOutOfDescriptors(t *testing.T) {
	s := listen(t, gateIn(Ready), nil)
	require.NoError(t, Probe(t.Context(), s.Addr())) // so that epoll and the like exist
	eventually(t, "that connection is gone", func() bool {
		s.conns.mu.Lock()
		defer s.conns.mu.Unlock()
		return len(s.conns.open) == 0
	})
	f, err := os.Open(os.DevNull)
	require.NoError(t, err)
	lowest := uint64(f.Fd())
	require.NoError(t, f.Close())
	var lim syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim))
	tight := lim
	tight.Cur = lowest + 1
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &tight))
	conn, err := net.Dial("tcp", s.Addr()) // takes the last descriptor
	_, openErr := os.Open(os.DevNull)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim))
	require.NoError(t, err)
	defer conn.Close()
	require.ErrorIs(t, openErr, syscall.EMFILE, "accept had none left either")
	require.NoError(t, Probe(t.Context(), s.Addr()), "recovers when there are some again")
}

func TestBindErrors(t *testing.T) {
	s := listen(t, new(Gate), nil)
	_, err := Listen(s.Addr(), new(Gate), nil)
	require.EqualError(t, err, "cannot listen on "+s.Addr()+": address already in use (choose another address)")
	require.ErrorIs(t, err, syscall.EADDRINUSE)

	_, err = Listen("192.0.2.1:8081", new(Gate), nil) // TEST-NET-1, never local
	require.EqualError(t, err, "cannot listen on 192.0.2.1:8081: cannot assign requested address")

	_, err = Listen("unix:/nonexistent/x.sock", new(Gate), nil)
	require.EqualError(t, err, "cannot listen on unix:/nonexistent/x.sock: no such file or directory")
}

func TestUnixSocket(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	gate := gateIn(Ready)
	s, err := Listen("unix:h.sock", gate, nil)
	require.NoError(t, err)
	defer s.Close()
	t.Chdir("/") // as a daemon does later
	path := filepath.Join(dir, "h.sock")
	require.Equal(t, "unix:"+path, s.Addr())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.ModeSocket|0o660, info.Mode(), "whatever the umask")
	require.NoError(t, Probe(t.Context(), s.Addr()))
	gate.Set(Draining)
	require.EqualError(t, Probe(t.Context(), "unix://"+path), "not ready: draining")

	_, err = Listen(s.Addr(), new(Gate), nil)
	require.ErrorIs(t, err, syscall.EADDRINUSE, "a live one is not taken over")
	require.ErrorContains(t, err, "choose another")
	require.Error(t, Probe(t.Context(), s.Addr()), "and goes on answering")

	s.Close()
	require.NoFileExists(t, path)
	require.ErrorIs(t, Probe(t.Context(), s.Addr()), syscall.ENOENT)
}

func TestUnixStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h.sock")
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	old.SetUnlinkOnClose(false) // what a SIGKILL leaves behind
	require.NoError(t, old.Close())
	require.ErrorIs(t, Probe(t.Context(), "unix:"+path), syscall.ECONNREFUSED)

	s, err := Listen("unix:"+path, gateIn(Ready), nil)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, Probe(t.Context(), "unix:"+path))
}

func TestUnixOtherFilesAreKept(t *testing.T) {
	for name, create := range map[string]func(path string) error{
		"regular file": func(path string) error { return os.WriteFile(path, []byte("precious"), 0o600) },
		"directory":    func(path string) error { return os.Mkdir(path, 0o700) },
		"fifo":         func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"symlink to a stale socket": func(path string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path + ".real", Net: "unix"})
			if err != nil {
				return err
			}
			l.SetUnlinkOnClose(false)
			_ = l.Close()
			return os.Symlink(path+".real", path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x")
			require.NoError(t, create(path))
			before, err := os.Lstat(path)
			require.NoError(t, err)
			_, err = Listen("unix:"+path, new(Gate), nil)
			require.EqualError(t, err, "cannot listen on unix:"+path+": the file exists and is not a socket")
			after, err := os.Lstat(path)
			require.NoError(t, err)
			require.True(t, os.SameFile(before, after))
			require.Equal(t, before.Mode(), after.Mode())
		})
	}
	t.Run("datagram socket in use", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x")
		c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		require.NoError(t, err)
		defer c.Close()
		_, err = Listen("unix:"+path, new(Gate), nil)
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		require.FileExists(t, path)
	})
}

func TestPlainTCPSocket(t *testing.T) {
	const mptcp = 262
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, mptcp)
	if err != nil {
		t.Skipf("this kernel has no MPTCP to be avoided (%v): needs CONFIG_MPTCP and net.mptcp.enabled=1", err)
	}
	require.NoError(t, syscall.Close(fd))
	l, err := bind("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	rc, err := l.(*net.TCPListener).SyscallConn()
	require.NoError(t, err)
	var proto int
	require.NoError(t, rc.Control(func(fd uintptr) {
		proto, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PROTOCOL)
	}))
	require.NoError(t, err)
	require.Equal(t, syscall.IPPROTO_TCP, proto, "not MPTCP")
}

func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is missing: install the package curl")
	}
	gate := gateIn(Ready)
	s := listen(t, gate, nil)
	path := filepath.Join(t.TempDir(), "h.sock")
	u, err := Listen("unix:"+path, gate, nil)
	require.NoError(t, err)
	defer u.Close()
	run := func(args ...string) string {
		var stderr bytes.Buffer
		cmd := exec.Command(curl, append([]string{"-sS", "--noproxy", "*", "-m", "30", "-w", "%{http_code}"}, args...)...)
		cmd.Stderr = &stderr
		out, _ := cmd.Output() // -f makes a 503 an error
		return string(out) + stderr.String()
	}
	url := "http://" + s.Addr() + "/readyz"
	require.Equal(t, "ready\n200", run(url))
	require.Equal(t, "ready\n200", run("--unix-socket", path, "http://localhost/readyz"))
	require.Equal(t, "ready\n200", run("--http1.0", url))
	require.Equal(t, "ready\n200", run("--http2", url), "stays at HTTP/1.1")
	require.Contains(t, run("-I", url), "Content-Length: 6\r\n")
	require.Equal(t, "method not allowed\n405", run("-d", "x", url))
	require.Equal(t, "ready\n200ready\n200", run(url, url), "twice on one connection")
	gate.Set(Draining)
	require.Equal(t, "draining\n503draining\n503", run(url, url), "and on two")
	require.Contains(t, run("-f", url), "503curl: (22)")
}

// Every state change is seen by the very next probe, while many probe at once.
func TestReadinessFailsAtOnce(t *testing.T) {
	var gate Gate
	gate.Set(Ready)
	s := listen(t, &gate, nil)
	var drained atomic.Bool
	failures := make(chan error, 8)
	for range cap(failures) {
		go func() {
			for {
				before := drained.Load()
				err := Probe(context.Background(), s.Addr())
				switch {
				case err == nil && !before:
					continue
				case err == nil:
					err = fmt.Errorf("ready after draining")
				case err.Error() == "not ready: draining":
					err = nil
				}
				failures <- err
				return
			}
		}()
	}
	require.NoError(t, Probe(t.Context(), s.Addr()))
	gate.Set(Draining)
	drained.Store(true)
	for range cap(failures) {
		require.NoError(t, <-failures)
	}
}
