package check

import (
	"fmt"
	"slices"
	"sort"
	"time"
)

// part is a resource as received by the wildcard's clients, or by those that list its name. The two
// come on different streams from the origin.
type part struct {
	resource
	wild bool
}

// mark is a known lower bound for a process, or a stream, in a part.
type mark struct {
	n      int
	t      time.Duration
	source string
	at     reading
}

// process is one process of a relay.
type process struct {
	relay string
	id    int

	began int              // an event
	done  map[string][]int // by key: what each origin was known to have then
	store bool

	marks map[part][]mark // in the order of events; none is behind the one before
	gave  map[string]bool // keys with a client that received anything
}

func (p *process) String() string { return fmt.Sprintf("%s#%d", p.relay, p.id) }

// add appends a mark, raised to the marks before it.
func add(marks []mark, m mark) []mark {
	if len(marks) > 0 {
		last := marks[len(marks)-1].at
		if m.at.within(last) {
			return marks
		}
		m.at = slices.Clone(m.at)
		m.at.raise(last)
	}
	return append(marks, m)
}

// by returns the last mark at event n, false if there is none.
func by(marks []mark, n int) (mark, bool) {
	i := sort.Search(len(marks), func(i int) bool { return marks[i].n > n })
	if i == 0 {
		return mark{}, false
	}
	return marks[i-1], true
}

// floor returns the lower bound of a process for a part at event n, and the mark that shows it.
//
// A process without a store got everything from its origins since it began. It never forgets what
// its origins may no longer have. So it is never behind their state at its start, nor behind what
// it sent to any client.
//
// A process with a store may start with stored contents. It may go back to them for names that are
// not wanted any more while no origin is reachable. So the bounds are what was stored at the last
// rest, and the contents of clients that subscribe all the time.
func (c *checker) floor(p *process, of part, n int) (reading, mark) {
	at, from := c.ground(p, of, n)
	raise := func(m mark) {
		if !m.at.within(at) {
			from = m
		}
		at.raise(m.at)
	}
	if !p.store {
		if m, ok := by(p.marks[of], n); ok {
			raise(m)
		}
		return at, from
	}
	for _, s := range c.streams {
		if s.process != p || s.openedN >= n || s.closedN > 0 && s.closedN <= n || s.key != of.key {
			continue
		}
		if t := c.first[c.conns[streamID{s.client, s.id}]]; t > 0 && t <= n {
			continue // it may be removed already
		}
		pr := s.got[of.resource]
		if pr == nil || pr.wild != of.wild {
			continue
		}
		if m, ok := by(pr.marks, n); ok {
			raise(m)
		}
	}
	return at, from
}

// ground is the floor without what other clients received.
func (c *checker) ground(p *process, of part, n int) (reading, mark) {
	at := make(reading, len(c.origins))
	from := mark{n: p.began, source: "the start of " + p.String()}
	if p.store {
		if m, ok := by(c.stored[p.relay][of], n); ok {
			at.raise(m.at)
			from = m
		}
		return at, from
	}
	if done := p.done[of.key]; done != nil {
		for o, l := range c.of(of.resource) {
			at[o] = l.at(done[o])
		}
	}
	return at, from
}

// keep records what a store has by now: what clients held at the last rest. A resource by name may
// come from the wildcard's copy once no client lists the name. So it counts only if that copy was
// held as well.
func (c *checker) keep(e *Event) {
	p := c.process(e.Relay, e.Process)
	if p == nil {
		return
	}
	if c.stored[p.relay] == nil {
		c.stored[p.relay] = make(map[part][]mark)
	}
	now := make(map[part]mark)
	for _, h := range c.atRest {
		s := c.stream(h)
		if s == nil || s.process != p {
			continue
		}
		for name := range h.Resources {
			r := resource{s.key, h.Type, name}
			if pr := s.got[r]; pr != nil && pr.held {
				now[part{r, pr.wild}] = mark{n: e.N, t: e.T, source: "the store of " + p.relay, at: sure(pr.readings)}
			}
		}
	}
	for of, m := range now {
		if _, wild := now[part{of.resource, true}]; of.wild || wild || !full(of.typ) {
			c.stored[p.relay][of] = add(c.stored[p.relay][of], m)
		}
	}
}
