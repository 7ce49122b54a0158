package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/drainit/drainit/signals"
	"github.com/drainit/drainit/supervisor"
)

var updateGolden = flag.Bool("update", false, "write testdata/cli/*.golden instead of comparing")

const acceptedDurations = "not a duration; accepted: 5s, 500ms, 1m30s, or plain seconds, from 0 to 8760h"

// TestBadValues: each value that a flag does not take, given as flag and as variable.
func TestBadValues(t *testing.T) {
	t.Parallel()
	const signalForms = "(a name with or without SIG, a number 1..64, RTMIN+n or RTMAX-n)"
	for _, test := range []struct{ flag, value, message string }{
		{"stop-signal", "TREM", `unknown signal "TREM": did you mean SIGTERM? ` + signalForms},
		{"stop-signal", "STOP", "SIGSTOP stops nothing for good; accepted: auto, or any other signal"},
		{"stop-signal", "", `unknown signal "": want a name with or without SIG, a number 1..64, RTMIN+n or RTMAX-n`},
		{"stop-signal", "0", `unknown signal "0": want a name with or without SIG, a number 1..64, RTMIN+n or RTMAX-n`},
		{"stop-signal", "33", `cannot use signal "33": the C library and the Go runtime keep 32 and 33 for their threads`},
		{"stop-signal-for", "nginx", `cannot read stop signal "nginx": want NAME=SIG`},
		{"stop-signal-for", "/usr/sbin/nginx=QUIT", `cannot read stop signal "/usr/sbin/nginx=QUIT": want the program's name as in /proc/PID/comm, not a path`},
		{"stop-signal-for", "*=QUIT", `cannot read stop signal "*=QUIT": * alone is every program, for which there is --stop-signal`},
		{"stop-signal-for", "nginx=QIUT", `cannot read stop signal "nginx=QIUT": unknown signal "QIUT": did you mean SIGQUIT? ` + signalForms},
		{"stop-on", "TERM,KILL", "SIGKILL cannot be received (see --list-signals)"},
		{"stop-on", "CHLD", "SIGCHLD cannot be received (see --list-signals)"},
		{"stop-on", "RTMIN", "SIGRTMIN cannot be received (see --list-signals)"},
		{"stop-on", "", `unknown signal "": want a name with or without SIG, a number 1..64, RTMIN+n or RTMAX-n`},
		{"drain-delay", "soon", acceptedDurations},
		{"drain-delay", "-1s", acceptedDurations},
		{"drain-delay", "9000h", acceptedDurations},
		{"unready-delay", "", acceptedDurations},
		{"grace-period", "1 s", acceptedDurations},
		{"sweep-timeout", "1e9", acceptedDurations},
		{"stop-schedule", "QUIT/soon", `"soon" is neither a time nor a signal`},
		{"stop-schedule", "5/TERM", `"5/TERM" begins with a time`},
		{"stop-schedule", "TERM/forever", `"forever" has no place in a stop that must end inside the grace period`},
		{"stop-schedule", "KILL/5/TERM", `"KILL/5/TERM" goes on after KILL`},
		{"health-listen", "8081", `invalid address "8081": `},
		{"health-listen", "http://localhost:80", `invalid address "http://localhost:80": a path, or a scheme that is not unix; accepted are host:port, :port, [ipv6]:port and unix:/path, or off`},
		{"health-listen", ":99999", `invalid address ":99999": port "99999" is not a number from 0 to 65535; accepted are host:port, :port, [ipv6]:port and unix:/path, or off`},
		{"health-listen", "unix:", `invalid address "unix:": unix: without a file name; accepted are host:port, :port, [ipv6]:port and unix:/path, or off`},
		{"process-group", "maybe", "accepted: true, false, on, off, yes, no, 1, 0"},
		{"single-child", "maybe", "accepted: true, false, on, off, yes, no, 1, 0"},
		{"warn-on-reap", "2", "accepted: true, false, on, off, yes, no, 1, 0"},
		{"verbose", "", "accepted: true, false, on, off, yes, no, 1, 0"},
		{"rewrite", "TERM", `cannot read rewrite "TERM": want S:R, two signals with a colon between them, or S:0 to drop S`},
		{"rewrite", "KILL:TERM", `cannot rewrite SIGKILL in "KILL:TERM", as drainit does not pass it on: the kernel lets no process catch it`},
		{"rewrite", "TERM:derp", `cannot read rewrite "TERM:derp": unknown signal "derp"`},
		{"remap-exit", "256", "not an exit code; accepted: 0 to 255"},
		{"remap-exit", "-1", "not an exit code; accepted: 0 to 255"},
		{"remap-exit", "143,", "not an exit code; accepted: 0 to 255"},
		{"subreaper", "yes", "accepted: auto, on, off"},
		{"termination-log", "", "accepted: a path, auto, or off"},
		{"log-format", "xml", "accepted: text, json"},
		{"plan", "yaml", "accepted: text, json"},
		{"probe", "localhost", `invalid address "localhost": `},
		{"parent-death-signal", "nothing", `unknown signal "nothing"`},
	} {
		_, err := parseOptions([]string{"--" + test.flag + "=" + test.value, "--", "true"}, nil)
		require.Error(t, err, "--%s=%s", test.flag, test.value)
		require.Contains(t, err.Error(), test.message)
		require.Contains(t, err.Error(), "--"+test.flag)
		require.NotContains(t, err.Error(), "\n")

		variable := envName(test.flag)
		_, err = parseOptions([]string{"true"}, []string{variable + "=" + test.value})
		require.Error(t, err, "%s=%s", variable, test.value)
		require.Contains(t, err.Error(), test.message)
		require.Contains(t, err.Error(), `invalid value "`+test.value+`" for `+variable+": ")
	}
}

func TestBadCommandLines(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args    []string
		env     []string
		message string // the whole of it
	}{
		{nil, nil, "no command given: drainit [flags] [--] command [args...] (drainit --help lists the flags)"},
		{[]string{"--"}, nil, "no command given: drainit [flags] [--] command [args...] (drainit --help lists the flags)"},
		{[]string{"--drain-dely", "5s"}, nil, "unknown flag: --drain-dely (did you mean --drain-delay?)"},
		{[]string{"--zzzzzz"}, nil, "unknown flag: --zzzzzz (drainit --help lists the flags)"},
		{[]string{"-x", "true"}, nil, "unknown shorthand flag: 'x' in -x (drainit --help lists the flags)"},
		{[]string{"--drain-delay"}, nil, "flag needs an argument: --drain-delay"},
		{[]string{"-g", "-c", "true"}, nil, "--process-group true and --single-child true contradict each other: each is the opposite of the other"},
		{[]string{"--grace-period", "0", "true"}, nil, `invalid argument "0" for "--grace-period" flag: a stop needs time; accepted: more than 0`},
		{[]string{"--stop-signal", "INT", "--stop-schedule", "QUIT/5/KILL", "true"}, nil, "--stop-signal SIGINT and --stop-schedule QUIT/5s/KILL contradict each other: the schedule begins with another signal; give one of them, or begin the schedule with auto"},
		{[]string{"--rewrite", "TERM:STOP", "true"}, nil, "--rewrite SIGTERM:STOP makes SIGSTOP the stop signal, which stops nothing for good"},
		{[]string{"--probe", "--", "true"}, nil, `--probe takes no command, but got ["true"]`},
		{[]string{"--probe", ":80", "true"}, nil, `--probe takes no command, but got ["true"]`},
		{[]string{"--health-listen", "off", "--probe"}, nil, "--probe has no endpoint to ask: --health-listen is off"},
		{[]string{"true"}, []string{"DRAINIT_DRAIN_DELY=5s"}, `unknown variable "DRAINIT_DRAIN_DELY" (did you mean DRAINIT_DRAIN_DELAY?)`},
		{[]string{"true"}, []string{"DRAINIT_ZZZZZZZZ=1"}, `unknown variable "DRAINIT_ZZZZZZZZ" (drainit --help lists the flags, each of which has a variable)`},
		{[]string{"true"}, []string{"DRAINIT_=1"}, `unknown variable "DRAINIT_" (drainit --help lists the flags, each of which has a variable)`},
		{[]string{"true"}, []string{"DRAINIT_PROCESS_GROUP=true", "DRAINIT_SINGLE_CHILD=true"}, "--process-group true and --single-child true contradict each other: each is the opposite of the other"},
		{[]string{"true"}, []string{"DRAINIT_GRACE_PERIOD=0"}, `invalid value "0" for DRAINIT_GRACE_PERIOD: a stop needs time; accepted: more than 0`},
	} {
		_, err := parseOptions(test.args, test.env)
		require.EqualError(t, err, test.message, "%q %q", test.args, test.env)
	}
}

// TestPrecedence: a flag beats its variable, which beats the default.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	env := []string{
		"DRAINIT_DRAIN_DELAY=1s", "DRAINIT_GRACE_PERIOD=11", "DRAINIT_STOP_ON=HUP", "DRAINIT_PROCESS_GROUP=true",
		"DRAINIT_HEALTH_LISTEN=off", "DRAINIT_REMAP_EXIT=143,130", "DRAINIT_SUBREAPER=off", "OTHER=1",
	}
	o, err := parseOptions([]string{"app"}, nil)
	require.NoError(t, err)
	require.Equal(t, 5*time.Second, o.config.DrainDelay)
	require.Equal(t, []signals.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGQUIT}, o.config.StopOn)
	require.Equal(t, defaultListen, o.healthListen)
	require.False(t, o.config.Group)

	o, err = parseOptions([]string{"app"}, env)
	require.NoError(t, err)
	require.Equal(t, time.Second, o.config.DrainDelay)
	require.Equal(t, 11*time.Second, o.config.GracePeriod)
	require.Equal(t, []signals.Signal{unix.SIGHUP}, o.config.StopOn)
	require.Equal(t, listenOff, o.healthListen)
	require.Equal(t, map[int]bool{143: true, 130: true}, o.config.RemapExit)
	require.Equal(t, supervisor.SubreaperOff, o.config.Subreaper)
	require.True(t, o.config.Group)

	o, err = parseOptions([]string{"--drain-delay", "2", "--stop-on", "USR1", "--stop-on", "USR2", "-c", "--health-listen", ":1", "-e", "1", "-s", "app"}, env)
	require.NoError(t, err)
	require.Equal(t, 2*time.Second, o.config.DrainDelay)
	require.Equal(t, []signals.Signal{unix.SIGUSR1, unix.SIGUSR2}, o.config.StopOn)
	require.Equal(t, ":1", o.healthListen)
	require.Equal(t, map[int]bool{1: true}, o.config.RemapExit)
	require.Equal(t, supervisor.SubreaperOn, o.config.Subreaper)
	o, err = parseOptions([]string{"--subreaper", "off", "app"}, nil)
	require.NoError(t, err)
	require.Equal(t, supervisor.SubreaperOff, o.config.Subreaper)
	require.False(t, o.config.Group)
}

// TestEveryFlagHasATwin sets each flag by its variable only.
func TestEveryFlagHasATwin(t *testing.T) {
	t.Parallel()
	good := map[string]string{
		"stop-signal": "QUIT", "stop-signal-for": "app=QUIT", "stop-on": "HUP", "drain-delay": "1", "unready-delay": "1",
		"grace-period": "1", "stop-schedule": "TERM/1/KILL", "health-listen": ":1", "rewrite": "HUP:0", "remap-exit": "3",
		"subreaper": "off", "parent-death-signal": "TERM", "sweep-timeout": "7", "termination-log": "off", "log-format": "json",
		"plan": "json", "probe": ":1",
	}
	flags(new(raw)).VisitAll(func(f *pflag.Flag) {
		value, ok := good[f.Name]
		if f.Value.Type() == "bool" {
			value, ok = "true", true
		}
		require.True(t, ok, "%s has no value here", f.Name)
		command := []string{"app"}
		if f.Name == "probe" {
			command = nil
		}
		before, err := parseOptions(command, nil)
		if f.Name != "probe" {
			require.NoError(t, err)
		}
		after, err := parseOptions(command, []string{envName(f.Name) + "=" + value})
		require.NoError(t, err, f.Name)
		if f.Name != "single-child" { // true already
			require.NotEqual(t, before, after, "%s does something", f.Name)
		}
	})
}

func TestKubernetesServiceLinks(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"DRAINIT_SERVICE_HOST=10.0.0.1", "DRAINIT_SERVICE_PORT=80", "DRAINIT_SERVICE_PORT_HTTP=80", "DRAINIT_PORT=tcp://10.0.0.1:80",
		"DRAINIT_PORT_80_TCP=tcp://10.0.0.1:80", "DRAINIT_PORT_80_TCP_PROTO=tcp", "DRAINIT_PORT_80_TCP_PORT=80", "DRAINIT_PORT_53_UDP_ADDR=10.0.0.1",
	} {
		_, err := parseOptions([]string{"app"}, []string{name})
		require.NoError(t, err)
	}
	for _, name := range []string{"DRAINIT_SERVICE=x", "DRAINIT_PORTS=1", "DRAINIT_PORT_X_TCP=1", "DRAINIT_SERVICE_HOSTS=1"} {
		_, err := parseOptions([]string{"app"}, []string{name})
		require.ErrorContains(t, err, "unknown variable "+strconv.Quote(strings.Split(name, "=")[0]))
	}
}

func TestModesAndCommand(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args    string
		mode    mode
		command string
		detail  string // --plan's format or --probe's address
	}{
		{"app", modeRun, "app", ""},
		{"app --drain-delay 1 -v", modeRun, "app --drain-delay 1 -v", ""},
		{"-- -app -- x", modeRun, "-app -- x", ""},
		{"-v -- app --plan", modeRun, "app --plan", ""},
		{"-s app", modeRun, "app", ""},
		{"-gvw app", modeRun, "app", ""},
		{"--help", modeHelp, "", ""},
		{"-h app", modeHelp, "app", ""},
		{"-V", modeVersion, "", ""},
		{"--list-signals", modeListSignals, "", ""},
		{"--plan", modePlan, "", "text"},
		{"--plan app", modePlan, "app", "text"},
		{"--plan json", modePlan, "", "json"},
		{"--plan json app text", modePlan, "app text", "json"},
		{"--plan=json app", modePlan, "app", "json"},
		{"--plan -- json", modePlan, "json", "text"},
		{"--plan json --drain-delay 1 app", modePlan, "app", "json"},
		{"--plan text -- json x", modePlan, "json x", "text"},
		{"--drain-delay 1 --plan json -g app", modePlan, "app", "json"},
		{"app --plan json", modeRun, "app --plan json", ""},
		{"--probe", modeProbe, "", ":8081"},
		{"--probe :1", modeProbe, "", ":1"},
		{"--probe=:1", modeProbe, "", ":1"},
		{"--probe unix:/run/x", modeProbe, "", "unix:/run/x"},
		{"--probe --health-listen :2", modeProbe, "", ":2"},
		{"--probe :1 --health-listen off", modeProbe, "", ":1"},
		{"-s off app", modeRun, "app", ""},
		{"--subreaper auto app on", modeRun, "app on", ""},
		{"--termination-log --plan text x", modeRun, "text x", ""}, // the value of another flag
	} {
		o, err := parseOptions(strings.Fields(test.args), nil)
		require.NoError(t, err, test.args)
		require.Equal(t, test.mode, o.mode, test.args)
		require.Equal(t, test.command, strings.Join(o.config.Command, " "), test.args)
		switch o.mode {
		case modePlan:
			require.Equal(t, test.detail, o.planFormat, test.args)
		case modeProbe:
			require.Equal(t, test.detail, o.probe, test.args)
		}
	}
	o, err := parseOptions([]string{"-s", "app"}, nil)
	require.NoError(t, err)
	require.Equal(t, supervisor.SubreaperOn, o.config.Subreaper)
	o, err = parseOptions([]string{"--subreaper", "off", "app"}, nil)
	require.NoError(t, err)
	require.Equal(t, supervisor.SubreaperOff, o.config.Subreaper)
}

// TestGolden compares what the binary prints; go test -run TestGolden -update . writes it anew.
func TestGolden(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args string
		code int
	}{
		{"help", "--help", 0},
		{"list-signals", "--list-signals", 0},
		{"list-signals-stop-on", "--list-signals --stop-on WINCH", 0},
		{"plan", "--plan nginx -g daemon", 0},
		{"plan-json", "--plan json nginx", 0},
		{"plan-no-command", "--plan", 0},
		{"plan-schedule", "--plan --stop-schedule QUIT/10/TERM/3/KILL --unready-delay 2s --drain-delay 3s php-fpm8.2 -F", 0},
		{"plan-does-not-fit", "--plan --grace-period 10s --drain-delay 15s app", 1},
		{"plan-schedule-does-not-fit", "--plan=json --grace-period 10s --stop-schedule TERM/20/KILL app", 1},
	} {
		cmd := exec.Command(binary, strings.Fields(test.args)...)
		cmd.Env = cleanEnvironment()
		out, _ := cmd.Output()
		require.Equal(t, test.code, cmd.ProcessState.ExitCode(), test.args)
		path := filepath.Join("testdata", "cli", test.name+".golden")
		if *updateGolden {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, out, 0o644))
			continue
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), string(out), "drainit %s", test.args)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(binary, "--version").Output()
	require.NoError(t, err)
	require.Regexp(t, `^drainit \S.*\n$`, string(out))
}
