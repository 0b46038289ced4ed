package xds

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"weak"
)

// content is the part of a resource that is equal wherever it is held. If a thousand keys have an
// equal resource, they share one content, which is hashed once. It is immutable, apart from newest.
type content struct {
	// Name is the resource's name.
	Name string
	// Aliases are the resource's aliases as the origin listed them, sorted (P26).
	Aliases []string
	// Version is the version of the content: type URL, body and aliases, not the TTL (P61).
	Version Version
	// Uncacheable: do_not_cache is set. The resource is held only while a client subscribes to it
	// and while the stream that brought it lives (P63).
	Uncacheable bool
	// Leased: the resource has a lease, which the origin renews by sending it again (P33).
	Leased bool
	// Follows is the name of the resource of Type.Follower that is sent after this one (P37); ""
	// for none.
	Follows string

	// body is field 2 of both DiscoveryResponse and Resource on the wire: tag, length and Any.
	// extra has the other fields of the Resource as they came, without name, version, body and TTL.
	body, extra []byte
	// Member is what this resource adds to the version of a set.
	Member Version
	// rare has the aliases that the content lists.
	rare *rareFields
	// newest is the last Resource without a TTL that was made of this content. Keys of one origin
	// share it, with its version.
	newest atomic.Pointer[Resource]
}

// resourceFor returns the Resource with this content and with the version and TTL of r.
func (c *content) resourceFor(r *ParsedResource) *Resource {
	if have := c.newest.Load(); have != nil && !r.hasTTL && have.OriginVersion == r.OriginVersion {
		return have
	}
	version := strings.Clone(r.OriginVersion)
	made := &Resource{content: c, OriginVersion: version, GivenVersion: version, timing: r.newTiming(), rare: c.rare}
	if !r.hasTTL {
		c.newest.Store(made)
	}
	return made
}

// sharedContents has the contents of all keys. It is split into several sets, so that goroutines of
// different origins seldom wait for each other. Different types cannot be confused, because a body
// contains its type.
var sharedContents [64]WeakSet[content]

var contentSeed = maphash.MakeSeed()

// content returns the shared content of r. It copies r only if there is none yet.
func (r *ParsedResource) content(t Type) *content {
	h := r.hash()
	set := &sharedContents[h%uint64(len(sharedContents))]
	if c := set.Find(h, r.equals); c != nil {
		return c
	}
	return set.Keep(h, r.newContent(t), r.equals)
}

// equals compares all bytes: resources of different tenants must never be confused. extra includes
// the aliases.
func (r *ParsedResource) equals(c *content) bool {
	return c.Name == r.Name && bytes.Equal(c.body, r.body) && bytes.Equal(c.extra, r.extra)
}

// hash returns a hash of everything that equals compares.
func (r *ParsedResource) hash() uint64 {
	var h maphash.Hash
	h.SetSeed(contentSeed)
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(r.Name)))
	_, _ = h.Write(n[:]) // never fails
	_, _ = h.WriteString(r.Name)
	_, _ = h.Write(r.body)
	_, _ = h.Write(r.extra)
	return h.Sum64()
}

func (r *ParsedResource) newContent(t Type) *content {
	url, value, _ := splitAny(anyInBody(r.body))
	whole := append(bytes.Clone(r.body), r.extra...)
	c := &content{
		Name:        strings.Clone(r.Name),
		body:        whole[:len(r.body):len(r.body)],
		extra:       whole[len(r.body):],
		Uncacheable: r.uncacheable,
	}
	for _, a := range r.aliases {
		c.Aliases = append(c.Aliases, strings.Clone(a))
	}
	slices.Sort(c.Aliases)
	c.rare = newRareFields(c.Name, c.Aliases)
	c.Version = contentVersion(url, value, c.Aliases)
	c.Member = memberVersion(c.Name, c.Version)
	if t.Follower != "" {
		c.Follows = loadAssignmentName(c.Name, value)
	}
	c.Leased = t.Leased && hasLease(value)
	return c
}

// WeakSet keeps one value for each distinct content, for as long as the value is in use. Its
// pointers are weak, so it keeps no value alive, and callers need not release values. A hash finds
// candidates, and the function equal decides. equal is called under the set's lock and must only
// compare.
//
// An unused value keeps its entry until the garbage collector finds it; the set has no other bound.
// A WeakSet is safe for concurrent use. The zero value is an empty set.
type WeakSet[T any] struct {
	mu      sync.Mutex
	entries map[uint64][]weak.Pointer[T]
	peak    int // largest len(entries) since the map was made: a map never shrinks
}

// Find returns the value with hash h for which equal is true; nil if there is none.
func (s *WeakSet[T]) Find(h uint64, equal func(*T) bool) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(h, equal)
}

func (s *WeakSet[T]) find(h uint64, equal func(*T) bool) *T {
	for _, w := range s.entries[h] {
		if v := w.Value(); v != nil && equal(v) {
			return v
		}
	}
	return nil
}

// Keep adds v with hash h and returns it. If the set has a value for which equal is true, it
// returns that one instead. v must be in no other set.
func (s *WeakSet[T]) Keep(h uint64, v *T, equal func(*T) bool) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.find(h, equal); have != nil {
		return have
	}
	if s.entries == nil {
		s.entries = make(map[uint64][]weak.Pointer[T])
	}
	s.entries[h] = append(s.entries[h], weak.Make(v))
	s.peak = max(s.peak, len(s.entries))
	// The cleanup refers to the set weakly. Otherwise v would keep the owner of the set alive, and
	// with it v, if the owner refers to v.
	runtime.AddCleanup(v, sweep[T], unusedEntry[T]{weak.Make(s), h})
	return v
}

// unusedEntry is a hash of a set whose value is no longer in use.
type unusedEntry[T any] struct {
	set  weak.Pointer[WeakSet[T]]
	hash uint64
}

func sweep[T any](e unusedEntry[T]) {
	if s := e.set.Value(); s != nil {
		s.sweep(e.hash)
	}
}

// sweep removes the unused values with hash h.
func (s *WeakSet[T]) sweep(h uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(s.entries[h], func(w weak.Pointer[T]) bool { return w.Value() == nil })
	if len(left) == 0 {
		delete(s.entries, h)
		if n := len(s.entries); n < s.peak/8 {
			s.entries, s.peak = maps.Collect(maps.All(s.entries)), n // shrink the map after a burst
		}
	} else {
		s.entries[h] = left
	}
}

// Len returns the number of distinct hashes of the values.
func (s *WeakSet[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}
