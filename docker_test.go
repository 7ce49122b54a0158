package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// No registry is needed: the images are made of Debian's packages and the machine's own Go, once, and kept under
// drainit-test/...:<hash of what they are made from>.
const (
	dockerPrefix   = "drainit-test/"
	dockerTestdata = "testdata/docker"
	dockerSuite    = "bookworm"
	dockerPackages = "nginx-light,php-fpm"
)

// docker runs a docker command and returns what it prints.
func docker(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command("docker", args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Run(), "docker %q:\n%s%s", args, &stdout, &stderr)
	return strings.TrimSpace(stdout.String())
}

func needDocker(t *testing.T) {
	t.Helper()
	needProgram(t, "apt-get install docker.io", "docker")
	if out, err := exec.Command("docker", "version", "--format", "{{.Server.Os}}").CombinedOutput(); err != nil {
		skip(t, "a running Docker engine: "+strings.TrimSpace(string(out)), "start dockerd")
	}
}

// dockerImages are the IDs of what has been built from the tree, each once; the tests run in parallel.
var dockerImages = struct {
	sync.Mutex
	built map[string]string
}{built: map[string]string{}}

// dockerImage gives the tag of an image that is kept. It is made where there is none yet for the recipe and the files.
func dockerImage(t *testing.T, name string, create func(tag string), recipe string, files ...string) string {
	t.Helper()
	sum := sha256.New()
	fmt.Fprintln(sum, recipe)
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dockerTestdata, f))
		require.NoError(t, err)
		fmt.Fprintf(sum, "%s %d\n%s", f, len(b), b)
	}
	tag := fmt.Sprintf("%s%s:%x", dockerPrefix, name, sum.Sum(nil)[:8])
	if exec.Command("docker", "image", "inspect", tag).Run() != nil {
		started := time.Now()
		t.Logf("making %s", tag)
		create(tag)
		t.Logf("made %s in %v", tag, time.Since(started).Round(time.Second))
	}
	return tag
}

// dockerBuild builds an image that changes with the tree, removes the one it replaces, and returns its ID.
func dockerBuild(t *testing.T, tag string, args ...string) string {
	t.Helper()
	old, _ := exec.Command("docker", "image", "inspect", "-f", "{{.Id}}", tag).Output()
	id := docker(t, append([]string{"build", "-q", "--network", "none", "-t", tag}, args...)...)
	if replaced := strings.TrimSpace(string(old)); replaced != "" && replaced != id {
		_ = exec.Command("docker", "image", "rm", replaced).Run() // fails where a container still uses it
	}
	return id
}

// debianImage holds the packages of all base images: one debootstrap is enough.
func debianImage(t *testing.T) string {
	t.Helper()
	recipe := dockerSuite + " " + dockerPackages
	return dockerImage(t, "debian", func(tag string) {
		debootstrap := needProgram(t, "apt-get install debootstrap", "debootstrap")
		if os.Getuid() != 0 {
			skip(t, "root, for debootstrap", "run the tests as root once")
		}
		dir, err := os.MkdirTemp("", "drainit-debian")
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		out, err := exec.Command(debootstrap, "--variant=minbase", "--include="+dockerPackages, dockerSuite, dir).CombinedOutput()
		require.NoError(t, err, "%s", out)
		out, err = exec.Command("sh", "-c", `tar -C "$1" --exclude=./var/cache/apt/archives/*.deb --exclude=./usr/share/doc -c . | docker import - "$2"`,
			"sh", dir, tag).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}, recipe)
}

// baseImage stands in for an official image.
func baseImage(t *testing.T, name string, files ...string) string {
	t.Helper()
	debian := debianImage(t)
	return dockerImage(t, name, func(tag string) {
		docker(t, "build", "-q", "--network", "none", "-t", tag, "--build-arg", "BASE="+debian, "-f", filepath.Join(dockerTestdata, files[0]), dockerTestdata)
	}, debian, files...)
}

// builderImage stands in for golang.
func builderImage(t *testing.T) string {
	t.Helper()
	debian := debianImage(t)
	sums, err := os.ReadFile("go.sum")
	require.NoError(t, err)
	return dockerImage(t, "golang", func(tag string) {
		dir := t.TempDir()
		goEnv := func(name string) string {
			out, err := exec.Command("go", "env", name).Output()
			require.NoError(t, err)
			return strings.TrimSpace(string(out))
		}
		// The cache of downloaded modules has the form of a module proxy, which GOPROXY takes.
		modules := t.TempDir()
		download := exec.Command("go", "mod", "download")
		download.Env = append(os.Environ(), "GOMODCACHE="+modules, "GOFLAGS=-modcacherw", "GOSUMDB=off",
			"GOPROXY=file://"+filepath.Join(goEnv("GOMODCACHE"), "cache/download")+","+goEnv("GOPROXY"))
		out, err := download.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.NoError(t, os.Rename(filepath.Join(modules, "cache/download"), filepath.Join(dir, "modules")))
		require.NoError(t, os.Mkdir(filepath.Join(dir, "go"), 0o755))
		for _, part := range []string{"bin", "lib", "pkg", "src", "VERSION", "go.env"} {
			out, err := exec.Command("cp", "-R", filepath.Join(goEnv("GOROOT"), part), filepath.Join(dir, "go", part)).CombinedOutput()
			require.NoError(t, err, "%s", out)
		}
		docker(t, "build", "-q", "--network", "none", "-t", tag, "--build-arg", "BASE="+debian, "-f", filepath.Join(dockerTestdata, "builder.Dockerfile"), dir)
	}, debian+runtime.Version()+string(sums), "builder.Dockerfile")
}

// exampleImage is a target of Dockerfile.example as a user builds it, on the stand-ins for the official images.
func exampleImage(t *testing.T, target string) string {
	t.Helper()
	needDocker(t)
	dockerImages.Lock()
	defer dockerImages.Unlock()
	if id, ok := dockerImages.built[target]; ok {
		return id
	}
	args := []string{
		"--build-arg", "BUILDER=" + builderImage(t),
		"--build-arg", "BASE=" + baseImage(t, "nginx", "nginx.Dockerfile", "docker-entrypoint.sh", "nginx.conf"),
		"--build-arg", "PHP_BASE=" + baseImage(t, "php", "php-fpm.Dockerfile", "docker-php-entrypoint", "php-fpm.conf", "slow.php"),
		"-f", "Dockerfile.example", ".",
	}
	for _, stage := range []string{"build", "drainit", "php-fpm", "nginx"} { // all have a name, so that all are replaced next time
		options := args
		if stage != "nginx" { // the default
			options = append([]string{"--target", stage}, args...)
		}
		dockerImages.built[stage] = dockerBuild(t, dockerPrefix+"example-"+stage, options...)
	}
	return dockerImages.built[target]
}

// appImage holds drainit and testdata/docker/app, both static, and nothing else.
func appImage(t *testing.T) string {
	t.Helper()
	needDocker(t)
	dockerImages.Lock()
	defer dockerImages.Unlock()
	if id, ok := dockerImages.built["app"]; ok {
		return id
	}
	root := filepath.Join(t.TempDir(), "rootfs")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "run"), 0o755))
	drainit, err := os.ReadFile(binary)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(root, "drainit"), drainit, 0o755))
	build := exec.Command("go", "build", "-o", filepath.Join(root, "app"), "./"+dockerTestdata+"/app")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	dockerImages.built["app"] = dockerBuild(t, dockerPrefix+"app", "-f", filepath.Join(dockerTestdata, "app.Dockerfile"), filepath.Dir(root))
	return dockerImages.built["app"]
}

// dockerContainer is a running container. Its output holds stdout and stderr.
type dockerContainer struct {
	*process
	id string
}

// dockerRun starts a container and removes it at the end of the test. The readiness endpoint is asked at the container's
// own address.
func dockerRun(t *testing.T, image string, flags []string, command ...string) *dockerContainer {
	t.Helper()
	args := append([]string{"create"}, flags...)
	c := &dockerContainer{process: &process{t: t}}
	c.id = docker(t, append(append(args, image), command...)...)
	t.Cleanup(func() { removeContainer(t, c.id) })
	docker(t, "start", c.id)
	c.follow()
	return c
}

func removeContainer(t *testing.T, id string) {
	if t.Failed() {
		out, _ := exec.Command("docker", "logs", id).CombinedOutput()
		t.Logf("output of the container:\n%s", out)
	}
	if out, err := exec.Command("docker", "rm", "-f", "-v", id).CombinedOutput(); err != nil {
		t.Errorf("container left behind: %s", out)
	}
}

// follow collects the output from the start, until the container stops, and notes its address.
func (c *dockerContainer) follow() {
	c.t.Helper()
	reader, writer, err := os.Pipe()
	require.NoError(c.t, err)
	c.output = newOutput()
	cmd := exec.Command("docker", "logs", "-f", c.id)
	cmd.Stdout, cmd.Stderr = writer, writer
	require.NoError(c.t, cmd.Start())
	_ = writer.Close()
	go c.output.collect(reader)
	go func() { _ = cmd.Wait() }()
	if ip := c.inspect("{{.NetworkSettings.IPAddress}}"); ip != "" {
		c.health = net.JoinHostPort(ip, "8081")
	}
}

func (c *dockerContainer) inspect(format string) string {
	c.t.Helper()
	return docker(c.t, "inspect", "-f", format, c.id)
}

// at is the container's address with another port.
func (c *dockerContainer) at(port string) string {
	c.t.Helper()
	host, _, err := net.SplitHostPort(c.health)
	require.NoError(c.t, err)
	return net.JoinHostPort(host, port)
}

func (c *dockerContainer) kill(signal string) {
	c.t.Helper()
	docker(c.t, "kill", "-s", signal, c.id)
}

// stop begins docker stop and returns how to wait for its end.
func (c *dockerContainer) stop(flags ...string) (wait func()) {
	c.t.Helper()
	cmd := exec.Command("docker", append(append([]string{"stop"}, flags...), c.id)...)
	require.NoError(c.t, cmd.Start())
	return func() {
		c.t.Helper()
		require.NoError(c.t, cmd.Wait())
	}
}

// exit waits for the container to end and returns its exit code.
func (c *dockerContainer) exit() string {
	c.t.Helper()
	eventually(c.t, func() bool { return c.inspect("{{.State.Running}}") == "false" }, "the container ends")
	c.output.wait(c.t)
	return c.inspect("{{.State.ExitCode}}")
}

// inOrder checks that lines which match the patterns come in that order, drainit's and the app's each: between the two
// there is no order, because drainit's log never waits for its reader, and because Docker merges two pipes.
func (c *dockerContainer) inOrder(patterns ...string) {
	c.t.Helper()
	var drainit, app []string
	for line := range strings.SplitSeq(c.text(), "\n") {
		if strings.HasPrefix(line, "drainit: ") {
			drainit = append(drainit, line)
		} else {
			app = append(app, line)
		}
	}
	next := func(lines *[]string, pattern string) bool {
		at := slices.IndexFunc(*lines, regexp.MustCompile(pattern).MatchString)
		if at >= 0 {
			*lines = (*lines)[at+1:]
		}
		return at >= 0
	}
	for _, p := range patterns {
		require.True(c.t, next(&drainit, p) || next(&app, p), "no line %q, or too early in:\n%s", p, c.text())
	}
}

// fetchURL gets the body of a page over a connection of its own.
func fetchURL(url string) (string, error) {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}
	return string(b), err
}

func TestDockerExampleNginx(t *testing.T) {
	t.Parallel()
	image := exampleImage(t, "nginx")
	c := dockerRun(t, image, []string{"-p", "127.0.0.1::80"})
	url := "http://" + docker(t, "port", c.id, "80/tcp")
	eventually(t, func() bool { return c.inspect("{{.State.Health.Status}}") == "healthy" }, "the container is healthy")
	c.line(t, `^entrypoint: nginx -g daemon off;$`)
	eventually(t, func() bool { _, err := fetchURL(url); return err == nil }, "nginx answers")

	stopped := c.stop()
	c.waitReady(503)
	slow := make(chan string, 1)
	go func() { // a download that begins in the drain and ends after SIGQUIT
		body, err := fetchURL(url + "/slow")
		slow <- fmt.Sprint(len(body), " ", err)
	}()
	for range 20 {
		_, err := fetchURL(url)
		require.NoError(t, err, "a request in the drain")
	}
	c.line(t, `SIGQUIT to nginx`)
	require.Empty(t, slow, "the download is shorter than the drain")
	require.Equal(t, "400000 <nil>", <-slow)
	stopped()
	require.Equal(t, "0", c.exit())
	c.inOrder(`^drainit: .*SIGQUIT asks for a stop: readiness fails`, `^drainit: .*SIGQUIT to nginx`, `gracefully shutting down`, `^drainit: .*exit code 0$`)
}

func TestDockerExampleBinary(t *testing.T) {
	t.Parallel()
	c := dockerRun(t, exampleImage(t, "drainit"), []string{"-e", "DRAINIT_PLAN=text"}, "app")
	require.Equal(t, "0", c.exit())
	require.NotEmpty(t, c.text())
	require.Equal(t, "[/drainit --]", c.inspect("{{.Config.Entrypoint}}"))
}

func TestDockerExamplePHP(t *testing.T) {
	t.Parallel()
	c := dockerRun(t, exampleImage(t, "php-fpm"), nil)
	eventually(t, func() bool { return c.inspect("{{.State.Health.Status}}") == "healthy" }, "the container is healthy")
	c.line(t, `^entrypoint: php-fpm$`)
	c.line(t, `ready to handle connections`)
	stopped := c.stop()
	c.waitReady(503)
	body := make(chan string, 1)
	go func() { body <- fastCGI(c.at("9000"), "/var/www/html/slow.php") }()
	c.line(t, `SIGQUIT to php-fpm`)
	require.Empty(t, body, "the request is shorter than the drain")
	require.Contains(t, <-body, "\r\n\r\nfinished")
	stopped()
	require.Equal(t, "0", c.exit())
	c.inOrder(`SIGQUIT asks for a stop`, `SIGQUIT to php-fpm`, `bye-bye`, `exit code 0$`)
}

// fastCGI asks a FastCGI server for a script and returns what it sends, or the error.
func fastCGI(address, script string) string {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	record := func(kind byte, content string) []byte { // FCGI_Header and content, request 1
		return append([]byte{1, kind, 0, 1, byte(len(content) >> 8), byte(len(content)), 0, 0}, content...)
	}
	pair := func(name, value string) string {
		return string([]byte{byte(len(name)), byte(len(value))}) + name + value
	}
	request := record(1, "\x00\x01\x00\x00\x00\x00\x00\x00") // FCGI_BEGIN_REQUEST, FCGI_RESPONDER
	request = append(request, record(4, pair("SCRIPT_FILENAME", script)+pair("REQUEST_METHOD", "GET"))...)
	request = append(request, record(4, "")...) // the end of FCGI_PARAMS
	request = append(request, record(5, "")...) // the end of FCGI_STDIN
	if _, err := conn.Write(request); err != nil {
		return err.Error()
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return err.Error()
	}
	return string(answer)
}

func TestDockerHealthStatus(t *testing.T) {
	t.Parallel()
	c := dockerRun(t, exampleImage(t, "nginx"), []string{"-e", "DRAINIT_DRAIN_DELAY=60s", "-e", "DRAINIT_GRACE_PERIOD=90s"})
	eventually(t, func() bool { return c.inspect("{{.State.Health.Status}}") == "healthy" }, "the container is healthy")
	c.kill("TERM")
	eventually(t, func() bool { return c.inspect("{{.State.Health.Status}}") == "unhealthy" }, "the container is unhealthy in the drain")
	require.Zero(t, c.count("SIGQUIT to nginx"))
	c.kill("TERM") // ends the drain
	require.Equal(t, "0", c.exit())
	c.line(t, "SIGQUIT to nginx")
}

func TestDockerStop(t *testing.T) {
	t.Parallel()
	// As in an image on nginx's that runs something else: the inherited STOPSIGNAL is no signal for the app.
	c := dockerRun(t, appImage(t), []string{"--stop-signal", "SIGQUIT"}, "--grace-period", "10s", "--drain-delay", "2s", "/app")
	c.line(t, `^app: pid \d+ parent 1 uid 0$`)
	c.waitReady(200)
	stopped := c.stop("-t", "10")
	c.waitReady(503)
	slow := make(chan string, 1)
	go func() {
		body, err := fetchURL("http://" + c.at("8080") + "/slow")
		slow <- fmt.Sprint(body, err)
	}()
	for range 20 {
		_, err := fetchURL("http://" + c.at("8080"))
		require.NoError(t, err, "a request in the drain")
	}
	c.line(t, `SIGTERM to app`)
	stopped()
	require.Equal(t, "finished\n<nil>", <-slow)
	require.Equal(t, "0", c.exit())
	c.inOrder(`SIGQUIT asks for a stop`, `SIGTERM to app`, `^app: got SIGTERM$`, `^app: finished$`, `exit code 0$`)
	require.Zero(t, c.count("got SIGQUIT"))
}

// TestDockerLastBytes: the end of an answer that only the kernel still has when the app exits is not lost with the
// container's network.
func TestDockerLastBytes(t *testing.T) {
	t.Parallel()
	c := dockerRun(t, appImage(t), nil, "--drain-delay", "0", "/app")
	c.line(t, `^app: pid`)
	c.waitReady(200)
	// A client with so small a buffer that most of the answer has to wait on the other side.
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		return errors.Join(raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) }), err)
	}}
	var conn net.Conn
	eventually(t, func() (ok bool) { var err error; conn, err = dialer.Dial("tcp", c.at("8080")); return err == nil }, "the app accepts")
	defer conn.Close()
	_, err := io.WriteString(conn, "GET /page HTTP/1.1\r\nHost: app\r\n\r\n")
	require.NoError(t, err)
	reader := bufio.NewReaderSize(conn, 16)
	_, err = reader.Peek(1) // the app has answered
	require.NoError(t, err)
	stopped := c.stop()
	c.line(t, `bytes are still on their way to clients`)
	response, err := http.ReadResponse(reader, nil)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Len(t, body, 30000)
	stopped()
	require.Equal(t, "0", c.exit())
	c.line(t, `lingering \d+\.\d+s; exit code 0$`)
}

func TestDockerKill(t *testing.T) {
	t.Parallel()
	c := dockerRun(t, appImage(t), nil, "--drain-delay", "300ms", "/app")
	c.line(t, `^app: pid`)
	for _, signal := range []string{"HUP", "USR1"} {
		c.kill(signal)
		c.line(t, "^app: got SIG"+signal+"$")
	}
	c.kill("TERM")
	require.Equal(t, "0", c.exit())
	c.inOrder("got SIGHUP", "got SIGUSR1", "SIGTERM asks for a stop", "got SIGTERM", "exit code 0$")
}

// docker run --init puts tini in front: drainit is not PID 1, and adopts orphans all the same.
func TestDockerRunInit(t *testing.T) {
	t.Parallel()
	c := dockerRun(t, appImage(t), []string{"--init"}, "--drain-delay", "300ms", "/app", "orphan")
	parent := c.line(t, `^app: pid \d+ parent (\d+)`)[1]
	require.NotEqual(t, "1", parent)
	c.line(t, `^leftover: parent is `+parent+`$`)
	c.waitReady(200)
	c.stop("-t", "30")()
	require.Equal(t, "0", c.exit())
	c.inOrder("SIGTERM asks for a stop", "^app: finished", "^leftover: got SIGTERM", "exit code 0$")
}

func TestDockerWithoutPrivileges(t *testing.T) {
	t.Parallel()
	c := dockerRun(t, appImage(t), []string{"--user", "65534", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
		"--network", "none", "--pids-limit", "64"}, "--drain-delay", "5s", "/app", "orphan")
	c.line(t, `^app: pid \d+ parent 1 uid 65534$`)
	c.line(t, `^leftover: parent is 1$`)
	probe := func() error { return exec.Command("docker", "exec", c.id, "/drainit", "--probe").Run() }
	require.NoError(t, probe())
	stopped := c.stop("-t", "30")
	c.line(t, "asks for a stop")
	require.Error(t, probe(), "not ready in the drain")
	require.Zero(t, c.count("got SIGTERM"))
	stopped()
	require.Equal(t, "0", c.exit())
	c.inOrder("^app: finished", "^leftover: got SIGTERM", "exit code 0$")
}

// With the host's PID namespace kill(-1) would reach everything. Run as a user of no importance: if it did, only what
// belongs to that user would notice.
func TestDockerHostPID(t *testing.T) {
	t.Parallel()
	image := appImage(t)
	if os.Getuid() != 0 {
		skip(t, "root, to start a process of another user", "run the tests as root")
	}
	const user = 61234
	outsider := exec.Command("sleep", "300")
	outsider.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	require.NoError(t, outsider.Start())
	ended := make(chan struct{})
	go func() { _ = outsider.Wait(); close(ended) }()
	t.Cleanup(func() { _ = outsider.Process.Kill(); <-ended })

	c := dockerRun(t, image, []string{"--pid", "host", "--user", fmt.Sprint(user)}, "--drain-delay", "300ms", "/app", "orphan")
	parent := c.line(t, `^app: pid \d+ parent (\d+) uid 61234$`)[1]
	require.NotEqual(t, "1", parent)
	c.line(t, `^leftover: parent is `+parent+`$`)
	c.stop("-t", "30")()
	require.Equal(t, "0", c.exit())
	c.inOrder("SIGTERM asks for a stop", "^app: finished", "^leftover: got SIGTERM", "exit code 0$")
	select {
	case <-ended:
		t.Fatalf("a process outside of the container was ended: %v", outsider.ProcessState)
	default:
	}
}

// A container that is full can start neither a process nor a thread, and a Go program that needs a thread crashes.
func TestDockerPidsLimit(t *testing.T) {
	t.Parallel()
	const full = `$SIG{TERM} = sub { print STDERR "got TERM\n"; exit 0 };
		while (defined($pid = fork)) { if (!$pid) { $SIG{TERM} = "DEFAULT"; sleep 300; exit } $n++ }
		print STDERR "full: $n: $!\n";
		sleep 1 while 1`
	c := dockerRun(t, exampleImage(t, "nginx"), []string{"--pids-limit", "40", "--no-healthcheck", "-e", "DRAINIT_DRAIN_DELAY=1s", "-e", "DRAINIT_GRACE_PERIOD=20s"},
		"perl", "-e", full)
	c.line(t, `^full: \d\d: Resource temporarily unavailable$`)
	var asking sync.WaitGroup
	for range 50 { // many at once: the endpoint would like a thread for them, too
		asking.Go(func() { _, _ = fetchURL("http://" + c.health + "/readyz") })
	}
	asking.Wait()
	c.waitReady(200)
	stopped := c.stop("-t", "30")
	c.waitReady(503)
	stopped()
	require.Equal(t, "0", c.exit())
	c.inOrder("SIGQUIT asks for a stop", "^got TERM", "leftover processes get SIGTERM", "exit code 0$")
}

// Ctrl-C in docker run -it reaches the command as without drainit: once, and nothing else does.
func TestDockerTerminal(t *testing.T) {
	t.Parallel()
	image := appImage(t)
	script := needProgram(t, "apt-get install bsdutils", "script") // for a terminal to run docker in
	idFile := filepath.Join(t.TempDir(), "id")
	cmd := exec.Command(script, "-qec", "docker run -it --cidfile "+idFile+" "+image+" --drain-delay 300ms /app", "/dev/null")
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = writer, writer
	keys, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_ = writer.Close()
	out := newOutput()
	go out.collect(reader)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		if id, err := os.ReadFile(idFile); err == nil {
			removeContainer(t, string(id))
		}
	})
	out.line(t, `^app: pid \d+ parent 1`)
	_, err = keys.Write([]byte{3})
	require.NoError(t, err)
	out.line(t, "app: got SIGINT")
	require.NoError(t, cmd.Wait(), "the app exits with 0, and so does docker run")
	out.wait(t)
	require.Equal(t, 1, out.count("app: got"), out.text())
	require.Equal(t, 1, out.count("app: finished"), out.text())
}

func TestDockerExitCodes(t *testing.T) {
	t.Parallel()
	image := appImage(t)
	for _, test := range []struct {
		code, line string
		command    []string
	}{
		{"127", `^drainit: .*/nonexistent`, []string{"/nonexistent"}},
		{"126", `^drainit: .*/run`, []string{"/run"}},
		{"125", `^drainit: .*--nonsense`, []string{"--nonsense", "/app"}},
	} {
		c := dockerRun(t, image, nil, test.command...)
		require.Equal(t, test.code, c.exit())
		c.line(t, test.line)
	}
}

// A container's file system outlives its processes, and so does the socket of one that was killed.
func TestDockerRestart(t *testing.T) {
	t.Parallel()
	const listen = "unix:/run/health"
	c := dockerRun(t, appImage(t), []string{"-e", "DRAINIT_HEALTH_LISTEN=" + listen, "-e", "DRAINIT_DRAIN_DELAY=300ms"}, "/app")
	ready := func() bool { return exec.Command("docker", "exec", c.id, "/drainit", "--probe").Run() == nil }
	eventually(t, ready, "ready")
	c.kill("KILL")
	require.Equal(t, "137", c.exit())
	docker(t, "start", c.id)
	eventually(t, ready, "ready after SIGKILL and docker start")
	docker(t, "restart", "-t", "30", c.id)
	eventually(t, ready, "ready after docker restart")
	c.kill("KILL")
	c.follow()
	c.output.wait(t)
	require.Equal(t, 1, c.count(`SIGTERM asks for a stop`), c.text())
	require.Equal(t, 1, c.count(`exit code 0$`), c.text())
}

// docker pause stops the clock of the drain, too.
func TestDockerPause(t *testing.T) {
	t.Parallel()
	c := dockerRun(t, appImage(t), nil, "--drain-delay", "1s", "--grace-period", "5s", "/app")
	c.line(t, "^app: pid")
	c.waitReady(200)
	c.kill("TERM")
	c.line(t, "asks for a stop")
	docker(t, "pause", c.id)
	paused := time.Now()
	eventually(t, func() bool { return time.Since(paused) > 6*time.Second }, "the grace period would be over")
	docker(t, "unpause", c.id)
	require.Equal(t, "0", c.exit())
	c.inOrder("SIGTERM asks for a stop", "was frozen", "^app: got SIGTERM", "^app: finished", "exit code 0$")
}
