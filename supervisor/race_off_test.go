//go:build !race

package supervisor

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func raceEnabled() bool { return false }

// The race detector allocates, so this is for runs without it; make test has one.
func TestReapingAllocatesNothingWhileRunning(t *testing.T) {
	c := defaults()
	m := NewMachine(c, NewPlan(c))
	m, _ = m.Next(epoch, Started{PID: mainPID})
	for _, ev := range []Event{Exited{PID: 99, Status: exitedWith(1)}, Reaped{Left: true}, TimerFired{}} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { m, _ = m.Next(epoch, ev) }), "%T", ev)
	}
}
