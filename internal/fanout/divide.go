package fanout

import (
	"cmp"
	"slices"
	"time"

	"xdsrelay/internal/xds"
)

// MaxResponse is the largest response that is sent, in bytes (P59), unless
// Options say otherwise.
const MaxResponse = 256 << 20

// nonceSize is what a nonce adds to a body, at most.
const nonceSize = 2 + prefixLen + 13

// cut is which names of a difference go into one response: those after lo, up
// to and with hi, or to the end.
type cut struct {
	lo, hi string
	end    bool
	all    bool // nothing is left
	// misfits are resources that alone are larger than a response: they are passed
	// over.
	misfits []*xds.Resource
}

// entry of a response.
type entry struct {
	name string
	cost int
	put  func(*content)
}

// divide takes out of what a response says what has room in one, in order of
// names, from after on. It takes something, unless nothing has room at all. b is
// the whole message.
func (c *content) divide(b *xds.Body, after string, room int) (content, cut) {
	empty := *b
	empty.Resources, empty.Beats, empty.Removed, empty.Errors = nil, nil, nil, nil
	room -= empty.Size()
	var entries []entry
	var misfits []*xds.Resource
	for _, r := range c.changed {
		if cost := b.Cost(r); cost <= room {
			entries = append(entries, entry{r.Name, cost, func(p *content) { p.changed = append(p.changed, r) }})
		} else {
			misfits = append(misfits, r)
		}
	}
	for _, r := range c.beats {
		entries = append(entries, entry{r.Name, b.CostOfBeat(r), func(p *content) { p.beats = append(p.beats, r) }})
	}
	for _, n := range c.removed {
		entries = append(entries, entry{xds.Canonical(n), b.CostOfRemoval(n), func(p *content) { p.removed = append(p.removed, n) }})
	}
	for _, e := range c.errors {
		entries = append(entries, entry{e.Name, b.CostOfError(e), func(p *content) { p.errors = append(p.errors, e) }})
	}
	// What is of one name stays together, below.
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.name, b.name) })

	at := cut{lo: after}
	first, _ := slices.BinarySearchFunc(entries, after, func(e entry, n string) int { return cmp.Or(cmp.Compare(e.name, n), -1) })
	if first == len(entries) {
		at.lo, first = "", 0
	}
	part := content{took: c.took}
	i := first
	for i < len(entries) {
		next, cost := i, 0
		for ; next < len(entries) && entries[next].name == entries[i].name; next++ {
			cost += entries[next].cost
		}
		if room -= cost; room < 0 && i > first {
			break
		}
		at.hi = entries[i].name
		for ; i < next; i++ {
			entries[i].put(&part)
		}
	}
	at.end = i == len(entries)
	at.all = at.end && first == 0
	for _, r := range misfits {
		if at.has(r.Name) && len(at.misfits) < maxMisfits {
			at.misfits = append(at.misfits, r)
		}
	}
	for _, n := range c.later {
		if at.has(n) {
			part.later = append(part.later, n)
		}
	}
	part.renewed = min(c.renewed, len(part.beats))
	part.quiet = len(part.changed)+len(part.removed)+len(part.errors) == 0
	part.follows = followers(part.changed)
	return part, at
}

// has reports whether name is among those of the response.
func (c *cut) has(name string) bool { return name > c.lo && (c.end || name <= c.hi) }

// sized is what a plan knows of the size of its response (P38).
type sized struct {
	limit int // in bytes
	base  base
	parts *progress // of the session
	again []refusal // what the response speaks of because it was refused (P15)

	// What came of it: a part, after which the session stands at next; or
	// something that is not sent.
	next      *progress
	oversized *Oversized
}

// plan is one of cur, which does nothing yet.
func (s *Session) plan(cur *xds.Snapshot, now time.Time) Plan {
	return Plan{to: cur, at: now, sized: sized{limit: s.limit, base: s.base(), parts: s.parts}}
}

// made is what came of a plan: the frame, without body if there is nothing to
// send, and what the plan is to know of its size.
type made struct {
	frame     *Frame
	next      *progress
	oversized *Oversized
}

// take notes what came of the plan.
func (p *Plan) take(m made) *Frame {
	p.next, p.oversized = m.next, m.oversized
	return m.frame
}

// make makes of a difference the response, a part of it if it is too large, or
// none if it cannot be split (P38). Sizes are known before anything is encoded.
func (fc *frameCache) make(p *Plan, replica string, c content) made {
	body := c.body(p, replica)
	room := p.limit - nonceSize
	size := body.Size()
	if size <= room {
		return made{frame: fc.share(p, replica, c)}
	}
	if p.key.full || p.early {
		return made{frame: emptyFrame, oversized: &Oversized{Version: p.to.Version, Bytes: size + nonceSize}}
	}
	part, at := c.divide(body, p.parts.next(), room)
	part.any = p.key.force
	m := made{frame: fc.share(p, replica, part)}
	if !at.all {
		m.next = p.parts.advance(p.base, base{at: p.to}, at)
	}
	for _, r := range slices.Backward(at.misfits) {
		m.oversized = &Oversized{Version: p.to.Version, Bytes: body.Cost(r), Resource: r.Name, next: m.oversized}
	}
	return m
}
