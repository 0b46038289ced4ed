package aggregator

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"weak"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	lru "github.com/hashicorp/golang-lru/v2"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	"xdsrelay/config"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/xds"
)

const (
	// cacheSize bounds the cached keys. An entry has a few hundred bytes, and does not keep its
	// node alive.
	cacheSize = 16384
	// maxKey bounds the bytes of a key's elements together. A key names files and metrics and lives
	// as long as it is used, while a node's fields may be as large as the whole node.
	maxKey = 4096
	// maxType is the length of the longest type in the cache; keys of longer types are computed
	// each time.
	maxType = 256
)

// Rules map nodes to keys.
type Rules struct {
	set      ruleset
	own      bool // unmatched: node, a key of its own for every node
	warnings config.Faults
	usesType bool
	usesPeer bool
	byToken  bool   // see ByToken
	text     []byte // of aggregation.file; nil: the rules are in the configuration

	matchErrors telemetry.Counter // see CountErrors

	// keys has its own lock. An entry is removed when its node is collected.
	keys   *lru.Cache[cacheKey, cacheEntry]
	shared sharedKeys
}

// ruleset is a kind of rules.
type ruleset interface {
	// evaluate computes the key of in, with the result of each rule.
	evaluate(in expr.Input) evaluation
	// rules returns the rules, for their counters.
	rules() []*rule
	// explain adds to an evaluation the values that the rules used.
	explain(in expr.Input, v evaluation) []RuleResult
}

// rule is the common part of both kinds of rules.
type rule struct {
	name    string     // "aggregation.rules[0]", "fragments[1].rules[0]"
	place   config.Pos // its position in the file
	text    RuleText
	matches atomic.Uint64
	errors  atomic.Uint64 // of its match; each counts as no match
	failed  atomic.Int64  // when its match last failed for a client, in Unix nanoseconds; 0: never

	keyErrors atomic.Uint64           // of its key; each refuses the node
	last      atomic.Pointer[Failure] // the last one of match or key; nil: none
}

// RuleText is what a rule says, for people to read.
type RuleText struct {
	Match string   `json:"match"`
	Types []string `json:"types,omitempty"`
	Key   []string `json:"key"`
}

// Failure is a node for which the match or the key of a rule failed.
type Failure struct {
	Node  string    `json:"node"`
	Error string    `json:"error"`
	At    time.Time `json:"at"`
}

type evaluation struct {
	elements []string // of the key; nil: there is none
	failed   bool     // a rule matched, and its key failed
	steps    []step   // in order, as far as rules were tried
}

// step is the result of one rule.
type step struct {
	rule *rule
	did  outcome
	err  error // the reason for matchFailed and keyFailed
}

// cacheKey is the key of the cache: everything that a key depends on. The pointer stands for the
// node's content, because a NodeTable has one Node for each content. It is weak, so that the cache
// keeps no node alive.
type cacheKey struct {
	node weak.Pointer[xds.Node]
	typ  xds.TypeURL // empty if no rule depends on it
	peer [32]byte    // zero if no rule depends on it
}

type answer struct {
	key    xds.Key
	err    *Error
	failed []*rule // those whose match failed; usually none
}

// cacheEntry is a cached answer, which is removed when its node is collected.
type cacheEntry struct {
	answer
	gone runtime.Cleanup
}

// Compile compiles the rules of cfg, and reads their file if there is one. It returns faults as
// config.Faults with places in the configuration or the file.
func Compile(cfg *config.Config) (*Rules, error) {
	r, err := compileRules(cfg)
	if err == nil && cfg.Upstream.ByToken() {
		r.ByToken()
	}
	return r, err
}

func compileRules(cfg *config.Config) (*Rules, error) {
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

// ByToken adds the claims iss and sub of the client's token to every key, because an origin gets the
// token and computes by it. It is called before the rules are used.
func (r *Rules) ByToken() { r.byToken, r.usesPeer = true, true }

// CompileText compiles the text of a rules file: a list of rules, alone or under rules:, or
// fragments:. unmatched is the configuration's value.
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
		r.warnings = set.suspicious(r.own)
	case *fragments:
		r.usesType = set.usesType()
		r.warnings = set.warnings
	}
	// It fails only for a size that is not positive.
	var err error
	r.keys, err = lru.NewWithEvict(cacheSize, func(_ cacheKey, m cacheEntry) { m.gone.Stop() })
	if err == nil {
		r.shared.givers, err = lru.New[xds.Key, *celRule](cacheSize)
	}
	return r, err
}

// SameFile reports whether both have the same text of a rules file, or both have none.
func (r *Rules) SameFile(o *Rules) bool { return bytes.Equal(r.text, o.text) }

// FileText is the text of aggregation.file; nil: the rules are in the configuration. The caller must not
// change it.
func (r *Rules) FileText() []byte { return r.text }

// parse compiles a rules file of either kind.
func parse(file string, src []byte) (ruleset, error) {
	var doc yaml.Node
	// Decoding below finds and reports a syntax error again.
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
			Reason: "has no rules; must be a list of rules, or an xds-relay KeyerConfiguration (fragments:)",
		}}
	}
	if err := config.CheckRules("rules", rules, places).Err(); err != nil {
		return nil, err
	}
	return compileCEL("rules", rules, places)
}

// Warnings are about settings that are valid but seldom intended.
func (r *Rules) Warnings() config.Faults { return r.warnings }

// UsesType reports whether a node's key can differ between types.
func (r *Rules) UsesType() bool { return r.usesType }

// UsesPeer reports whether a node's key can depend on its peer.
func (r *Rules) UsesPeer() bool { return r.usesPeer }

// Key returns the key of a node for a type. Its error is an *Error (P5).
func (r *Rules) Key(node *xds.Node, peer expr.Peer, typ xds.TypeURL) (xds.Key, error) {
	q := cacheKey{node: weak.Make(node)}
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
			r.addToCache(q, a, node)
		}
	}
	for _, x := range a.failed { // also for a cached key: the client is still there
		x.failed.Store(time.Now().UnixNano())
	}
	if a.err != nil {
		return xds.Key{}, a.err
	}
	return a.key, nil
}

// addToCache caches an answer. The node's cleanup has only a weak pointer to the cache, so that a
// node does not keep replaced rules alive.
func (r *Rules) addToCache(q cacheKey, a answer, node *xds.Node) {
	m := cacheEntry{answer: a, gone: runtime.AddCleanup(node, evict, evictedKey{weak.Make(r.keys), q})}
	if _, other, _ := r.keys.PeekOrAdd(q, m); other {
		m.gone.Stop()
	}
}

type evictedKey struct {
	cache weak.Pointer[lru.Cache[cacheKey, cacheEntry]]
	q     cacheKey
}

func evict(f evictedKey) {
	if keys := f.cache.Value(); keys != nil {
		keys.Remove(f.q)
	}
}

// CountErrors makes the rules count errors in a match by c, also those before the call. It is called
// once, when the rules come into force, and never together with Key.
func (r *Rules) CountErrors(c telemetry.Counter) {
	r.matchErrors = c
	for _, x := range r.set.rules() {
		c.Add(int(x.errors.Load()))
	}
}

// answer computes a key and counts it.
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
	var failed []*rule
	for _, s := range v.steps {
		if s.err != nil {
			s.rule.last.Store(&Failure{m.Id, redact.Text(s.err.Error()), time.Now()})
		}
		switch s.did {
		case keyFailed:
			s.rule.keyErrors.Add(1)
			fallthrough
		case matched:
			s.rule.matches.Add(1)
		case matchFailed:
			s.rule.errors.Add(1)
			r.matchErrors.Inc()
			failed = append(failed, s.rule)
		}
	}
	a := r.conclude(m, peer, v)
	a.failed = failed
	if set, ok := r.set.(*celRules); ok && a.err == nil && v.elements != nil {
		r.shared.note(a.key, set.list[len(v.steps)-1])
	}
	return a
}

// conclude turns an evaluation into a key or an error.
func (r *Rules) conclude(m *corev3.Node, peer expr.Peer, v evaluation) answer {
	a := r.keyOf(m, v)
	if r.byToken && a.err == nil {
		iss, _ := peer.Token["iss"].(string)
		sub, _ := peer.Token["sub"].(string)
		a.key = xds.NewKey(append(a.key.Elements(), iss, sub)...)
	}
	return a
}

func (r *Rules) keyOf(m *corev3.Node, v evaluation) answer {
	switch {
	case v.failed:
		return answer{err: newError(Failed, v)}
	case v.elements != nil:
		n := 0
		for _, e := range v.elements {
			n += len(e)
		}
		if n > maxKey {
			return answer{err: &Error{Reason: Failed, cause: fmt.Errorf("the key must have at most %d bytes, but has %d", maxKey, n)}}
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

// ownKey is the key of a node that shares its key with no other content. Its first element is
// empty, unlike that of any rule, so it cannot equal a rule's key. It has a hash of the node,
// because nodes of different clusters may have the same id, or none. The hash ignores the dynamic
// parameters, which change within a client's life (P1), and the order in which a client encodes a
// map.
func ownKey(m *corev3.Node) (xds.Key, error) {
	if len(m.Id) > maxKey {
		return xds.Key{}, fmt.Errorf("the node id must have at most %d bytes to be a key, but has %d", maxKey, len(m.Id))
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

// digest is a hash of a peer's content.
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
	if p.Token != nil {
		claims, err := json.Marshal(p.Token) // with sorted keys
		if err != nil {
			claims = []byte(err.Error()) // cannot happen: it comes from JSON or YAML
		}
		b = append(b, claims...)
	}
	return sha256.Sum256(b)
}

// Stat counts the results of a rule. A cached key is not counted again.
type Stat struct {
	Rule    string     `json:"rule"`
	Place   config.Pos `json:"place"`
	Matches uint64     `json:"matches"`
	Errors  uint64     `json:"errors"` // in match; each counts as no match
	// KeyErrors counts nodes that the rule matched and refused, because its key failed.
	KeyErrors uint64   `json:"key_errors"`
	Last      *Failure `json:"last_failure,omitempty"`
	RuleText
	// Failed is when match last failed for a client, also with a cached key; zero: never.
	Failed time.Time `json:"failed,omitzero"`
}

// recent is how long a rule counts as failing after its match last failed for a client. It is longer
// than the usual downstream.max_connection_age, at which a client comes again.
const recent = time.Hour

// Failing reports whether the rule's match failed for a client within the last hour.
func (s Stat) Failing(now time.Time) bool { return !s.Failed.IsZero() && now.Sub(s.Failed) < recent }

// Stats returns the counters of all rules.
func (r *Rules) Stats() []Stat {
	var out []Stat
	for _, x := range r.set.rules() {
		s := Stat{Rule: x.name, Place: x.place, Matches: x.matches.Load(), Errors: x.errors.Load(), KeyErrors: x.keyErrors.Load(), Last: x.last.Load(), RuleText: x.text}
		if at := x.failed.Load(); at != 0 {
			s.Failed = time.Unix(0, at)
		}
		out = append(out, s)
	}
	return out
}

// WithErrors returns the number of rules whose match failed for a client within the last hour.
func (r *Rules) WithErrors() (n int) {
	for _, s := range r.Stats() {
		if s.Failing(time.Now()) {
			n++
		}
	}
	return n
}

// ExprFaults turns the error of an expression, the value of key, into faults at the position in the
// file.
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
