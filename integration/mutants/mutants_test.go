package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// Every mutant still stands where the code is: what moved one has to say what
// would break the rule now.
func TestMutantsApply(t *testing.T) {
	all, err := load(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		was, is, err := m.texts(root)
		if err != nil {
			t.Error(err)
			continue
		}
		if is == was {
			t.Errorf("%s changes nothing", m.place)
		}
	}
}

func TestParse(t *testing.T) {
	for name, c := range map[string]struct{ text, fault string }{
		"no file":   {"# why\nrun . ^Test\n-\ta\n", "p1.txt:1: a mutant needs"},
		"no test":   {"# why\nfile a.go\nrun .\n-\ta\n", "p1.txt:1: a mutant needs"},
		"nothing":   {"# why\nfile a.go\nrun . ^Test\n+\ta\n", "p1.txt:1: a mutant needs"},
		"something": {"# why\nfile a.go\nrun . ^Test\n-\ta\nelse\n", `p1.txt:5: neither`},
	} {
		if _, err := parse("p1.txt", c.text); err == nil || !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %v", name, err)
		}
	}
	two, err := parse("p1.txt", "# one\n# more\nfile a.go\nrun ./b ^Test A$\n-\ta\n-\tb\n+\n\n\n# two\nfile c.go\nrun . X\n-c\n")
	if err != nil || len(two) != 2 {
		t.Fatal(two, err)
	}
	if m := two[0]; m.rule != "P1" || m.why != "one more" || m.pkg != "./b" || m.run != "^Test A$" || len(m.old) != 2 || len(m.new) != 1 {
		t.Errorf("%+v", m)
	}
	if two[1].place != "p1.txt:10" {
		t.Error(two[1].place)
	}
}

func TestApply(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("a\n\tb\nc\n\tb\nd\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		old, new []string
		want     string
		fault    string
	}{
		{old: []string{"a"}, want: "\tb\nc\n\tb\nd\n"},
		{old: []string{"\tb", "c"}, new: []string{"x", "y", "z"}, want: "a\nx\ny\nz\n\tb\nd\n"},
		{old: []string{"d"}, new: []string{"e"}, want: "a\n\tb\nc\n\tb\ne\n"},
		{old: []string{"\tb"}, fault: "more than once"},
		{old: []string{"b"}, fault: "no such lines"},
		{old: []string{"c", "d"}, fault: "no such lines"},
	} {
		m := mutant{file: "a.go", place: "p1.txt:1", old: c.old, new: c.new}
		_, got, err := m.texts(dir)
		if got != c.want || (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%q: %q, %v", c.old, got, err)
		}
	}
}

// What a mutant's tests say decides: they are tried on a module made for it,
// those that change a function in one build of all of them.
func TestVerdicts(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module m\n\ngo 1.24\n",
		"m.go": `package m

const one = 1

type T struct{ n int }

func F() int {
	x := one
	x += 0
	return x
}

func (*T) sum(_, b int, more ...int) (n int) {
	n = b
	for _, m := range more {
		n += m
	}
	return
}

func (t *T) set(int) {
	t.n = 7
	t.n += 0
}

func generic[A any](a A) int {
	return 1
}
`,
		"m_test.go": `package m

import "testing"

func TestF(t *testing.T) {
	x := new(T)
	x.set(1)
	if F() != 1 || x.sum(1, 2, 3) != 5 || x.n != 7 || generic(1) != 1 {
		t.Fatal("no")
	}
}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cases := []struct {
		old, new string
		want     verdict
		apart    bool
	}{
		{"\tx := one", "\tx := 2", killed, false},
		{"\tx += 0", "\tx -= 0", survives, false},
		{"\tx += 0", "\tx += 1", killed, false},
		{"\tx := one", "\tx := y", broken, false},
		{"\treturn x", "\tpanic(x)", killed, false},
		{"\tn = b", "\tn = 0", killed, false},
		{"\t\tn += m", "\t\tn -= -m", survives, false},
		{"\t\tn += m", "", broken, false},
		{"\tt.n = 7", "\tt.n = 8", killed, false},
		{"\tt.n += 0", "", survives, false},
		{"const one = 1", "const one = 2", killed, true},
		{"const one = 1", "const one int = 1", survives, true},
		{"const one = 1", "const one = two", broken, true},
		{"\treturn 1", "\treturn 2", killed, true},
		{"func (t *T) set(int) {", "func (t *T) set(n int) {", survives, true},
		{"\treturn x", "\treturn x }", broken, true},
	}
	var all []*mutant
	for i, c := range cases {
		all = append(all, &mutant{file: "m.go", place: fmt.Sprint("p1.txt:", i), pkg: ".", run: "^TestF$", old: []string{c.old}, new: []string{c.new}})
	}
	b, err := build(t.Context(), dir, t.TempDir(), all)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.sound(t.Context(), all); err != nil {
		t.Error(err)
	}
	for i, c := range cases {
		r, err := b.try(t.Context(), all[i])
		if err != nil || r.verdict != c.want || b.apart[all[i]] != c.apart || (r.by == "TestF") != (c.want == killed) {
			t.Errorf("%s: %s by %q, apart %v, %v\n%s", c.new, r.verdict, r.by, b.apart[all[i]], err, r.output)
		}
	}
	for _, run := range []string{"^TestNone$", "^TestF$|("} {
		m := *all[0]
		m.run = run
		if err := b.sound(t.Context(), []*mutant{&m}); err == nil {
			t.Errorf("%s is taken for a test", run)
		}
	}
}
