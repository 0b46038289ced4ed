package aggregator

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	"xdsrelay/internal/expr"
)

// result is the part of an xds-relay rule that adds to the key.
type result interface {
	// value returns the text; an empty one adds nothing. It fails if the node lacks a value that it
	// needs.
	value(in *expr.Input) (string, error)
	String() string
	reads(in *expr.Input, f func(expr.Value))
}

// An element with one part is that part's text, as in xds-relay's keys. An element with several
// parts is a tuple. xds-relay joins parts with "", "|" and "_", by which different nodes can get
// the same key. A tuple cannot equal another tuple or a text.
const (
	tupleAnd      = "and" // the parts of an and_result
	tupleLocality = "loc" // region, zone and sub-zone; empty if not asked for
	tupleAll      = "all" // the results of several rules of one fragment
	// nothing stands for a fragment that adds nothing. So the elements of other fragments keep
	// their positions.
	nothing = "@"
)

// plainText returns the element for one text.
func plainText(s string) string {
	if strings.HasPrefix(s, "@") {
		return "@" + s
	}
	return s
}

var escapeTuple = strings.NewReplacer("@", "@@", ":", "@:")

// tuple returns the element for several parts.
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

// stringResult is a constant text.
type stringResult string

func (r stringResult) value(*expr.Input) (string, error)        { return plainText(string(r)), nil }
func (r stringResult) String() string                           { return strconv.Quote(string(r)) }
func (r stringResult) reads(in *expr.Input, f func(expr.Value)) {}

// namesResult adds nothing: a client's names are its subscription, not its key.
type namesResult struct{}

func (namesResult) value(*expr.Input) (string, error)        { return "", nil }
func (namesResult) String() string                           { return `""` }
func (namesResult) reads(in *expr.Input, f func(expr.Value)) {}

// fieldResult is a field of the node, with a pattern replaced if the action has one.
type fieldResult struct {
	field
	action
}

// action is the conversion of a field's text.
type action struct {
	regex   *regexp.Regexp // nil: the text stays as it is
	replace string
}

func (r fieldResult) value(in *expr.Input) (string, error) {
	s, err := r.plain(in)
	return plainText(s), err
}

// plain returns the text before it is made an element.
func (r fieldResult) plain(in *expr.Input) (string, error) {
	v := r.get(in.Node)
	if v == nil {
		return "", fmt.Errorf("%s: %w", r.name, errNotThere)
	}
	if _, ok := v.GetKind().(*structpb.Value_StringValue); !ok {
		return "", fmt.Errorf("%s: %w", r.name, errNoText)
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

var errNoText = errors.New("must be a string in the node, as in xds-relay")

func (r fieldResult) String() string {
	if r.regex == nil {
		return r.name
	}
	return fmt.Sprintf("%s.replace(/%s/, %q)", r.name, r.regex, r.replace)
}

func (r fieldResult) reads(in *expr.Input, f func(expr.Value)) { r.read(in, f) }

// localityResult has three parts, nil if not asked for.
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

// andResult combines results into one element.
type andResult []result

func (r andResult) value(in *expr.Input) (string, error) {
	var parts []string
	for _, p := range r {
		s, err := p.value(in)
		if err != nil {
			return "", err
		}
		// The file alone decides which parts add nothing, not the node.
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
