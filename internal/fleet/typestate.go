package fleet

import (
	"maps"
	"slices"
	"time"

	"github.com/zeebo/xxh3"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/xds"
)

// Hash is the hash of a resource's body and type. Equal hashes count as equal bodies.
type Hash [16]byte

func hashOf(it *item) Hash {
	h := xxh3.Hash128(it.body)
	t := xxh3.Hash(it.typeURL)
	h.Hi ^= t
	return h.Bytes()
}

// Resource is a held resource.
type Resource struct {
	Name string
	// Version is the resource's own in delta (and in SotW if wrapped), otherwise the version_info
	// of its response.
	Version string
	Hash    Hash
	// Body is the value of the resource's Any; nil with DiscardBodies. It is shared and must not
	// change.
	Body    []byte
	Aliases []string
	TTL     time.Duration
}

// Any returns the resource as an Any of type t.
func (r Resource) Any(t xds.TypeURL) *anypb.Any {
	return &anypb.Any{TypeUrl: string(t), Value: r.Body}
}

// entry is a held resource with its references.
type entry struct {
	Resource
	refs *refs
	gen  uint64 // number of the last response with it
}

// reply is an ACK or NACK that is not sent yet.
type reply struct {
	version string // of the held resources once this is sent
	nonce   string
	err     error // NACK
	due     time.Time
}

// typeState is the protocol state of one type. Guarded by Client.mu.
type typeState struct {
	url xds.TypeURL
	// fullState: a SotW response is complete, and a missing resource is removed.
	fullState bool
	// noLegacy: an empty first list is no wildcard (P21).
	noLegacy bool

	// The subscription and the held resources. They survive a reconnect.
	active   bool                // it was ever subscribed to
	names    map[string]struct{} // by name
	star     bool                // "*" is subscribed
	legacy   bool                // the wildcard of an empty first list
	held     map[string]*entry
	absent   map[string]struct{} // subscribed, and the server reported that there is none
	version  string              // of the last accepted response
	answered bool                // a response was ever accepted
	count    Counters
	holdAcks bool

	// The names in a SotW request; nil after a change.
	list []string

	// State of the stream; reset clears it.
	requested bool   // requested on this stream
	acked     string // version_info of requests
	nonce     string // newest answered nonce
	add       []string
	drop      []string
	stale     bool                // changed names are not sent
	again     bool                // send the names even if unchanged
	past      map[string]struct{} // names removed on this stream
	wasWild   bool                // the wildcard ended on this stream
	replies   []reply
	gen       uint64
}

// The client does not use the relay's table of types, because it has to test the relay.
var (
	fullState = map[xds.TypeURL]bool{xds.ListenerType: true, xds.ClusterType: true, xds.ScopedType: true}
	noLegacy  = map[xds.TypeURL]bool{xds.EndpointType: true, xds.RouteType: true, xds.SecretType: true,
		xds.RuntimeType: true, xds.ExtensionType: true}
)

func newTypeState(url xds.TypeURL) *typeState {
	return &typeState{url: url, fullState: fullState[url], noLegacy: noLegacy[url],
		names: make(map[string]struct{}), held: make(map[string]*entry)}
}

// reset clears the state of a stream, and what mode does not keep.
func (t *typeState) reset(mode Memory) {
	t.requested, t.nonce = false, ""
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

// covers reports whether the client subscribes to this resource, by name or alias.
func (t *typeState) covers(it *item) bool {
	return t.wild() || hasAny(t.names, it.name, it.aliases)
}

// wantedBefore reports whether the resource was subscribed to earlier on this stream. A server may
// send it if the request without it is in flight.
func (t *typeState) wantedBefore(it *item) bool {
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

// want adds a name, and reports whether it is new.
func (t *typeState) want(name string) bool {
	if _, ok := t.names[name]; ok {
		return false
	}
	t.names[name] = struct{}{}
	delete(t.past, name)
	t.list = nil
	return true
}

// unwant removes a name, and reports whether it was there.
func (t *typeState) unwant(name string) bool {
	if _, ok := t.names[name]; !ok {
		return false
	}
	delete(t.names, name)
	delete(t.absent, name)
	if t.requested {
		if t.past == nil {
			t.past = make(map[string]struct{})
		}
		t.past[name] = struct{}{}
	}
	t.list = nil
	return true
}

// prune drops held resources that are not subscribed any more. Under the wildcard it keeps one
// until the server says whether the wildcard covers it.
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

// setNames sets the names, and records the difference for the next request.
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

// forgetNames clears the subscription.
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

// sorted returns the names, with "*" if it is subscribed. Requests share the list, so it never
// changes.
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

// put stores a resource, and reports whether it is new or differs from the held one.
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
