package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Pos is the place of a value. File is a path, or the name of an environment variable or flag
// ("RELAY_UPSTREAM_ORIGINS", "--upstream.variant").
type Pos struct {
	File   string `json:"file" yaml:"file"`
	Line   int    `json:"line,omitempty" yaml:"line,omitempty"`     // from 1; 0: all of File
	Column int    `json:"column,omitempty" yaml:"column,omitempty"` // from 1; 0: unknown
}

func (p Pos) String() string {
	if p.Line == 0 {
		return p.File
	}
	if p.Column == 0 {
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Fault is an error in the configuration.
type Fault struct {
	Pos    `yaml:",inline"`
	Key    string `json:"key" yaml:"key"` // "upstream.origins[0].address"; empty: the whole file
	Reason string `json:"reason" yaml:"reason"`

	meant string // the key that an unknown one is probably meant to be
}

// Error is "file:line:column: key: reason".
func (f Fault) Error() string {
	if f.Key == "" {
		return f.Pos.String() + ": " + f.Reason
	}
	return f.Pos.String() + ": " + f.Key + ": " + f.Reason
}

// Text is the fault on a line of output: "file:line: key: reason (column 3)". The column comes last, so
// that tools that parse the line can ignore it.
func (f Fault) Text() string {
	column := f.Column
	f.Column = 0
	if f.Line == 0 || column == 0 {
		return f.Error()
	}
	return fmt.Sprintf("%s (column %d)", f.Error(), column)
}

// Faults are all errors of a configuration. Err sorts them by place.
type Faults []Fault

func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// With returns fs and those of more that do not follow from one in fs: a value that could not be
// read is not also reported as missing.
func (fs Faults) With(more Faults) Faults {
	out := fs
	for _, m := range more {
		if !slices.ContainsFunc(fs, func(f Fault) bool { return f.covers(m.Key) }) {
			out = append(out, m)
		}
	}
	return out
}

// Of returns the faults of these keys, of their parents and of their children.
func (fs Faults) Of(keys ...string) (out Faults) {
	for _, f := range fs {
		if f.Key == "" || slices.ContainsFunc(keys, f.covers) {
			out = append(out, f)
		}
	}
	return out
}

// covers reports whether f may be the cause of a fault of key: the keys are equal, or one contains
// the other.
func (f Fault) covers(key string) bool {
	within := func(a, b string) bool {
		rest, ok := strings.CutPrefix(a, b)
		return ok && b != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
	}
	return within(key, f.Key) || within(f.Key, key) || within(key, f.meant)
}

// Err returns fs, sorted, as an error; nil if there are none.
func (fs Faults) Err() error {
	if len(fs) == 0 {
		return nil
	}
	slices.SortStableFunc(fs, func(a, b Fault) int {
		if a.File != b.File {
			return strings.Compare(a.File, b.File)
		}
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return fs
}

// Places has the position of each given key.
type Places struct {
	root string // the file; the place of keys that are not given
	at   map[string]place

	removed Faults
}

// Removed returns warnings for keys in the file that an earlier version had and this one ignores.
func (p *Places) Removed() Faults {
	if p == nil {
		return nil
	}
	return p.removed
}

// place is the position of a value, with its source for finding an offset inside it.
type place struct {
	Pos
	// src is the file's text from the value's line on, if the value is a scalar. style is its YAML
	// style there.
	src   string
	style yaml.Style
}

func newPlaces(root string) *Places { return &Places{root: root, at: map[string]place{}} }

// File returns the path of the configuration file.
func (p *Places) File() string { return p.root }

// Empty reports whether key is given, and no key below it. A key without a value is not given.
func (p *Places) Empty(key string) bool {
	if !p.Given(key) {
		return false
	}
	for k := range p.at {
		if strings.HasPrefix(k, key+".") {
			return false
		}
	}
	return true
}

// Given reports whether the file, the environment or a flag has the key.
func (p *Places) Given(key string) bool {
	if p == nil {
		return false
	}
	_, ok := p.at[key]
	return ok
}

// Of returns the place of key, or of its nearest parent that was given.
func (p *Places) Of(key string) Pos {
	if p == nil {
		return Pos{}
	}
	for key != "" {
		if at, ok := p.at[key]; ok {
			return at.Pos
		}
		key = parent(key)
	}
	return Pos{File: p.root, Line: 1, Column: 1}
}

// Inside returns the place of a character in key's value, given its line and column there (both
// from 1, columns in characters).
func (p *Places) Inside(key string, line, column int) Pos {
	if p != nil {
		if at, ok := p.at[key]; ok && at.src != "" {
			return at.inside(line, column)
		}
	}
	pos := p.Of(key)
	if p != nil && pos.Line == 0 {
		pos.Line, pos.Column = line, column // the value of a flag or variable has its own lines
	}
	return pos
}

// Fault makes a fault of key at its place.
func (p *Places) Fault(key, format string, args ...any) Fault {
	return Fault{Pos: p.Of(key), Key: key, Reason: fmt.Sprintf(format, args...)}
}

// parent removes the last element of a key: a.b[0] is part of a.b.
func parent(key string) string {
	if strings.HasSuffix(key, "]") {
		return key[:strings.LastIndexByte(key, '[')]
	}
	return key[:max(0, strings.LastIndexByte(key, '.'))]
}

// inside returns the place of a character of the value in a literal block, and in a scalar on one
// line. Otherwise it returns the value's place.
func (p place) inside(line, column int) Pos {
	pos, rows := p.Pos, strings.SplitN(p.src, "\n", line+2)
	if p.style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		if p.style&yaml.LiteralStyle != 0 && line < len(rows) { // the header, such as "|", is before the value
			pos.Line += line
			pos.Column = len(rows[1]) - len(strings.TrimLeft(rows[1], " ")) + column
		}
		return pos
	}
	single, double := p.style&yaml.SingleQuotedStyle != 0, p.style&yaml.DoubleQuotedStyle != 0
	row, at := append([]rune(rows[0]), 0), p.Column-1
	if single || double {
		at++
	}
	for n := 1; at < len(row)-1; n++ { // otherwise the value goes on in another line
		switch c := row[at]; {
		case n == column:
			pos.Column = at + 1
			return pos
		case single && c == '\'':
			at += 2
		case double && c == '\\':
			at += max(2, map[rune]int{'x': 4, 'u': 6, 'U': 10}[row[at+1]])
		default:
			at++
		}
	}
	return pos
}
