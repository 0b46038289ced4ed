package xds

import (
	"encoding/binary"
	"strings"
)

// Spelling is how names were written whose canonical form is another (P28). It
// is immutable; like a NameSet it shares what it can with the one that it was
// made from. The zero Spelling has none: everything is written as it is.
type Spelling struct {
	// pairs are, one in each string: the length of the canonical name in two
	// bytes, that name, and what was written. So a name's pair is found by how it
	// begins.
	pairs *NameSet
}

// pairOf is how the pair of a canonical name begins.
func pairOf(name string) string {
	var n [2]byte
	binary.BigEndian.PutUint16(n[:], uint16(len(name))) // MaxNameBytes fits
	return string(n[:]) + name
}

// Len is how many names are written otherwise.
func (s Spelling) Len() int { return s.pairs.Len() }

// Of returns how a canonical name was written.
func (s Spelling) Of(name string) string {
	if s.pairs == nil || !strings.HasPrefix(name, scheme) {
		return name
	}
	begin := pairOf(name)
	if pair, ok := s.pairs.after(begin); ok && strings.HasPrefix(pair, begin) {
		return pair[len(begin):]
	}
	return name
}

// Equal reports whether both write all names alike.
func (s Spelling) Equal(o Spelling) bool { return s.pairs.Equal(o.pairs) }

// Sum is a hash, equal for equal spellings within one process.
func (s Spelling) Sum() uint64 { return s.pairs.Sum() }

// With returns the spelling in which names, each as it was written, are written
// so. Where a name is written in two ways, the later counts.
func (s Spelling) With(written ...string) Spelling {
	if len(written) == 0 {
		return s
	}
	var fresh, stale []string
	at := make(map[string]int)
	for _, w := range written {
		if !strings.HasPrefix(w, scheme) {
			continue
		}
		name := Canonical(w)
		if old := s.Of(name); old != name && old != w {
			stale = append(stale, pairOf(name)+old)
		}
		if i, twice := at[name]; twice {
			fresh[i] = "" // overtaken
		}
		if w != name {
			at[name] = len(fresh)
			fresh = append(fresh, pairOf(name)+w)
		} else {
			delete(at, name)
		}
	}
	if len(fresh) == 0 && len(stale) == 0 {
		return s
	}
	kept := fresh[:0]
	for _, p := range fresh {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return Spelling{s.pairs.Remove(stale...).Add(kept...)}
}

// From returns the spelling in which these canonical names are written as in o.
func (s Spelling) From(o Spelling, names ...string) Spelling {
	if s.pairs == nil && o.pairs == nil {
		return s
	}
	written := make([]string, len(names))
	for i, n := range names {
		written[i] = o.Of(n)
	}
	return s.With(written...)
}

// Without returns the spelling without these canonical names.
func (s Spelling) Without(names ...string) Spelling {
	if s.pairs == nil {
		return s
	}
	var stale []string
	for _, n := range names {
		if w := s.Of(n); w != n {
			stale = append(stale, pairOf(n)+w)
		}
	}
	return Spelling{s.pairs.Remove(stale...)}
}

// after returns the first name of the set that is not less than name.
func (s *NameSet) after(name string) (string, bool) {
	if s.Len() == 0 {
		return "", false
	}
	for i := s.find(name); i < len(s.chunks); i++ {
		names := s.chunks[i].names
		if names[len(names)-1] < name {
			continue
		}
		for _, n := range names {
			if n >= name {
				return n, true
			}
		}
	}
	return "", false
}
