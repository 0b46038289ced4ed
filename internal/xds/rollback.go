package xds

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// parts are those of a type in which a version came (P50). Where there are two, each
// comes on a stream of its own, with versions that the origin may count apart.
type parts uint32

const (
	wildPart parts = 1 << iota
	namedPart
)

// by is the part in which the newest version came.
func (s *Snapshot) by() parts {
	if s.byWild {
		return wildPart
	}
	return namedPart
}

// there are the parts of which the origin's word is held.
func (s *Snapshot) there() (p parts) {
	if s.Answered {
		p |= wildPart
	}
	if s.answers > 0 {
		p |= namedPart
	}
	return p
}

// word is what was said of a name in a part: the beginning of the content's version,
// or one of these.
type word uint64

const (
	unsaid word = iota
	saidNone
	saidSome // and above
)

func (p Part) word(name string) word {
	switch r := p.of(p.snap.get(name)); {
	case there(r):
		return max(word(binary.BigEndian.Uint64(r.Version[:])), saidSome)
	case p.wild && r == nil && p.snap.answered(), !p.wild && r == gone:
		return saidNone
	}
	return unsaid
}

// replacement is what a version put in the place of what.
type replacement struct {
	name    string
	wild    bool
	was, is word
}

// replacementCost is what one costs, in bytes, beside its name.
const replacementCost = 48

// in is the part of the type.
func (r *replacement) in() parts {
	if r.wild {
		return wildPart
	}
	return namedPart
}

func (r *replacement) compare(o replacement) int {
	return cmp.Or(cmp.Compare(r.name, o.name), btoi(r.wild)-btoi(o.wild))
}

// Replace notes what s, which is of this version, put in the place of what prev had
// under names, in so many bytes at most, but one name always; and returns how many
// more bytes it is. Of a version that came in parts it is what it made of what was
// before all of them. Of what was not spoken of before only that is noted: nobody had it.
func (r *Rollout) Replace(prev, s *Snapshot, names []string, most int) (more int) {
	if prev == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	had := r.bytes
	for _, name := range names {
		for _, wild := range []bool{false, true} {
			one := replacement{name: name, wild: wild}
			at, known := slices.BinarySearchFunc(r.replaced, one, func(a, b replacement) int { return a.compare(b) })
			cost := replacementCost + len(name)
			full := !known && r.bytes > 0 && r.bytes+cost > most
			one.was, one.is = prev.Part(wild).word(name), s.Part(wild).word(name)
			if !known && one.was == unsaid && one.is >= saidSome && r.First == s.Gen { // else who asks has it come
				r.added |= one.in()
			}
			switch {
			case one.was == one.is || one.is == unsaid:
			case known:
				r.replaced[at].is = one.is
			case one.was != unsaid && !full:
				r.replaced = slices.Insert(r.replaced, at, one)
				r.bytes += cost
			}
		}
	}
	return r.bytes - had
}

// Forget lets go of what it replaced, and returns how many bytes that was.
func (r *Rollout) Forget() (bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	bytes, r.replaced, r.bytes = r.bytes, nil, 0
	return bytes
}

// effects are what it replaced in these parts by something else.
func (r *Rollout) effects(in parts) []replacement {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []replacement
	for _, one := range r.replaced {
		if one.in()&in != 0 && one.was != one.is {
			out = append(out, one)
		}
	}
	return out
}

// Uproot notes that what came before it is forgotten, though what came before that is
// not.
func (r *Rollout) Uproot() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rootless = true
}

// inherits reports whether it did nothing of its own in these parts, so that what the one
// before it did is what it stands for.
func (r *Rollout) inherits(in parts) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.rootless && r.added&in == 0
}

// knew reports whether it had this of the name, or replaced it.
func (r *Rollout) knew(name string, wild bool, w word) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := replacement{name: name, wild: wild}
	at, known := slices.BinarySearchFunc(r.replaced, one, func(a, b replacement) int { return a.compare(b) })
	return known && (r.replaced[at].was == w || r.replaced[at].is == w)
}

func (r *Rollout) in() parts { return parts(r.parts.Load()) }

// Superseding is the newest version that came in the place of all[at]; nil: none did.
// all are those of a type, the newest first. A version of the other part is in
// nobody's place, but where nothing of this part is held any more.
func Superseding(all []*Rollout, at int, now *Snapshot) *Rollout {
	of := all[at].in()
	for _, r := range all[:at] {
		if r.in()&of != 0 || of&now.there() == 0 {
			return r
		}
	}
	return nil
}

// TakenBack reports whether the version all[at], which is superseded, was taken back:
// whether who has what is held now has less than it. That is so if
//   - anything that it replaced is again as it was at some time before it, whatever
//     the versions are called: rollbacks may have a new name, and come in parts. Of a
//     version that replaced and added nothing, what the one before it replaced
//     counts; or
//   - the version in its place is called as one before it, and any in its place
//     replaced anything. That finds a rollback of names that nobody asked for before.
//
// All this is within the parts in which it came. Whole contents are not compared:
// of types that are asked for by name they change with who asks, and of a rollback
// that comes in parts the first is like nothing. So what an origin undoes by the way
// takes back as well; what it makes anew does not. What was before all of the
// versions here is not known, and of one that replaced more than Replace may note,
// the rest.
func TakenBack(all []*Rollout, at int, now *Snapshot) bool {
	v := all[at]
	by := Superseding(all, at, now)
	if by == nil {
		return false
	}
	of := v.in()
	if named := by.in() & of; by.Given != "" && by.Given != v.Given && named != 0 &&
		slices.ContainsFunc(all[at+1:], func(r *Rollout) bool { return r.in()&named != 0 && r.Given == by.Given }) &&
		slices.ContainsFunc(all[:at], func(r *Rollout) bool { return len(r.effects(named)) > 0 }) {
		return true
	}
	for i, r := range all[at:] {
		did := r.effects(of)
		if len(did) == 0 {
			if !r.inherits(of) {
				return false
			}
			continue
		}
		older := all[at+i+1:]
		return slices.ContainsFunc(did, func(one replacement) bool {
			is := now.Part(one.wild).word(one.name)
			return is != unsaid && is != one.is &&
				(is == one.was || slices.ContainsFunc(older, func(o *Rollout) bool { return o.knew(one.name, one.wild, is) }))
		})
	}
	return false
}
