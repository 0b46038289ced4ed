package fanout

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"xdsrelay/internal/xds"
)

// Frame is an encoded response without nonce: one contiguous body, shared by
// all streams that need the same and never pooled. It is immutable.
type Frame struct {
	*manifest
	body      []byte
	resources []*xds.Resource
	removed   []string
}

// manifest is what a response spoke of. Sessions that have not answered yet keep
// it, and not the body.
type manifest struct {
	names []string // in resources and removed, canonical, sorted
	// versions of them, in the same order; that of what was removed is zero.
	versions []xds.Version
	follows  []string // resources of the type's follower that follow (P37)
	version  string   // version_info or system_version_info
}

func manifestOf(changed []*xds.Resource, removed, follows []string, version string) *manifest {
	m := &manifest{follows: follows, version: version}
	m.names = make([]string, 0, len(changed)+len(removed))
	of := make(map[string]xds.Version, len(changed))
	for _, r := range changed {
		if r.Unresolved() {
			continue // said once, and to no end that a refusal would change
		}
		m.names = append(m.names, r.Name)
		of[r.Name] = r.Version
	}
	for _, n := range removed {
		m.names = append(m.names, xds.Canonical(n))
	}
	slices.Sort(m.names)
	m.versions = make([]xds.Version, len(m.names))
	for i, n := range m.names {
		m.versions[i] = of[n]
	}
	return m
}

// says returns the version in which the response spoke of name, zero for its
// removal, and whether it did.
func (m *manifest) says(name string) (xds.Version, bool) {
	i, spoke := slices.BinarySearch(m.names, name)
	if !spoke {
		return xds.Version{}, false
	}
	return m.versions[i], true
}

// frameKey names a regular response to one snapshot: sessions in step alike
// get the same. The snapshot that the client comes from is named by its
// generation and not pointed to, so that a frame keeps no old snapshot alive.
type frameKey struct {
	variant      xds.Variant
	full, force  bool
	anew         bool // everything in it is new to the client
	sub, by      *xds.Subscription
	lineage, gen uint64
	over, keep   *held // what the client has, and is to see, besides the snapshots (P36)
}

// key names the difference between what the client was sent and what it is to
// see.
func (s *Session) key() frameKey {
	k := frameKey{variant: s.variant, full: s.full(), sub: s.sub, by: s.sentBy(), over: s.over(), keep: s.keep()}
	if s.sent != nil {
		k.lineage, k.gen = s.sent.Lineage, s.sent.Gen
	}
	return k
}

// frameCache has the frames of one snapshot, in two layers: by key, so that
// clients in step alike cost no comparison of snapshots, and by content, so
// that clients that need the same for different reasons share the bytes. Both
// layers are bounded, in number and in bytes. It lives as long as its snapshot,
// or until that is superseded.
type frameCache struct {
	mu        sync.Mutex
	byKey     *layer[frameKey]
	byContent *layer[uint64] // one frame a hash; equality by identity of resources

	held      heldTable // no part of it is under mu
	documents documents // what polls are given (P70), with a lock and bounds of its own
}

// maxFrames bounds each layer of one snapshot's cache; so does frameBytes, which
// is what small frames may take whatever the size of the snapshot.
const (
	maxFrames  = 128
	frameBytes = 64 << 10
)

// cell is a frame that is being built by one worker, or is there.
type cell struct {
	frame   *Frame   // set before done
	done    bool     // under the cache's lock
	waiters []parked // bounded by the streams
}

// parked is a stream that waits for a frame: to its run state that is a
// message in flight, so that nothing overtakes it (P35).
type parked struct {
	st *stream
	n  uint64
}

// layer is a cache of cells, least recently used out first. Of a body that
// alone is over the bound, one is kept: it is the one that everybody needs.
type layer[K comparable] struct {
	cells *simplelru.LRU[K, *cell]
	bytes int64
	max   int64
}

func newLayer[K comparable](limit int64) *layer[K] {
	l := &layer[K]{max: limit}
	// It fails only for a size that is not positive.
	l.cells, _ = simplelru.NewLRU(maxFrames, func(_ K, c *cell) {
		if c.done {
			l.bytes -= int64(len(c.frame.body))
		}
	})
	return l
}

// finish notes that the cell of k, if it is still there, has its frame.
func (l *layer[K]) finish(k K, c *cell, f *Frame) {
	if at, ok := l.cells.Peek(k); ok && at == c {
		l.bytes += int64(len(f.body))
	}
	c.frame, c.done = f, true
	for l.bytes > l.max && l.cells.Len() > 1 {
		l.cells.RemoveOldest()
	}
}

func framesOf(s *xds.Snapshot) *frameCache {
	return s.Derived(func() any {
		limit := 2*s.Bytes + frameBytes
		return &frameCache{byKey: newLayer[frameKey](limit), byContent: newLayer[uint64](limit)}
	}).(*frameCache)
}

// frame returns the frame of a plan; an empty plan has a frame without body.
// Building is single-flight: it returns nil if another worker is at it; st is
// parked then, and that worker lets it go on.
func (c *frameCache) frame(st *stream, p *Plan, from *xds.Snapshot, identifier string) *Frame {
	if p.do == irregular {
		return c.share(p.key.variant, p.to, identifier, p.changed, p.removed, followers(p.changed), p.key.force)
	}
	c.mu.Lock()
	at, ok := c.byKey.cells.Get(p.key)
	if ok {
		defer c.mu.Unlock()
		if !at.done {
			at.waiters = append(at.waiters, parked{st, st.run.send()})
			return nil
		}
		return at.frame
	}
	at = &cell{}
	c.byKey.cells.Add(p.key, at)
	c.mu.Unlock()

	changed, removed, follows, any := compare(&p.key, from, p.to)
	f := c.share(p.key.variant, p.to, identifier, changed, removed, follows, any)

	c.mu.Lock()
	c.byKey.finish(p.key, at, f)
	waiters := at.waiters
	at.waiters = nil
	c.mu.Unlock()
	for _, w := range waiters {
		w.st.completed(w.n)
	}
	return f
}

// share returns the frame with this content, building it if there is none. Two
// workers may build the same at the same time, if they came to it by different
// keys; one of the two stays.
func (c *frameCache) share(v xds.Variant, to *xds.Snapshot, identifier string, changed []*xds.Resource, removed, follows []string, any bool) *Frame {
	if len(changed)+len(removed) == 0 && !any {
		return emptyFrame
	}
	h := contentHash(v, changed, removed)
	c.mu.Lock()
	at, ok := c.byContent.cells.Get(h)
	c.mu.Unlock()
	if ok && at.frame.holds(changed, removed, follows) {
		return at.frame
	}
	f := &Frame{resources: changed, removed: removed, manifest: manifestOf(changed, removed, follows, to.Version)}
	body := xds.Body{
		Form: xds.Form{Variant: v}, Type: to.Type.URL, Version: to.Version, Identifier: identifier,
		Resources: changed, Removed: removed,
	}
	f.body = body.Encode()
	c.mu.Lock()
	at = new(cell)
	c.byContent.cells.Remove(h) // another frame of this hash, if there is one
	c.byContent.cells.Add(h, at)
	c.byContent.finish(h, at, f)
	c.mu.Unlock()
	return f
}

// holds reports whether this is what the frame is made of.
func (f *Frame) holds(changed []*xds.Resource, removed, follows []string) bool {
	return slices.Equal(f.resources, changed) && slices.Equal(f.removed, removed) && slices.Equal(f.follows, follows)
}

// emptyFrame: there is nothing to send.
var emptyFrame = &Frame{manifest: new(manifest)}

// Empty reports whether there is nothing to send.
func (f *Frame) Empty() bool { return f.body == nil }

// compare computes a regular response: the difference between two snapshots
// for a client that has been sent the one, or, for a full-state SotW type, all
// of the other if there is any difference. any: there is something to say, be
// it that nothing is left.
func compare(k *frameKey, from, to *xds.Snapshot) (changed []*xds.Resource, removed, follows []string, any bool) {
	any = k.force
	for _, name := range k.names(from, to) {
		had, was := view(from, k.by, k.over, name)
		now, is := see(to, k.sub, k.keep, name, had, was)
		if k.again() && (was != xds.Present || is != xds.Absent) {
			had, was = nil, xds.Pending
		}
		if !differs(k.variant, k.full, k.sub.Names.Has(name), had, was, now, is) {
			continue
		}
		any = true
		if is == xds.Present || is == xds.Unresolvable {
			changed = append(changed, now)
		} else {
			removed = append(removed, spell(k.sub, name, had))
		}
	}
	changed = once(changed)
	follows = followers(changed)
	if !k.full {
		return changed, removed, follows, any
	}
	if !any {
		return nil, nil, nil, false
	}
	changed = nil
	to.Covered(k.sub, func(r *xds.Resource) bool {
		changed = append(changed, r)
		return true
	})
	changed = k.keep.with(changed)
	if k.anew {
		follows = followers(changed)
	}
	return changed, nil, follows, true
}

// again: all of it is to be said. What is full-state does so in any case.
func (k *frameKey) again() bool { return k.anew && !k.full }

// names are those that may differ between the two, sorted.
func (k *frameKey) names(from, to *xds.Snapshot) []string {
	names := to.Changes(from, k.by)
	if k.over == nil && k.keep == nil && !k.again() {
		return names
	}
	if k.again() {
		names = append(names, to.Changes(nil, k.sub)...)
	}
	names = k.keep.appendNames(k.over.appendNames(names))
	sortUnique(&names)
	return names
}

// followers are the resources that follow these (P37), sorted.
func followers(rs []*xds.Resource) []string {
	var out []string
	for _, r := range rs {
		if r.Follows != "" {
			out = append(out, r.Follows)
		}
	}
	sortUnique(&out)
	return out
}

func sortUnique(names *[]string) {
	slices.Sort(*names)
	*names = slices.Compact(*names)
}

var contentSeed = maphash.MakeSeed()

// contentHash is a hash over the identity of the resources, which are shared
// wherever they are equal, and the removed names.
func contentHash(v xds.Variant, changed []*xds.Resource, removed []string) uint64 {
	var h maphash.Hash
	h.SetSeed(contentSeed)
	_ = h.WriteByte(byte(v))
	for _, r := range changed {
		maphash.WriteComparable(&h, r)
	}
	for _, n := range removed {
		_, _ = h.WriteString(n)
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}
