package check

import (
	"fmt"
	"slices"
	"sort"
	"time"
)

// part is a resource as the wildcard's clients get it, or those who name it:
// the two come by different streams from the origin.
type part struct {
	resource
	wild bool
}

// mark is how far a process, or a stream, was known to be with a part.
type mark struct {
	n   int
	t   time.Duration
	who string
	at  reading
}

// process is one life of a relay.
type process struct {
	relay string
	id    int

	began int              // event
	done  map[string][]int // by key: what each origin was known to have then
	store bool

	marks map[part][]mark // in the order of events, each as far on as that before
	gave  map[string]bool // keys of which anybody was given anything
}

func (p *process) String() string { return fmt.Sprintf("%s#%d", p.relay, p.id) }

// add appends a mark that is as far on as those before.
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

// by is the last mark at event n; false: there was none.
func by(marks []mark, n int) (mark, bool) {
	i := sort.Search(len(marks), func(i int) bool { return marks[i].n > n })
	if i == 0 {
		return mark{}, false
	}
	return marks[i-1], true
}

// floor is how far on a process was with a part at event n, and who says so.
//
// A process without a store got all that it has from its origins since it began, and
// never forgets what its origins may not have any more: so it is nowhere behind
// where they were then, and behind what it gave to anybody.
//
// One with a store may begin with what is stored, and go back to it for what
// nobody asks for any more and an origin cannot be asked. So what counts is what
// was stored at the last rest, and what those have who ask for it all the time.
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
			continue // it may be gone already
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

// ground is what a floor is without what others were given.
func (c *checker) ground(p *process, of part, n int) (reading, mark) {
	at := make(reading, len(c.origins))
	from := mark{n: p.began, who: "the start of " + p.String()}
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

// keep notes what a store has by now: what clients held at the last rest. What
// came by name may be had from the wildcard's copy, once nobody asks for it by name:
// so it counts only where that one was held as well.
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
				now[part{r, pr.wild}] = mark{n: e.N, t: e.T, who: "the store of " + p.relay, at: sure(pr.readings)}
			}
		}
	}
	for of, m := range now {
		if _, wild := now[part{of.resource, true}]; of.wild || wild || !full(of.typ) {
			c.stored[p.relay][of] = add(c.stored[p.relay][of], m)
		}
	}
}
