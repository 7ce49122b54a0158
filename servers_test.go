package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// server is a configured nginx or php-fpm that has not been started. It lives in a directory of its own and listens on a
// Unix socket there, so that any number can run side by side.
type server struct {
	program string
	dir     string
	socket  string
}

func newServer(t *testing.T, howToGetIt string, names ...string) *server {
	t.Helper()
	dir := shortTempDir(t)
	return &server{program: needProgram(t, howToGetIt, names...), dir: dir, socket: filepath.Join(dir, "socket")}
}

// write writes a file in the server's directory and returns its path.
func (s *server) write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(s.dir, name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func (s *server) has(name string) bool {
	_, err := os.Stat(filepath.Join(s.dir, name))
	return err == nil
}

// dial connects to the server; the connection gives up after patience.
func (s *server) dial() (net.Conn, error) {
	conn, err := net.Dial("unix", s.socket)
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(patience))
	}
	return conn, err
}

func (s *server) mustDial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := s.dial()
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// get asks for a path on a connection of its own.
func (s *server) get(path string) (code int, body string, err error) {
	client := &http.Client{
		Timeout: patience,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
			return s.dial()
		}},
	}
	response, err := client.Get("http://server" + path)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	return response.StatusCode, string(b), err
}

// answers waits until a path is answered with the body.
func (s *server) answers(t *testing.T, path, body string) {
	t.Helper()
	eventually(t, func() bool {
		code, got, err := s.get(path)
		return err == nil && code == http.StatusOK && got == body
	}, "%s answers %q", path, body)
}

// answer is the end of a request that runs beside the test.
type answer struct {
	code int
	body string
	err  error
}

func (a answer) require(t *testing.T, body string) {
	t.Helper()
	require.NoError(t, a.err)
	require.Equal(t, http.StatusOK, a.code, "body %q", a.body)
	require.Equal(t, body, a.body)
}

// beside runs a request beside the test.
func beside(request func() answer) <-chan answer {
	c := make(chan answer, 1)
	go func() { c <- request() }()
	return c
}

// stopEarly sends SIGTERM to drainit the given time after it was started, and says how it ended. Each end is one that is
// accounted for; the command is never killed by its own stop signal.
func stopEarly(t *testing.T, delay time.Duration, command []string) string {
	t.Helper()
	p := start(t, world{}, append([]string{"--drain-delay", "0", "--grace-period", "6s", "--"}, command...)...)
	time.Sleep(delay) // the one thing that is varied here
	_, noEndpoint := os.Stat(strings.TrimPrefix(p.health, "unix:"))
	handled := hasHandler(p.cmd.Process.Pid, syscall.SIGTERM)
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended, which the exit code tells
	end := ""
	if !noticed(p, time.Second) {
		// PID 1 has no signal it has no handler for: the kernel drops it (kill(2)).
		require.False(t, handled, "SIGTERM is lost although there was a handler for it")
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		end = "dropped by the kernel, then "
	}
	code := p.exit()
	require.Zero(t, p.count(`ended by SIGQUIT`), "the command was killed by its stop signal")
	require.Zero(t, p.count(`^goroutine \d+|^SIG[A-Z]+: `), "drainit printed a goroutine dump")
	switch {
	case code == 0:
		// nginx that gets QUIT between installing its handler and sigsuspend notes it and then sleeps until the next
		// signal (ngx_master_process_cycle in src/os/unix/ngx_process_cycle.c): it is reminded.
		require.Zero(t, p.count("is still there"), "the stop signal was forgotten")
		return end + "stopped in order"
	case code == 128+15 && p.count("was not started: the stop came first") == 1:
		return end + "not started"
	case code == 2 && noEndpoint != nil:
		// The Go runtime has handlers of its own before there is a subscription; they end PID 1 like this. Not at once:
		// the runtime yields a few times in between, and another thread may start the command meanwhile.
		require.Zero(t, p.count("^drainit: "), "drainit itself had noticed the signal")
		return end + "ended by the Go runtime"
	}
	t.Fatalf("exit code %d is not accounted for", code)
	return ""
}

// noticed says whether drainit ends or begins a stop within d.
func noticed(p *process, d time.Duration) bool {
	for deadline := time.Now().Add(d); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if !p.running() || p.count("asks for a stop") > 0 {
			return true
		}
	}
	return false
}

// stopEarlySteps runs stopEarly at n moments spread over the first 50 ms.
func stopEarlySteps(t *testing.T, command func(t *testing.T) []string) {
	n := 150
	if testing.Short() {
		n = 25
	}
	ends := map[string]int{}
	for i := range n {
		delay := time.Duration(i) * 50 * time.Millisecond / time.Duration(n)
		t.Run(delay.String(), func(t *testing.T) { ends[stopEarly(t, delay, command(t))]++ })
	}
	t.Log(ends)
	require.NotZero(t, ends["stopped in order"])
}

// script asks php-fpm for a script over FastCGI. (The framing: FastCGI specification 1.0, section 3.3.)
func (s *server) script(name string) answer {
	conn, err := s.dial()
	if err != nil {
		return answer{err: err}
	}
	defer conn.Close()
	const (
		beginRequest, endRequest, params, stdin, stdout = 1, 3, 4, 5, 6

		headLength = 8
	)
	record := func(kind byte, content string) string {
		return string([]byte{1, kind, 0, 1, 0, byte(len(content)), 0, 0}) + content // request 1, under 256 bytes
	}
	pair := func(name, value string) string {
		return string([]byte{byte(len(name)), byte(len(value))}) + name + value // under 128 bytes each
	}
	_, err = io.WriteString(conn, record(beginRequest, "\x00\x01\x00\x00\x00\x00\x00\x00")+ // a responder, one request
		record(params, pair("SCRIPT_FILENAME", filepath.Join(s.dir, name))+pair("REQUEST_METHOD", "GET"))+
		record(params, "")+record(stdin, ""))
	if err != nil {
		return answer{err: err}
	}
	var out strings.Builder
	for {
		head := make([]byte, headLength)
		if _, err := io.ReadFull(conn, head); err != nil {
			return answer{err: fmt.Errorf("no end of the response: %w", err)}
		}
		length, padding := int(head[4])<<8|int(head[5]), int(head[6])
		content := make([]byte, length+padding)
		if _, err := io.ReadFull(conn, content); err != nil {
			return answer{err: fmt.Errorf("no end of a record: %w", err)}
		}
		switch head[1] {
		case stdout:
			out.Write(content[:length])
		case endRequest:
			_, body, found := strings.Cut(out.String(), "\r\n\r\n")
			if !found {
				return answer{err: errors.New("a response without headers")}
			}
			return answer{code: http.StatusOK, body: body}
		}
	}
}

// backend is a Go server on a Unix socket behind nginx: /upload says how many bytes came, /websocket never ends.
type backend struct {
	socket   string
	arrivals chan string // the path of each request, when its head is there
}

func newBackend(t *testing.T) *backend {
	t.Helper()
	b := &backend{socket: filepath.Join(shortTempDir(t), "backend"), arrivals: make(chan string, 16)}
	listener, err := net.Listen("unix", b.socket)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("/upload", func(w http.ResponseWriter, r *http.Request) {
		b.arrivals <- r.URL.Path
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			return
		}
		_, _ = fmt.Fprintf(w, "%d bytes", n)
	})
	mux.HandleFunc("/websocket", func(w http.ResponseWriter, r *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, buffered)
	})
	s := &http.Server{Handler: mux}
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(func() { _ = s.Close() })
	return b
}

// readResponse reads the head of a response, and what comes after it with the reader returned.
func readResponse(conn net.Conn) (*http.Response, *bufio.Reader, error) {
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	return response, reader, err
}

// readAnswer reads a whole response.
func readAnswer(conn net.Conn) answer {
	response, _, err := readResponse(conn)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, string(body), err}
}
