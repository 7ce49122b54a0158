package signals

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Invariant 2, on slots of the test's own: the kernel would not keep up with a reader
// to whom all other signals come in again with every single one that is read.
func TestNoSignalStarves(t *testing.T) {
	s := &Source{out: make(chan Signal), quit: make(chan struct{})} // signal.Stop takes nil channels
	var flood []Signal
	term := make(chan os.Signal, 1)
	for sig := Signal(1); sig <= rtmax; sig++ {
		slot := term
		if sig != unix.SIGTERM {
			slot = make(chan os.Signal, 1)
			flood = append(flood, sig)
		}
		s.slots = append(s.slots, slot)
	}
	fill := func() {
		for _, sig := range flood {
			select {
			case s.slots[sig-1] <- sig:
			default:
			}
		}
	}
	fill()
	go s.pump()
	defer s.Close()
	for round := range 200 {
		for range round { // at another point of the pump's way each time
			<-s.out
			fill()
		}
		term <- unix.SIGTERM
		waited := 0
		for <-s.out != unix.SIGTERM {
			fill()
			waited++
			require.LessOrEqual(t, waited, 2*len(s.slots), "other signals handed on while SIGTERM waits")
		}
		fill()
	}
}
