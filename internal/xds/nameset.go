package xds

import (
	"hash/maphash"
	"iter"
	"slices"
	"strings"
)

// NameSet is an immutable, sorted set of names, cut into chunks. The names themselves decide the
// boundaries of the chunks. Sets that differ in a few names share all other chunks, whatever their
// history. Adding one name therefore copies one chunk, and Diff skips shared chunks.
//
// A nil *NameSet is the empty set.
type NameSet struct {
	chunks []*Chunk
	sum    uint64 // sum of the names' hashes
	n      int
	weight int // sum of the names' weights
}

// Chunk is a sorted run of names that one or more NameSets share. An index from names to sets
// identifies a chunk by its address, and keeps one entry per chunk.
type Chunk struct {
	first  string // of names, to find a chunk without reading the memory of names
	names  []string
	sum    uint64
	weight int
}

const (
	// A chunk ends after a name whose hash has these bits zero: 64 names on average. The hash has a
	// random seed, so a client cannot choose the boundaries.
	boundary = 63
	maxChunk = 512
)

var nameSeed = maphash.MakeSeed()

func hashName(s string) uint64 { return maphash.String(nameSeed, s) }

// NewNameSet returns the set of names; duplicates count once. It neither keeps nor changes the
// slice.
func NewNameSet(names ...string) *NameSet {
	return (*NameSet)(nil).Add(names...)
}

// Len returns the number of names.
func (s *NameSet) Len() int {
	if s == nil {
		return 0
	}
	return s.n
}

// NameUnit is the length in bytes up to which a name counts as one name.
const NameUnit = 256

// NameWeight returns how much a name of this length, in bytes, counts against a limit on names. It
// is one for each NameUnit that the name begins, and at least one. A limit on names thereby limits
// bytes.
func NameWeight(bytes int) int { return 1 + max(0, bytes-1)/NameUnit }

// VersionedWeight returns how much a name with a version counts, given both lengths in bytes. A
// version shorter than NameUnit adds nothing. A client may thus send the versions of all names that
// it may subscribe to.
func VersionedWeight(name, version int) int { return NameWeight(name) + version/NameUnit }

// Weight returns the sum of the names' weights.
func (s *NameSet) Weight() int {
	if s == nil {
		return 0
	}
	return s.weight
}

// Sum returns a hash of the set. Equal sets have equal sums within one process. Use it to find
// candidates, and Equal to compare them.
func (s *NameSet) Sum() uint64 {
	if s == nil {
		return 0
	}
	return s.sum
}

// Chunks returns the set's chunks in order. Callers must not change the slice.
func (s *NameSet) Chunks() []*Chunk {
	if s == nil {
		return nil
	}
	return s.chunks
}

// Names returns the chunk's names, sorted. Callers must not change the slice.
func (c *Chunk) Names() []string { return c.names }

// Has reports whether name is in the set.
func (s *NameSet) Has(name string) bool {
	if s.Len() == 0 {
		return false
	}
	c := s.chunks[s.chunkOf(name)]
	_, ok := slices.BinarySearch(c.names, name)
	return ok
}

// chunkOf returns the index of the chunk that has name or would have it. It is the last chunk whose
// first name is not greater, or the first chunk.
func (s *NameSet) chunkOf(name string) int {
	i, ok := slices.BinarySearchFunc(s.chunks, name, func(c *Chunk, n string) int {
		return strings.Compare(c.first, n)
	})
	if ok || i == 0 {
		return i
	}
	return i - 1
}

// All yields the names in order.
func (s *NameSet) All() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, c := range s.Chunks() {
			for _, n := range c.names {
				if !yield(n) {
					return
				}
			}
		}
	}
}

// Equal reports whether both sets have the same names. It compares the names of chunks that are not
// shared.
func (s *NameSet) Equal(o *NameSet) bool {
	if s == o {
		return true
	}
	if s.Len() != o.Len() || s.Sum() != o.Sum() {
		return false
	}
	if len(s.Chunks()) == len(o.Chunks()) {
		same := true
		for i, c := range s.Chunks() {
			if c != o.chunks[i] && !slices.Equal(c.names, o.chunks[i].names) {
				same = false
				break
			}
		}
		if same {
			return true
		}
	}
	for range s.Diff(o) {
		return false
	}
	return true
}

// Add returns the set with these names added. It returns s itself if s has them all.
func (s *NameSet) Add(names ...string) *NameSet {
	added := make([]string, 0, len(names))
	for _, n := range names {
		if !s.Has(n) {
			added = append(added, n)
		}
	}
	if len(added) == 0 {
		return s
	}
	slices.Sort(added)
	return s.edit(slices.Compact(added), nil)
}

// Remove returns the set without these names. It returns s itself if s has none of them.
func (s *NameSet) Remove(names ...string) *NameSet {
	removed := make([]string, 0, len(names))
	for _, n := range names {
		if s.Has(n) {
			removed = append(removed, n)
		}
	}
	if len(removed) == 0 {
		return s
	}
	slices.Sort(removed)
	return s.edit(nil, slices.Compact(removed))
}

// edit returns the set with add put in and drop left out. Both are sorted; s has no name of add and
// all names of drop. It rebuilds the chunks that they fall into and keeps all others.
func (s *NameSet) edit(add, drop []string) *NameSet {
	out := &NameSet{n: s.Len() + len(add) - len(drop)}
	if out.n == 0 {
		return nil
	}
	old := s.Chunks()
	out.chunks = make([]*Chunk, 0, len(old)+1)
	var carry []string // names of a chunk that has not ended
	for i := 0; i < len(old) || len(add) > 0 || len(carry) > 0; i++ {
		if next := s.firstEditedChunk(add, drop); next > i && len(carry) == 0 {
			for _, c := range old[i:next] {
				out.sum += c.sum
				out.weight += c.weight
			}
			out.chunks = append(out.chunks, old[i:next]...)
			i = next - 1
			continue
		}
		var here, names []string
		if i < len(old) {
			// This chunk gets all names below the first name of the next chunk.
			addEnd, dropEnd := len(add), len(drop)
			if i+1 < len(old) {
				next := old[i+1].names[0]
				addEnd, _ = slices.BinarySearch(add, next)
				dropEnd, _ = slices.BinarySearch(drop, next)
			}
			here = old[i].names
			names = merge(carry, here, add[:addEnd], drop[:dropEnd])
			add, drop = add[addEnd:], drop[dropEnd:]
		} else {
			names = merge(carry, nil, add, nil)
			add = nil
		}
		carry = out.appendChunks(names, i >= len(old)-1)
	}
	return out
}

// firstEditedChunk returns the index of the first chunk that a name of add or drop falls into. If
// both are empty, it returns the number of chunks.
func (s *NameSet) firstEditedChunk(add, drop []string) int {
	first := len(s.Chunks())
	for _, names := range [...][]string{add, drop} {
		if first > 0 && len(names) > 0 {
			first = min(first, s.chunkOf(names[0]))
		}
	}
	return first
}

// appendChunks cuts names into chunks and appends them to s. It returns the names after the last
// boundary; if last is set, they become a chunk too.
func (s *NameSet) appendChunks(names []string, last bool) []string {
	start, sum, weight := 0, uint64(0), 0
	for i, n := range names {
		h := hashName(n)
		sum += h
		weight += NameWeight(len(n))
		if h&boundary == 0 || i+1-start == maxChunk || last && i+1 == len(names) {
			s.chunks = append(s.chunks, &Chunk{first: names[start], names: slices.Clone(names[start : i+1]), sum: sum, weight: weight})
			s.sum += sum
			s.weight += weight
			start, sum, weight = i+1, 0, 0
		}
	}
	return names[start:]
}

// merge returns carry, then the names of here with add put in and drop left out, sorted.
func merge(carry, here, add, drop []string) []string {
	out := make([]string, 0, len(carry)+len(here)+len(add)-len(drop))
	out = append(out, carry...)
	for _, n := range here {
		for len(add) > 0 && add[0] < n {
			out, add = append(out, add[0]), add[1:]
		}
		if len(drop) > 0 && drop[0] == n {
			drop = drop[1:]
			continue
		}
		out = append(out, n)
	}
	return append(out, add...)
}

// Diff yields the names that only one of the two sets has, in order. The value is true for a name
// of o and false for a name of s. It skips shared chunks.
func (s *NameSet) Diff(o *NameSet) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		a, b := cursor{chunks: s.Chunks()}, cursor{chunks: o.Chunks()}
		for {
			if a.at == 0 && b.at == 0 && len(a.chunks) > 0 && len(b.chunks) > 0 && a.chunks[0] == b.chunks[0] {
				a.chunks, b.chunks = a.chunks[1:], b.chunks[1:]
				continue
			}
			x, okx := a.peek()
			y, oky := b.peek()
			switch {
			case !okx && !oky:
				return
			case okx && oky && x == y:
				a.next()
				b.next()
			case !oky || okx && x < y:
				a.next()
				if !yield(x, false) {
					return
				}
			default:
				b.next()
				if !yield(y, true) {
					return
				}
			}
		}
	}
}

// cursor walks the names of a list of chunks in order.
type cursor struct {
	chunks []*Chunk
	at     int
}

func (c *cursor) peek() (string, bool) {
	if len(c.chunks) == 0 {
		return "", false
	}
	return c.chunks[0].names[c.at], true
}

func (c *cursor) next() {
	if c.at++; c.at == len(c.chunks[0].names) {
		c.chunks, c.at = c.chunks[1:], 0
	}
}
