package grpcadmin

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/xds"
)

const (
	maxMatchers = 1000
	maxRegex    = 1024 // bytes
)

// selection is the set of nodes that a request asks for: those whose id matches one of its matchers, or
// all if it has none.
type selection []func(id string) bool

func newSelection(ms []*matcherv3.NodeMatcher) (s selection, err error) {
	if len(ms) > maxMatchers {
		return nil, fmt.Errorf("node_matchers: must have at most %d elements", maxMatchers)
	}
	for i, m := range ms {
		matches, err := newNodeMatch(m)
		if err != nil {
			return nil, fmt.Errorf("node_matchers[%d].%w", i, err)
		}
		s = append(s, matches)
	}
	return s, nil
}

// has reports whether the node is selected. It decodes the node only for its metadata.
func (s selection) has(n *xds.Node) bool {
	return len(s) == 0 || slices.ContainsFunc(s, func(matches func(string) bool) bool { return matches(n.ID) })
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

func newNodeMatch(m *matcherv3.NodeMatcher) (func(id string) bool, error) {
	if err := known(m); err != nil {
		return nil, fmt.Errorf("node_matcher: %w", err)
	}
	if len(m.GetNodeMetadatas()) > 0 {
		return nil, errors.New("node_metadatas: not supported")
	}
	if m.GetNodeId() == nil {
		return func(string) bool { return true }, nil
	}
	matches, err := newString(m.NodeId)
	if err != nil {
		return nil, fmt.Errorf("node_id: %w", err)
	}
	return matches, nil
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
