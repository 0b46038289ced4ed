package session

import (
	"slices"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// refusals are what the client refused (NACKed) and still asks for.
type refusals struct {
	list       []refusal // oldest first, at most maxPendingACKs; nil: none
	lastAnswer bool      // the client's last answer was a NACK
}

// refusal is what a refused response held. None of it is sent again by itself. All of it is sent
// again when any of it changes, because the client may have applied nothing (P15).
type refusal struct {
	names []string // sorted
	// byHandle are those of the names that the client was given for an alias or a glob, sorted.
	// Once such a resource is gone, its name does not say whether the client still asks for it.
	byHandle []string
	manifest *Manifest // of the response; nil: not known
	gen      uint64    // of the response, the oldest of several
}

// maxRefused bounds the names of merged refusals. The origin decides what a wildcard covers, so
// over time these names have no other bound.
const maxRefused = 1 << 16

// clientView is what decides whether a client still asks for what it refused: what it asks for, and
// what it has by a snapshot.
type clientView struct {
	sub       *snapshot.Subscription
	delivered *delivered
	at        *snapshot.Snapshot
}

func (s *Session) view(at *snapshot.Snapshot) clientView {
	return clientView{s.sub.effective, &s.delivered, at}
}

// asksFor reports whether the client still asks for one of the names of a refusal, also by a
// handle. Once a resource is gone, its handles are not known. Then there is nothing left to send,
// unless its removal was what the client refused.
func (v clientView) asksFor(r *refusal, name string) bool {
	if v.sub.Covers(name) {
		return true
	}
	had := v.delivered.sentBeforeACK[name]
	if had == nil {
		had = v.at.Held(name)
	}
	if had != nil {
		return had.RequestedBy(v.sub.Names)
	}
	return r.cameByHandle(name) && r.removal(name) && !v.sub.Empty()
}

// asksForAny reports whether the client still asks for any name of a refusal.
func (v clientView) asksForAny(r *refusal) bool {
	return slices.ContainsFunc(r.names, func(n string) bool { return v.asksFor(r, n) })
}

// askedNames are the names of a refusal that the client still asks for, or may: r.names itself if
// that is all of them.
func (v clientView) askedNames(r *refusal) []string {
	dropped := func(n string) bool { return !v.asksFor(r, n) && (v.sub.Empty() || !r.cameByHandle(n)) }
	if !slices.ContainsFunc(r.names, dropped) {
		return r.names
	}
	return slices.DeleteFunc(slices.Clone(r.names), dropped)
}

// cameByHandle reports whether the client was given the name for an alias or a glob.
func (r *refusal) cameByHandle(name string) bool {
	_, is := slices.BinarySearch(r.byHandle, name)
	return is
}

// removal reports whether the client refused, as far as it is known, that the name was removed.
func (r *refusal) removal(name string) bool {
	if r.manifest == nil {
		return true
	}
	v, _ := r.manifest.version(name)
	return v == xds.Version{}
}

// includes reports whether name was in a refused response.
func (rs *refusals) includes(name string) bool {
	return slices.ContainsFunc(rs.list, func(r refusal) bool { return slices.Contains(r.names, name) })
}

// refuse remembers what the refused response held, as far as the client still asks for it. later
// are the responses that were sent after it without waiting for its answer (P19).
//
// A full-state SotW response held everything, and so does the next one: then no names are needed.
// If a later response already had a change of something in it, the next response has to include the
// rest: no further change may come to send it.
func (s *Session) refuse(f *pendingACK, later []pendingACK) {
	if s.fullState() || len(f.manifest.names) == 0 {
		return
	}
	ref := refusal{names: f.manifest.names, manifest: f.manifest, gen: f.of.Gen}
	if !f.sub.Wildcard {
		byHandle := func(n string) bool { return !f.sub.Names.Has(n) }
		if slices.ContainsFunc(ref.names, byHandle) {
			ref.byHandle = slices.DeleteFunc(slices.Clone(ref.names), func(n string) bool { return !byHandle(n) })
		}
	}
	now := s.view(s.delivered.snapshot)
	names := now.askedNames(&ref)
	if len(names) == 0 {
		return
	}
	changed, rest := sentSince(f.manifest, names, later)
	if changed {
		for _, n := range rest {
			s.forced.add(n, repeated)
		}
		return
	}
	ref.names = names
	s.refusals.add(ref, now)
}

// sentSince reports whether a later response had another version of any of the names, and which
// names no later response included.
func sentSince(refused *Manifest, names []string, later []pendingACK) (changed bool, rest []string) {
	for _, n := range names {
		was, _ := refused.version(n)
		sent := false
		for _, f := range later {
			if now, includes := f.manifest.version(n); includes {
				sent, changed = true, changed || now != was
			}
		}
		if !sent {
			rest = append(rest, n)
		}
	}
	return changed, rest
}

// add remembers a refusal. If there are too many, the two oldest become one: a change of either
// then sends both.
func (rs *refusals) add(r refusal, now clientView) {
	rs.list = append(rs.list, r)
	if len(rs.list) <= maxPendingACKs {
		return
	}
	a, b := &rs.list[0], &rs.list[1]
	both := refusal{names: slices.Concat(a.names, b.names), byHandle: slices.Concat(a.byHandle, b.byHandle), gen: min(a.gen, b.gen)}
	sortUnique(&both.names)
	sortUnique(&both.byHandle)
	both.names = now.askedNames(&both)
	both.names = both.names[:min(len(both.names), maxRefused)]
	both.byHandle = both.byHandle[:min(len(both.byHandle), maxRefused)]
	rs.list = slices.Delete(rs.list, 0, 1)
	rs.list[0] = both
}

// drop removes the refusals for which done says so.
func (rs *refusals) drop(done func(refusal) bool) {
	rs.list = slices.DeleteFunc(rs.list, done)
	if len(rs.list) == 0 {
		rs.list = nil
	}
}

// dropResent drops the refusals of which a response includes everything again. now is at the
// response's snapshot. Two kinds of names need not be in it: names that the client does not ask for
// any more, and in SotW names that are gone, since a response cannot say so.
func (rs *refusals) dropResent(now clientView, m *Manifest, v xds.Variant) {
	rs.drop(func(r refusal) bool {
		return !slices.ContainsFunc(r.names, func(n string) bool {
			if _, again := m.version(n); again || !now.asksFor(&r, n) {
				return false
			}
			_, is := now.at.Look(now.sub, n)
			return v == xds.Delta || is == snapshot.Present
		})
	})
}

// repeatRest follows a response that has another version of something that was refused, but not all
// of it, because a name was answered by itself (P19, P22–P24). The rest is forced into the next
// response: no further change may come to send it (P15).
func (rs *refusals) repeatRest(now clientView, p *Plan, m *Manifest, force *forced) {
	rs.drop(func(r refusal) bool {
		if r.manifest == nil || slices.ContainsFunc(p.resent, func(a refusal) bool { return a.manifest == r.manifest }) {
			return false
		}
		changed := slices.ContainsFunc(r.names, func(n string) bool {
			v, includes := m.version(n)
			was, included := r.manifest.version(n)
			return includes && included && v != was
		})
		if !changed {
			return false
		}
		for _, n := range r.names {
			if _, includes := m.version(n); !includes && now.asksFor(&r, n) {
				force.add(n, repeated)
			}
		}
		return true
	})
}

// dropDeleted drops the refusals of which nothing is left that a SotW client could be sent: a SotW
// response cannot say that a resource is gone (P31).
func (rs *refusals) dropDeleted(now clientView) {
	if len(rs.list) == 0 {
		return
	}
	rs.drop(func(r refusal) bool {
		return !slices.ContainsFunc(r.names, func(n string) bool {
			_, is := now.at.Look(now.sub, n)
			return is == snapshot.Present && now.asksFor(&r, n)
		})
	})
	if rs.list == nil {
		rs.lastAnswer = false
	}
}

// changed are the refusals of which one of the names, sorted, changed.
func (rs *refusals) changed(names []string) (hit []refusal) {
	for _, r := range rs.list {
		if slices.ContainsFunc(r.names, func(n string) bool {
			_, is := slices.BinarySearch(names, n)
			return is
		}) {
			hit = append(hit, r)
		}
	}
	return hit
}

// Refusing reports whether the client refused something that it still asks for.
func (s *Session) Refusing() bool {
	if s.sub.effective.Empty() {
		return false
	}
	if s.refusals.lastAnswer && s.fullState() {
		return true
	}
	now := s.view(s.delivered.snapshot)
	return slices.ContainsFunc(s.refusals.list, func(r refusal) bool { return now.asksForAny(&r) })
}

// RefusesNothing reports whether the client's last answer was an ACK, and no refusal is remembered.
func (s *Session) RefusesNothing() bool { return !s.refusals.lastAnswer && s.refusals.list == nil }

// RefusedNames is the newest generation of which the client refused something, and the refused
// names that it still asks for, sorted. At most limit names are collected, before duplicates are
// removed.
func (s *Session) RefusedNames(limit int) (gen uint64, names []string) {
	now := s.view(s.delivered.snapshot)
	for _, r := range s.refusals.list {
		gen = max(gen, r.gen)
		for _, name := range r.names {
			if now.asksFor(&r, name) && len(names) < limit {
				names = append(names, name)
			}
		}
	}
	sortUnique(&names)
	return gen, names
}
