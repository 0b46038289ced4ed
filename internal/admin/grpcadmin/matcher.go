package grpcadmin

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"xdsrelay/internal/xds"
)

// Bounds of the matchers.
const (
	maxMatchers = 1000
	maxRegex    = 1024 // bytes
	maxDepth    = 16   // of matchers in matchers, and of paths
)

// selection is the set of nodes that a request asks for: those that match one of its matchers, or
// all if it has none.
type selection struct {
	any []nodeMatch
}

// nodeMatch matches nodes by id and by all metadata matchers.
type nodeMatch struct {
	id       func(string) bool // nil: any
	metadata []func(*structpb.Struct) bool
}

func newSelection(ms []*matcherv3.NodeMatcher) (*selection, error) {
	if len(ms) > maxMatchers {
		return nil, fmt.Errorf("node_matchers: must have at most %d elements", maxMatchers)
	}
	s := new(selection)
	for i, m := range ms {
		n, err := newNodeMatch(m)
		if err != nil {
			return nil, fmt.Errorf("node_matchers[%d].%w", i, err)
		}
		s.any = append(s.any, n)
	}
	return s, nil
}

// has reports whether the node is selected. It decodes the node only for its metadata.
func (s *selection) has(n *xds.Node) bool {
	if len(s.any) == 0 {
		return true
	}
	var metadata *structpb.Struct
	decoded := false
	return slices.ContainsFunc(s.any, func(m nodeMatch) bool {
		if m.id != nil && !m.id(n.ID) {
			return false
		}
		if len(m.metadata) > 0 && !decoded {
			decoded = true
			if node, err := n.Decode(); err == nil { // it was decoded when it came
				metadata = node.GetMetadata()
			}
		}
		return !slices.ContainsFunc(m.metadata, func(holds func(*structpb.Struct) bool) bool { return !holds(metadata) })
	})
}

// errNew is the error for a field that this program does not know. Ignoring the field would select
// other nodes.
var errNew = errors.New("unknown field")

func known(m proto.Message) error {
	if len(m.ProtoReflect().GetUnknown()) > 0 {
		return errNew
	}
	return nil
}

func newNodeMatch(m *matcherv3.NodeMatcher) (n nodeMatch, err error) {
	if err := known(m); err != nil {
		return n, fmt.Errorf("node_matcher: %w", err)
	}
	if m.GetNodeId() != nil {
		if n.id, err = newString(m.NodeId); err != nil {
			return n, fmt.Errorf("node_id: %w", err)
		}
	}
	for i, s := range m.GetNodeMetadatas() {
		holds, err := newStruct(s)
		if err != nil {
			return n, fmt.Errorf("node_metadatas[%d]: %w", i, err)
		}
		n.metadata = append(n.metadata, holds)
	}
	if len(n.metadata) > maxDepth {
		return n, fmt.Errorf("node_metadatas: must have at most %d elements", maxDepth)
	}
	return n, nil
}

// newString compiles a string matcher. ignore_case does not apply to regular expressions.
func newString(m *matcherv3.StringMatcher) (func(string) bool, error) {
	if err := known(m); err != nil {
		return nil, err
	}
	fold := func(s string) string { return s }
	if m.GetIgnoreCase() {
		fold = strings.ToLower
	}
	by := func(how func(s, part string) bool, part string) (func(string) bool, error) {
		part = fold(part)
		return func(s string) bool { return how(fold(s), part) }, nil
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return by(func(s, all string) bool { return s == all }, p.Exact)
	case *matcherv3.StringMatcher_Prefix:
		return by(strings.HasPrefix, p.Prefix)
	case *matcherv3.StringMatcher_Suffix:
		return by(strings.HasSuffix, p.Suffix)
	case *matcherv3.StringMatcher_Contains:
		return by(strings.Contains, p.Contains)
	case *matcherv3.StringMatcher_SafeRegex:
		text := p.SafeRegex.GetRegex()
		if len(text) > maxRegex {
			return nil, fmt.Errorf("safe_regex: must have at most %d bytes", maxRegex)
		}
		re, err := regexp.Compile(`\A(?:` + text + `)\z`) // anchored
		if err != nil {
			return nil, fmt.Errorf("safe_regex: %w", err)
		}
		return re.MatchString, nil
	case *matcherv3.StringMatcher_Custom:
		return nil, errors.New("custom: not supported")
	}
	return nil, errors.New("must be exact, prefix, suffix, contains or safe_regex")
}

// newStruct compiles the matcher of the value at a path. It matches nothing if the path has no
// value.
func newStruct(m *matcherv3.StructMatcher) (func(*structpb.Struct) bool, error) {
	if err := known(m); err != nil {
		return nil, err
	}
	var path []string
	for _, p := range m.GetPath() {
		if _, key := p.GetSegment().(*matcherv3.StructMatcher_PathSegment_Key); !key {
			return nil, errors.New("path: each segment must be a key")
		}
		path = append(path, p.GetKey())
	}
	if len(path) == 0 || len(path) > maxDepth {
		return nil, fmt.Errorf("path: must have 1 to %d keys", maxDepth)
	}
	holds, err := newValue(m.GetValue(), 0)
	if err != nil {
		return nil, fmt.Errorf("value: %w", err)
	}
	return func(s *structpb.Struct) bool {
		for _, key := range path[:len(path)-1] {
			s = s.GetFields()[key].GetStructValue()
		}
		v := s.GetFields()[path[len(path)-1]]
		return v != nil && holds(v)
	}, nil
}

func newValue(m *matcherv3.ValueMatcher, depth int) (func(*structpb.Value) bool, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("must have at most %d levels", maxDepth)
	}
	if err := known(m); err != nil {
		return nil, err
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.ValueMatcher_NullMatch_:
		return func(v *structpb.Value) bool { _, is := v.GetKind().(*structpb.Value_NullValue); return is }, nil
	case *matcherv3.ValueMatcher_DoubleMatch:
		return newDouble(p.DoubleMatch)
	case *matcherv3.ValueMatcher_StringMatch:
		holds, err := newString(p.StringMatch)
		if err != nil {
			return nil, fmt.Errorf("string_match: %w", err)
		}
		return func(v *structpb.Value) bool {
			s, is := v.GetKind().(*structpb.Value_StringValue)
			return is && holds(s.StringValue)
		}, nil
	case *matcherv3.ValueMatcher_BoolMatch:
		return func(v *structpb.Value) bool {
			b, is := v.GetKind().(*structpb.Value_BoolValue)
			return is && b.BoolValue == p.BoolMatch
		}, nil
	case *matcherv3.ValueMatcher_PresentMatch:
		if !p.PresentMatch {
			return nil, errors.New("present_match: must be true, because false matches nothing")
		}
		return primitive, nil
	case *matcherv3.ValueMatcher_ListMatch:
		one, is := p.ListMatch.GetMatchPattern().(*matcherv3.ListMatcher_OneOf)
		if !is {
			return nil, errors.New("list_match: must be one_of")
		}
		holds, err := newValue(one.OneOf, depth+1)
		if err != nil {
			return nil, fmt.Errorf("list_match.one_of: %w", err)
		}
		return func(v *structpb.Value) bool { return slices.ContainsFunc(v.GetListValue().GetValues(), holds) }, nil
	case *matcherv3.ValueMatcher_OrMatch:
		var any []func(*structpb.Value) bool
		for i, m := range p.OrMatch.GetValueMatchers() {
			holds, err := newValue(m, depth+1)
			if err != nil {
				return nil, fmt.Errorf("or_match.value_matchers[%d]: %w", i, err)
			}
			any = append(any, holds)
		}
		return func(v *structpb.Value) bool {
			return slices.ContainsFunc(any, func(holds func(*structpb.Value) bool) bool { return holds(v) })
		}, nil
	}
	return nil, errors.New("must be null_match, double_match, string_match, bool_match, present_match, list_match or or_match")
}

// primitive reports whether a value is neither a list, a struct nor absent.
func primitive(v *structpb.Value) bool {
	switch v.GetKind().(type) {
	case nil, *structpb.Value_ListValue, *structpb.Value_StructValue:
		return false
	}
	return true
}

func newDouble(m *matcherv3.DoubleMatcher) (func(*structpb.Value) bool, error) {
	number := func(holds func(float64) bool) func(*structpb.Value) bool {
		return func(v *structpb.Value) bool {
			n, is := v.GetKind().(*structpb.Value_NumberValue)
			return is && holds(n.NumberValue)
		}
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.DoubleMatcher_Exact:
		return number(func(n float64) bool { return n == p.Exact }), nil
	case *matcherv3.DoubleMatcher_Range:
		return number(func(n float64) bool { return n >= p.Range.GetStart() && n < p.Range.GetEnd() }), nil
	}
	return nil, errors.New("double_match: must be range or exact")
}
