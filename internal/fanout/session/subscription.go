package session

import (
	"slices"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// wildcard is the name that requests everything that the origin has for the node (P21).
const wildcard = "*"

// subscription is what the client requests. requested and effective differ only in SotW, and only
// after a stale request.
type subscription struct {
	requested *snapshot.Subscription // by the newest request, stale or not; the group gets it (P12)
	effective *snapshot.Subscription // by the last request that was not stale; responses are made for it
	list      xds.NameList           // SotW: the newest request's, to recognise it in the next one
	began     bool                   // the type has had a request (P11)
	named     bool                   // a request has named a resource (P21)
	relay     bool                   // the client is another relay, which always resumes; fixed
	resumes   bool                   // the first request stated what the client has (P27, P66)
	knownIn   uint64                 // lineage in which the origin answered all of it, as ComparisonCache found; 0: none
	compared  compared               // by ComparisonCache, last; zero: not since the subscription changed
}

// compared are two snapshots that have no difference for a client.
type compared struct{ from, to snapshot.ID }

// NameList is the list of names of the newest SotW request. The caller scans the next one with it.
func (s *Session) NameList() xds.NameList { return s.sub.list }

// Subscribe returns what the client requests after r, and whether that differs from before. It
// changes nothing: the caller interns the result and passes it to Request. r.Known is NameList or
// empty. P20 says how requests list, add and remove names, and P21 when they subscribe to the
// wildcard.
func (s *Session) Subscribe(r *xds.Request) (*snapshot.Subscription, bool) {
	if s.form.Variant == xds.SotW {
		return s.sub.fromList(r, s.Type)
	}
	return s.sub.fromDelta(r, s.Type, &s.delivered)
}

// follow has responses made for want from now on.
func (sub *subscription) follow(want *snapshot.Subscription) {
	if want != sub.effective {
		sub.knownIn, sub.compared = 0, compared{}
	}
	sub.effective = want
}

// update records a request and the subscription after it. It reports whether the request is the
// first.
func (sub *subscription) update(r *xds.Request, want *snapshot.Subscription, v xds.Variant) (first bool) {
	first = !sub.began
	sub.resumes = sub.resumesBy(r, v)
	sub.began = true
	sub.named = sub.named || len(r.Names) > 0
	sub.requested = want
	sub.list = r.List
	return first
}

// resumesBy reports whether the first request states what the client has: initial_resource_versions
// in delta, version_info in SotW. r may be the first request.
func (sub *subscription) resumesBy(r *xds.Request, v xds.Variant) bool {
	switch {
	case sub.relay:
		return true
	case sub.began:
		return sub.resumes
	case v == xds.SotW:
		return len(r.Version) > 0
	}
	return len(r.Initial) > 0
}

// fromList is the subscription after a SotW request, and whether it differs from before. Each
// request lists all names (P20). For types with a legacy wildcard, an empty list is the wildcard
// until a request has named a resource. Otherwise it requests nothing (P21).
func (sub *subscription) fromList(r *xds.Request, t *xds.Type) (*snapshot.Subscription, bool) {
	if sub.began && r.List.Repeats(sub.list) {
		return sub.requested, false // an ACK that repeats a thousand names costs one hash
	}
	if r.List.Empty() {
		if sub.named || t.NoLegacyWildcard {
			return snapshot.Nothing, !sub.requested.Empty()
		}
		return &snapshot.Subscription{Wildcard: true, Resumes: sub.resumesBy(r, xds.SotW)}, !sub.began
	}
	next := &snapshot.Subscription{Wildcard: contains(r.Names, wildcard), Resumes: sub.resumesBy(r, xds.SotW)}
	var before *xds.NameSet
	if !r.Known.Empty() { // the list is that of the request before, with names appended
		before, next.Wildcard = sub.requested.Names, next.Wildcard || sub.requested.Wildcard
	}
	next.Names = before.Add(plainNames(r.Names)...)
	if next.Equal(sub.requested) {
		return sub.requested, false // the same names in another order
	}
	return next, true
}

// fromDelta is the subscription after a delta request, and whether it differs from before. Names
// are added, then removed (P20). The wildcard is "*". For types with a legacy wildcard, a first
// request without any names is the wildcard too. It ends only when "*" is unsubscribed (P21).
func (sub *subscription) fromDelta(r *xds.Request, t *xds.Type, d *delivered) (*snapshot.Subscription, bool) {
	empty := len(r.Names) == 0 && len(r.Unsubscribe) == 0
	if sub.began && empty {
		return sub.requested, false
	}
	next := snapshot.Subscription{Resumes: sub.resumesBy(r, xds.Delta), Names: sub.requested.Names, Brought: sub.requested.Brought}
	next.Wildcard = sub.requested.Wildcard || empty && !t.NoLegacyWildcard || contains(r.Names, wildcard)
	if sub.relay && t.FullState {
		next.Brought = next.Brought.Add(snapshot.Stated(r)...)
	}
	next.Names = next.Names.Add(plainNames(r.Names)...)
	next.Wildcard = next.Wildcard && !contains(r.Unsubscribe, wildcard)
	next.Names = next.Names.Remove(sub.unsubscribed(next.Names, plainNames(r.Unsubscribe), d)...)
	if next.Equal(sub.requested) {
		return sub.requested, false
	}
	return &next, true
}

// unsubscribed are the names whose subscriptions end when a client unsubscribes from some (P26). A
// requested name ends itself. Any other name may identify one resource that the client has. Then
// the names by which the client requested that resource end. A glob stays, since it requests more
// than this resource. So does an alias that leads to another resource as well.
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
			if only, one := d.snapshot.OnlyNameFor(h); one && only == name || !one && ahead[h] == name {
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

// answerUnsubscribed has the next response answer that the client unsubscribed from a name beside
// the wildcard (P24). The session remembers the name until then.
func (s *Session) answerUnsubscribed(name string) {
	s.forced.weight += xds.NameWeight(len(name))
	s.forced.add(name, byRequest)
}

// wildcardEnded applies the end of the wildcard. before is the subscription by which the client was
// sent what it has.
//
// For the names that it still requests, the client has the wildcard's copies. Where the copy for
// the names differs, or there is none, the next response says so (P50). After a NACK of a
// full-state response, the next full-state response would have included everything again. That one
// does not come now, so the session has to remember what the client rejected (P15).
func (s *Session) wildcardEnded(before *snapshot.Subscription) {
	at, sub := s.delivered.snapshot, s.sub.effective
	if at == nil || !before.Wildcard {
		return
	}
	var kept []string
	names := withAliased(at, slices.Collect(sub.Names.All()))
	sortUnique(&names)
	for _, name := range names {
		had, was := at.Look(before, name)
		if was != snapshot.Present {
			continue
		}
		kept = append(kept, name)
		if has, is := at.Look(sub, name); is != snapshot.Pending && (is != snapshot.Present || !s.form.Same(has, had)) {
			s.forced.add(name, repeated)
		}
	}
	if s.form.Variant == xds.SotW && s.nacks.lastWasNACK && !s.fullState() && len(kept) > 0 {
		byAlias := slices.DeleteFunc(slices.Clone(kept), sub.Names.Has)
		s.nacks.list = append(s.nacks.list, nackedResponse{names: kept, byAlias: byAlias, gen: at.Gen})
	}
}
