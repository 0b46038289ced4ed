package admin

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestLineDiff(t *testing.T) {
	lines := func(s string) []string { return slices.Collect(strings.Lines(s)) }
	for _, c := range []struct{ a, b, want string }{
		{"", "", ""},
		{"x\n", "x\n", ""},
		{"", "x\n", "@@ -0,0 +1,1 @@\n+x\n"},
		{"x\ny\n", "", "@@ -1,2 +0,0 @@\n-x\n-y\n"},
		{"1\n2\n3\n4\nold\n5\n6\n7\n8\n", "1\n2\n3\n4\nnew\n5\n6\n7\n8\n", "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-old\n+new\n 5\n 6\n 7\n"},
		{"a\n1\n2\n3\n4\n5\n6\n7\n8\nb\n", "A\n1\n2\n3\n4\n5\n6\n7\n8\nB\n", "@@ -1,4 +1,4 @@\n-a\n+A\n 1\n 2\n 3\n@@ -7,4 +7,4 @@\n 6\n 7\n 8\n-b\n+B\n"},
	} {
		if got := lineDiff(lines(c.a), lines(c.b)); got != c.want {
			t.Errorf("from %q to %q:\n%s", c.a, c.b, got)
		}
	}
}

// What is kept and gone is the one, what is kept and new the other, whatever they
// are; and with hunks patched into a, there is b.
func TestLineDiffLeadsFromOneToTheOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.SampledFrom([]string{"a\n", "b\n", "c\n", "d\n"}), 0, 40)
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		var from, to []string
		for _, e := range edits(a, b) {
			if e.what != '+' {
				from = append(from, e.line)
			}
			if e.what != '-' {
				to = append(to, e.line)
			}
		}
		if !slices.Equal(from, a) || !slices.Equal(to, b) {
			t.Fatalf("%v and %v", from, to)
		}
		if got := patched(t, a, lineDiff(a, b)); !slices.Equal(got, b) {
			t.Fatalf("patched it is %v, not %v:\n%s", got, b, lineDiff(a, b))
		}
	})
}

// patched applies a diff, as patch does.
func patched(t *rapid.T, a []string, diff string) (out []string) {
	at := 0
	for l := range strings.Lines(diff) {
		switch l[0] {
		case '@':
			var line, n int
			if _, err := fmt.Sscanf(l, "@@ -%d,%d", &line, &n); err != nil {
				t.Fatal(err)
			}
			if n > 0 {
				line--
			}
			out = append(out, a[at:line]...)
			at = line
		case '+':
			out = append(out, l[1:])
		default:
			if a[at] != l[1:] {
				t.Fatalf("line %d is %q, not %q", at, a[at], l)
			}
			if l[0] == ' ' {
				out = append(out, a[at])
			}
			at++
		}
	}
	return append(out, a[at:]...)
}

// What is too large to compare is all different, and takes no time to speak of.
func TestLineDiffIsBounded(t *testing.T) {
	a, b := make([]string, 5000), make([]string, 5000)
	for i := range a {
		a[i], b[i] = fmt.Sprint("a", i, "\n"), fmt.Sprint("b", i, "\n")
	}
	b[2500] = a[2500]
	if got := edits(a, b); len(got) != 10_000 {
		t.Errorf("%d edits", len(got))
	}
}
