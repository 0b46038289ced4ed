package aggregator

import (
	"fmt"
	"slices"
	"strings"

	"xdsrelay/config"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/xds"
)

// Explanation shows how a node got its key for a type, or why it has none.
type Explanation struct {
	Type string `json:"type,omitempty" yaml:"type,omitempty"`
	// Key is the key as text, Elements its elements; both are empty if Refused is set.
	Key      string   `json:"key,omitempty" yaml:"key,omitempty"`
	Elements []string `json:"elements,omitempty" yaml:"elements,omitempty"`
	// Owner is the member of the cluster that owns the key. Only a running relay knows it.
	Owner string `json:"owner,omitempty" yaml:"owner,omitempty"`
	// Own: no rule matched, and the node has a key of its own.
	Own bool `json:"own,omitempty" yaml:"own,omitempty"`
	// Refused is the error that a client would get.
	Refused string       `json:"refused,omitempty" yaml:"refused,omitempty"`
	Reason  string       `json:"reason,omitempty" yaml:"reason,omitempty"`
	Rules   []RuleResult `json:"rules" yaml:"rules"`
}

type RuleResult struct {
	Rule   string       `json:"rule" yaml:"rule"`
	Place  config.Pos   `json:"place" yaml:"place"`
	Types  []string     `json:"types,omitempty" yaml:"types,omitempty"`
	Match  string       `json:"match" yaml:"match"`
	Result string       `json:"result" yaml:"result"`
	Error  string       `json:"error,omitempty" yaml:"error,omitempty"` // of match
	Values []expr.Value `json:"values,omitempty" yaml:"values,omitempty"`
	Key    []Element    `json:"key,omitempty" yaml:"key,omitempty"`
}

// Element is one element of a key.
type Element struct {
	Expr  string `json:"expr" yaml:"expr"`
	Value string `json:"value,omitempty" yaml:"value,omitempty"`
	Error string `json:"error,omitempty" yaml:"error,omitempty"`
}

var shownClaims = []string{"peer.token.iss", "peer.token.sub", "peer.token.aud"}

// shown hides secrets in values: a node's metadata may have a token.
func shown(values []expr.Value) []expr.Value {
	for i := range values {
		v := &values[i]
		v.Value, v.Error = redact.Value(v.Expr, v.Value), redact.Text(v.Error)
		if strings.HasPrefix(v.Expr, "peer.token") && !slices.Contains(shownClaims, v.Expr) {
			v.Value = "(hidden)"
		}
	}
	return values
}

// Explain computes a node's key without the cache and shows each step. It changes no counters. It
// fails if the node cannot be decoded.
func (r *Rules) Explain(node *xds.Node, peer expr.Peer, typ xds.TypeURL) (*Explanation, error) {
	m, err := node.Decode()
	if err != nil {
		return nil, fmt.Errorf("explain: %w", err)
	}
	in := expr.Input{Node: m, Type: string(typ), Peer: peer}
	v := r.set.evaluate(in)
	a := r.conclude(m, peer, v)
	x := &Explanation{Type: string(typ), Rules: r.set.explain(in, v)}
	if a.err != nil {
		x.Refused, x.Reason = a.err.Error(), a.err.Reason.String()
		return x, nil
	}
	x.Key, x.Elements, x.Own = a.key.String(), a.key.Elements(), v.elements == nil
	return x, nil
}
