package health

import "sync/atomic"

// State says whether traffic may be sent here. Its text is what /readyz answers.
type State string

const (
	Starting State = "starting" // not yet: the application has not come up
	Ready    State = "ready"    // traffic is welcome
	Draining State = "draining" // no more: a stop has begun
)

// Gate holds the state that probes are answered from. The zero value is Starting. It may be used from any goroutine,
// and neither method ever blocks.
type Gate struct {
	state atomic.Value // a State; nothing stored yet means Starting
}

// Set changes the state. Draining is final, a later Set does nothing: a start that is reported only after the stop
// has begun must not bring traffic back to a container that is about to go.
func (g *Gate) Set(s State) {
	for {
		old := g.state.Load()
		if old == Draining || g.state.CompareAndSwap(old, s) {
			return
		}
	}
}

// State returns the state as it is now.
func (g *Gate) State() State {
	if s, ok := g.state.Load().(State); ok {
		return s
	}
	return Starting
}
