package supervisor

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/drainit/drainit/signals"
)

// name is what the log calls the main process.
func (p *Plan) name() string {
	if len(p.Command) == 0 {
		return "the command"
	}
	return filepath.Base(p.Command[0])
}

// describe says what a step does.
func (p *Plan) describe(s Step) string {
	switch s.Do {
	case DoFailReadiness:
		return "/readyz answers 503; the app serves as before"
	case DoSendStop:
		text := p.stopSignalText(s) + " to " + p.name()
		if s.Signal == sigKILL {
			return text
		}
		return text + ", once it has a handler for it"
	case DoSendSignal:
		text := signals.Name(s.Signal) + " to " + p.name()
		if s.OnlyIfNew && p.Expected == 0 {
			text += ", unless that was the stop signal"
		}
		return text
	case DoKillTree:
		return "SIGKILL to everything"
	case DoGiveUp:
		return fmt.Sprintf("exit %d, whatever is left", CodeKilled)
	}
	panic("unknown step " + s.Do)
}

func (p *Plan) stopSignalText(s Step) string {
	if s.Signal != 0 {
		return signals.Name(s.Signal)
	}
	if p.Expected == 0 {
		return "the stop signal of what it is by then (auto, else SIGTERM)"
	}
	return signals.Name(p.Expected) + " (auto)"
}

// Text prints the plan for people: the worst case, in which the command ignores everything.
func (p *Plan) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "stop of %s, at most %v from the stop request (t=0):\n\n", p.name(), p.GracePeriod)
	for i, at := range p.Timeline() {
		s := p.Steps[i]
		fmt.Fprintf(&b, "  t=%-8v %-9s %s\n", at, s.Phase, p.describe(s))
	}
	b.WriteString("\nThe next phase begins earlier when the command exits, or when the stop signal comes again.\n")
	fmt.Fprintf(&b, "Processes left behind get SIGTERM, and SIGKILL %v later.\n", p.SweepTimeout)
	for _, problem := range p.Problems {
		kind := "warning"
		if problem.Fatal {
			kind = "error"
		}
		fmt.Fprintf(&b, "\n%s: %s\n", kind, problem.Message)
	}
	return b.String()
}

// JSON prints the plan for programs. Times are seconds from the stop request.
func (p *Plan) JSON() ([]byte, error) {
	type step struct {
		At     float64 `json:"at_s"`
		Phase  Phase   `json:"phase"`
		Do     Do      `json:"do"`
		Signal string  `json:"signal,omitempty"`
		Text   string  `json:"text"`
	}
	out := struct {
		Command      []string  `json:"command"`
		GracePeriod  float64   `json:"grace_period_s"`
		SweepTimeout float64   `json:"sweep_timeout_s"`
		Fits         bool      `json:"fits"`
		Steps        []step    `json:"steps"`
		Problems     []Problem `json:"problems"`
	}{
		Command: p.Command, GracePeriod: p.GracePeriod.Seconds(), SweepTimeout: p.SweepTimeout.Seconds(),
		Fits: p.Fits(), Problems: p.Problems,
	}
	if out.Problems == nil {
		out.Problems = []Problem{}
	}
	if out.Command == nil {
		out.Command = []string{}
	}
	for i, at := range p.Timeline() {
		s := p.Steps[i]
		row := step{At: at.Seconds(), Phase: s.Phase, Do: s.Do, Text: p.describe(s)}
		switch {
		case s.Do == DoSendStop && s.Signal == 0:
			row.Signal = "auto"
		case s.Signal != 0:
			row.Signal = signals.Name(s.Signal)
		}
		out.Steps = append(out.Steps, row)
	}
	b, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("cannot print the plan: %w", err)
	}
	return append(b, '\n'), nil
}

// String is the one line that is logged, and written to the termination log, at the end of a run.
func (s Summary) String() string {
	var b strings.Builder
	if s.Asked != 0 {
		fmt.Fprintf(&b, "stopped as %s asked: ", signals.Name(s.Asked))
	}
	b.WriteString(s.Cause)
	if s.Forced {
		b.WriteString(", SIGKILL was needed")
	}
	for i, p := range s.Phases {
		separator := ", "
		if i == 0 {
			separator = "; "
		}
		fmt.Fprintf(&b, "%s%s %.3fs", separator, p.Phase, p.Took.Seconds())
	}
	if s.Orphans > 0 {
		plural := "s"
		if s.Orphans == 1 {
			plural = ""
		}
		fmt.Fprintf(&b, "; %d orphan%s reaped", s.Orphans, plural)
	}
	fmt.Fprintf(&b, "; exit code %d", s.Code)
	return b.String()
}

// MarshalJSON gives the summary with signals by name and times in seconds.
func (s Summary) MarshalJSON() ([]byte, error) {
	asked := ""
	if s.Asked != 0 {
		asked = signals.Name(s.Asked)
	}
	phases := make(map[Phase]float64, len(s.Phases))
	for _, p := range s.Phases {
		phases[p.Phase] = p.Took.Round(time.Microsecond).Seconds()
	}
	return json.Marshal(struct {
		Code    int               `json:"exit_code"`
		Asked   string            `json:"asked,omitempty"`
		Cause   string            `json:"cause"`
		Forced  bool              `json:"forced"`
		Phases  map[Phase]float64 `json:"phases_s"`
		Orphans int               `json:"orphans_reaped"`
	}{s.Code, asked, s.Cause, s.Forced, phases, s.Orphans})
}

// Quiet says that nothing happened that anybody needs to read: the command ended well, by itself.
func (s Summary) Quiet() bool { return s.Code == 0 && s.Asked == 0 && !s.Forced }
