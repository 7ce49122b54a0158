package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const nginxPackage = "Debian package nginx"

// slowSize is the size of /slow, which takes 3 s: the first second's worth comes at once.
const (
	slowRate = 20_000
	slowSize = 4 * slowRate
)

// newNginx configures an nginx that answers / with "hello" and has more locations as given.
func newNginx(t *testing.T, locations string) *server {
	t.Helper()
	s := newServer(t, nginxPackage, "nginx")
	writeNginxConfig(t, s, `location = / { return 200 "hello"; }`+"\n"+locations)
	return s
}

// writeNginxConfig gives nginx its configuration. It stays root where the test is: in a user namespace there is
// nobody else, and its workers have to get into the test's directory.
func writeNginxConfig(t *testing.T, s *server, locations string) {
	t.Helper()
	s.write(t, "nginx.conf", fmt.Sprintf(`user root;
daemon off;
worker_processes 1;
pid nginx.pid;
error_log stderr notice;
events { worker_connections 256; }
http {
	access_log %[1]s/access.log;
	client_body_temp_path body;
	proxy_temp_path proxy;
	fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi;
	scgi_temp_path scgi;
	server {
		listen unix:%[2]s;
		root %[1]s;
		%[3]s
	}
}
`, s.dir, s.socket, locations))
}

func nginxCommand(s *server) []string {
	return []string{s.program, "-p", s.dir + "/", "-c", "nginx.conf", "-e", "stderr"}
}

func startNginx(t *testing.T, s *server, flags ...string) *process {
	t.Helper()
	p := start(t, world{}, append(append(flags, "--"), nginxCommand(s)...)...)
	s.answers(t, "/", "hello")
	return p
}

// throughBackend are the locations that reach a backend.
func throughBackend(b *backend) string {
	return fmt.Sprintf(`
location = /slow { limit_rate %d; }
location = /upload { proxy_pass http://unix:%[2]s:/upload; proxy_http_version 1.1; proxy_request_buffering off; }
location = /websocket {
	proxy_pass http://unix:%[2]s:/websocket;
	proxy_http_version 1.1;
	proxy_set_header Upgrade $http_upgrade;
	proxy_set_header Connection upgrade;
}`, slowRate, b.socket)
}

// balancerDelay is how long the balancer of the tests goes on after the stop request, as a real one does until its probes
// have failed.
const balancerDelay = 500 * time.Millisecond

// lost is what a stop under traffic costs.
type lost struct {
	requests int           // of those the balancer sent before it noticed
	failing  time.Duration // from when on new requests failed, since the stop request
	idle     time.Duration // when the idle connection was closed, since the stop request
	download error         // in flight all the time
	upload   error
}

// stopUnderTraffic asks for a stop under traffic and counts what is lost.
func stopUnderTraffic(t *testing.T, flags ...string) (*process, lost) {
	t.Helper()
	b := newBackend(t)
	s := newNginx(t, throughBackend(b))
	s.write(t, "slow", strings.Repeat("x", slowSize))
	p := startNginx(t, s, flags...)
	var l lost

	idle := s.mustDial(t)
	_, err := io.WriteString(idle, "GET / HTTP/1.1\r\nHost: server\r\n\r\n")
	require.NoError(t, err)
	response, idleReader, err := readResponse(idle)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	require.False(t, response.Close, "nginx keeps the connection alive")

	const half = 10_000
	uploading := s.mustDial(t)
	_, err = fmt.Fprintf(uploading, "POST /upload HTTP/1.1\r\nHost: server\r\nContent-Length: %d\r\n\r\n%s", 2*half, strings.Repeat("u", half))
	require.NoError(t, err)
	require.Equal(t, "/upload", <-b.arrivals)

	downloading := s.mustDial(t)
	_, err = io.WriteString(downloading, "GET /slow HTTP/1.1\r\nHost: server\r\n\r\n")
	require.NoError(t, err)
	response, _, err = readResponse(downloading)
	require.NoError(t, err)
	download := beside(func() answer {
		n, err := io.Copy(io.Discard, response.Body)
		return answer{response.StatusCode, fmt.Sprint(n), err}
	})

	requested := time.Now()
	p.signal(syscall.SIGTERM)
	idleEnd := beside(func() answer {
		_, err := idleReader.ReadByte()
		l.idle = time.Since(requested)
		return answer{err: err}
	})
	balancerEnd := beside(func() answer {
		ticker := time.NewTicker(2 * time.Millisecond)
		defer ticker.Stop()
		for sent := time.Duration(0); sent < balancerDelay || l.failing == 0; <-ticker.C {
			sent = time.Since(requested)
			if sent > patience {
				return answer{err: errors.New("nginx serves for ever")}
			}
			code, body, err := s.get("/")
			if err == nil && code == http.StatusOK && body == "hello" {
				continue
			}
			if l.failing == 0 {
				l.failing = time.Since(requested)
			}
			if sent < balancerDelay {
				l.requests++
			}
		}
		return answer{}
	})

	p.line(t, `stopping: SIG\w+ to nginx \(pid \d+\)$`)
	require.Equal(t, io.EOF, (<-idleEnd).err, "an idle connection is closed with FIN")
	_, _ = io.WriteString(uploading, strings.Repeat("u", half)) // the answer tells
	upload := readAnswer(uploading)
	if l.upload = upload.err; l.upload == nil {
		upload.require(t, fmt.Sprintf("%d bytes", 2*half))
	}
	_ = uploading.Close() // or nginx would linger for 5 s (lingering_timeout)
	downloaded := <-download
	if l.download = downloaded.err; l.download == nil {
		downloaded.require(t, fmt.Sprint(slowSize))
	}
	require.NoError(t, (<-balancerEnd).err)
	return p, l
}

func TestNginxLosesNothing(t *testing.T) {
	t.Parallel()
	const drain = time.Second
	p, l := stopUnderTraffic(t, "--drain-delay", drain.String())
	require.Equal(t, 0, p.exit())
	require.NoError(t, l.download)
	require.NoError(t, l.upload)
	require.Zero(t, l.requests)
	require.GreaterOrEqual(t, l.failing, drain, "new requests are served until the drain ends")
	require.GreaterOrEqual(t, l.idle, drain, "idle connections are kept until the drain ends")
	require.Zero(t, p.count("is still there|SIGKILL"))
	p.line(t, `SIGQUIT to nginx`)
	p.line(t, `stopped as SIGTERM asked: \S+ exited with 0; draining 1\.\d+s, stopping \d.*exit code 0$`)
}

// The same traffic without a drain: the right signal alone loses what the balancer still sends.
func TestNginxWithoutDrainLosesNewRequests(t *testing.T) {
	t.Parallel()
	p, l := stopUnderTraffic(t, "--drain-delay", "0")
	require.Equal(t, 0, p.exit())
	require.NoError(t, l.download)
	require.NoError(t, l.upload)
	require.Positive(t, l.requests)
}

// The same traffic as without drainit: TERM at once loses what is in flight, too.
func TestNginxTermLosesRequestsInFlight(t *testing.T) {
	t.Parallel()
	p, l := stopUnderTraffic(t, "--drain-delay", "0", "--stop-signal", "TERM")
	require.Equal(t, 0, p.exit())
	require.Error(t, l.download)
	require.Error(t, l.upload)
	require.Positive(t, l.requests)
}

// Readiness fails and nginx serves on until the very end of the drain, whatever comes in.
func TestNginxFailsReadinessFirst(t *testing.T) {
	t.Parallel()
	s := newNginx(t, "")
	p := startNginx(t, s, "--drain-delay", "1s")
	p.signal(syscall.SIGTERM)
	p.waitReady(http.StatusServiceUnavailable)
	require.Zero(t, p.count("SIGQUIT"), "readiness fails before anything is sent")
	code, _ := p.get("/livez")
	require.Equal(t, http.StatusOK, code)
	s.answers(t, "/", "hello")
	require.Equal(t, 0, p.exit())
}

// A connection on which nothing was ever sent holds a stopping nginx for client_header_timeout, 60 s. Balancers and browsers
// open such connections ahead of need.
func TestNginxHeldBySilentConnection(t *testing.T) {
	t.Parallel()
	s := newNginx(t, "")
	const grace = 5 * time.Second
	p := startNginx(t, s, "--drain-delay", "0", "--grace-period", grace.String())
	silent := s.mustDial(t)
	s.answers(t, "/", "hello") // the one worker accepts in order, so it has the silent connection
	requested := time.Now()
	p.signal(syscall.SIGTERM)
	_, err := silent.Read(make([]byte, 1))
	cut := time.Since(requested)
	require.Error(t, err)
	require.Equal(t, 0, p.exit())
	require.Less(t, time.Since(requested), grace)
	require.GreaterOrEqual(t, cut, 2*time.Second, "TERM comes 3 s before the grace period ends")
	p.line(t, `nginx is still there: sending SIGTERM`)
}

func TestNginxHeldByWebSocket(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		flags []string
		grace time.Duration
		cut   time.Duration // no sooner
		code  int
		says  string
	}{
		"short grace period": {[]string{"--drain-delay", "200ms", "--grace-period", "2s"}, 2 * time.Second, 800 * time.Millisecond, 0, "nginx is still there: sending SIGTERM"},
		"grace period":       {[]string{"--drain-delay", "200ms", "--grace-period", "6s"}, 6 * time.Second, 3 * time.Second, 0, "nginx is still there: sending SIGTERM"},
		"kill":               {[]string{"--drain-delay", "200ms", "--grace-period", "6s", "--stop-schedule", "QUIT/1/KILL"}, 6 * time.Second, 1200 * time.Millisecond, 137, "SIGKILL was needed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newNginx(t, throughBackend(newBackend(t)))
			p := startNginx(t, s, test.flags...)
			conn := s.mustDial(t)
			_, err := io.WriteString(conn, "GET /websocket HTTP/1.1\r\nHost: server\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			require.NoError(t, err)
			response, reader, err := readResponse(conn)
			require.NoError(t, err)
			require.Equal(t, http.StatusSwitchingProtocols, response.StatusCode)
			echo := func() {
				t.Helper()
				_, err := io.WriteString(conn, "echo\n")
				require.NoError(t, err)
				line, err := reader.ReadString('\n')
				require.NoError(t, err)
				require.Equal(t, "echo\n", line)
			}
			echo()
			requested := time.Now()
			p.signal(syscall.SIGTERM)
			p.line(t, "SIGQUIT to nginx")
			echo() // a connection in use outlives QUIT
			_, err = reader.ReadByte()
			cut := time.Since(requested)
			require.Error(t, err)
			require.Equal(t, test.code, p.exit())
			require.Less(t, time.Since(requested), test.grace)
			require.GreaterOrEqual(t, cut, test.cut)
			p.line(t, test.says)
		})
	}
}

// An image built from nginx's inherits its STOPSIGNAL, so that the runtime asks for the stop with QUIT, whatever
// --stop-on says.
func TestNginxInheritedStopSignal(t *testing.T) {
	t.Parallel()
	s := newNginx(t, "")
	p := startNginx(t, s, "--drain-delay", "500ms", "--stop-on", "TERM")
	p.signal(syscall.SIGQUIT)
	p.waitReady(http.StatusServiceUnavailable)
	s.answers(t, "/", "hello")
	require.Equal(t, 0, p.exit())
	p.line(t, `draining: SIGQUIT asks for a stop`)
	p.line(t, `stopped as SIGQUIT asked: \S+ exited with 0; draining 0\.[5-9]`)
}

// HUP and USR1 reach nginx as if drainit were not there, before the stop and while it drains.
func TestNginxReloadsAndReopensLogs(t *testing.T) {
	t.Parallel()
	s := newNginx(t, `location = /version { return 200 "1"; }`)
	p := startNginx(t, s, "--drain-delay", "20s", "--grace-period", "60s")
	reloadAndReopen := func(version string) {
		t.Helper()
		writeNginxConfig(t, s, fmt.Sprintf(`location = /version { return 200 "%s"; }`, version))
		p.signal(syscall.SIGHUP)
		s.answers(t, "/version", version)
		require.NoError(t, os.Rename(s.dir+"/access.log", s.dir+"/access.log."+version))
		p.signal(syscall.SIGUSR1)
		eventually(t, func() bool { return s.has("access.log") }, "nginx reopens its log")
	}
	s.answers(t, "/version", "1")
	reloadAndReopen("2")
	p.signal(syscall.SIGTERM)
	p.waitReady(http.StatusServiceUnavailable)
	reloadAndReopen("3")
	require.Zero(t, p.count("SIGQUIT to nginx"), "all this happened while it drained")
	p.signal(syscall.SIGTERM) // on to the next step
	p.line(t, "SIGQUIT to nginx")
	require.Equal(t, 0, p.exit())
}

// What the command is when the stop comes counts, not what it was started as: entrypoint scripts exec the server.
func TestNginxBehindEntrypointScript(t *testing.T) {
	t.Parallel()
	s := newNginx(t, "")
	script := append([]string{"sh", "-c", `sleep 0.2; exec "$@"`, "sh"}, nginxCommand(s)...)
	p := start(t, world{}, append([]string{"--drain-delay", "0", "--"}, script...)...)
	s.answers(t, "/", "hello")
	p.signal(syscall.SIGTERM)
	require.Equal(t, 0, p.exit())
	p.line(t, `SIGQUIT to nginx \(pid \d+\)$`)
}

func TestNginxStoppedEarly(t *testing.T) {
	t.Parallel()
	stopEarlySteps(t, func(t *testing.T) []string { return nginxCommand(newNginx(t, "")) })
}
