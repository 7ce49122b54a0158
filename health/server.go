package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

const (
	// aliveTimeout is kubelet's default timeoutSeconds: a later answer would reach nobody.
	aliveTimeout = time.Second

	// A header that is not there after 2 s is not from a prober: their own timeouts are 1 s to 5 s.
	readHeaderTimeout = 2 * time.Second
	readTimeout       = 3 * time.Second
	writeTimeout      = 3 * time.Second

	// idleTimeout is longer than the usual check intervals (5, 10, 15, 30 and 60 s) and equal to none: closing a
	// connection in the very moment its owner sends the next probe on it would look like a failed probe.
	idleTimeout = 75 * time.Second

	maxHeaderBytes = 8 << 10 // net/http adds 4 KiB
	lookupTimeout  = 5 * time.Second
)

// Server answers probes. It is made by [Listen].
type Server struct {
	http     *http.Server
	listener net.Listener
	addr     string
	conns    connCap
}

// Listen binds addr, in one of the forms of [CheckAddr], and answers probes there until Close, from goroutines of its
// own. An address that cannot be bound is an error that names it and the reason.
//
// alive is asked by /livez, possibly by many requests at once. It must return when its context ends, 1 s after the
// request came; by then the answer is no. A nil alive always says yes.
//
// A Unix socket gets mode 0660. The file of a server that was killed is replaced, because a restarted container keeps
// its file system; a socket on which somebody still accepts, or any other kind of file, is an error and stays as it is.
func Listen(addr string, gate *Gate, alive func(context.Context) bool) (*Server, error) {
	network, address, err := parseAddr(addr)
	if err != nil {
		return nil, err
	}
	l, err := bind(network, address)
	if err != nil {
		hint := ""
		if errors.Is(err, syscall.EADDRINUSE) {
			hint = " (choose another address)"
		}
		return nil, fmt.Errorf("cannot listen on %s: %w%s", addr, reason(err), hint)
	}
	return serve(l, gate, alive), nil
}

func serve(l net.Listener, gate *Gate, alive func(context.Context) bool) *Server {
	s := &Server{listener: l, addr: l.Addr().String(), conns: connCap{max: connLimit(), open: make(map[net.Conn]standing)}}
	if l.Addr().Network() == "unix" {
		s.addr = "unix:" + s.addr
	}
	s.http = &http.Server{
		Handler:           &handler{gate, alive},
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnState:         s.conns.track,
		ErrorLog:          log.New(io.Discard, "", 0), // a client must not be able to fill our log
		Protocols:         new(http.Protocols),
		// net/http's own answer to "OPTIONS *" is 200, which a balancer would take as ready.
		DisableGeneralOptionsHandler: true,
	}
	s.http.Protocols.SetHTTP1(true)
	go func() { _ = s.http.Serve(acceptRetry{l}) }() // returns only after Close, see acceptRetry
	return s
}

// Addr returns the address the server is bound to, in a form that [Probe] accepts; port 0 has become the real one.
func (s *Server) Addr() string { return s.addr }

// Close stops listening, removes the Unix socket's file and cuts all connections. Closing again does nothing.
func (s *Server) Close() {
	_ = s.http.Close()
	_ = s.listener.Close() // http.Server does not know it before Serve has run, which may be later than this
}

func bind(network, address string) (net.Listener, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout) // a host name may need a resolver
	defer cancel()
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // Go's default would hide the port from everything that looks for TCP sockets
	l, err := lc.Listen(ctx, network, address)
	if network != "unix" {
		return l, err
	}
	if errors.Is(err, syscall.EADDRINUSE) { // bind(2) says so for any existing file
		if err := removeStale(address); err != nil {
			return nil, err
		}
		l, err = lc.Listen(ctx, network, address)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(address, 0o660); err != nil { // bind applied the umask
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// removeStale removes the socket at path if nobody listens on it: then, and only then, connect gives ECONNREFUSED.
// (A full backlog gives EAGAIN, somebody else's socket EACCES, a datagram socket EPROTOTYPE: all in use.)
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("the file exists and is not a socket")
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return syscall.EADDRINUSE
	}
	return os.Remove(path)
}

// acceptRetry marks every failed Accept but that of a closed listener as temporary, so that net/http tries again
// after a pause of at most 1 s. By itself it does so for EMFILE and ENFILE, and would stop serving for good on ENOMEM
// or on an error of the new connection's network, which accept(2) also reports.
type acceptRetry struct{ net.Listener }

func (l acceptRetry) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return nil, temporary{err}
	}
	return conn, err
}

type temporary struct{ error }

func (temporary) Timeout() bool   { return false }
func (temporary) Temporary() bool { return true }

// handler is a plain switch, not an http.ServeMux, which redirects paths such as //readyz: to kubelet, success.
type handler struct {
	gate  *Gate
	alive func(context.Context) bool
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	state := h.gate.State() // once: an answer never mixes two states
	if state != Ready {
		w.Header().Set("Connection", "close")
	}
	if r.ContentLength != 0 {
		// No probe has a body. Without the deadline net/http would wait for it after the answer, to reuse the
		// connection, and hold one of the connCap places for that long.
		w.Header().Set("Connection", "close")
		_ = http.NewResponseController(w).SetReadDeadline(time.Now())
	}
	path := r.URL.Path
	switch {
	case path != "/readyz" && path != "/livez":
		answer(w, http.StatusNotFound, "not found\n")
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		answer(w, http.StatusMethodNotAllowed, "method not allowed\n")
	case path == "/readyz":
		report(w, r, "readyz", state == Ready, string(state))
	case h.isAlive(r.Context()):
		report(w, r, "livez", true, "ok")
	default:
		report(w, r, "livez", false, "main loop does not answer")
	}
}

func (h *handler) isAlive(ctx context.Context) bool {
	if h.alive == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	return h.alive(ctx) && ctx.Err() == nil
}

// report answers with text, or for ?verbose, whatever its value, in kube-apiserver's form.
func report(w http.ResponseWriter, r *http.Request, endpoint string, pass bool, text string) {
	code, verbose := http.StatusOK, fmt.Sprintf("[+]process ok\n%s check passed", endpoint)
	if !pass {
		code, verbose = http.StatusServiceUnavailable, fmt.Sprintf("[-]process failed: %s\n%s check failed", text, endpoint)
	}
	if r.URL.Query().Has("verbose") {
		text = verbose
	}
	answer(w, code, text+"\n")
}

func answer(w http.ResponseWriter, code int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text) // for HEAD, net/http takes only the length of it
}
