package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const head = `# Conformance

What the relay owes both sides, rule by rule, and which tests prove it. A test bears the ids of the rules that it proves
in its name. A combination is the variant towards the origin, then the variant towards the client; clients have one
aggregated stream (ADS) or a stream for each type. Where a rule cannot be observed in a combination stands –.

This page is made by ` + "`make conformance`" + ` from the names and the results of the tests, and every test on it
passed when it was made. CI makes it again and compares; it fails on a rule that has no test, or none in a combination
where it can be observed. How often the tests are proven wrong in turn is in the last column: so many one-line changes
that break the rule are in [integration/mutants](../integration/mutants), and ` + "`make mutants`" + ` shows that each
of them fails a test.

`

// book is everything that the page is made of.
type book struct {
	rules   []rule
	proofs  []*proof
	mutants map[string]int // by rule
}

// keep leaves of each proof the places in which its rule can be observed: a test
// of two rules may prove one of them here and the other there.
func (b *book) keep() {
	for _, r := range b.rules {
		for _, p := range b.of(r.id) {
			maps.DeleteFunc(p.places, func(at place, _ bool) bool { return !slices.Contains(r.where, at) })
		}
	}
}

// of are the proofs of a rule.
func (b *book) of(id string) []*proof {
	var out []*proof
	for _, p := range b.proofs {
		if p.rule == id {
			out = append(out, p)
		}
	}
	return out
}

// faults are what the page could not say with a clear conscience.
func (b *book) faults() []string {
	var out []string
	known := make(map[string]bool)
	for _, r := range b.rules {
		known[r.id] = true
		proven, covered := false, make(map[place]bool)
		for _, p := range b.of(r.id) {
			for _, name := range p.failed {
				out = append(out, fmt.Sprintf("%s: %s failed (%s)", r.id, name, p.file))
			}
			proven = proven || p.passed
			maps.Copy(covered, p.places)
		}
		if !proven {
			out = append(out, fmt.Sprintf("%s has no test that passed: %s", r.id, r.text))
			continue
		}
		var gaps []string
		for _, at := range r.where {
			if !covered[at] {
				gaps = append(gaps, at.String())
			}
		}
		if len(gaps) > 0 {
			out = append(out, fmt.Sprintf("%s has no test in %s", r.id, strings.Join(gaps, ", ")))
		}
	}
	for _, p := range b.proofs {
		if !known[p.rule] {
			out = append(out, fmt.Sprintf("%s: %s bears the id of no rule: %s", p.file, p.name, p.rule))
		}
	}
	return out
}

// page writes everything down.
func (b *book) page() string {
	var w strings.Builder
	w.WriteString(head)
	section := ""
	for _, r := range b.rules {
		if r.section != section {
			section = r.section
			fmt.Fprintf(&w, "\n## %s\n\n", section)
			w.WriteString("| Rule | What it asks | SotW→SotW | SotW→incr. | incr.→SotW | incr.→incr. | Tests | Mutants |\n")
			w.WriteString("|---|---|---|---|---|---|---|---|\n")
		}
		b.row(&w, r)
	}
	w.WriteString("\n## The tests\n")
	for _, r := range b.rules {
		b.tests(&w, r)
	}
	return strings.ReplaceAll(w.String(), "\n\n\n", "\n\n")
}

func (b *book) row(w *strings.Builder, r rule) {
	covered := make(map[place]bool)
	tests := 0
	for _, p := range b.of(r.id) {
		maps.Copy(covered, p.places)
		if p.passed {
			tests++
		}
	}
	fmt.Fprintf(w, "| %s | %s |", r.id, strings.ReplaceAll(r.text, "|", `\|`))
	for _, up := range []string{"sotw", "delta"} {
		for _, down := range []string{"sotw", "delta"} {
			fmt.Fprintf(w, " %s |", cell(r, covered, up, down))
		}
	}
	mutants := ""
	if n := b.mutants[r.id]; n > 0 {
		mutants = fmt.Sprintf("[%d](../integration/mutants/%s.txt)", n, strings.ToLower(r.id))
	}
	fmt.Fprintf(w, " [%d](#%s) | %s |\n", tests, strings.ToLower(r.id), mutants)
}

// cell is where a rule passed in a combination.
func cell(r rule, covered map[place]bool, up, down string) string {
	var there []string
	applies := false
	for _, service := range []struct{ key, word string }{{"ads", "ADS"}, {"per-type", "per type"}} {
		at := place{up, down, service.key}
		applies = applies || slices.Contains(r.where, at)
		if covered[at] {
			there = append(there, service.word)
		}
	}
	if !applies {
		return "–"
	}
	return strings.Join(there, ", ")
}

func (b *book) tests(w *strings.Builder, r rule) {
	fmt.Fprintf(w, "\n### %s\n\n", r.id)
	for _, p := range b.of(r.id) {
		if !p.passed {
			continue
		}
		fmt.Fprintf(w, "- [%s](../%s) %s%s\n", filepath.Base(p.file), p.file, p.name, p.scope())
	}
}

// scope says in which combinations or variants a test passed.
func (p *proof) scope() string {
	if len(p.places) == 0 {
		if len(p.variants) == 0 {
			return ""
		}
		words := map[string]string{"sotw": "SotW", "delta": "incremental"}
		var out []string
		for _, v := range []string{"sotw", "delta"} {
			if p.variants[v] {
				out = append(out, words[v])
			}
		}
		return " (" + strings.Join(out, ", ") + ")"
	}
	if len(p.places) == len(places()) {
		return " (all combinations)"
	}
	var out []string
	for _, at := range places() {
		if p.places[at] {
			out = append(out, at.String())
		}
	}
	return " (" + strings.Join(out, ", ") + ")"
}

// countMutants counts those of each rule.
func countMutants(root string) (map[string]int, error) {
	out := make(map[string]int)
	files, err := filepath.Glob(filepath.Join(root, "integration", "mutants", "p*.txt"))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		id := strings.ToUpper(strings.TrimSuffix(filepath.Base(name), ".txt"))
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "file ") {
				out[id]++
			}
		}
	}
	return out, nil
}
