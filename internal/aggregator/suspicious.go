package aggregator

import (
	"fmt"
	"slices"
	"strings"

	"xdsrelay/config"
	"xdsrelay/internal/xds"
)

// suspicious warns of rules that are valid but seldom intended. own: nodes without a rule get a key of
// their own.
func (s *celRules) suspicious(own bool) (out config.Faults) {
	for i, r := range s.list {
		warn := func(format string, args ...any) {
			out = append(out, config.Fault{Pos: r.place, Key: r.name, Reason: fmt.Sprintf(format, args...)})
		}
		if r.match != nil && r.match.Constant() == false {
			warn("matches no node, because its match is false")
		}
		for _, earlier := range s.list[:i] {
			if earlier.takesAll(r.types) {
				warn("is never tried, because %s takes all nodes", earlier.name)
				break
			}
			if earlier.canCollide(r) {
				warn("can give the same key as %s to other nodes, which would then share resources: begin the keys of both rules with different constants", earlier.name)
			}
		}
		for _, t := range append(slices.Clone(r.types), r.comparedTypes()...) {
			switch url, known := xds.ParseType(t); {
			case strings.Contains(t, "/envoy.api.v2."):
				warn("has the type %s of the xDS v2 API, which no client requests; use the v3 type", t)
			case known && string(url) != t:
				warn("compares type with %q, but type is a URL: write %q, or types: [%s] instead", t, url, t)
			case !known:
				warn("compares type with %q, which is no type URL", t)
			}
		}
		constants := 0
		for j, k := range r.key {
			if k.Constant() != nil {
				constants++
			}
			if strings.TrimSpace(k.Text()) == "node.id" {
				warn("key[%d] is node.id: each client gets a key and a stream at the origin of its own", j)
			}
			if k.Concatenates() {
				warn("key[%d] joins values with +, which can give different nodes the same key: write a list of elements instead", j)
			}
			for _, path := range k.TextsOfMetadata() {
				warn("key[%d] has string(%s): a number such as 12345678 becomes 1.2345678e+07, as a text with these characters does; write string(int(%s)) for a number, and %s for a text", j, path, path, path)
			}
		}
		if constants == len(r.key) && r.takesAll(nil) {
			warn("has a constant key: all nodes that reach it share one stream, and get the same resources")
		}
	}
	if last := s.list[len(s.list)-1]; !own && !slices.ContainsFunc(s.list, func(r *celRule) bool { return r.types == nil }) {
		out = append(out, config.Fault{Pos: last.place, Key: last.name, Reason: "and all other rules have types: the relay refuses all other types of each client; add a rule without types"})
	}
	return out
}

// takesAll reports whether no node reaches a later rule for these types; nil: for all types.
func (r *celRule) takesAll(types []string) bool {
	always := r.match == nil || r.match.Constant() == true
	return always && (r.types == nil || within(types, r.types))
}

// canCollide reports whether r and another rule can give the same key. Keys with equal expressions are
// meant to be equal. Constants that differ exclude equal keys.
func (r *celRule) canCollide(o *celRule) bool {
	if len(r.key) != len(o.key) || r.keyText() == o.keyText() {
		return false
	}
	for i := range r.key {
		x, y := r.key[i].Constant(), o.key[i].Constant()
		if x != nil && y != nil && x != y {
			return false
		}
	}
	return true
}

// keyText is the key as in the file, without line breaks.
func (r *celRule) keyText() string {
	elements := make([]string, len(r.key))
	for i, k := range r.key {
		elements[i] = strings.Join(strings.Fields(k.Text()), " ")
	}
	return "[" + strings.Join(elements, ", ") + "]"
}

// comparedTypes are the texts with which match and key compare the type.
func (r *celRule) comparedTypes() (out []string) {
	if r.match != nil {
		out = r.match.ComparedTypes()
	}
	for _, k := range r.key {
		out = append(out, k.ComparedTypes()...)
	}
	return out
}

// NeedsCertificate returns a rule that reads a name that only a client's certificate proves, with a
// place and the names; false: there is none.
func (r *Rules) NeedsCertificate() (where config.Fault, names []string, ok bool) {
	set, isCEL := r.set.(*celRules)
	if !isCEL {
		return where, nil, false
	}
	for _, c := range set.list {
		if c.match != nil {
			names = c.match.Proven()
		}
		for _, k := range c.key {
			names = append(names, k.Proven()...)
		}
		names = slices.DeleteFunc(names, func(name string) bool { return name == "peer.token" })
		if len(names) > 0 {
			slices.Sort(names)
			return config.Fault{Pos: c.place, Key: c.name}, slices.Compact(names), true
		}
	}
	return where, nil, false
}
