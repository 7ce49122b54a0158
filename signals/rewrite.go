package signals

import (
	"fmt"
	"strings"
)

// Rewrite says which received signal is passed on as which other one; 0 stands for
// nothing at all. The zero value rewrites nothing. It has one rule for a signal, so
// setting a second one replaces the first.
type Rewrite map[Signal]Signal

// ParseRewrite reads one rule, "S:R", names or numbers as Parse reads them. R may
// also be 0, which drops S, and any signal that can be sent, KILL and STOP included.
// S has to be one that drainit can receive (see Catchable).
func ParseRewrite(s string) (from, to Signal, err error) {
	left, right, ok := strings.Cut(s, ":")
	if !ok {
		return 0, 0, fmt.Errorf("cannot read rewrite %q: want S:R, two signals with a colon between them, or S:0 to drop S", s)
	}
	if from, err = Parse(left); err != nil {
		return 0, 0, fmt.Errorf("cannot read rewrite %q: %w", s, err)
	}
	if class, why := classify(from); class != Forward {
		return 0, 0, fmt.Errorf("cannot rewrite %s in %q, as drainit does not pass it on: %s", Name(from), s, why)
	}
	if right == "0" {
		return from, 0, nil
	}
	if to, err = Parse(right); err != nil {
		return 0, 0, fmt.Errorf("cannot read rewrite %q: %w", s, err)
	}
	return from, to, nil
}

// Apply gives what sig is passed on as; drop says that nothing is, and out is then 0.
func (r Rewrite) Apply(sig Signal) (out Signal, drop bool) {
	out, ok := r[sig]
	if !ok {
		return sig, false
	}
	return out, out == 0
}
