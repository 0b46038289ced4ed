package admin

import (
	"fmt"
	"strings"
)

// diffContext is how many lines are shown around what differs; diffCells bounds
// what a comparison may take: what is larger counts as all different.
const (
	diffContext = 3
	diffCells   = 4 << 20
)

// edit is a line: kept (' '), gone ('-') or new ('+').
type edit struct {
	what byte
	line string
}

// lineDiff is what leads from a to b, as diff -u has it without its head; empty if
// nothing does.
func lineDiff(a, b []string) string {
	edits := edits(a, b)
	var out strings.Builder
	shownTo, aLine, bLine := 0, 1, 1 // edits that are written; lines of the next edit
	for i, e := range edits {
		if e.what != ' ' && i >= shownTo {
			from := max(shownTo, i-diffContext)
			to := hunkEnd(edits, i)
			writeHunk(&out, edits[from:to], aLine-(i-from), bLine-(i-from))
			shownTo = to
		}
		if e.what != '+' {
			aLine++
		}
		if e.what != '-' {
			bLine++
		}
	}
	return out.String()
}

// hunkEnd is behind the last edit that belongs to the hunk of edit i.
func hunkEnd(edits []edit, i int) int {
	last := i
	for j := i; j < len(edits) && j-last <= 2*diffContext; j++ {
		if edits[j].what != ' ' {
			last = j
		}
	}
	return min(len(edits), last+1+diffContext)
}

func writeHunk(out *strings.Builder, edits []edit, aLine, bLine int) {
	as, bs := 0, 0
	for _, e := range edits {
		if e.what != '+' {
			as++
		}
		if e.what != '-' {
			bs++
		}
	}
	place := func(line, n int) string {
		if n == 0 {
			line-- // behind which it is
		}
		return fmt.Sprintf("%d,%d", line, n)
	}
	fmt.Fprintf(out, "@@ -%s +%s @@\n", place(aLine, as), place(bLine, bs))
	for _, e := range edits {
		out.WriteByte(e.what)
		out.WriteString(strings.TrimSuffix(e.line, "\n"))
		out.WriteByte('\n')
	}
}

// edits lead from a to b, by a longest common subsequence.
func edits(a, b []string) []edit {
	var head, tail []edit
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		head = append(head, edit{' ', a[0]})
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		tail = append(tail, edit{' ', a[len(a)-1]})
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	out := append(head, middle(a, b)...)
	for i := len(tail) - 1; i >= 0; i-- {
		out = append(out, tail[i])
	}
	return out
}

func middle(a, b []string) (out []edit) {
	if (len(a)+1)*(len(b)+1) > diffCells {
		for _, l := range a {
			out = append(out, edit{'-', l})
		}
		for _, l := range b {
			out = append(out, edit{'+', l})
		}
		return out
	}
	// common[i*w+j] is how long what a[i:] and b[j:] have in common is.
	w := len(b) + 1
	common := make([]uint16, (len(a)+1)*w)
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i*w+j] = common[(i+1)*w+j+1] + 1
			} else {
				common[i*w+j] = max(common[(i+1)*w+j], common[i*w+j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, edit{' ', a[i]})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[(i+1)*w+j] >= common[i*w+j+1]:
			out = append(out, edit{'-', a[i]})
			i++
		default:
			out = append(out, edit{'+', b[j]})
			j++
		}
	}
	return out
}
