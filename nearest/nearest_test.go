package nearest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/drainit/drainit/nearest"
)

func TestWords(t *testing.T) {
	signals := []string{"HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "WINCH", "IO"}
	flags := []string{"drain-delay", "drain-quiet", "drain-max", "g", "grace-period"}
	for _, tt := range []struct {
		about, word string
		candidates  []string
		want        []string
	}{
		{"swapped", "QIUT", signals, []string{"QUIT"}},
		{"left out", "TRM", signals, []string{"TERM"}},
		{"one too many", "WINCHH", signals, []string{"WINCH"}},
		{"replaced, equally near in order", "USR3", signals, []string{"USR1", "USR2"}},
		{"case", "quti", signals, []string{"QUIT"}},
		{"same word", "Drain-Delay", flags, []string{"drain-delay"}},
		{"two slips in a long word", "drian-dely", flags, []string{"drain-delay"}},
		{"two slips in a short word", "HAB", signals, nil},
		{"three slips in a long word", "drani-dly", flags, nil},
		{"far", "kubernetes", flags, nil},
		{"nothing in common", "x", flags, nil},
		{"empty word", "", flags, nil},
		{"no candidates", "QUIT", nil, nil},
		{"best first", "abcdef", []string{"abcdxy", "abcdex", "abcdef"}, []string{"abcdef", "abcdex", "abcdxy"}},
		{"at most three", "abcd", []string{"abc1", "abc2", "abc3", "abc4"}, []string{"abc1", "abc2", "abc3"}},
		{"letters, not bytes", "größe", []string{"grösse", "grüße"}, []string{"grüße"}},
		{"very long", strings.Repeat("x", 1<<20), flags, nil},
	} {
		t.Run(tt.about, func(t *testing.T) {
			assert.Equal(t, tt.want, nearest.Words(tt.word, tt.candidates))
		})
	}
}
