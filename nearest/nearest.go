package nearest

import (
	"cmp"
	"slices"
	"strings"
)

// most is how many words are offered: more is a list, not a hint.
const most = 3

// Words returns those of candidates that word is probably a misspelling of, best
// first, at most three; nil if none is near. Case does not count. Candidates that
// are equally near keep their order.
func Words(word string, candidates []string) []string {
	type match struct {
		word  string
		slips int
	}
	typed := []rune(strings.ToLower(word))
	limit := 1
	if len(typed) >= 6 {
		limit = 2
	}
	var near []match
	for _, c := range candidates {
		meant := []rune(strings.ToLower(c))
		if diff := len(typed) - len(meant); diff > limit || -diff > limit {
			continue // as many slips at least; also keeps the cost of a long word down
		}
		// Fewer slips than letters: "x" shares nothing with "g".
		if n := slips(typed, meant); n <= limit && n < len(meant) {
			near = append(near, match{c, n})
		}
	}
	slices.SortStableFunc(near, func(a, b match) int { return cmp.Compare(a.slips, b.slips) })
	var words []string
	for _, m := range near[:min(len(near), most)] {
		words = append(words, m.word)
	}
	return words
}

// slips counts the letters inserted, left out, replaced, or swapped with their
// neighbour between a and b (optimal string alignment distance). Swaps count once
// because they are the commonest slip.
func slips(a, b []rune) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := d[i-1][j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
