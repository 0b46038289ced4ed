package aggregator

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"xdsrelay/internal/expr"
)

// predicate is the match of an xds-relay rule.
type predicate interface {
	// match reports whether in matches. With an error the whole rule does not match.
	match(in *expr.Input) (bool, error)
	// String returns the predicate as CEL. Equal predicates have equal strings.
	String() string
	// reads calls f for each value that the predicate uses.
	reads(in *expr.Input, f func(expr.Value))
}

type anyMatch struct{}

func (anyMatch) match(*expr.Input) (bool, error)          { return true, nil }
func (anyMatch) String() string                           { return "true" }
func (anyMatch) reads(in *expr.Input, f func(expr.Value)) {}

// andMatch matches if all its predicates match, orMatch if one does. This is what xds-relay's
// program does; comments in its schema say the opposite.
type andMatch []predicate

func (m andMatch) match(in *expr.Input) (bool, error) {
	for _, p := range m {
		if ok, err := p.match(in); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

func (m andMatch) String() string { return joined(m, " && ") }

func (m andMatch) reads(in *expr.Input, f func(expr.Value)) {
	for _, p := range m {
		p.reads(in, f)
	}
}

type orMatch []predicate

func (m orMatch) match(in *expr.Input) (bool, error) {
	for _, p := range m {
		if ok, err := p.match(in); err != nil || ok {
			return ok, err
		}
	}
	return false, nil
}

func (m orMatch) String() string { return joined(m, " || ") }

func (m orMatch) reads(in *expr.Input, f func(expr.Value)) { andMatch(m).reads(in, f) }

func joined(m []predicate, op string) string {
	switch len(m) {
	case 0: // a locality without parts
		return anyMatch{}.String()
	case 1:
		return m[0].String()
	}
	s := make([]string, len(m))
	for i, p := range m {
		s[i] = p.String()
	}
	return "(" + strings.Join(s, op) + ")"
}

// notMatch negates a predicate; an error stays an error.
type notMatch struct{ predicate }

func (m notMatch) match(in *expr.Input) (bool, error) {
	ok, err := m.predicate.match(in)
	return err == nil && !ok, err
}

func (m notMatch) String() string { return "!" + m.predicate.String() }

type typeMatch []string

func (m typeMatch) match(in *expr.Input) (bool, error) { return slices.Contains(m, in.Type), nil }

func (m typeMatch) String() string {
	q := make([]string, len(m))
	for i, t := range m {
		q[i] = strconv.Quote(t)
	}
	return "(type in [" + strings.Join(q, ", ") + "])"
}

func (m typeMatch) reads(in *expr.Input, f func(expr.Value)) {
	f(expr.Value{Expr: "type", Value: in.Type})
}

// field is a value of a node that rules use.
type field struct {
	name string
	get  func(n *corev3.Node) *structpb.Value // nil: the node has none
}

func text(get func(n *corev3.Node) string) func(n *corev3.Node) *structpb.Value {
	return func(n *corev3.Node) *structpb.Value {
		if s := get(n); s != "" {
			return structpb.NewStringValue(s)
		}
		return nil
	}
}

var (
	fieldID      = field{"node.id", text((*corev3.Node).GetId)}
	fieldCluster = field{"node.cluster", text((*corev3.Node).GetCluster)}
	fieldRegion  = field{"node.locality.region", text(func(n *corev3.Node) string { return n.GetLocality().GetRegion() })}
	fieldZone    = field{"node.locality.zone", text(func(n *corev3.Node) string { return n.GetLocality().GetZone() })}
	fieldSubZone = field{"node.locality.sub_zone", text(func(n *corev3.Node) string { return n.GetLocality().GetSubZone() })}
)

// nodeFields are the fields of the enum, in its order.
var nodeFields = []field{fieldID, fieldCluster, fieldRegion, fieldZone, fieldSubZone}

func metadataField(path []string) field {
	name := "node.metadata"
	for _, p := range path {
		name += "[" + strconv.Quote(p) + "]"
	}
	return field{name, func(n *corev3.Node) *structpb.Value {
		at := structpb.NewStructValue(n.GetMetadata())
		for _, p := range path {
			var ok bool
			if at, ok = at.GetStructValue().GetFields()[p]; !ok {
				return nil
			}
		}
		return at
	}}
}

func (f field) read(in *expr.Input, to func(expr.Value)) {
	v := expr.Value{Expr: f.name}
	if got := f.get(in.Node); got != nil {
		v.Value = got.AsInterface()
	} else {
		v.Error = errNotThere.Error()
	}
	to(v)
}

var errNotThere = errors.New("the node has no such field")

// pattern is an exact string or a regular expression.
type pattern struct {
	exact string
	regex *regexp.Regexp
}

func (p pattern) match(s string) bool {
	if p.regex != nil {
		return p.regex.MatchString(s)
	}
	// An empty exact match matches nothing.
	return p.exact != "" && s == p.exact
}

func (p pattern) text(name string) string {
	if p.regex != nil {
		return name + ".matches(" + strconv.Quote(p.regex.String()) + ")"
	}
	return "(" + name + " == " + strconv.Quote(p.exact) + ")"
}

// fieldMatch compares a field of the node. A node without the field is an error, as in xds-relay,
// so not_match does not match it either.
type fieldMatch struct {
	field
	pattern
}

func (m fieldMatch) match(in *expr.Input) (bool, error) {
	v := m.get(in.Node)
	if v == nil {
		return false, fmt.Errorf("%s: %w", m.name, errNotThere)
	}
	return m.pattern.match(v.GetStringValue()), nil
}

func (m fieldMatch) String() string { return m.text(m.name) }

func (m fieldMatch) reads(in *expr.Input, f func(expr.Value)) { m.read(in, f) }

// metadataMatch compares the value at a path of the metadata. A node without it, or with a value of
// another type, does not match, without an error: not_match can then select such nodes in a mixed
// fleet.
type metadataMatch struct {
	field
	pattern
	truth *bool // instead of pattern
}

func (m metadataMatch) match(in *expr.Input) (bool, error) {
	switch v := m.get(in.Node).GetKind().(type) {
	case *structpb.Value_StringValue:
		return m.truth == nil && m.pattern.match(v.StringValue), nil
	case *structpb.Value_BoolValue:
		return m.truth != nil && v.BoolValue == *m.truth, nil
	}
	return false, nil
}

func (m metadataMatch) String() string {
	if m.truth != nil {
		return fmt.Sprintf("(%s == %v)", m.name, *m.truth)
	}
	return m.text(m.name)
}

func (m metadataMatch) reads(in *expr.Input, f func(expr.Value)) { m.read(in, f) }
