package xds

import (
	"hash/maphash"
	"iter"
	"slices"
	"strings"
)

// NameSet is an immutable, sorted set of names, cut into chunks at boundaries
// that the names themselves decide. Sets that differ by a few names share all
// other chunks, whatever the history, so growing a set one name at a time
// copies one chunk, and comparing two generations of it skips what they share.
//
// The zero *NameSet (nil) is the empty set.
type NameSet struct {
	chunks []*Chunk
	sum    uint64 // sum of the names' hashes: the same for equal sets
	n      int
	weight int // sum of the names' weights
}

// Chunk is a run of names of one or more NameSets, sorted. Its identity is its
// address: an index from names to sets keeps one entry per chunk.
type Chunk struct {
	names  []string
	sum    uint64
	weight int
}

const (
	// A chunk ends after a name whose hash has these bits zero: 64 names on
	// average. The hash is seeded, so that no client can choose its chunks.
	boundary = 63
	maxChunk = 512
)

var nameSeed = maphash.MakeSeed()

func hashName(s string) uint64 { return maphash.String(nameSeed, s) }

// NewNameSet makes the set of names; duplicates count once. The slice is
// neither kept nor changed.
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

// NameUnit is how long a name may be that counts as one, in bytes.
const NameUnit = 256

// NameWeight is what a name of so many bytes counts for where names are limited: one,
// and if it is longer than most, one for each NameUnit that it begins. So a limit of
// names is one of bytes.
func NameWeight(bytes int) int { return 1 + max(0, bytes-1)/NameUnit }

// VersionedWeight is what a name with a version counts for: as much as the name does, but
// for a version that is long itself. Who may ask for a name may bring it.
func VersionedWeight(name, version int) int { return NameWeight(name) + version/NameUnit }

// Weight returns the sum of the names' weights.
func (s *NameSet) Weight() int {
	if s == nil {
		return 0
	}
	return s.weight
}

// Sum is a hash of the set, equal for equal sets within one process. It finds
// candidates; Equal decides.
func (s *NameSet) Sum() uint64 {
	if s == nil {
		return 0
	}
	return s.sum
}

// Chunks returns the set's chunks in order; not to be changed.
func (s *NameSet) Chunks() []*Chunk {
	if s == nil {
		return nil
	}
	return s.chunks
}

// Names returns the chunk's names, sorted; not to be changed.
func (c *Chunk) Names() []string { return c.names }

// Has reports whether name is in the set.
func (s *NameSet) Has(name string) bool {
	if s.Len() == 0 {
		return false
	}
	c := s.chunks[s.find(name)]
	_, ok := slices.BinarySearch(c.names, name)
	return ok
}

// find returns the chunk in which name is or would be: the last whose first
// name is not greater, or the first one.
func (s *NameSet) find(name string) int {
	i, ok := slices.BinarySearchFunc(s.chunks, name, func(c *Chunk, n string) int {
		return strings.Compare(c.names[0], n)
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

// Equal reports whether both sets hold the same names, comparing bytes where
// the chunks are not shared.
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

// Add returns the set with names added; s itself if it has them all.
func (s *NameSet) Add(names ...string) *NameSet {
	fresh := make([]string, 0, len(names))
	for _, n := range names {
		if !s.Has(n) {
			fresh = append(fresh, n)
		}
	}
	if len(fresh) == 0 {
		return s
	}
	slices.Sort(fresh)
	return s.edit(slices.Compact(fresh), nil)
}

// Remove returns the set without names; s itself if it has none of them.
func (s *NameSet) Remove(names ...string) *NameSet {
	gone := make([]string, 0, len(names))
	for _, n := range names {
		if s.Has(n) {
			gone = append(gone, n)
		}
	}
	if len(gone) == 0 {
		return s
	}
	slices.Sort(gone)
	return s.edit(nil, slices.Compact(gone))
}

// edit rebuilds the chunks that add and drop (sorted, disjoint from and
// contained in s respectively) fall into, and keeps all others.
func (s *NameSet) edit(add, drop []string) *NameSet {
	out := &NameSet{n: s.Len() + len(add) - len(drop)}
	if out.n == 0 {
		return nil
	}
	old := s.Chunks()
	out.chunks = make([]*Chunk, 0, len(old)+1)
	var carry []string // names of an unfinished chunk
	for i := 0; i < len(old) || len(add) > 0 || len(carry) > 0; i++ {
		if next := s.firstEdit(add, drop); next > i && len(carry) == 0 {
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
			// What belongs here: everything below the next chunk's first name.
			end, gone := len(add), len(drop)
			if i+1 < len(old) {
				next := old[i+1].names[0]
				end, _ = slices.BinarySearch(add, next)
				gone, _ = slices.BinarySearch(drop, next)
			}
			here = old[i].names
			names = merge(carry, here, add[:end], drop[:gone])
			add, drop = add[end:], drop[gone:]
		} else {
			names = merge(carry, nil, add, nil)
			add = nil
		}
		carry = out.cut(names, i >= len(old)-1)
	}
	return out
}

// firstEdit returns the first chunk that the first of add and drop falls into;
// past the last one if both are empty.
func (s *NameSet) firstEdit(add, drop []string) int {
	first := len(s.Chunks())
	for _, names := range [...][]string{add, drop} {
		if first > 0 && len(names) > 0 {
			first = min(first, s.find(names[0]))
		}
	}
	return first
}

// cut appends the chunks of names and returns what is left unfinished, nothing
// if last.
func (s *NameSet) cut(names []string, last bool) []string {
	start, sum, weight := 0, uint64(0), 0
	for i, n := range names {
		h := hashName(n)
		sum += h
		weight += NameWeight(len(n))
		if h&boundary == 0 || i+1-start == maxChunk || last && i+1 == len(names) {
			s.chunks = append(s.chunks, &Chunk{names: slices.Clone(names[start : i+1]), sum: sum, weight: weight})
			s.sum += sum
			s.weight += weight
			start, sum, weight = i+1, 0, 0
		}
	}
	return names[start:]
}

// merge returns carry, then here with add put in and drop left out, sorted.
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

// Diff yields the names in which the two sets differ, in order, with true for
// one that only o has and false for one that only s has. Shared chunks are
// skipped.
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

// cursor walks chunks name by name.
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
