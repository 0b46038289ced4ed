package aggregator

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"xdsrelay/internal/expr"
)

// result is what an xds-relay rule adds to the key.
type result interface {
	// value returns the text; an empty one adds nothing. A node that does not
	// have what the result is made of is an error.
	value(in *expr.Input) (string, error)
	String() string
	reads(in *expr.Input, f func(expr.Value))
}

// A fragment's element of the key is the text of its result if that is one
// text, so that keys read like those of the program. What is made of several
// parts is a tuple: the program joins parts with "", "|" and "_", by which
// different nodes get the same key; a tuple cannot be mistaken for another one,
// nor for a text.
const (
	tupleAnd      = "and" // the parts of an and_result
	tupleLocality = "loc" // region, zone and sub-zone, empty where not asked for
	tupleAll      = "all" // the results of several rules of one fragment
	// nothing stands for a fragment that adds nothing, so that what another
	// fragment adds keeps its place.
	nothing = "@"
)

// plainText is the element of a result that is one text.
func plainText(s string) string {
	if strings.HasPrefix(s, "@") {
		return "@" + s
	}
	return s
}

var escapeTuple = strings.NewReplacer("@", "@@", ":", "@:")

// tuple is the element of a result that has parts.
func tuple(kind string, parts []string) string {
	var b strings.Builder
	b.WriteString("@" + kind)
	for _, p := range parts {
		b.WriteByte(':')
		// Writing to a Builder does not fail.
		_, _ = escapeTuple.WriteString(&b, p)
	}
	return b.String()
}

// stringResult is the same for all.
type stringResult string

func (r stringResult) value(*expr.Input) (string, error)        { return plainText(string(r)), nil }
func (r stringResult) String() string                           { return strconv.Quote(string(r)) }
func (r stringResult) reads(in *expr.Input, f func(expr.Value)) {}

// namesResult adds nothing: what a client asks for is its subscription and not
// its key.
type namesResult struct{}

func (namesResult) value(*expr.Input) (string, error)        { return "", nil }
func (namesResult) String() string                           { return `""` }
func (namesResult) reads(in *expr.Input, f func(expr.Value)) {}

// fieldResult is a field of the node, as it is or with a pattern replaced.
type fieldResult struct {
	field
	action
}

// action is what is done to a field's text.
type action struct {
	regex   *regexp.Regexp // nil: it is taken as it is
	replace string
}

func (r fieldResult) value(in *expr.Input) (string, error) {
	s, err := r.plain(in)
	return plainText(s), err
}

// plain is the text before it becomes an element.
func (r fieldResult) plain(in *expr.Input) (string, error) {
	v := r.get(in.Node)
	if v == nil {
		return "", fmt.Errorf("%s: %w", r.name, errNotThere)
	}
	s := v.GetStringValue()
	if r.regex != nil {
		s = r.regex.ReplaceAllString(s, r.replace)
	}
	if s == "" {
		return "", fmt.Errorf("%s: %w", r, errEmpty)
	}
	return s, nil
}

func (r fieldResult) String() string {
	if r.regex == nil {
		return r.name
	}
	return fmt.Sprintf("%s.replace(/%s/, %q)", r.name, r.regex, r.replace)
}

func (r fieldResult) reads(in *expr.Input, f func(expr.Value)) { r.read(in, f) }

// localityResult has three parts, nil where not asked for.
type localityResult [3]*fieldResult

func (r localityResult) value(in *expr.Input) (string, error) {
	parts := make([]string, len(r))
	for i, p := range r {
		if p == nil {
			continue
		}
		var err error
		if parts[i], err = p.plain(in); err != nil {
			return "", err
		}
	}
	return tuple(tupleLocality, parts), nil
}

func (r localityResult) String() string {
	var s []string
	for _, p := range r {
		if p != nil {
			s = append(s, p.String())
		}
	}
	return "[" + strings.Join(s, ", ") + "]"
}

func (r localityResult) reads(in *expr.Input, f func(expr.Value)) {
	for _, p := range r {
		if p != nil {
			p.reads(in, f)
		}
	}
}

// andResult puts results together.
type andResult []result

func (r andResult) value(in *expr.Input) (string, error) {
	var parts []string
	for _, p := range r {
		s, err := p.value(in)
		if err != nil {
			return "", err
		}
		// Which parts add nothing stands in the file, and not in the node.
		if s != "" {
			parts = append(parts, s)
		}
	}
	if parts == nil {
		return "", nil
	}
	return tuple(tupleAnd, parts), nil
}

func (r andResult) String() string {
	s := make([]string, len(r))
	for i, p := range r {
		s[i] = p.String()
	}
	return "[" + strings.Join(s, ", ") + "]"
}

func (r andResult) reads(in *expr.Input, f func(expr.Value)) {
	for _, p := range r {
		p.reads(in, f)
	}
}
