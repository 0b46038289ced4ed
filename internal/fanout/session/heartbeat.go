package session

import (
	"slices"
	"time"

	"xdsrelay/internal/xds"
)

// The origin's heartbeat is passed on to those who hold what it renews (P62):
// as a Resource with a TTL and no body, at the version that they were given. In
// incremental that is the resource's own, so heartbeats go with whatever else
// there is to say. In SotW it is the version_info last taken: so they go alone,
// and beside a change as the whole resource. A full-state response is sent
// whole, since clients apply the rest as empty.
//
// To who cannot read a Resource without body, as gRPC, the whole resource goes.
// So it does where the TTL that the client counts is over by now: it does not
// hold it any more.
//
// For a slow client renewals are merged as changes are: what is looked at is
// when the TTL ran from in what it was sent, and in what is newest.

// beatKey is what of a client decides how TTLs are renewed for it; zero where
// there is none.
type beatKey struct {
	// second for which what is left of TTLs is given: responses of the same
	// second are shared.
	second int64
	took   string // SotW, not full-state: the version_info last taken
	// off: a full-state response was refused. A renewal is no change, and does
	// not send it again (P15).
	off bool
}

func (s *Session) beatKey(cur *xds.Snapshot, now time.Time) (k beatKey) {
	if !s.form.Timed || !cur.Timed() {
		return k
	}
	k.second = now.Unix()
	switch {
	case s.full():
		k.off = s.refusals.last
	case s.form.Variant == xds.SotW:
		k.took = s.acked.versionInfo
	}
	return k
}

// renew puts the renewal of a TTL into the content, for a client that was sent
// had. It reports whether the whole resource goes out.
func (c *Content) renew(k beatKey, form xds.Form, had, has *xds.Resource, now time.Time) (whole bool) {
	switch {
	case !form.Timed || !has.Renewed(had):
		return false
	case c.full:
		if !k.off {
			c.any = true
			c.Renewed++
		}
		return false
	case had.Expired(now):
		c.Changed = append(c.Changed, has)
		return true
	}
	c.Renewed++
	if form.Beats && (form.Variant == xds.Delta || k.took != "") {
		c.Beats = append(c.Beats, has)
		return false
	}
	c.whole = append(c.whole, has)
	return true
}

// settle decides how renewals go out beside the rest of a response that is not
// full-state, for a client with sub.
func (c *Content) settle(form xds.Form, sub *xds.Subscription, to *xds.Snapshot) {
	if form.Variant == xds.SotW && len(c.Changed)+len(c.whole)+len(c.Errors) > 0 {
		for _, r := range c.Beats {
			if e := to.Error(sub, r.Name); e != nil && !slices.Contains(c.Errors, e) {
				c.Errors = append(c.Errors, e) // the resource would clear it (P39)
			}
		}
		c.whole, c.Beats = append(c.whole, c.Beats...), nil
	}
	if len(c.Beats) == 0 || form.Variant == xds.Delta {
		c.Took = ""
	}
	if len(c.whole) > 0 {
		c.Changed = append(c.Changed, c.whole...)
		byName(c.Changed)
		c.whole = nil
	}
}

// renew puts the renewals of TTLs into an irregular plan: of what it does not
// speak of already, and what the client did not refuse (P15).
func (s *Session) renew(cur *xds.Snapshot, p *Plan, spoken []string) {
	if !s.form.Timed {
		return
	}
	k := s.beatKey(cur, p.At)
	p.content.Took = k.took
	for _, name := range s.base().renewed(cur, s.sub.effective) {
		if _, is := slices.BinarySearch(spoken, name); is || s.isRefused(name) {
			continue
		}
		had, was := s.had(name)
		has, is := s.look(name, cur)
		if was != xds.Present || is != xds.Present || has.Expired(p.At) {
			continue
		}
		if e := cur.Error(s.sub.effective, name); p.content.renew(k, s.form, had, has, p.At) && e != nil {
			p.content.Errors = append(p.content.Errors, e)
		}
	}
}

// isRefused reports whether name was in a response that the client refused.
func (s *Session) isRefused(name string) bool {
	return slices.ContainsFunc(s.refusals.list, func(r refusal) bool { return slices.Contains(r.names, name) })
}

// beating reports whether there is a renewal for the client.
func (s *Session) beating(cur *xds.Snapshot) bool {
	if !s.form.Timed || s.full() && s.refusals.last {
		return false
	}
	return slices.ContainsFunc(s.base().renewed(cur, s.sub.effective), func(name string) bool {
		had, was := s.had(name)
		has, is := s.look(name, cur)
		return was == xds.Present && is == xds.Present && has.Renewed(had)
	})
}
