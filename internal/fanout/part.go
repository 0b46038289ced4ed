package fanout

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"

	"xdsrelay/internal/xds"
)

// base is what a client was sent of some names.
type base struct {
	at   *xds.Snapshot
	by   *xds.Subscription // by which it was sent, if that is not what it asks for now
	anew bool              // all of it is to be answered, again or not
}

func (b base) sentBy(sub *xds.Subscription) *xds.Subscription {
	if b.by != nil {
		return b.by
	}
	return sub
}

// look is what the client, who asks for sub now, was sent under name. What lapsed
// it may still have, also where the name has led elsewhere since.
func (b base) look(sub *xds.Subscription, name string) (*xds.Resource, xds.Presence) {
	r, is := b.at.Look(b.sentBy(sub), name)
	if is == xds.Elsewhere {
		if own, of := b.at.Own(b.sentBy(sub), name); of == xds.Lapsed {
			return own, xds.Lapsed
		}
	}
	return r, is
}

// error is what the client was told of an error of name (P39).
func (b base) error(sub *xds.Subscription, name string) *xds.ResourceError {
	return b.at.Error(b.sentBy(sub), name)
}

// again: what the client was sent plays no part.
func (b base) again(was, is xds.Presence) bool {
	return b.anew && (was != xds.Present || is != xds.Absent)
}

// candidates are the names that may differ between what the client was sent and
// what it is to see of to.
func (b base) candidates(to *xds.Snapshot, sub *xds.Subscription) []string {
	names := to.Changes(b.at, b.sentBy(sub))
	if b.anew {
		names = append(names, to.Changes(nil, sub)...)
	}
	return names
}

// base is what the client was sent before any part. That all is to be answered
// anew concerns full-state SotW only in what follows it (P37).
func (s *Session) base() base {
	return base{at: s.sent, by: s.by, anew: s.anew && !s.full()}
}

// progress is where a session stands that was sent a part of a difference
// (P38): the names are cut into spans, and of each the client was sent something
// else. It is immutable and has no size to speak of; sessions that were sent the
// same part share one. The next part begins where the last one ended and turns
// over at the end, so that no name waits for others that change again and again;
// hence there are about as many spans as parts fit into everything.
type progress struct {
	id    uint64 // unique in the process
	spans []span
	to    *xds.Snapshot // that the newest part came from

	// lo, hi: the newest part spoke for the names after lo, up to and with hi;
	// end: for all after lo.
	lo, hi string
	end    bool
}

// span are the names up to and with upto, after those of the span before; the
// last one has no end.
type span struct {
	upto string
	base
}

var progresses atomic.Uint64

// at is what was sent of name; first before the first part.
func (p *progress) at(first base, name string) base {
	if p == nil {
		return first
	}
	i, _ := slices.BinarySearchFunc(p.spans[:len(p.spans)-1], name, func(s span, n string) int { return cmp.Compare(s.upto, n) })
	return p.spans[i].base
}

// candidates are the names that may differ between what was sent and what the
// client is to see of cur.
func (p *progress) candidates(first base, cur *xds.Snapshot, sub *xds.Subscription) []string {
	return p.collect(first, func(b base) []string { return b.candidates(cur, sub) })
}

// renewed are the names whose TTL may have been renewed (P62).
func (p *progress) renewed(first base, cur *xds.Snapshot, sub *xds.Subscription) []string {
	return p.collect(first, func(b base) []string { return cur.Renewed(b.at, b.sentBy(sub)) })
}

// collect gathers names span by span.
func (p *progress) collect(first base, names func(base) []string) []string {
	if p == nil {
		return names(first)
	}
	var out []string
	after := ""
	for i, s := range p.spans {
		for _, n := range names(s.base) {
			if n > after && (i == len(p.spans)-1 || n <= s.upto) {
				out = append(out, n)
			}
		}
		after = s.upto
	}
	return out
}

// next is where the next part begins: after this name.
func (p *progress) next() string {
	if p == nil || p.end {
		return ""
	}
	return p.hi
}

// spoke reports whether the newest part spoke for name, be it by silence.
func (p *progress) spoke(name string) bool { return name > p.lo && (p.end || name <= p.hi) }

// oldest is the oldest snapshot that is kept for what follows; nil if there is
// none.
func (p *progress) oldest(sent *xds.Snapshot) *xds.Snapshot {
	if p == nil {
		return sent
	}
	var old *xds.Snapshot
	for _, s := range p.spans {
		if s.at != nil && (old == nil || s.at.Gen < old.Gen) {
			old = s.at
		}
	}
	return old
}

// advance is the progress once a part that spoke for c was sent, out of to.
func (p *progress) advance(first base, to base, c cut) *progress {
	was := []span{{base: first}}
	if p != nil {
		was = p.spans
	}
	n := &progress{id: progresses.Add(1), to: to.at, lo: c.lo, hi: c.hi, end: c.end}
	put := func(upto string, b base) {
		if k := len(n.spans); k > 0 && n.spans[k-1].base == b {
			n.spans = n.spans[:k-1]
		}
		n.spans = append(n.spans, span{upto, b})
	}
	// Of each span what lies before the part, then the part, then what lies
	// behind it.
	after, in := "", false
	for i, s := range was {
		ends := i == len(was)-1
		switch {
		case after < c.lo && !ends && s.upto <= c.lo:
			put(s.upto, s.base)
			after = s.upto
			continue
		case after < c.lo:
			put(c.lo, s.base)
		}
		if !in {
			in = true
			put(c.hi, to)
		}
		if !c.end && (ends || s.upto > c.hi) {
			put(s.upto, s.base)
		}
		after = s.upto
	}
	return n
}

// anew is the progress once the wildcard is subscribed; was is what was asked
// for before. relent takes it back.
func (p *progress) anew(was *xds.Subscription) *progress {
	return p.each(func(b *base) {
		if !b.anew {
			b.anew, b.by = true, was
		}
	})
}

// restarts reports whether something is to be answered anew yet.
func (p *progress) restarts() bool {
	return p != nil && slices.ContainsFunc(p.spans, func(s span) bool { return s.anew })
}

func (p *progress) relent() *progress {
	return p.each(func(b *base) { b.anew, b.by = false, nil })
}

func (p *progress) each(change func(*base)) *progress {
	if p == nil {
		return nil
	}
	n := *p
	n.id, n.spans = progresses.Add(1), slices.Clone(p.spans)
	for i := range n.spans {
		change(&n.spans[i].base)
	}
	return &n
}

// sentPart moves the session as far as a part goes. What the plan was to speak
// of and the part did not waits for the next.
func (s *Session) sentPart(p *Plan) {
	s.parts, s.waiting, s.stuck = p.next, true, nil
	s.anew, s.by = false, nil // the spans know
	for _, r := range p.again {
		// P15: the parts together cover what was refused.
		for _, n := range r.names {
			if !p.next.spoke(n) && s.asks(&r, n, p.to) {
				s.put(n, postponed)
			}
		}
	}
	s.refused = slices.DeleteFunc(s.refused, func(r refusal) bool {
		if !slices.ContainsFunc(p.again, func(a refusal) bool { return &a.names[0] == &r.names[0] }) {
			return false
		}
		s.assume(&r)
		s.owes = s.owes.with(r.owes) // for what is postponed
		return true
	})
	if len(s.refused) == 0 {
		s.refused = nil
	}
	for _, n := range slices.Collect(maps.Keys(s.fresh)) {
		linked := p.to.Linked(n)
		if _, is := p.to.Look(s.sub, n); is == xds.Elsewhere || p.next.spoke(n) && s.answeredBy(p.to, n) {
			delete(s.fresh, n)
		} else {
			if s.fresh[n] != refreshed {
				s.fresh[n] = postponed
			}
			linked = nil
		}
		for _, n := range linked { // from here on by their own names
			if !p.next.spoke(n) {
				s.put(n, postponed)
			}
		}
	}
	for n := range s.early {
		if p.next.spoke(n) {
			delete(s.early, n)
		}
	}
	for n := range s.warned {
		if p.next.spoke(n) {
			delete(s.warned, n)
		}
	}
	for n := range s.awaits {
		if _, is := s.look(n, p.to); is != xds.Pending && p.next.spoke(n) {
			delete(s.awaits, n)
		}
	}
	for n := range s.initial {
		if _, left := p.initial[n]; !left && p.next.spoke(n) {
			delete(s.initial, n)
		}
	}
	s.normalize()
}

// newest is what the client was last sent of, if not all of it.
func (s *Session) newest() *xds.Snapshot {
	if s.parts == nil {
		return s.sent
	}
	return s.parts.to
}

// hasTurn reports whether a name waits for its part, or with one.
func (s *Session) hasTurn(name string) bool {
	if why, waits := s.fresh[name]; waits && why == postponed {
		return true
	}
	if s.parts == nil {
		return false
	}
	_, was := s.parts.to.Look(s.sub, name)
	return was != xds.Pending
}

// Postpone records that the plan's answers, which would not have waited for the
// ACK, are too large for one response: they wait, and go in parts.
func (s *Session) Postpone(p *Plan) {
	for n := range p.answered {
		s.postpone(n)
	}
	for _, n := range p.led {
		s.postpone(n) // or it would lead to the same again
	}
}

func (s *Session) postpone(name string) {
	s.mark(name, postponed)
	s.fresh[name] = postponed
}
