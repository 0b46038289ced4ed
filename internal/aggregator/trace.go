package aggregator

import (
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"xdsrelay/internal/expr"
	"xdsrelay/internal/xds"
)

// Trace returns a node's key for a type, and the names of the rules that gave it. The key is zero if the
// node has none. It uses no cache and changes no counters.
func (r *Rules) Trace(m *corev3.Node, peer expr.Peer, typ xds.TypeURL) (key xds.Key, by []string) {
	v := r.set.evaluate(expr.Input{Node: m, Type: string(typ), Peer: peer})
	for _, s := range v.steps {
		if s.did == matched || s.did == keyFailed {
			by = append(by, s.rule.name)
		}
	}
	return r.conclude(m, peer, v).key, by
}

// RuleField is a path into the metadata that a rule reads or tests with has().
type RuleField struct {
	Rule string
	expr.MetadataPath
}

// MetadataFields returns the paths into the metadata that each rule uses, each once. Those of xds-relay's files are
// not among them.
func (r *Rules) MetadataFields() (out []RuleField) {
	set, ok := r.set.(*celRules)
	if !ok {
		return nil
	}
	for _, c := range set.list {
		add := func(paths []expr.MetadataPath) {
			for _, p := range paths {
				if !slices.ContainsFunc(out, func(o RuleField) bool { return o.Rule == c.name && slices.Equal(o.Fields, p.Fields) }) {
					out = append(out, RuleField{c.name, p})
				}
			}
		}
		if c.match != nil {
			add(c.match.MetadataPaths())
		}
		for _, k := range c.key {
			add(k.MetadataPaths())
		}
	}
	return out
}
