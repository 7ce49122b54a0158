package main

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const phpFPMPackage = "Debian package php-fpm"

// newPHPFPM configures a php-fpm whose process_control_timeout is given, with a script wait.php: it leaves a
// file "started", waits for a file "go", and answers "whole".
func newPHPFPM(t *testing.T, controlTimeout string) *server {
	t.Helper()
	s := newServer(t, phpFPMPackage, "php-fpm", "php-fpm[0-9]*")
	s.write(t, "fpm.conf", fmt.Sprintf(`[global]
error_log = /proc/self/fd/2
process_control_timeout = %s
[www]
user = root
group = root
listen = %s
pm = static
pm.max_children = 2
`, controlTimeout, s.socket))
	s.write(t, "wait.php", `<?php
touch(__DIR__ . "/started");
while (!file_exists(__DIR__ . "/go")) { clearstatcache(); usleep(5000); }
echo "whole";
`)
	s.write(t, "hello.php", `<?php echo "hello";`)
	return s
}

// phpFPMCommand runs in the foreground (-F), as root where the test is (-R), without the system's php.ini (-n).
func phpFPMCommand(s *server) []string {
	return []string{s.program, "-F", "-R", "-n", "-y", s.dir + "/fpm.conf"}
}

func startPHPFPM(t *testing.T, s *server, flags ...string) *process {
	t.Helper()
	p := start(t, world{}, append(append(flags, "--"), phpFPMCommand(s)...)...)
	p.line(t, "ready to handle connections")
	return p
}

func TestPHPFPMFinishesRequests(t *testing.T) {
	t.Parallel()
	s := newPHPFPM(t, "10s")
	p := startPHPFPM(t, s, "--drain-delay", "300ms", "--grace-period", "30s")
	waiting := beside(func() answer { return s.script("wait.php") })
	eventually(t, func() bool { return s.has("started") }, "the request runs")

	p.signal(syscall.SIGTERM)
	p.waitReady(http.StatusServiceUnavailable)
	s.script("hello.php").require(t, "hello") // it serves as before while it drains
	require.Zero(t, p.count("SIGQUIT to"))

	p.line(t, `stopping: SIGQUIT to php-fpm\S* \(pid \d+\)$`)
	p.line(t, "Finishing ...")
	s.write(t, "go", "")
	(<-waiting).require(t, "whole")
	require.Equal(t, 0, p.exit())
	require.Zero(t, p.count("is still there|SIGKILL"))
	p.line(t, `stopped as SIGTERM asked: \S+ exited with 0; draining 0\.[3-9].*exit code 0$`)
	require.False(t, s.has("socket"), "php-fpm ended in order, so it removed its socket")
}

// With process_control_timeout = 0, php-fpm's default, QUIT is as good as KILL for requests. No init can change that;
// this is what makes the advice in the README true.
func TestPHPFPMWithoutControlTimeoutCutsRequests(t *testing.T) {
	t.Parallel()
	s := newPHPFPM(t, "0")
	p := startPHPFPM(t, s, "--drain-delay", "0")
	waiting := beside(func() answer { return s.script("wait.php") })
	eventually(t, func() bool { return s.has("started") }, "the request runs")
	p.signal(syscall.SIGTERM)
	require.Error(t, (<-waiting).err)
	require.Equal(t, 0, p.exit())
	p.line(t, "SIGQUIT to php-fpm")
}

// TERM, which docker stop sends, is the reason for all this: php-fpm cuts its requests although it was told to wait.
func TestPHPFPMTermCutsRequests(t *testing.T) {
	t.Parallel()
	s := newPHPFPM(t, "10s")
	p := startPHPFPM(t, s, "--drain-delay", "0", "--stop-signal", "TERM")
	waiting := beside(func() answer { return s.script("wait.php") })
	eventually(t, func() bool { return s.has("started") }, "the request runs")
	p.signal(syscall.SIGTERM)
	require.Error(t, (<-waiting).err)
	require.Equal(t, 0, p.exit())
}

func TestNginxBeforePHPFPM(t *testing.T) {
	t.Parallel()
	php := newPHPFPM(t, "10s")
	phpInit := startPHPFPM(t, php, "--drain-delay", "0")
	web := newNginx(t, fmt.Sprintf(`location / {
	fastcgi_pass unix:%s;
	fastcgi_param SCRIPT_FILENAME %s$uri;
	fastcgi_param REQUEST_METHOD $request_method;
}`, php.socket, php.dir))
	webInit := startNginx(t, web, "--drain-delay", "300ms")
	web.answers(t, "/hello.php", "hello")

	waiting := beside(func() answer {
		code, body, err := web.get("/wait.php")
		return answer{code, body, err}
	})
	eventually(t, func() bool { return php.has("started") }, "the request runs")
	webInit.signal(syscall.SIGTERM)
	webInit.waitReady(http.StatusServiceUnavailable)
	web.answers(t, "/hello.php", "hello")
	webInit.line(t, "SIGQUIT to nginx")
	php.write(t, "go", "")
	(<-waiting).require(t, "whole")
	require.Equal(t, 0, webInit.exit())

	phpInit.signal(syscall.SIGTERM)
	require.Equal(t, 0, phpInit.exit())
	phpInit.line(t, "SIGQUIT to php-fpm")
}

func TestPHPFPMStoppedEarly(t *testing.T) {
	t.Parallel()
	stopEarlySteps(t, func(t *testing.T) []string { return phpFPMCommand(newPHPFPM(t, "10s")) })
}

// A reload of php-fpm is an exec of itself, so for some milliseconds it has no handlers again, and the stop signal waits.
// What nobody can wait for is the exec itself: a signal that comes while execve(2) is at work finds a handler that is gone
// before it runs. php-fpm has no requests at that moment, so nothing is lost.
func TestPHPFPMStoppedDuringReload(t *testing.T) {
	t.Parallel()
	const longest = 30
	step := 1
	if testing.Short() {
		step = 5
	}
	ends := map[string]int{}
	for ms := 0; ms <= longest; ms += step {
		delay := time.Duration(ms) * time.Millisecond
		t.Run(delay.String(), func(t *testing.T) {
			s := newPHPFPM(t, "10s")
			p := startPHPFPM(t, s, "--drain-delay", "0", "--grace-period", "6s")
			p.signal(syscall.SIGUSR2)
			time.Sleep(delay) // the one thing that is varied here
			p.signal(syscall.SIGTERM)
			code := p.exit()
			require.Zero(t, p.count("SIGKILL"))
			switch inExec := p.count(`php-fpm\S* was ended by SIGQUIT`) == 1 && p.count("reloading: execvp") == 1; {
			case code == 0 && p.count("is still there") > 0:
				ends["forgot the stop signal over its reload, stopped by the next one"]++
			case code == 0:
				ends["stopped in order"]++
			case code == 128+int(syscall.SIGQUIT) && inExec:
				ends["ended in its exec"]++
			default:
				t.Fatalf("exit code %d is not accounted for", code)
			}
		})
	}
	t.Log(ends)
	require.NotZero(t, ends["stopped in order"])
	require.LessOrEqual(t, ends["ended in its exec"], max(2, longest/step/3), "without the wait for its handler it would be every other time")
}
