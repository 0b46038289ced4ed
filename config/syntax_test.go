package config

import (
	"errors"
	"strings"
	"testing"
)

// A fault of the syntax has the line in which a person finds it, whichever part of the
// decoder sees it: an arrow shows where.
func TestTheLineOfASyntaxFault(t *testing.T) {
	for what, text := range map[string]string{
		"an unknown anchor":         "name: a\nlog:\n  level: *none  # <--\nadmin: {}\n",
		"a character":               "name: a\nlog:\n  level: @info  # <--\nadmin: {}\n",
		"a block without a break":   "a: |\n x\ny: >z  # <--\n",
		"a brace that is not ended": "name: a\nupstream:\n  origins: [{address: 'a:1']  # <--\nlog:\n  level: info\n",
		"a brace, and more":         "name: a\n\n\nlog: {level: info  # <--\n\n\nadmin: {}\n",
		"an end without a begin":    "name: a\nlog: }  # <--\nadmin: {}\n",
		"an item among keys":        "name: a\nlog:\n  level: info\n- x  # <--\n",
		"a nested item among keys":  "name: a\nlog:\n  level: info\n  format: text\n  - x  # <--\nadmin: {}\n",
		"a key among items":         "name: a\nlog:\n  - a\n  b: c  # <--\nadmin: {}\n",
		"an indent":                 "name: a\nlog:\n  level: info\n bad: x  # <--\nadmin: {}\n",
		"no colon":                  "name: a\nname2 b  # <--\nlog:\n  level: info\n",
		"two colons":                "name: a\nlog:\n  level: info: debug  # <--\n",
		"two colons at the top":     "name: a: b  # <--\nlog: {}\n",
		"an escape":                 "name: a\nlog:\n  level: \"a\\qb\"  # <--\nadmin: {}\n",
		"a quote":                   "name: a\nlog:\n  level: info\n  format: \"text  # <--\nadmin:\n  address: x\n",
		"a list at the end":         "name: a\nlog:\n  format: [  # <--",
		"a tab":                     "name: a\nlog:\n\tlevel: info  # <--\n",
		"what is no text":           "name: a\nlog:\n  level: \xff  # <--\nadmin: {}\n",
		"a second document":         "name: a\n---\nlog: }  # <--\nadmin: {}\n",
	} {
		_, err := Parse("f", []byte(text), nil)
		var faults Faults
		before, _, _ := strings.Cut(text, "<--")
		if want := 1 + strings.Count(before, "\n"); !errors.As(err, &faults) || faults[0].Line != want || faults[0].Column != 0 || strings.Contains(err.Error(), "yaml:") {
			t.Errorf("%s: %v, want line %d", what, err, want)
		}
	}
	// Of a large one the decoder is believed.
	if line, reason := Syntax(make([]byte, maxSought+1), errors.New("yaml: line 7: no")); line != 7 || reason != "no" {
		t.Error(line, reason)
	}
	if line, reason := Syntax(nil, errors.New("yaml: no")); line != 1 || reason != "no" {
		t.Error(line, reason)
	}
}
