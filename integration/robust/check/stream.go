package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// stream is a client's stream.
type stream struct {
	client  string
	id      int
	relay   string
	key     string
	variant string
	openedN int
	opened  time.Duration

	subs     map[string]*subscription // by type
	process  *process                 // nil: nothing was received yet
	got      map[resource]*progress
	received map[resource]bool // the stream received it, or its removal
	gone     map[resource]bool // names that were unsubscribed
	again    map[resource]int  // names that were subscribed again, and when: later content may come from the store
	answered bool
	clusters bool // clusters were received, or an empty answer
	recalled bool // the last ones received are from the store
	closedN  int  // 0: it is open
	given    bool // when it closed, a client had received something of its key
	first    firstSubscription
	stored   *keptResource // when it closed and nothing had been sent: what it should have been served
}

// progress is how far a stream is with a resource.
type progress struct {
	readings []reading
	by       mark // what shows it
	held     bool // it was received, not removed, and subscribed since
	wild     bool
	back     bool   // it went back from the wildcard's copy to the name's own
	marks    []mark // that it set
}

// stale is what a relay adds to the origin's name for stored contents.
const stale = "last known good"

func (c *checker) opening(e *Event) {
	c.streams[streamID{e.Client, e.Stream}] = &stream{client: e.Client, id: e.Stream, relay: e.Relay, key: e.Key,
		variant: e.Variant, openedN: e.N, opened: e.T, subs: make(map[string]*subscription), got: make(map[resource]*progress),
		again: make(map[resource]int), gone: make(map[resource]bool), received: make(map[resource]bool)}
	if e.Fresh || c.clusters[e.Client] == nil {
		c.clusters[e.Client] = make(map[string]bool)
		c.received[e.Client] = make(map[[2]string]string)
	}
}

func (s *stream) sub(typ string) *subscription {
	sub := s.subs[typ]
	if sub == nil {
		sub = &subscription{names: make(map[string]bool)}
		s.subs[typ] = sub
	}
	return sub
}

func (c *checker) ask(e *Event) {
	s := c.stream(e)
	if s == nil {
		return
	}
	if sub := s.sub(e.Type); !sub.spoken {
		for of := range c.received[s.client] {
			sub.resumes = sub.resumes || of[0] == e.Type
		}
	}
	dropped := s.sub(e.Type).ask(s.variant, e)
	if s.sub(e.Type).wild {
		c.wild[[2]string{s.key, e.Type}] = true
	}
	if s.first.typ == "" {
		sub := s.sub(e.Type)
		s.first = firstSubscription{e.Type, sub.wild, maps.Clone(sub.names)}
	}
	for _, name := range dropped {
		r := resource{s.key, e.Type, name}
		if p := s.got[r]; p != nil {
			p.held = false
			if s.process.store {
				delete(s.got, r)
				s.gone[r] = true
			}
		}
	}
	// Messages in flight when a name is unsubscribed are older. Over a connection with a fault they
	// may be in flight for long.
	t := c.first[c.conns[streamID{s.client, s.id}]]
	for _, name := range e.Names {
		if r := (resource{s.key, e.Type, name}); s.gone[r] {
			delete(s.gone, r)
			if t == 0 || t > e.N {
				s.again[r] = e.N
			}
		}
	}
}

// receipt applies a response: its resources, its removals, and for a complete one what is missing.
func (c *checker) receipt(e *Event) {
	s := c.stream(e)
	if s == nil {
		c.violate(RulePublished, &stream{client: e.Client, id: e.Stream}, e, e.Type, "", 0, "a response on a stream that was not opened")
		return
	}
	p := c.process(e.Relay, e.Process)
	switch {
	case p == nil || s.process != nil && s.process != p || s.relay != p.relay:
		c.violate(RulePublished, s, e, e.Type, "", s.opened, "the stream, opened at %s to %s, has a response of %s#%d", clock(s.opened), s.relay, e.Relay, e.Process)
		return
	case s.process == nil:
		s.process = p
	}
	s.answered, p.gave[s.key] = true, true
	sub := s.sub(e.Type)
	c.references(s, e)

	for _, name := range slices.Sorted(maps.Keys(e.Resources)) {
		c.take(s, e, sub.wild, name, e.Resources[name])
	}
	removed := slices.Clone(e.Removed)
	if s.variant == SotW && (full(e.Type) || sub.wild) {
		// A delta origin may answer in parts, and a client without state does not wait for all of
		// them (P67).
		parts := c.upstream[s.relay] == Delta && !sub.resumes
		for _, name := range c.names[[2]string{s.key, e.Type}] {
			p := s.got[resource{s.key, e.Type, name}]
			if _, there := e.Resources[name]; !there && (sub.wild && !parts || p != nil && p.held) {
				removed = append(removed, name)
			}
		}
	}
	for _, name := range removed {
		c.take(s, e, sub.wild, name, "")
	}
	if e.Type == Cluster {
		s.clusters, s.recalled = true, strings.Contains(e.Text, stale)
		has := c.clusters[s.client]
		for name := range e.Resources {
			has[name] = true
		}
		for _, name := range removed {
			delete(has, name)
		}
	}
}

// take checks one content, or the absence, of a resource against the origins' timelines.
func (c *checker) take(s *stream, e *Event, wild bool, name, content string) {
	r := resource{s.key, e.Type, name}
	s.received[r] = true
	of := part{r, wild}
	p := s.got[r]
	if p == nil {
		at, by := c.floor(s.process, of, max(s.openedN, s.again[r]))
		p = &progress{readings: []reading{at}, by: by, wild: wild}
		s.got[r] = p
	}
	c.received[s.client][[2]string{r.typ, name}] = content
	before := p.readings
	if content == "" && p.held {
		before = c.live(s.process, r, before)
	}
	after := c.follow(before, r, content, e.N)
	if len(after) == 0 && content != "" && !wild && full(e.Type) && c.wild[[2]string{s.key, e.Type}] && !p.back && !strings.Contains(e.Text, stale) {
		ground, _ := c.ground(s.process, of, max(s.openedN, s.again[r]))
		if after = c.follow([]reading{ground}, r, content, e.N); len(after) > 0 {
			p.back = true
			c.explain(s, e, r, p, content)
			c.found[len(c.found)-1].Known = true
		}
	}
	if len(after) == 0 {
		c.explain(s, e, r, p, content)
		return
	}
	// A resource in flight when the name was unsubscribed does not have to stay.
	p.readings, p.held = after, content != "" && (wild || s.sub(e.Type).names[name])
	p.by = mark{n: e.N, t: e.T, source: "it", at: sure(after)}
	m := mark{n: e.N, t: e.T, source: fmt.Sprintf("client %s, stream %d,", s.client, s.id), at: p.by.at}
	if s.process.store {
		p.marks = add(p.marks, m)
	} else {
		s.process.marks[of] = add(s.process.marks[of], m)
	}
}

// live returns the readings of a removal, which only an origin can report, not a store. The origin
// reported it after the process began.
func (c *checker) live(p *process, r resource, of []reading) []reading {
	done := p.done[r.key]
	if done == nil {
		return of
	}
	at := make(reading, len(c.origins))
	for o, l := range c.of(r) {
		at[o] = l.at(done[o])
	}
	out := make([]reading, len(of))
	for i, old := range of {
		out[i] = slices.Clone(old)
		out[i].raise(at)
	}
	return out
}

// explain finds the rule that a content breaks if no reading allows it.
func (c *checker) explain(s *stream, e *Event, r resource, p *progress, content string) {
	if content == "" {
		since := c.since(p, r)
		c.violate(RuleRemoval, s, e, r.typ, r.name, since, "it was removed, and was there since %s; %s had it at %s", clock(since), p.by.source, clock(p.by.t))
		return
	}
	var last *state
	for _, l := range c.of(r) {
		for i := range l {
			if l[i].content == content && (last == nil || last.n < l[i].n) {
				last = &l[i]
			}
		}
	}
	if last != nil {
		c.violate(RuleOrder, s, e, r.typ, r.name, p.by.t, "it went back to %s, published at %s, after what %s had at %s", short(content), clock(last.t), p.by.source, clock(p.by.t))
		return
	}
	why, at := "which was never published", time.Duration(0)
	if t, later := c.ever[content][r]; later {
		why, at = "which was published only later, at "+clock(t), t
	} else if of := c.whose(content); of != nil {
		at = c.ever[content][*of]
		why = fmt.Sprintf("which is of %q of %q, published at %s", of.name, of.key, clock(at))
	}
	c.violate(RulePublished, s, e, r.typ, r.name, at, "it got %s, %s", short(content), why)
}

// whose returns the resource for which a content was first published, nil if none.
func (c *checker) whose(content string) *resource {
	var out *resource
	for r, t := range c.ever[content] {
		if out == nil || t < c.ever[content][*out] {
			out = &r
		}
	}
	return out
}

// since returns the time from which the resource existed, by the first of the readings.
func (c *checker) since(p *progress, r resource) time.Duration {
	at := p.readings[0]
	var t time.Duration
	for o, l := range c.of(r) {
		t = max(t, l[at[o]].t)
	}
	return t
}

func short(content string) string { return content[:min(len(content), 12)] }

// routesWait is for how long routes surely wait for clusters that the relay withholds (P67).
const routesWait = 14 * time.Second

// references finds clusters that routes refer to and that the client does not have. Its relay had
// them before the stream was opened, and no origin lacked them since.
func (c *checker) references(s *stream, e *Event) {
	sub := s.subs[Cluster]
	if e.Type != Route || sub == nil || !sub.wild {
		return
	}
	if s.variant == SotW && sub.resumes && !s.clusters && c.upstream[s.relay] == Delta && (!s.sub(Route).resumes || e.T-s.opened > routesWait) {
		return // its first clusters wait until the origin's answer is complete, and routes without state, or after 15 s, do not (P67)
	}
	for _, route := range slices.Sorted(maps.Keys(e.Refs)) {
		for _, name := range e.Refs[route] {
			if c.clusters[s.client][name] {
				continue
			}
			r := resource{s.key, Cluster, name}
			at, by := c.floor(s.process, part{r, true}, s.openedN)
			if by.at == nil && !s.clusters {
				continue // no client was sent all clusters there: they may have to come first, and routes do not wait for them (P35)
			}
			// Stored contents may be from before the last rest, when other clients subscribed, or
			// from another relay. Each type has its own age.
			old := s.recalled || strings.Contains(e.Text, stale)
			excused := false
			for o, l := range c.of(r) {
				from := at[o]
				if rested := c.rested[s.key]; rested != nil && !old {
					from = max(from, l.at(rested[o]))
				}
				for _, st := range l[from:] {
					excused = excused || st.content == ""
				}
			}
			if !excused {
				c.violate(RuleReference, s, e, Route, route, by.t, "it leads to cluster %q, which the client was not given, and which %s had at %s", name, by.source, clock(by.t))
			}
		}
	}
}
