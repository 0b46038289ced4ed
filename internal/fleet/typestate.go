package fleet

import (
	"cmp"
	"maps"
	"slices"

	"github.com/zeebo/xxh3"

	"xdsrelay/internal/xds"
)

// Hash is the hash of a resource's body and type. Equal hashes count as equal bodies.
type Hash [16]byte

func hashOf(it *item) Hash {
	h := xxh3.Hash128(it.body)
	h.Hi ^= xxh3.HashString(it.typeURL)
	return h.Bytes()
}

type Resource struct {
	Name string
	// Version is the resource's own in delta (and in SotW if wrapped), otherwise the version_info
	// of its response.
	Version string
	Hash    Hash
	// Body is the value of the resource's Any; nil with DiscardBodies. It is shared and must not
	// change.
	Body []byte
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
}

// typeState is the protocol state of one type. Guarded by Client.mu.
type typeState struct {
	url xds.TypeURL
	// fullState: a SotW response is complete, and a missing resource is removed.
	fullState bool

	// The subscription and the held resources. They survive a reconnect.
	active   bool // it was ever subscribed to
	names    map[string]struct{}
	wildcard bool // the legacy wildcard: an empty first list
	held     map[string]*entry
	absent   map[string]struct{} // subscribed, and the server reported that there is none
	version  string              // of the last accepted response
	answered bool                // a response was ever accepted
	count    Counters

	// The names in a SotW request; nil after a change.
	list []string

	// State of the stream; reset clears it.
	requested bool   // requested on this stream
	acked     string // version_info of requests
	nonce     string // newest answered nonce
	add       []string
	drop      []string
	stale     bool                // changed names are not sent
	resend    bool                // send the names even if unchanged
	past      map[string]struct{} // names removed on this stream
	replies   []reply
	gen       uint64
}

// The client does not use the relay's table of types, because it has to test the relay.
var (
	fullState = map[xds.TypeURL]bool{xds.ListenerType: true, xds.ClusterType: true, xds.ScopedType: true}
	// noLegacy: an empty first list is no wildcard (P21).
	noLegacy = map[xds.TypeURL]bool{xds.EndpointType: true, xds.RouteType: true, xds.SecretType: true,
		xds.RuntimeType: true, xds.ExtensionType: true}
)

func newTypeState(url xds.TypeURL) *typeState {
	return &typeState{url: url, fullState: fullState[url], names: make(map[string]struct{}), held: make(map[string]*entry)}
}

// reset clears the state of a stream. Without versions the next one does not say what is held.
func (t *typeState) reset(versions bool) {
	t.requested, t.nonce, t.acked = false, "", ""
	t.add, t.drop, t.stale, t.resend = nil, nil, false, false
	t.past, t.replies, t.absent = nil, nil, nil
	if versions {
		t.acked = t.version
	}
}

func (t *typeState) covers(name string) bool {
	_, named := t.names[name]
	return t.wildcard || named
}

// wantedBefore reports whether the resource was subscribed to earlier on this stream. A server may
// send it if the request without it is in flight.
func (t *typeState) wantedBefore(name string) bool {
	_, named := t.past[name]
	return named
}

// wantWildcard subscribes to the legacy wildcard; for types without one, to nothing.
func (t *typeState) wantWildcard() {
	t.active, t.wildcard = true, !noLegacy[t.url]
}

// setNames replaces the names, and records the difference for the next request. It drops held
// resources that are not subscribed any more.
func (t *typeState) setNames(names ...string) {
	wanted := make(map[string]struct{}, len(names))
	for _, name := range names {
		wanted[name] = struct{}{}
		if _, ok := t.names[name]; !ok {
			t.names[name] = struct{}{}
			delete(t.past, name)
			t.add = append(t.add, name)
			t.stale, t.active = true, true
		}
	}
	for name := range t.names {
		if _, ok := wanted[name]; ok {
			continue
		}
		delete(t.names, name)
		delete(t.absent, name)
		delete(t.held, name)
		if t.requested {
			if t.past == nil {
				t.past = make(map[string]struct{})
			}
			t.past[name] = struct{}{}
		}
		t.drop = append(t.drop, name)
		t.stale = true
	}
	if t.stale {
		t.list = nil
	}
}

// sorted returns the names. Requests share the list, so it never changes.
func (t *typeState) sorted() []string {
	if t.list == nil {
		t.list = slices.Sorted(maps.Keys(t.names))
	}
	return t.list
}

// put stores a resource, and reports whether it is new or differs from the held one.
func (t *typeState) put(it *item, version string, discard bool) (*entry, bool) {
	e := t.held[it.name]
	version = cmp.Or(it.version, version)
	if e != nil && e.Hash == it.hash {
		e.Version, e.gen = version, t.gen
		t.count.Resends++
		return e, false
	}
	e = &entry{Resource: Resource{Name: it.name, Version: version, Hash: it.hash}, refs: it.refs, gen: t.gen}
	if !discard {
		e.Body = it.body
	}
	t.held[it.name] = e
	delete(t.absent, it.name)
	return e, true
}

func (t *typeState) remove(name string) {
	if _, ok := t.held[name]; ok {
		delete(t.held, name)
		t.count.Removed++
	}
}
