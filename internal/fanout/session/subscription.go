package session

import (
	"slices"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// wildcard is the name that subscribes to whatever the origin thinks the node needs (P21).
const wildcard = "*"

// subscription is what the client asks for, by its requests. requested and effective differ only in
// SotW, and only after a stale request.
type subscription struct {
	requested *snapshot.Subscription // by the newest request, stale or not; the group is given it (P12)
	effective *snapshot.Subscription // by the last request that was not stale; responses follow it
	// SotW: hash and length of the newest list of names, to recognise a repeated list.
	listHash uint64
	listLen  uint32
	began    bool   // a request has come (P11)
	named    bool   // a name was ever given (P21)
	resumes  bool   // the first request had versions of another stream (P27, P66)
	knownIn  uint64 // lineage in which the origin has answered all of it, as Survey found; 0: none
}

// Subscribe returns what the client asks for after the request, and whether that differs from
// before. It changes nothing: the caller interns the result and passes it to Request. P20 says how
// names are listed, added and removed, and P21 when the wildcard is subscribed.
func (s *Session) Subscribe(r *xds.Request) (*snapshot.Subscription, bool) {
	if s.form.Variant == xds.SotW {
		return s.sub.fromList(r, &s.Type)
	}
	return s.sub.fromDelta(r, &s.Type, &s.delivered)
}

// follow makes responses follow want from now on.
func (sub *subscription) follow(want *snapshot.Subscription) {
	if want != sub.effective {
		sub.knownIn = 0
	}
	sub.effective = want
}

// update records a request and the subscription after it. It reports whether the request is the
// first.
func (sub *subscription) update(r *xds.Request, want *snapshot.Subscription, v xds.Variant) (first bool) {
	first = !sub.began
	sub.resumes = sub.bringsVersions(r, v)
	sub.began = true
	sub.named = sub.named || len(r.Names) > 0
	sub.requested = want
	sub.listHash, sub.listLen = r.NamesSum, uint32(len(r.Names))
	return first
}

// bringsVersions reports whether the first request, which r may be, has versions of another stream:
// initial_resource_versions in delta, version_info in SotW.
func (sub *subscription) bringsVersions(r *xds.Request, v xds.Variant) bool {
	switch {
	case sub.began:
		return sub.resumes
	case v == xds.SotW:
		return len(r.Version) > 0
	}
	return len(r.Initial) > 0
}

// fromList is the subscription after a SotW request, and whether it differs from before. Each
// request lists all names (P20). An empty list is the wildcard until a name was given, for types
// that have a legacy wildcard. Otherwise it is no interest (P21).
func (sub *subscription) fromList(r *xds.Request, t *xds.Type) (*snapshot.Subscription, bool) {
	if sub.began && r.NamesSum == sub.listHash && uint32(len(r.Names)) == sub.listLen {
		return sub.requested, false // an ACK that repeats a thousand names costs one hash
	}
	if len(r.Names) == 0 {
		if sub.named || t.NoLegacyWildcard {
			return snapshot.Nothing, !sub.requested.Empty()
		}
		return &snapshot.Subscription{Wildcard: true, Resumed: sub.bringsVersions(r, xds.SotW)}, !sub.began
	}
	next := &snapshot.Subscription{Wildcard: contains(r.Names, wildcard), Resumed: sub.bringsVersions(r, xds.SotW), Names: xds.NewNameSet(plainNames(r.Names)...)}
	if next.Equal(sub.requested) {
		return sub.requested, false // the same names in another order
	}
	return next, true
}

// fromDelta is the subscription after a delta request, and whether it differs from before. Names
// are added, then removed (P20). The wildcard is "*". A first request without any names is the
// wildcard too, for types that have a legacy wildcard. It ends only when "*" is unsubscribed (P21).
func (sub *subscription) fromDelta(r *xds.Request, t *xds.Type, d *delivered) (*snapshot.Subscription, bool) {
	empty := len(r.Names) == 0 && len(r.Unsubscribe) == 0
	if sub.began && empty {
		return sub.requested, false
	}
	next := snapshot.Subscription{Wildcard: sub.requested.Wildcard, Resumed: sub.bringsVersions(r, xds.Delta), Names: sub.requested.Names}
	if empty {
		next.Wildcard = !t.NoLegacyWildcard
	}
	next.Wildcard = next.Wildcard || contains(r.Names, wildcard)
	next.Names = next.Names.Add(plainNames(r.Names)...)
	next.Wildcard = next.Wildcard && !contains(r.Unsubscribe, wildcard)
	next.Names = next.Names.Remove(sub.unsubscribed(next.Names, plainNames(r.Unsubscribe), d)...)
	if next.Equal(sub.requested) {
		return sub.requested, false
	}
	return &next, true
}

// unsubscribed are the names that a client gives up when it unsubscribes from some (P26). A name
// that was subscribed is given up itself. Any other name may identify one resource that the client
// has: then those of that resource's names are given up by which it was subscribed. A glob stays,
// since it subscribes to more than this resource. So does an alias that leads to another resource
// as well.
func (sub *subscription) unsubscribed(names *xds.NameSet, unsubscribed []string, d *delivered) []string {
	out, done := unsubscribed, map[string]bool{}
	var ahead map[string]string // see delivered.namesBeforeACK
	for _, u := range unsubscribed {
		if names.Len() == 0 || names.Has(u) {
			continue
		}
		name, sole := d.snapshot.OnlyNameFor(u)
		if !sole {
			if ahead == nil {
				ahead = d.namesBeforeACK()
			}
			name = ahead[u]
		}
		if name == "" || done[name] {
			continue
		}
		done[name] = true
		r, is := d.look(sub.effective, name)
		if is != snapshot.Present {
			continue
		}
		if names.Has(r.Name) {
			out = append(out, r.Name)
		}
		glob := xds.Glob(r.Name)
		for _, h := range r.AliasesAndGlob() {
			if !names.Has(h) || h == glob {
				continue
			}
			if of, one := d.snapshot.OnlyNameFor(h); one && of == name || !one && ahead[h] == name {
				out = append(out, h)
			}
		}
	}
	return out
}

func contains(names [][]byte, name string) bool {
	return slices.ContainsFunc(names, func(n []byte) bool { return string(n) == name })
}

// plainNames are the names except the wildcard.
func plainNames(names [][]byte) []string {
	plain := make([]string, 0, len(names))
	for _, n := range names {
		if string(n) != wildcard {
			plain = append(plain, string(n))
		}
	}
	return plain
}

// answerUnsubscribed has the end of a name's subscription beside the wildcard answered (P24). The
// session remembers the name until then.
func (s *Session) answerUnsubscribed(name string) {
	s.forced.weight += xds.NameWeight(len(name))
	s.forced.add(name, asked)
}

// wildcardEnded follows the end of the wildcard. was is the subscription by which the client was
// sent what it has.
//
// The client was sent the wildcard's copies of what it goes on to ask for by name. Where the copy
// for the names differs, or there is none, the next response says so (P50). A full-state set that
// the client refused would have been followed by another full set. Now the refusal has to remember
// what the set held (P15).
func (s *Session) wildcardEnded(was *snapshot.Subscription) {
	at, sub := s.delivered.snapshot, s.sub.effective
	if at == nil || !was.Wildcard {
		return
	}
	var kept []string
	names := withHandles(at, slices.Collect(sub.Names.All()))
	sortUnique(&names)
	for _, name := range names {
		had, then := at.Look(was, name)
		if then != snapshot.Present {
			continue
		}
		kept = append(kept, name)
		if has, is := at.Look(sub, name); is != snapshot.Pending && (is != snapshot.Present || !s.form.Same(has, had)) {
			s.forced.add(name, repeated)
		}
	}
	if s.form.Variant == xds.SotW && s.refusals.lastAnswer && !s.fullState() && len(kept) > 0 {
		byHandle := slices.DeleteFunc(slices.Clone(kept), sub.Names.Has)
		s.refusals.list = append(s.refusals.list, refusal{names: kept, byHandle: byHandle, gen: at.Gen})
	}
}
