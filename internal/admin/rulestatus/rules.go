package rulestatus

import (
	"fmt"
	"iter"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/xds"
)

// Rules are what is read of the rules in force, as aggregator.Rules gives it.
type Rules interface {
	// UsesType reports whether a node's key can differ between types.
	UsesType() bool
	Stats() []aggregator.Stat
	Shared() []aggregator.SharedKey
	Trace(m *corev3.Node, peer expr.Peer, typ xds.TypeURL) (key xds.Key, by []string)
	MetadataFields() []aggregator.RuleField
}

// Report is the answer to /rules.
type Report struct {
	// Examined of the connected clients; Partial: there are more, but it took too long.
	Examined int    `json:"examined_clients"`
	Partial  bool   `json:"partial,omitempty"`
	Items    []Rule `json:"items"`
	// Notices are what is probably wrong with the rules, as whole sentences.
	Notices []string `json:"notices,omitempty"`
}

// Rule is a rule with what it does to the connected clients.
type Rule struct {
	aggregator.Stat
	Clients int `json:"clients"` // for one of whose types it gives the key
	Keys    int `json:"keys"`    // that it gives to them
}

// ReadRules evaluates the rules for the connected clients. preview is fanout.Server.PreviewRekey. It
// takes about as long as budget at most.
func ReadRules(rules Rules, preview func(uint64, subscriber.KeyOf) iter.Seq[fanout.RekeyPreview], budget time.Duration) Report {
	var out Report
	index := map[string]int{}
	for i, s := range rules.Stats() {
		index[s.Rule] = i
		out.Items = append(out.Items, Rule{Stat: s})
	}
	keys := make([]map[xds.Key]bool, len(out.Items))
	for i := range keys {
		keys[i] = map[xds.Key]bool{}
	}
	unseen := rules.MetadataFields()
	var node *xds.Node // of the client that is examined
	by := map[int]bool{}
	trace := func(n *xds.Node, peer expr.Peer, typ xds.TypeURL) (key xds.Key, err error) {
		if n == node && !rules.UsesType() { // another type of this client has the same key
			return key, nil
		}
		return key, n.With(func(m *corev3.Node) error {
			if n != node {
				node = n
				unseen = slices.DeleteFunc(unseen, func(f aggregator.RuleField) bool { return hasField(m, f.Fields) })
			}
			var names []string
			key, names = rules.Trace(m, peer, typ)
			for _, name := range names {
				by[index[name]] = true
				if !key.IsZero() {
					keys[index[name]][key] = true
				}
			}
			return nil
		})
	}
	until := time.Now().Add(budget)
	for range preview(0, trace) {
		if node == nil {
			continue // it has sent no request yet
		}
		out.Examined++
		for i := range by {
			out.Items[i].Clients++
		}
		node = nil
		clear(by)
		if out.Partial = time.Now().After(until); out.Partial {
			break
		}
	}
	for i := range keys {
		out.Items[i].Keys = len(keys[i])
	}
	out.notice(unseen)
	return out
}

// notice says which rules match no client, and which fields no client has.
func (r *Report) notice(unseen []aggregator.RuleField) {
	if r.Examined == 0 {
		return
	}
	clients := fmt.Sprintf("of %d clients", r.Examined)
	if r.Examined == 1 {
		clients = "of the only client"
	}
	for i := range r.Items {
		if r.Items[i].Clients == 0 {
			r.Notices = append(r.Notices, fmt.Sprintf("%s (%s) gives no key to any node %s.", r.Items[i].Rule, r.Items[i].Place, clients))
		}
	}
	for _, f := range unseen {
		r.Notices = append(r.Notices, fmt.Sprintf("%s reads %s, which is in no node %s.", f.Rule, f.Text, clients))
	}
}

// hasField reports whether the metadata of a node has a value at a path.
func hasField(m *corev3.Node, path []string) bool {
	at := structpb.NewStructValue(m.GetMetadata())
	for _, p := range path {
		var ok bool
		if at, ok = at.GetStructValue().GetFields()[p]; !ok {
			return false
		}
	}
	return true
}
