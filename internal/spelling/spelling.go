package spelling

import (
	"iter"
	"slices"
)

// Nearest returns the known name within two edits of name, or "".
func Nearest(name string, known iter.Seq[string]) string {
	best, at := 3, ""
	for k := range known {
		if n := edits(name, k); n < best || n == best && at != "" && k < at {
			best, at = n, k
		}
	}
	if best >= len(name) {
		return ""
	}
	return at
}

// edits is the Levenshtein distance. Names over 64 bytes are not compared, because no key is that
// long.
func edits(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		prev := slices.Clone(row)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(prev[j]+cost, prev[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
