package fleet

import (
	"maps"
	"slices"
	"time"

	"github.com/zeebo/xxh3"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/xds"
)

// Hash is of a resource's body and type; equal hashes are taken for equal
// bodies.
type Hash [16]byte

func hashOf(it *item) Hash {
	h := xxh3.Hash128(it.body)
	t := xxh3.Hash(it.typeURL)
	h.Hi ^= t
	return h.Bytes()
}

// Resource is what a client holds under a name.
type Resource struct {
	Name string
	// Version is the resource's own in incremental (and where SotW wraps it),
	// else the version_info of the response that brought it.
	Version string
	Hash    Hash
	// Body is the value of the resource's Any, nil where the client discards
	// bodies. It is shared: not to be changed.
	Body    []byte
	Aliases []string
	TTL     time.Duration
}

// Any is the resource's body as type t.
func (r Resource) Any(t xds.TypeURL) *anypb.Any {
	return &anypb.Any{TypeUrl: string(t), Value: r.Body}
}

// entry is a held resource and what it refers to.
type entry struct {
	Resource
	refs *refs
	gen  uint64 // of the last response that held it
}

// reply is an ACK or NACK not sent yet.
type reply struct {
	version string // what the client holds once the response is answered
	nonce   string
	err     error // NACK
	due     time.Time
}

// typeState is one type's conversation. Owned by Client.mu.
type typeState struct {
	url xds.TypeURL
	// fullState: a SotW response holds everything, and what is missing is gone.
	fullState bool
	// noLegacy: an empty first list is no wildcard (P21).
	noLegacy bool

	// What the client wants and has; survives a reconnect.
	active   bool                // it ever wanted anything of this type
	names    map[string]struct{} // by name
	star     bool                // "*" was asked for
	legacy   bool                // the wildcard of an empty first list
	held     map[string]*entry
	absent   map[string]struct{} // named, and the server said there is none
	version  string              // of the last response taken
	answered bool                // a response was taken, ever
	count    Counters
	holdAcks bool

	// The list as SotW sends it; nil when names changed.
	list []string

	// Of this stream; cleared by reset.
	spoken  bool   // asked on this stream
	acked   string // version_info as requests carry it
	nonce   string // newest nonce answered
	add     []string
	drop    []string
	stale   bool                // names changed and were not sent
	again   bool                // send the names even if unchanged
	past    map[string]struct{} // names given up on this stream
	wasWild bool                // the wildcard ended on this stream
	replies []reply
	gen     uint64
}

// Written out here and not taken from the relay's table, which a client must
// not trust to test it.
var (
	fullState = map[xds.TypeURL]bool{xds.ListenerType: true, xds.ClusterType: true, xds.ScopedType: true}
	noLegacy  = map[xds.TypeURL]bool{xds.EndpointType: true, xds.RouteType: true, xds.SecretType: true,
		xds.RuntimeType: true, xds.ExtensionType: true}
)

func newTypeState(url xds.TypeURL) *typeState {
	return &typeState{url: url, fullState: fullState[url], noLegacy: noLegacy[url],
		names: make(map[string]struct{}), held: make(map[string]*entry)}
}

// reset forgets what belongs to a stream, and what the mode says of the rest.
func (t *typeState) reset(mode Memory) {
	t.spoken, t.nonce = false, ""
	t.add, t.drop, t.stale, t.again = nil, nil, false, false
	t.past, t.wasWild, t.replies = nil, false, nil
	t.absent = nil
	switch mode {
	case Forget:
		t.held, t.version, t.answered = make(map[string]*entry), "", false
		t.acked = ""
	case DropVersions:
		t.acked = ""
	default:
		t.acked = t.version
	}
}

func (t *typeState) wild() bool { return t.star || t.legacy }

// covers reports whether the client wants this resource, by its name or by an
// alias.
func (t *typeState) covers(it *item) bool {
	return t.wild() || hasAny(t.names, it.name, it.aliases)
}

// knew reports whether the resource was wanted earlier on this stream: what is
// under way when a name is given up is no fault of the server.
func (t *typeState) knew(it *item) bool {
	return t.wasWild || hasAny(t.past, it.name, it.aliases)
}

func hasAny(set map[string]struct{}, name []byte, aliases [][]byte) bool {
	if _, ok := set[string(name)]; ok {
		return true
	}
	for _, a := range aliases {
		if _, ok := set[string(a)]; ok {
			return true
		}
	}
	return false
}

// want adds a name; it reports whether it is new.
func (t *typeState) want(name string) bool {
	if _, ok := t.names[name]; ok {
		return false
	}
	t.names[name] = struct{}{}
	delete(t.past, name)
	t.list = nil
	return true
}

// unwant drops a name; it reports whether it was there.
func (t *typeState) unwant(name string) bool {
	if _, ok := t.names[name]; !ok {
		return false
	}
	delete(t.names, name)
	delete(t.absent, name)
	if t.spoken {
		if t.past == nil {
			t.past = make(map[string]struct{})
		}
		t.past[name] = struct{}{}
	}
	t.list = nil
	return true
}

// prune drops what is held and no longer wanted. Under the wildcard an
// unsubscribed name is kept until the server has said whether the wildcard
// covers it.
func (t *typeState) prune() {
	if t.wild() {
		return
	}
	for name, e := range t.held {
		_, wanted := t.names[name]
		for _, a := range e.Aliases {
			_, ok := t.names[a]
			wanted = wanted || ok
		}
		if !wanted {
			delete(t.held, name)
		}
	}
}

// setNames makes the names these, and notes the difference to be sent.
func (t *typeState) setNames(names map[string]struct{}) {
	for name := range t.names {
		if _, ok := names[name]; !ok {
			t.unwant(name)
			t.drop = append(t.drop, name)
			t.stale = true
		}
	}
	for name := range names {
		if t.want(name) {
			t.add = append(t.add, name)
			t.stale, t.active = true, true
		}
	}
	if t.stale {
		t.prune()
	}
}

// forgetNames makes the type one that was never asked for.
func (t *typeState) forgetNames() {
	t.active, t.star, t.legacy = false, false, false
	clear(t.names)
	t.list = nil
}

func (t *typeState) heldByAlias(name string) bool {
	for _, e := range t.held {
		if slices.Contains(e.Aliases, name) {
			return true
		}
	}
	return false
}

// sorted is the list of names, "*" among them if it was asked for. It is
// shared with requests: never changed once made.
func (t *typeState) sorted() []string {
	if t.list == nil {
		list := slices.AppendSeq(make([]string, 0, len(t.names)+1), maps.Keys(t.names))
		if t.star {
			list = append(list, "*")
		}
		slices.Sort(list)
		t.list = list
	}
	return t.list
}

// put takes a resource; it reports whether it is new or differs from what was
// held.
func (t *typeState) put(it *item, version string, discard bool) (*entry, bool) {
	e := t.held[string(it.name)]
	if len(it.version) > 0 {
		version = reuse(it.version, e)
	}
	if e != nil && e.Hash == it.hash && sameAliases(e.Aliases, it.aliases) {
		e.Version, e.TTL, e.gen = version, it.ttl, t.gen
		t.count.Resends++
		return e, false
	}
	var name string
	if e == nil {
		t.count.Added++
		name = string(it.name)
	} else {
		t.count.Changed++
		name = e.Name
	}
	e = &entry{Resource: Resource{Name: name, Version: version, Hash: it.hash, TTL: it.ttl}, refs: it.refs, gen: t.gen}
	if !discard {
		e.Body = append(make([]byte, 0, len(it.body)), it.body...)
	}
	for _, a := range it.aliases {
		e.Aliases = append(e.Aliases, string(a))
	}
	t.held[name] = e
	delete(t.absent, name)
	return e, true
}

// remove drops a held resource.
func (t *typeState) remove(name string) {
	if _, ok := t.held[name]; ok {
		delete(t.held, name)
		t.count.Removed++
	}
}

func reuse(b []byte, e *entry) string {
	if e != nil && e.Version == string(b) {
		return e.Version
	}
	return string(b)
}

func sameAliases(a []string, b [][]byte) bool {
	return slices.EqualFunc(a, b, func(x string, y []byte) bool { return x == string(y) })
}
