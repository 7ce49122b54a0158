package supervisor

import (
	"iter"
	"math/bits"

	"github.com/drainit/drainit/signals"
)

// sigset is a set of the signals 1 to 64, in the kernel's own form: bit n-1 is signal n, as in SigCgt of
// /proc/PID/status (proc(5)).
type sigset uint64

func (s *sigset) add(sig signals.Signal)     { *s |= 1 << (uint(sig) - 1) }
func (s sigset) has(sig signals.Signal) bool { return s&(1<<(uint(sig)-1)) != 0 }

// all yields the signals in ascending order.
func (s sigset) all() iter.Seq[signals.Signal] {
	return func(yield func(signals.Signal) bool) {
		for rest := uint64(s); rest != 0; rest &= rest - 1 {
			if !yield(signals.Signal(bits.TrailingZeros64(rest) + 1)) {
				return
			}
		}
	}
}
