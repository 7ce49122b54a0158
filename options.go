package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/drainit/drainit/health"
	"github.com/drainit/drainit/logs"
	"github.com/drainit/drainit/nearest"
	"github.com/drainit/drainit/signals"
	"github.com/drainit/drainit/supervisor"
)

// mode is what this invocation is for.
type mode string

const (
	modeRun         mode = "run"
	modeHelp        mode = "help"
	modeVersion     mode = "version"
	modeListSignals mode = "list-signals"
	modePlan        mode = "plan"
	modeProbe       mode = "probe"
)

const (
	listenOff     = "off"
	defaultListen = ":8081"
	probeDefault  = "the address of --health-listen"
	envPrefix     = "DRAINIT_"
)

// options is a checked command line.
type options struct {
	mode           mode
	config         supervisor.Config
	healthListen   string
	terminationLog string
	logFormat      logs.Format
	planFormat     string
	probe          string
}

// raw is what the flags set before the combination is checked.
type raw struct {
	options
	stopSignalFor []signals.Entry
	processGroup  bool
	singleChild   bool
	list          bool
	version       bool
	help          bool
}

// flags is the one table of flags: parsing, environment, --help and the README's table come from it.
func flags(r *raw) *pflag.FlagSet {
	c := &r.config
	fs := pflag.NewFlagSet("drainit", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetInterspersed(false) // the first word that is not a flag is the command
	fs.Usage = func() {}      // errors are printed by run, in one line

	add := func(name, short string, v *value, usage string) *pflag.Flag { return fs.VarPF(v, name, short, usage) }
	duration := func(name string, p *time.Duration, usage string) {
		add(name, "", &value{text: p.String(), set: func(s string) (err error) { *p, err = supervisor.ParseDuration(s); return err }}, usage)
	}
	flag := func(name, short string, p *bool, usage string) {
		v := &value{text: strconv.FormatBool(*p), isBool: true}
		v.set = func(s string) (err error) {
			switch strings.ToLower(s) {
			case "on", "yes":
				s = "true"
			case "off", "no":
				s = "false"
			}
			if *p, err = strconv.ParseBool(s); err != nil {
				err = errors.New("accepted: true, false, on, off, yes, no, 1, 0")
			}
			return err
		}
		add(name, short, v, usage).NoOptDefVal = "true"
	}

	c.StopOn = []signals.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGQUIT}
	c.DrainDelay, c.GracePeriod, c.SweepTimeout = 5*time.Second, 30*time.Second, time.Second
	c.Subreaper = supervisor.SubreaperAuto
	c.Rewrite = signals.Rewrite{}
	c.RemapExit = map[int]bool{}
	r.singleChild = true
	r.healthListen, r.terminationLog, r.logFormat = defaultListen, "auto", logs.Text

	add("stop-signal", "", &value{text: "auto", set: func(s string) error { return setStopSignal(&c.StopSignal, s) }},
		"`SIG` that asks the command to stop gracefully; auto: QUIT for nginx and php-fpm, WINCH for httpd, USR1 for haproxy, ... by what the main process is at that moment, else TERM")
	add("stop-signal-for", "", list(func(s string) error {
		e, err := signals.ParseEntry(s)
		r.stopSignalFor = append(r.stopSignalFor, e)
		return err
	}), "`NAME=SIG` adds to what auto knows; NAME as in /proc/PID/comm; repeatable")
	first := true
	stopOn := list(func(s string) error {
		sig, err := parseReceived(s)
		if first {
			c.StopOn, first = nil, false
		}
		c.StopOn = append(c.StopOn, sig)
		return err
	})
	stopOn.text = "TERM,INT,QUIT"
	add("stop-on", "", stopOn, "`SIG,...` that mean stop when drainit receives them; the command's own stop signal always does, too")
	duration("drain-delay", &c.DrainDelay, "`D` between failing readiness and the stop signal, while the app serves as before; 0 is none")
	duration("unready-delay", &c.UnreadyDelay, "`D` after the stop request during which readiness stays 200")
	add("grace-period", "", &value{text: c.GracePeriod.String(), set: func(s string) (err error) {
		if c.GracePeriod, err = supervisor.ParseDuration(s); err == nil && c.GracePeriod == 0 {
			err = errors.New("a stop needs time; accepted: more than 0")
		}
		return err
	}}, "`D` that the whole stop may take: set it to the platform's (Kubernetes 30s, docker stop 10s, Nomad 5s)")
	add("stop-schedule", "", &value{set: func(s string) (err error) { c.Schedule, err = supervisor.ParseSchedule(s); return err }},
		"`S` is the ladder after the drain, as in QUIT/20/TERM/3/KILL; by default the stop signal, TERM 3s and KILL 1s before the grace period ends")
	add("health-listen", "", &value{text: r.healthListen, set: func(s string) error {
		r.healthListen = s
		if s == listenOff {
			return nil
		}
		if err := health.CheckAddr(s); err != nil {
			return fmt.Errorf("%w, or %s", err, listenOff)
		}
		return nil
	}}, "`ADDR` of the readiness endpoint: host:port, :port, unix:/path, or off")
	flag("process-group", "g", &r.processGroup, "send signals to the command's process group")
	flag("single-child", "c", &r.singleChild, "send signals to the command's first process only; the opposite of -g")
	add("rewrite", "r", list(func(s string) error {
		from, to, err := signals.ParseRewrite(s)
		c.Rewrite[from] = to
		return err
	}), "`S:R` passes signal S on as R, or drops it where R is 0; where S means stop, R is the stop signal; repeatable")
	add("remap-exit", "e", list(func(s string) error {
		code, err := strconv.Atoi(s)
		if err != nil || code < 0 || code > 255 {
			return errors.New("not an exit code; accepted: 0 to 255")
		}
		c.RemapExit[code] = true
		return nil
	}), "`N` as exit code of the command becomes 0; repeatable")
	add("subreaper", "s", choice((*string)(&c.Subreaper), subreaperModes...),
		"`WHEN` to adopt orphans when not PID 1: auto (if possible), on (or do not start), off").NoOptDefVal = "on"
	add("parent-death-signal", "p", &value{set: func(s string) (err error) {
		if c.ParentDeathSignal, err = signals.Parse(s); err == nil && c.ParentDeathSignal != unix.SIGKILL {
			c.ParentDeathSignal, err = parseReceived(s)
		}
		return err
	}},
		"`SIG` that drainit gets when its parent dies")
	flag("warn-on-reap", "w", &c.WarnOnReap, "log each orphan reaped")
	duration("sweep-timeout", &c.SweepTimeout, "`D` that leftover processes get between TERM and KILL once the command has exited")
	add("termination-log", "", &value{text: r.terminationLog, set: func(s string) error {
		if s == "" {
			return errors.New("accepted: a path, auto, or off")
		}
		r.terminationLog = s
		return nil
	}}, "`PATH` the summary line is written to; auto: /dev/termination-log where it exists; or off")
	add("log-format", "", choice((*string)(&r.logFormat), "text", "json"), "`FORMAT` of the log on stderr: text or json")
	flag("verbose", "v", &c.Verbose, "log signals passed on, and the start and end of the command, too")
	add("plan", "", choice(&r.planFormat, planFormats...), "print the timeline of a stop as `FORMAT` text or json, and what looks wrong; start nothing; exit 1 where it does not fit the grace period").NoOptDefVal = "text"
	add("probe", "", &value{set: func(s string) error {
		r.probe = s
		if s == probeDefault {
			return nil
		}
		return health.CheckAddr(s)
	}}, "ask the endpoint at `ADDR`, or that of --health-listen: exit 0 when ready, 1 when not; for HEALTHCHECK and exec probes").NoOptDefVal = probeDefault
	flag("list-signals", "", &r.list, "print what is done with each signal")
	flag("version", "V", &r.version, "print the version")
	flag("help", "h", &r.help, "print this help")
	return fs
}

// optionalWords are the flags whose argument may be left out, and the words it can be; nil is anything.
var optionalWords = map[string][]string{"plan": planFormats, "subreaper": subreaperModes, "probe": nil}

var (
	planFormats    = []string{"text", "json"}
	subreaperModes = []string{"auto", "on", "off"}
)

// value is a pflag.Value made of its text and a function.
type value struct {
	text   string
	set    func(string) error
	isBool bool
}

func (v *value) String() string { return v.text }
func (v *value) Type() string {
	if v.isBool {
		return "bool"
	}
	return "value"
}
func (v *value) Set(s string) error {
	if err := v.set(s); err != nil {
		return err
	}
	v.text = s
	return nil
}

// list is a value that can be repeated or separated by commas.
func list(add func(string) error) *value {
	return &value{set: func(s string) error {
		for item := range strings.SplitSeq(s, ",") {
			if err := add(item); err != nil {
				return err
			}
		}
		return nil
	}}
}

// choice is a value that is one of a few words.
func choice(p *string, words ...string) *value {
	return &value{text: *p, set: func(s string) error {
		if !slices.Contains(words, s) {
			return fmt.Errorf("accepted: %s", strings.Join(words, ", "))
		}
		*p = s
		return nil
	}}
}

func setStopSignal(p *signals.Signal, s string) error {
	if strings.EqualFold(s, "auto") {
		*p = 0
		return nil
	}
	sig, err := signals.Parse(s)
	if err == nil && sig == unix.SIGSTOP {
		err = errors.New("SIGSTOP stops nothing for good; accepted: auto, or any other signal")
	}
	*p = sig
	return err
}

// parseReceived reads a signal that drainit has to be able to receive.
func parseReceived(s string) (signals.Signal, error) {
	sig, err := signals.Parse(s)
	if err == nil && !signals.Catchable(sig) {
		err = fmt.Errorf("%s cannot be received (see --list-signals)", signals.Name(sig))
	}
	return sig, err
}

// envName is a flag's twin in the environment.
func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// serviceLink matches the variables Kubernetes injects into every pod for a Service called drainit (enableServiceLinks).
var serviceLink = regexp.MustCompile(`^DRAINIT_(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

func parseOptions(args, environ []string) (options, error) {
	var r raw
	fs := flags(&r)
	if err := fs.Parse(args); err != nil {
		return options{}, explainFlag(fs, err)
	}
	// "--plan json" as well as "--plan=json": the word that ended the flags belongs to the flag before it.
	for rest := fs.Args(); 0 < len(rest) && len(rest) < len(args) && fs.ArgsLenAtDash() != 0; rest = fs.Args() {
		name, word := strings.TrimPrefix(args[len(args)-len(rest)-1], "--"), rest[0]
		if name == "-s" {
			name = "subreaper"
		}
		if words, optional := optionalWords[name]; !optional || !fs.Changed(name) || words != nil && !slices.Contains(words, word) {
			break
		}
		if err := fs.Set(name, word); err != nil {
			return options{}, err
		}
		if err := fs.Parse(rest[1:]); err != nil {
			return options{}, explainFlag(fs, err)
		}
	}
	if err := applyEnvironment(fs, environ); err != nil {
		return options{}, err
	}
	return r.check(fs)
}

// explainFlag adds near names to pflag's error about an unknown flag.
func explainFlag(fs *pflag.FlagSet, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	var names []string
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return fmt.Errorf("%w%s", err, didYouMean(nearest.Words(unknown.GetSpecifiedName(), names), "--", "drainit --help lists the flags"))
}

func didYouMean(near []string, prefix, otherwise string) string {
	if len(near) == 0 {
		return " (" + otherwise + ")"
	}
	return " (did you mean " + prefix + strings.Join(near, ", "+prefix) + "?)"
}

// applyEnvironment sets each flag that was not given from its twin in the environment.
func applyEnvironment(fs *pflag.FlagSet, environ []string) error {
	twins := map[string]*pflag.Flag{}
	var names []string
	fs.VisitAll(func(f *pflag.Flag) {
		twins[envName(f.Name)] = f
		names = append(names, envName(f.Name))
	})
	grouping := fs.Changed("process-group") || fs.Changed("single-child")
	for _, entry := range environ {
		name, text, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, envPrefix) || serviceLink.MatchString(name) {
			continue
		}
		f, known := twins[name]
		if !known {
			return fmt.Errorf("unknown variable %q%s", name, didYouMean(nearest.Words(name, names), "", "drainit --help lists the flags, each of which has a variable"))
		}
		if f.Changed || grouping && (f.Name == "process-group" || f.Name == "single-child") {
			continue // flag beats env; -g and -c are two names for one choice
		}
		if err := f.Value.Set(text); err != nil {
			return fmt.Errorf("invalid value %q for %s: %w", text, name, err)
		}
		f.Changed = true
	}
	return nil
}

// check looks at the combination and completes the options.
func (r *raw) check(fs *pflag.FlagSet) (options, error) {
	o := r.options
	c := &o.config
	c.Command = fs.Args()
	c.StopTable = signals.DefaultTable.With(r.stopSignalFor...)
	fail := func(format string, args ...any) (options, error) { return options{}, fmt.Errorf(format, args...) }

	switch group, single := fs.Changed("process-group"), fs.Changed("single-child"); {
	case group && single && r.processGroup == r.singleChild:
		return fail("--process-group %t and --single-child %t contradict each other: each is the opposite of the other", r.processGroup, r.singleChild)
	case single:
		c.Group = !r.singleChild
	default:
		c.Group = r.processGroup
	}
	if c.StopSignal != 0 && c.Schedule != nil && c.Schedule[0].Signal != 0 && c.Schedule[0].Signal != c.StopSignal {
		return fail("--stop-signal %s and --stop-schedule %v contradict each other: the schedule begins with another signal; give one of them, or begin the schedule with auto",
			signals.Name(c.StopSignal), c.Schedule)
	}
	for _, s := range c.StopOn {
		if c.Rewrite[s] == unix.SIGSTOP {
			return fail("--rewrite %s:STOP makes SIGSTOP the stop signal, which stops nothing for good", signals.Name(s))
		}
	}
	o.mode = modeRun
	switch {
	case r.help:
		o.mode = modeHelp
	case r.version:
		o.mode = modeVersion
	case r.list:
		o.mode = modeListSignals
	case fs.Changed("probe"):
		o.mode = modeProbe
		if len(c.Command) > 0 {
			return fail("--probe takes no command, but got %q", c.Command)
		}
		if o.probe == probeDefault {
			o.probe = o.healthListen
		}
		if o.probe == listenOff {
			return fail("--probe has no endpoint to ask: --health-listen is off")
		}
	case fs.Changed("plan"):
		o.mode = modePlan
	case len(c.Command) == 0:
		return fail("no command given: drainit [flags] [--] command [args...] (drainit --help lists the flags)")
	}
	return o, nil
}

const helpHead = `drainit stops a container without losing a request: on a stop signal it fails its readiness
endpoint, lets the app serve on for a drain delay, sends the app its own graceful stop signal,
escalates inside the grace period, reaps every process, and exits with the app's code.

usage: drainit [flags] [--] command [args...]
       drainit --plan [text|json] [flags] [--] command [args...]
       drainit --probe [ADDR]

Each flag has a twin in the environment, DRAINIT_ and its name in capitals with _ for -
(DRAINIT_DRAIN_DELAY=5s); a flag beats its twin. A duration D is 5s, 500ms, 1m30s, or seconds.

flags:
`

const helpTail = `
exit code: the command's; 128+n when signal n ended it (137: it had to be killed);
125 bad flag or variable, or the endpoint cannot be bound; 126 the command cannot be
executed; 127 it was not found.
`

// helpText is what --help prints: a line for each flag's name, and below it what it means.
func helpText() string {
	var b strings.Builder
	b.WriteString(helpHead)
	flags(new(raw)).VisitAll(func(f *pflag.Flag) {
		arg, usage := pflag.UnquoteUsage(f)
		name := "    --" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", --" + f.Name
		}
		if f.NoOptDefVal != "" && f.Value.Type() != "bool" {
			arg = "[" + arg + "]"
		}
		if f.Value.Type() == "bool" {
			arg = ""
		}
		fmt.Fprintf(&b, "  %s", strings.TrimRight(name+" "+arg, " "))
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "true" {
			fmt.Fprintf(&b, "  (default %s)", f.DefValue)
		}
		b.WriteString("\n")
		for line := range wrap(usage, 84) {
			b.WriteString("        " + line + "\n")
		}
	})
	b.WriteString(helpTail)
	return b.String()
}

// wrap yields the words of text in lines of at most width.
func wrap(text string, width int) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		line := ""
		for word := range strings.FieldsSeq(text) {
			if line != "" && len(line)+1+len(word) > width {
				if !yield(line) {
					return
				}
				line = ""
			}
			line = strings.TrimPrefix(line+" "+word, " ")
		}
		yield(line)
	}
}
