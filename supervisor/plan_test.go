package supervisor

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/drainit/drainit/signals"
)

func TestPlanGolden(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		fits   bool
	}{
		"default":       {func(*Config) {}, true},
		"docker":        {func(c *Config) { c.GracePeriod = 10 * time.Second }, true},
		"nomad":         {func(c *Config) { c.GracePeriod = 5 * time.Second }, false},
		"unready_delay": {func(c *Config) { c.UnreadyDelay = 3 * time.Second }, true},
		"schedule": {func(c *Config) {
			c.Schedule = Schedule{{Signal: unix.SIGQUIT, Wait: 15 * time.Second}, {Signal: unix.SIGTERM, Wait: 3 * time.Second}, {Signal: unix.SIGKILL}}
		}, true},
		"schedule_too_long": {func(c *Config) {
			c.Schedule = Schedule{{Wait: 40 * time.Second}, {Signal: unix.SIGKILL}}
		}, false},
		"no_command": {func(c *Config) { c.Command = nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			config := defaults()
			c.change(&config)
			p := NewPlan(config)
			assert.Equal(t, c.fits, p.Fits())
			golden(t, filepath.Join("testdata/plan", name+".txt"), p.Text())
			b, err := p.JSON()
			require.NoError(t, err)
			require.True(t, json.Valid(b))
			golden(t, filepath.Join("testdata/plan", name+".json"), string(b))
		})
	}
}

func TestParseSchedule(t *testing.T) {
	for text, want := range map[string]Schedule{
		"QUIT/20/TERM/3/KILL": {{unix.SIGQUIT, 20 * time.Second}, {unix.SIGTERM, 3 * time.Second}, {unix.SIGKILL, 0}},
		"5":                   {{0, 5 * time.Second}, {unix.SIGKILL, 0}},
		"1m30s":               {{0, 90 * time.Second}, {unix.SIGKILL, 0}},
		"15":                  {{0, 15 * time.Second}, {unix.SIGKILL, 0}},
		"-15":                 {{unix.SIGTERM, 0}},
		"-15/2/-9":            {{unix.SIGTERM, 2 * time.Second}, {unix.SIGKILL, 0}},
		"auto/1/sigint/500ms": {{0, time.Second}, {unix.SIGINT, 500 * time.Millisecond}, {unix.SIGKILL, 0}},
		"-RTMIN+3/1/2":        {{37, 3 * time.Second}, {unix.SIGKILL, 0}},
		"HUP/0/KILL":          {{unix.SIGHUP, 0}, {unix.SIGKILL, 0}},
	} {
		got, err := ParseSchedule(text)
		if assert.NoError(t, err, text) {
			assert.Equal(t, want, got, text)
		}
	}
	for text, why := range map[string]string{
		"":              "neither a time nor a signal",
		"5/TERM":        "begins with a time",
		"TERM/forever":  "forever",
		"TERM/5/auto":   "auto can only be the first",
		"KILL/5/TERM":   "goes on after KILL",
		"STOP/5":        "SIGSTOP",
		"TERM/8760h/1s": "too long",
		"TERM/-5s":      "neither a time nor a signal",
		"TERM//5":       "neither a time nor a signal",
	} {
		_, err := ParseSchedule(text)
		assert.ErrorContains(t, err, why, text)
		assert.ErrorContains(t, err, scheduleForm, text)
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "5": 5 * time.Second, "0.5": 500 * time.Millisecond, ".5": 500 * time.Millisecond, "1m30s": 90 * time.Second,
		"8760h": maxDuration, "31536000": maxDuration, "1ns": 1,
	} {
		got, err := ParseDuration(text)
		if assert.NoError(t, err, text) {
			assert.Equal(t, want, got, text)
		}
	}
	for _, text := range []string{"", "-1", "+1", "-5s", "1e3", "8760h1ns", "31536001", "99999999999999999999999", "5 s", "NaN", "Inf", "0x5", "."} {
		_, err := ParseDuration(text)
		assert.Error(t, err, text)
	}
}

func TestSummary(t *testing.T) {
	s := Summary{Code: 137, Asked: unix.SIGTERM, Cause: "app was ended by SIGKILL", Forced: true, Orphans: 2,
		Phases: []PhaseTime{{Draining, 5 * time.Second}, {Stopping, 1500 * time.Millisecond}}}
	assert.Equal(t, "stopped as SIGTERM asked: app was ended by SIGKILL, SIGKILL was needed; draining 5.000s, stopping 1.500s; 2 orphans reaped; exit code 137", s.String())
	b, err := json.Marshal(s)
	require.NoError(t, err)
	assert.JSONEq(t, `{"exit_code":137,"asked":"SIGTERM","cause":"app was ended by SIGKILL","forced":true,"phases_s":{"draining":5,"stopping":1.5},"orphans_reaped":2}`, string(b))

	assert.True(t, Summary{}.Quiet())
	for _, loud := range []Summary{{Code: 1}, {Asked: unix.SIGTERM}, {Forced: true}} {
		assert.False(t, loud.Quiet(), "%v", loud)
	}
}

func TestSigset(t *testing.T) {
	var s sigset
	for _, sig := range []signals.Signal{64, 1, unix.SIGTERM, 34} {
		assert.False(t, s.has(sig))
		s.add(sig)
		assert.True(t, s.has(sig))
	}
	var all []signals.Signal
	for sig := range s.all() {
		all = append(all, sig)
	}
	assert.Equal(t, []signals.Signal{1, unix.SIGTERM, 34, 64}, all)
	assert.Equal(t, sigset(1|1<<14|1<<33|1<<63), s)
	for sig := range s.all() {
		assert.EqualValues(t, 1, sig)
		break
	}
	assert.False(t, s.has(0), "auto is in no set")
}
