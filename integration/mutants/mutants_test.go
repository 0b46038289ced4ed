package main

import (
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
		text, err := m.apply(root)
		if err != nil {
			t.Error(err)
			continue
		}
		was, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			t.Error(err)
		}
		if text == string(was) {
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
		got, err := m.apply(dir)
		if got != c.want || (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%q: %q, %v", c.old, got, err)
		}
	}
}

// What a mutant's tests say decides: it is tried on a module made for it.
func TestVerdicts(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module m\n\ngo 1.24\n",
		"m.go":      "package m\n\nfunc F() int {\n\tx := 1\n\tx += 0\n\treturn x\n}\n",
		"m_test.go": "package m\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) {\n\tif F() != 1 {\n\t\tt.Fatal(\"no\")\n\t}\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	of := func(old, new string) *mutant {
		return &mutant{file: "m.go", place: "p1.txt:1", pkg: ".", run: "^TestF$", old: []string{old}, new: []string{new}}
	}
	for want, m := range map[verdict]*mutant{
		killed:   of("\tx := 1", "\tx := 2"),
		survives: of("\tx += 0", "\tx -= 0"),
		broken:   of("\tx := 1", "\tx := y"),
	} {
		r, err := m.try(t.Context(), dir)
		if err != nil || r.verdict != want {
			t.Errorf("%s: %s, %v\n%s", want, r.verdict, err, r.output)
		}
	}
	if err := sound(t.Context(), dir, []*mutant{of("", "")}); err != nil {
		t.Error(err)
	}
	for _, run := range []string{"^TestNone$", "^TestF$|("} {
		m := of("", "")
		m.run = run
		if err := sound(t.Context(), dir, []*mutant{m}); err == nil {
			t.Errorf("%s is taken for a test", run)
		}
	}
}
