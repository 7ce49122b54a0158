package health

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGate(t *testing.T) {
	var g Gate
	require.Equal(t, Starting, g.State(), "zero value")
	g.Set(Ready)
	require.Equal(t, Ready, g.State())
	g.Set(Starting)
	require.Equal(t, Starting, g.State(), "a check may fail again")
	g.Set(Draining)
	for _, s := range []State{Ready, Starting, Draining} {
		g.Set(s)
		require.Equal(t, Draining, g.State(), "draining is final, also against %s", s)
	}
}

func TestGateDrainingWinsEveryRace(t *testing.T) {
	for range 500 {
		var g Gate
		var wg sync.WaitGroup
		for _, s := range []State{Ready, Starting, Draining, Ready} {
			wg.Go(func() { g.Set(s) })
		}
		wg.Wait()
		require.Equal(t, Draining, g.State())
	}
}
