package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mutant is a change of the code that a test has to notice.
type mutant struct {
	rule     string // "P23"
	place    string // file:line of its first line
	why      string
	file     string // slashes, from the root of the module
	pkg, run string // of the test
	old, new []string
}

// load reads the mutants of the files p*.txt in dir.
func load(dir string) ([]*mutant, error) {
	names, err := filepath.Glob(filepath.Join(dir, "p*.txt"))
	if err != nil {
		return nil, fmt.Errorf("mutants %s: %w", dir, err)
	}
	var out []*mutant
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("mutants: %w", err)
		}
		ms, err := parse(name, string(text))
		if err != nil {
			return nil, err
		}
		out = append(out, ms...)
	}
	return out, nil
}

// parse reads one file; its name is the rule's.
func parse(name, text string) (out []*mutant, err error) {
	rule := strings.ToUpper(strings.TrimSuffix(filepath.Base(name), ".txt"))
	var m *mutant
	for i, line := range strings.Split(text, "\n") {
		place := fmt.Sprintf("%s:%d", filepath.Base(name), i+1)
		if strings.TrimSpace(line) == "" {
			m = nil
			continue
		}
		if m == nil {
			m = &mutant{rule: rule, place: place}
			out = append(out, m)
		}
		key, rest, _ := strings.Cut(line, " ")
		switch {
		case line[0] == '-':
			m.old = append(m.old, line[1:])
		case line[0] == '+':
			m.new = append(m.new, line[1:])
		case key == "#":
			m.why = strings.TrimSpace(m.why + " " + rest)
		case key == "file":
			m.file = rest
		case key == "run":
			m.pkg, m.run, _ = strings.Cut(rest, " ")
		default:
			return nil, fmt.Errorf("%s: neither #, file, run, - nor +: %q", place, line)
		}
	}
	for _, m := range out {
		if m.why == "" || m.file == "" || m.pkg == "" || m.run == "" || len(m.old) == 0 {
			return nil, fmt.Errorf("%s: a mutant needs #, file, run with package and test, and -", m.place)
		}
	}
	return out, nil
}

// texts returns the file's text, and that with the mutant in it.
func (m *mutant) texts(root string) (was, is string, err error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.file)))
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", m.place, err)
	}
	whole := "\n" + string(text)
	old := "\n" + strings.Join(m.old, "\n") + "\n"
	at := strings.Index(whole, old)
	if at < 0 {
		return "", "", fmt.Errorf("%s: %s has no such lines", m.place, m.file)
	}
	if strings.Contains(whole[at+1:], old) {
		return "", "", fmt.Errorf("%s: %s has these lines more than once", m.place, m.file)
	}
	with := "\n"
	for _, line := range m.new {
		with += line + "\n"
	}
	whole = whole[:at] + with + whole[at+len(old):]
	return string(text), whole[1:], nil
}
