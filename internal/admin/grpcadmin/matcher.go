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
	maxDepth    = 16   // of paths, and metadata matchers of a node
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
	holds, err := newValue(m.GetValue())
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

func newValue(m *matcherv3.ValueMatcher) (func(*structpb.Value) bool, error) {
	if err := known(m); err != nil {
		return nil, err
	}
	switch p := m.GetMatchPattern().(type) {
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
	}
	return nil, errors.New("must be string_match or bool_match; others are not supported")
}
