package session

import (
	"slices"

	"xdsrelay/internal/xds"
)

// A client may ask for a resource by an alias (P26) or by a glob (P28), and is
// given it under its own name. So two kinds of names are spoken of: those of
// resources, which the client holds them by, and handles, which it asked for.
// Of a handle there is something to say only if it leads nowhere. A name may be
// both, or be the one and then the other: who had the resource of a name hears of
// that resource, whatever the name leads to by now.

// latest is what is known of name, but for the origin's word that it could not
// resolve an alias, if that was said before the client asked (P18).
func (s *Session) latest(name string, r *xds.Resource, is xds.Presence) (*xds.Resource, xds.Presence) {
	if is == xds.Unresolvable && s.forced.retried[name] == r.Word() {
		return nil, xds.Pending
	}
	return r, is
}

// see is Snapshot.Look for a client that had this of name. A resource of this name is gone
// though the name is another one's handle now; and one that the client had for a
// handle, once that is answered without it. Both also if it has lapsed since.
func see(s *xds.Snapshot, sub *xds.Subscription, name string, had *xds.Resource, was xds.Presence) (*xds.Resource, xds.Presence) {
	r, is := s.Look(sub, name)
	switch {
	case was != xds.Present && was != xds.Lapsed:
	case is == xds.Elsewhere:
		return s.Own(sub, name)
	case is == xds.Pending && len(had.Handles()) > 0 && s.Gone(sub, had):
		return nil, xds.Absent
	case is == xds.Pending && was == xds.Present && sub.Wildcard && s != nil && s.Answered:
		return nil, xds.Absent // the wildcard brought it, and removed it before the name was answered
	}
	return r, is
}

// gain follows a new subscription to name; was is what the client was sent by. What
// the name led to when it was last sent something, it may not have: and by the time
// it is answered the name may lead elsewhere, or nowhere for a while.
func (s *Session) gain(name string, was *xds.Subscription) {
	if s.full() || was.Names.Has(name) {
		return // it is sent everything anyway, or asked for it already
	}
	at := s.delivered.snapshot
	for _, n := range at.Linked(name) {
		if _, ahead := s.delivered.sentBeforeACK[n]; ahead {
			continue
		}
		if _, is := at.Look(was, n); is == xds.Present {
			continue
		}
		if s.delivered.sentBeforeACK == nil {
			s.delivered.sentBeforeACK = make(map[string]*xds.Resource)
		}
		s.delivered.sentBeforeACK[n] = nil
	}
}

// leftBehind reports whether a client may have a resource of this name, which is
// gone, though nothing changed and the name leads elsewhere: what told it was
// refused (P15), or it gave the name up, by which it had it, beside a wildcard
// that does not have it (P24).
func (s *Session) leftBehind(name string, cur *xds.Snapshot, p *Plan) bool {
	if _, own := cur.Own(s.sub.effective, name); own != xds.Absent {
		return false
	}
	if s.forced.names[name] == asked && !s.sub.effective.Names.Has(name) && s.delivered.snapshot.Held(name) != nil {
		return true
	}
	return slices.ContainsFunc(p.again, func(r refusal) bool {
		_, refused := slices.BinarySearch(r.names, name)
		return refused
	})
}

// with adds to names what their resources are called, as far as they lead to
// resources of other names.
func with(cur *xds.Snapshot, names []string) []string {
	for _, n := range names {
		names = append(names, cur.Linked(n)...)
	}
	return names
}

// giveUp are the names that a client gives up by these: each itself if it was
// subscribed; else, if it identifies one resource, those of that resource's
// names by which it was. Not a glob, which is a subscription to more than this
// resource, nor an alias that leads to another one as well.
func (s *Session) giveUp(names *xds.NameSet, unsubscribed []string) []string {
	out, done := unsubscribed, map[string]bool{}
	var early map[string]string
	for _, u := range unsubscribed {
		if names.Len() == 0 || names.Has(u) {
			continue
		}
		name, sole := s.delivered.snapshot.Sole(u)
		if !sole {
			if early == nil {
				early = s.earlyNames()
			}
			name = early[u]
		}
		if name == "" || done[name] {
			continue
		}
		done[name] = true
		r, is := s.had(name)
		if is != xds.Present {
			continue
		}
		if names.Has(r.Name) {
			out = append(out, r.Name)
		}
		glob := xds.Glob(r.Name)
		for _, h := range r.Handles() {
			if !names.Has(h) || h == glob {
				continue
			}
			if of, one := s.delivered.snapshot.Sole(h); one && of == name || !one && early[h] == name {
				out = append(out, h)
			}
		}
	}
	return out
}

// earlyNames leads from what resources that were sent ahead go by to their
// names; to "" where there are several.
func (s *Session) earlyNames() map[string]string {
	of := make(map[string]string)
	for name, r := range s.delivered.sentBeforeACK {
		if r == nil || r.Unresolved() {
			continue
		}
		of[name] = name
		for _, h := range r.Handles() {
			if _, twice := of[h]; twice {
				of[h] = ""
			} else {
				of[h] = name
			}
		}
	}
	return of
}

// Again takes note of what of a request asks again for aliases that the origin
// could not resolve: its word was for those who had asked then, and is not kept
// for others (P18). It returns the names of which the origin is to be asked
// once more.
func (s *Session) Again(r *xds.Request, cur *xds.Snapshot) (ask []string) {
	if s.form.Variant != xds.Delta || !cur.AnyUnresolved() {
		return nil
	}
	for _, n := range r.Names {
		name := string(n)
		if !s.sub.effective.Names.Has(name) {
			continue
		}
		word, again := cur.Unresolved(name)
		if word == nil {
			continue
		}
		if s.forced.retried == nil {
			s.forced.retried = make(map[string]uint64)
		}
		s.forced.retried[name] = word.Word()
		if !again {
			ask = append(ask, name)
		}
	}
	return ask
}

// heard appends those of the names that the client waits for of which something
// is known by now.
func (s *Session) heard(cur *xds.Snapshot, names []string) []string {
	for name := range s.forced.retried {
		if _, is := s.look(name, cur); is != xds.Pending {
			names = append(names, name)
		}
	}
	return names
}

// once takes out of changed what is in it more than once: the origin's word on
// several aliases is one.
func once(changed []*xds.Resource) []*xds.Resource {
	var seen map[uint64]bool
	return slices.DeleteFunc(changed, func(r *xds.Resource) bool {
		word := r.Word()
		if word == 0 {
			return false
		}
		if seen == nil {
			seen = make(map[uint64]bool)
		}
		twice := seen[word]
		seen[word] = true
		return twice
	})
}

// anyPending reports whether a name that the client asks for has yet to be
// answered, maybe by a resource of another name.
func (s *Session) anyPending(cur *xds.Snapshot) bool {
	for n := range s.sub.effective.Names.All() {
		if _, is := s.look(n, cur); is == xds.Pending {
			return true
		}
	}
	return false
}
