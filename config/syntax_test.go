package config

import (
	"errors"
	"strings"
	"testing"
)

// The line of a syntax error is the one that needs a change, marked by an arrow here, for each part
// of the decoder.
func TestLineOfASyntaxFault(t *testing.T) {
	for what, text := range map[string]string{
		"an unknown anchor":                  "name: a\nlog:\n  level: *none  # <--\nadmin: {}\n",
		"a character":                        "name: a\nlog:\n  level: @info  # <--\nadmin: {}\n",
		"a block without a break":            "a: |\n x\ny: >z  # <--\n",
		"a brace that is not ended":          "name: a\nupstream:\n  origins: [{address: 'a:1']  # <--\nlog:\n  level: info\n",
		"a brace, and more":                  "name: a\n\n\nlog: {level: info  # <--\n\n\nadmin: {}\n",
		"an end without a begin":             "name: a\nlog: }  # <--\nadmin: {}\n",
		"an item among keys":                 "name: a\nlog:\n  level: info\n- x  # <--\n",
		"a nested item among keys":           "name: a\nlog:\n  level: info\n  format: text\n  - x  # <--\nadmin: {}\n",
		"a key among items":                  "name: a\nlog:\n  - a\n  b: c  # <--\nadmin: {}\n",
		"an indent":                          "name: a\nlog:\n  level: info\n bad: x  # <--\nadmin: {}\n",
		"no colon":                           "name: a\nname2 b  # <--\nlog:\n  level: info\n",
		"two colons":                         "name: a\nlog:\n  level: info: debug  # <--\n",
		"two colons at the top":              "name: a: b  # <--\nlog: {}\n",
		"an escape":                          "name: a\nlog:\n  level: \"a\\qb\"  # <--\nadmin: {}\n",
		"a quote":                            "name: a\nlog:\n  level: info\n  format: \"text  # <--\nadmin:\n  address: x\n",
		"a text of several lines, and below": "name: \"r1\n  is long\"\nb: 'it''s\n  too' # don't\nlog:\n  level: @info  # <--\nadmin: {}\n",
		"a quote in a text, and below":       "a: |\n  'it is\n  x\nlog:\n  level: @info  # <--\n",
		"one in a text of several lines":     "a: f(x, \"b\n  c\") + d\nlog:\n  level: @info  # <--\n",
		"a list at the end":                  "name: a\nlog:\n  format: [  # <--",
		"a tab":                              "name: a\nlog:\n\tlevel: info  # <--\n",
		"what is no text":                    "name: a\nlog:\n  level: \xff  # <--\nadmin: {}\n",
		"a second document":                  "name: a\n---\nlog: }  # <--\nadmin: {}\n",
	} {
		_, err := Parse("f", []byte(text), nil)
		var faults Faults
		before, _, _ := strings.Cut(text, "<--")
		if want := 1 + strings.Count(before, "\n"); !errors.As(err, &faults) || faults[0].Line != want || faults[0].Column != 0 || strings.Contains(err.Error(), "yaml:") {
			t.Errorf("%s: %v, want line %d", what, err, want)
		}
	}
	// The most common mistakes have a plain explanation.
	for text, want := range map[string]string{
		"log:\n\tlevel: info\n":      "f:2: a tab: indent with spaces (found character that cannot start any token)",
		"a: [b\nc: d\n":              "a [ or a quote above is not closed, a comma is missing, or an expression with one of , : ? [ ] { } needs quotes around it (did not find expected ',' or ']')",
		"a: [b ? \"c\" : d]\n":       "f:1: a [ or a quote above is not closed, a comma is missing, or an expression with one of , : ? [ ] { } needs quotes",
		"a:\n  - b\n  - \"c\" + d\n": "f:3: text after a closing quote: put the whole value in quotes of the other kind (did not find expected '-' indicator)",
		"a: ['c' + d, \"e\"]\n":      "f:1: a [ or a quote above is not closed, a comma is missing, or an expression",
		"a: 'c' + d\n":               "f:1: text after a closing quote",
		"a: {b: c\nd: e\n":           "a { or a quote above is not closed, or a comma is missing (did not find expected ',' or '}')",
		"a: b: c\n":                  "a colon too many: put a value with a colon in quotes, and close each quote above it (mapping values are not allowed in this context)",
		"a: \"b\nc: d\n":             "a quote is not closed (found unexpected end of stream)",
		"a: [\n":                     "f:1: a value is missing, or a [ or { is not closed (did not find expected node content)",
		"a: \"b\nc: \"d\"\n":         "f:2: wrong indentation, or a quote above is not closed (did not find expected key)",
		"a: @b\n":                    "f:1: found character that cannot start any token",
	} {
		if _, err := Parse("f", []byte(text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	// For a large text the decoder's own line is used.
	if line, reason := Syntax(make([]byte, maxSought+1), errors.New("yaml: line 7: no")); line != 7 || reason != "no" {
		t.Error(line, reason)
	}
	if line, reason := Syntax(nil, errors.New("yaml: no")); line != 1 || reason != "no" {
		t.Error(line, reason)
	}
}
