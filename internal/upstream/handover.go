package upstream

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"xdsrelay/internal/xds"
)

// handOver hands over what is kept: answers, in the order in which one type refers
// to the other (P35). Each part is one update,
// which the group holds against what it has, so that only differences go on. It
// is called once.
//
// It reports whether there are strays of a wildcard: the origin was not told of
// them when it was asked, and so could not say that they are gone.
func (s *stage) handOver(held func(xds.TypeURL) *xds.Snapshot, update func(xds.Update) error) (astray bool, err error) {
	s.mu.Lock()
	s.state = handing
	s.mu.Unlock() // from here on nothing is kept any more
	strays := make(map[partOf]map[string]struct{})
	for _, at := range s.inOrder() {
		p := s.types[at.typ].parts[at.wild]
		if !p.answered {
			continue
		}
		part := held(at.typ).Part(at.wild)
		if names := s.astray(at, part); len(names) > 0 {
			strays[at] = names
			astray = astray || at.wild
		}
		if err := update(s.update(at, part)); err != nil {
			return false, err
		}
	}
	s.mu.Lock()
	s.state, s.types, s.interest, s.strays = direct, nil, nil, strays
	s.mu.Unlock()
	close(s.live)
	return astray, nil
}

// inOrder are the parts of which anything was said.
func (s *stage) inOrder() (parts []partOf) {
	for typ, t := range s.types {
		for wild := range t.parts {
			parts = append(parts, partOf{typ, wild})
		}
	}
	slices.SortFunc(parts, func(a, b partOf) int {
		return cmp.Or(cmp.Compare(xds.TypeOf(a.typ).Order, xds.TypeOf(b.typ).Order), strings.Compare(string(a.typ), string(b.typ)))
	})
	return parts
}

// update is what the origin said of a part, for who holds this. It is what came
// of all that was said, in its order: a handle that was withdrawn leads nowhere,
// whatever its resource lists.
func (s *stage) update(at partOf, held xds.Part) xds.Update {
	t := s.types[at.typ]
	p, is := t.parts[at.wild], t.held.Part(at.wild)
	u := xds.Update{Type: at.typ, Wildcard: at.wild, Version: p.version, Unversioned: p.unversioned, Received: p.received, TakesOver: true}
	for _, n := range slices.Sorted(maps.Keys(p.names)) {
		if r := is.Held(n); r != nil {
			u.Changed = append(u.Changed, r)
		} else if !is.Answers(n) {
			u.Removed = append(u.Removed, n)
		}
	}
	u.Removed = slices.AppendSeq(u.Removed, is.Stated)
	if p.whole != nil {
		u.Removed = append(u.Removed, p.whole.leftOut(is, held)...)
	}
	slices.Sort(u.Removed)
	u.Removed = slices.Compact(u.Removed)
	u.Errors = slices.Collect(is.Errors)
	u.Unresolved = slices.Collect(is.Unresolved)
	return u
}

// leftOut are the names held, or once held, of which the origin, that said all
// there is of a, has nothing: what was held as it was asked it has taken away, and
// this came since.
func (a *asked) leftOut(is, held xds.Part) (names []string) {
	known := make(map[string]bool) // though it has lapsed since
	for n := range is.Lapsed {
		known[n] = true
	}
	left := func(name string) bool { return is.Held(name) == nil && is.Error(name) == nil && !known[name] }
	for r := range held.Resources {
		if left(r.Name) && (a.wildcard || r.AskedBy(a.names)) {
			names = append(names, r.Name)
		}
	}
	for n := range held.Lapsed {
		if left(n) && (a.wildcard || held.Asked(n, a.names)) {
			names = append(names, n)
		}
	}
	return names
}

// astray are the strays of a part. Of names only incremental has versions, by
// which it matters whose they are.
func (s *stage) astray(at partOf, held xds.Part) map[string]struct{} {
	t := s.types[at.typ]
	p, is := t.parts[at.wild], t.held.Part(at.wild)
	if p.whole != nil || !at.wild && s.variant == xds.SotW {
		return nil
	}
	names := make(map[string]struct{})
	for r := range held.Resources {
		if _, said := p.names[r.Name]; !said && (!at.wild || is.Held(r.Name) == nil) {
			names[r.Name] = struct{}{}
		}
	}
	if at.wild { // and what clients may still hold of what has lapsed since
		lapsed := make(map[string]bool)
		for n := range is.Lapsed {
			lapsed[n] = true
		}
		for n := range held.Lapsed {
			if _, said := p.names[n]; !said && !lapsed[n] && is.Held(n) == nil {
				names[n] = struct{}{}
			}
		}
	}
	return names
}

// find takes note that strays are given now, or gone. Under the lock.
func (s *stage) find(u *xds.Update) {
	at := partOf{u.Type, u.Wildcard}
	for _, r := range u.Changed {
		delete(s.strays[at], r.Name)
	}
	for _, n := range u.Removed {
		delete(s.strays[at], n)
	}
}

// remember has a line's memory know what is not its origin's (P55), before the
// next attempt, or another line, goes by it.
func (s *stage) remember(m memory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, names := range s.strays {
		if r := m[at.typ]; r != nil && r.wildcard == at.wild {
			r.foreign = r.foreign.Add(slices.Collect(maps.Keys(names))...)
		}
	}
	s.strays = nil
}
