package aggregator

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"weak"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	lru "github.com/hashicorp/golang-lru/v2"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	"xdsrelay/config"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/xds"
)

const (
	// remembered is how many keys are kept, of nodes that are there. An entry is a
	// few hundred bytes, and keeps no node alive.
	remembered = 16384
	// maxKey bounds a key's elements together: a key names files and metrics
	// and is kept for as long as anyone uses it, while a node's fields may be
	// as large as a node may be.
	maxKey = 4096
	// maxType: longer types are computed each time, not remembered.
	maxType = 256
)

// Rules map nodes to keys.
type Rules struct {
	set      ruleset
	own      bool // unmatched: a key of its own for every node
	warnings config.Faults
	usesType bool
	usesPeer bool
	text     []byte // of aggregation.file; nil: there is none

	// keys has a lock of its own. What a node that is gone asked goes with it.
	keys *lru.Cache[question, remembrance]
}

// ruleset is one kind of rules.
type ruleset interface {
	// evaluate computes the key of in, without looking at what was computed
	// before, and says of each rule what came of it.
	evaluate(in expr.Input) verdict
	// rules are the rules, for their counters.
	rules() []*rule
	// explain adds to a verdict what the rules saw.
	explain(in expr.Input, v verdict) []RuleResult
}

// rule is what both kinds of rules have.
type rule struct {
	name    string     // "aggregation.rules[0]", "fragments[1].rules[0]"
	place   config.Pos // where it stands
	matches atomic.Uint64
	errors  atomic.Uint64 // of its match: each was taken for no match
}

// verdict is the outcome of one evaluation.
type verdict struct {
	elements []string // of the key; nil if there is none
	failed   bool     // a rule matched, and gave no key
	steps    []step   // of the rules in order, as far as they were tried
}

// step is what came of one rule.
type step struct {
	rule *rule
	did  outcome
	err  error // why, with matchFailed and keyFailed
}

// question is what a key is computed from. The pointer stands for the node's
// content, of which a NodeTable has one; it is weak, so that no node
// is held by what it asked.
type question struct {
	node weak.Pointer[xds.Node]
	typ  xds.TypeURL // if any rule depends on it
	peer [32]byte    // if any rule depends on it
}

type answer struct {
	key xds.Key
	err *Error
}

// remembrance is an answer that is kept for as long as its node is.
type remembrance struct {
	answer
	gone runtime.Cleanup
}

// Compile compiles the rules of cfg, reading their file if there is one. What
// is wrong with them is returned as config.Faults that point into the
// configuration or the file.
func Compile(cfg *config.Config) (*Rules, error) {
	a := &cfg.Aggregation
	if a.File == "" {
		set, err := compileCEL("aggregation.rules", a.Rules, cfg.Places)
		if err != nil {
			return nil, err
		}
		return newRules(set, nil, a.Unmatched)
	}
	src, err := os.ReadFile(a.File)
	if err != nil {
		return nil, config.Faults{cfg.Places.Fault("aggregation.file", "%v", err)}
	}
	return CompileText(a.File, src, a.Unmatched)
}

// CompileText compiles the text of a rules' file: a list of rules, by itself or
// under rules:, or fragments:. unmatched is as in the configuration.
func CompileText(file string, src []byte, unmatched string) (*Rules, error) {
	set, err := parse(file, src)
	if err != nil {
		return nil, err
	}
	return newRules(set, src, unmatched)
}

func newRules(set ruleset, text []byte, unmatched string) (*Rules, error) {
	r := &Rules{set: set, text: text, own: unmatched == config.UnmatchedNode}
	switch set := r.set.(type) {
	case *celRules:
		r.usesType, r.usesPeer = set.usesType(), set.usesPeer()
	case *fragments:
		r.usesType = set.usesType()
		r.warnings = set.warnings
	}
	// New fails only for a size that is not positive.
	var err error
	r.keys, err = lru.NewWithEvict(remembered, func(_ question, m remembrance) { m.gone.Stop() })
	return r, err
}

// SameFile reports whether the rules of both come from files that say the same, or
// from none.
func (r *Rules) SameFile(o *Rules) bool { return bytes.Equal(r.text, o.text) }

// parse compiles the text of a rules file of either kind.
func parse(file string, src []byte) (ruleset, error) {
	var doc yaml.Node
	// A syntax error is found again, and reported, by whoever decodes below.
	_ = yaml.Unmarshal(src, &doc)
	list := len(doc.Content) > 0 && doc.Content[0].Kind == yaml.SequenceNode
	if !list && len(doc.Content) > 0 {
		for i := 0; i < len(doc.Content[0].Content); i += 2 {
			if doc.Content[0].Content[i].Value == "fragments" {
				return parseFragments(file, src)
			}
		}
	}
	var rules []config.Rule
	var places *config.Places
	var err error
	if list {
		places, err = config.Decode(file, src, "rules", &rules)
	} else {
		var f struct {
			Rules []config.Rule `yaml:"rules"`
		}
		places, err = config.Decode(file, src, "", &f)
		rules = f.Rules
	}
	if err != nil {
		return nil, err
	}
	if len(rules) == 0 {
		return nil, config.Faults{{
			Pos:    config.Pos{File: file, Line: 1, Column: 1},
			Reason: "has no rules: wants a list of them, or an xds-relay KeyerConfiguration (fragments:)",
		}}
	}
	if err := config.CheckRules("rules", rules, places).Err(); err != nil {
		return nil, err
	}
	return compileCEL("rules", rules, places)
}

// Warnings are what is worth telling an operator once, though nothing is wrong.
func (r *Rules) Warnings() config.Faults { return r.warnings }

// UsesType reports whether a node's key can differ between types.
func (r *Rules) UsesType() bool { return r.usesType }

// UsesPeer reports whether a node's key can depend on who sent it.
func (r *Rules) UsesPeer() bool { return r.usesPeer }

// Key returns the key of a node for a type. The error is an *Error (P5).
func (r *Rules) Key(node *xds.Node, peer expr.Peer, typ xds.TypeURL) (xds.Key, error) {
	q := question{node: weak.Make(node)}
	if r.usesType {
		q.typ = typ
	}
	if r.usesPeer {
		q.peer = digest(peer)
	}
	m, ok := r.keys.Get(q)
	a := m.answer
	if !ok {
		a = r.answer(node, peer, typ)
		if len(q.typ) <= maxType {
			r.remember(q, a, node)
		}
	}
	if a.err != nil {
		return xds.Key{}, a.err
	}
	return a.key, nil
}

// remember keeps an answer. A node does not keep the rules alive by it, of which
// there may be others by now.
func (r *Rules) remember(q question, a answer, node *xds.Node) {
	m := remembrance{answer: a, gone: runtime.AddCleanup(node, forget, forgotten{weak.Make(r.keys), q})}
	if _, other, _ := r.keys.PeekOrAdd(q, m); other {
		m.gone.Stop()
	}
}

type forgotten struct {
	of weak.Pointer[lru.Cache[question, remembrance]]
	q  question
}

func forget(f forgotten) {
	if keys := f.of.Value(); keys != nil {
		keys.Remove(f.q)
	}
}

// answer computes a key.
func (r *Rules) answer(node *xds.Node, peer expr.Peer, typ xds.TypeURL) (a answer) {
	if err := node.With(func(m *corev3.Node) error {
		a = r.compute(m, peer, typ)
		return nil
	}); err != nil {
		return answer{err: &Error{Reason: Failed, cause: err}}
	}
	return a
}

func (r *Rules) compute(m *corev3.Node, peer expr.Peer, typ xds.TypeURL) answer {
	v := r.set.evaluate(expr.Input{Node: m, Type: string(typ), Peer: peer})
	for _, s := range v.steps {
		switch s.did {
		case matched, keyFailed:
			s.rule.matches.Add(1)
		case matchFailed:
			s.rule.errors.Add(1)
		}
	}
	return r.conclude(m, v)
}

// conclude makes of a verdict what the caller gets.
func (r *Rules) conclude(m *corev3.Node, v verdict) answer {
	switch {
	case v.failed:
		return answer{err: newError(Failed, v)}
	case v.elements != nil:
		n := 0
		for _, e := range v.elements {
			n += len(e)
		}
		if n > maxKey {
			return answer{err: &Error{Reason: Failed, cause: fmt.Errorf("the key would have %d bytes, and has %d at most", n, maxKey)}}
		}
		return answer{key: xds.NewKey(v.elements...)}
	case r.own:
		k, err := ownKey(m)
		if err != nil {
			return answer{err: &Error{Reason: Failed, cause: err}}
		}
		return answer{key: k}
	}
	return answer{err: newError(Unmatched, v)}
}

// ownKey is the key of a node that shares none. Its first element is empty,
// which no rule's is, so that it cannot be a rule's key. The node's id alone
// would not do: clients of different clusters may have the same, or none. The
// dynamic parameters do not count, since they change within a client's life
// (P1), and neither does the order in which a client encodes a map.
func ownKey(m *corev3.Node) (xds.Key, error) {
	if len(m.Id) > maxKey {
		return xds.Key{}, fmt.Errorf("the key would have a node id of %d bytes, and has %d at most", len(m.Id), maxKey)
	}
	fixed := proto.CloneOf(m)
	fixed.DynamicParameters = nil
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(fixed)
	if err != nil {
		return xds.Key{}, fmt.Errorf("node %q: %w", m.Id, err)
	}
	sum := sha256.Sum256(b)
	return xds.NewKey("", m.Id, hex.EncodeToString(sum[:16])), nil
}

// digest stands for a peer's content.
func digest(p expr.Peer) [32]byte {
	var b []byte
	put := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	list := func(l []string) {
		b = binary.AppendUvarint(b, uint64(len(l)))
		for _, s := range l {
			put(s)
		}
	}
	put(p.Address)
	put(p.Subject)
	list(p.URISANs)
	list(p.DNSSANs)
	return sha256.Sum256(b)
}

// Stat counts what came of a rule. A key that was remembered counts no more.
type Stat struct {
	Rule    string     `json:"rule"`
	Place   config.Pos `json:"place"`
	Matches uint64     `json:"matches"`
	Errors  uint64     `json:"errors"` // in match, taken for no match
}

// Stats returns the counters of all rules.
func (r *Rules) Stats() []Stat {
	var out []Stat
	for _, x := range r.set.rules() {
		out = append(out, Stat{Rule: x.name, Place: x.place, Matches: x.matches.Load(), Errors: x.errors.Load()})
	}
	return out
}

// ExprFaults turns the error of an expression, which is the value of key, into
// faults that point to the characters meant.
func ExprFaults(places *config.Places, key string, err error) config.Faults {
	var e *expr.Error
	if !errors.As(err, &e) {
		return config.Faults{places.Fault(key, "%v", err)}
	}
	var out config.Faults
	for _, is := range e.Issues {
		out = append(out, config.Fault{Pos: places.Inside(key, is.Line, is.Column), Key: key, Reason: is.Message})
	}
	return out
}
