package orchestrator

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// control is an origin of CDS. Names that begin with "od" are only given to who
// asks for them by name. Each value is the number of the change that made it.
type control struct {
	t       *testing.T
	variant xds.Variant
	changes int
	have    map[string]int
	removed map[string]int // the change that last removed a name
	talks   []*conversation
}

// conversation is one stream of a group at a control: what it asked for, and
// the answers on their way. It behaves as upstream.Stream does.
type conversation struct {
	*control
	link  *link
	feed  *feed
	read  int // of the interests that were set
	asked xds.TypeInterest
	was   xds.TypeInterest // on this stream, since it was opened: the wildcard or names
	queue []answer
}

// answer is on its way: SotW: Changed is all there is. at is what had been read
// when it was given.
type answer struct {
	xds.Update
	at int
}

func (c *conversation) say(u xds.Update) { c.queue = append(c.queue, answer{u, c.read}) }

func covered(of xds.TypeInterest, name string) bool {
	return of.Names.Has(name) || of.Wildcard && name[:2] != "od"
}

func nothingOf(of xds.TypeInterest) bool { return !of.Wildcard && of.Names.Len() == 0 }

// word is what there is to be said of a name.
func (c *control) word(u *xds.Update, name string) {
	if v, ok := c.have[name]; ok {
		u.Changed = append(u.Changed, resource(c.t, cds, name, fmt.Sprint(v)))
	} else {
		u.Removed = append(u.Removed, name)
	}
}

// all is a SotW response.
func (c *conversation) all() xds.Update {
	u := xds.Update{Type: cds, Origin: "origin", Wildcard: c.asked.Wildcard}
	for _, name := range slices.Sorted(maps.Keys(c.have)) {
		if covered(c.asked, name) {
			c.word(&u, name)
		}
	}
	return u
}

// hear reads the next interest that was set.
func (c *conversation) hear() {
	next := c.feed.interests[c.read].Of(cds)
	c.read++
	before := c.asked
	switch {
	case nothingOf(next):
		c.asked = next
		return
	case !nothingOf(c.was) && (c.was.Wildcard != next.Wildcard || next.Wildcard && nothingOf(before)):
		c.queue, before, c.was = nil, xds.TypeInterest{}, xds.TypeInterest{} // opened anew
	}
	c.asked, c.was = next, next
	if c.variant == xds.SotW {
		more := nothingOf(before)
		for _, added := range before.Names.Diff(next.Names) {
			more = more || added // a shorter list has no answer
		}
		if more {
			c.say(c.all())
		}
		return
	}
	u := xds.Update{Type: cds, Origin: "origin", Wildcard: next.Wildcard}
	if next.Wildcard {
		if before.Wildcard {
			return
		}
		u = c.all()
		for r := range c.link.Held(cds).Part(true).Resources { // initial_resource_versions
			if _, ok := c.have[r.Name]; !ok {
				c.word(&u, r.Name)
			}
		}
	}
	for name, added := range before.Names.Diff(next.Names) {
		if added {
			c.word(&u, name)
		}
	}
	if next.Wildcard || len(u.Changed)+len(u.Removed) > 0 {
		c.say(u)
	}
}

// deliver hands the oldest answer over, as judge would.
func (c *conversation) deliver(g *Group) {
	u, at := c.queue[0].Update, c.queue[0].at
	c.queue = c.queue[1:]
	if nothingOf(c.asked) || c.asked.Wildcard != u.Wildcard {
		return
	}
	part := c.link.Held(cds).Part(u.Wildcard)
	asked := func(name string) bool {
		for _, i := range c.feed.interests[at:] { // let go, and maybe wanted again: then it is asked for anew
			if of := i.Of(cds); !u.Wildcard && !of.Names.Has(name) {
				return false
			}
		}
		return u.Wildcard || c.asked.Names.Has(name)
	}
	if c.variant == xds.SotW {
		u.Removed = nil
		for r := range part.Resources {
			if asked(r.Name) && !slices.ContainsFunc(u.Changed, func(x *xds.Resource) bool { return x.Name == r.Name }) {
				u.Removed = append(u.Removed, r.Name)
			}
		}
	}
	u.Changed = slices.DeleteFunc(slices.Clone(u.Changed), func(r *xds.Resource) bool { return !asked(r.Name) })
	u.Removed = slices.DeleteFunc(slices.Clone(u.Removed), func(n string) bool { return !asked(n) })
	g.apply(update{u, c.link, make(chan bool, 1), nil})
}

// change changes a name, and tells every conversation that asks for it.
func (c *control) change(name string, remove bool) {
	c.changes++
	if remove {
		delete(c.have, name)
		c.removed[name] = c.changes
	} else {
		c.have[name] = c.changes
	}
	for _, t := range c.talks {
		if !covered(t.asked, name) {
			continue
		}
		if c.variant == xds.SotW {
			t.say(t.all())
			continue
		}
		u := xds.Update{Type: cds, Origin: "origin", Wildcard: t.asked.Wildcard}
		c.word(&u, name)
		t.say(u)
	}
}

// Whatever clients ask for, in whatever order and however late the two streams
// bring it: of either part nothing goes back in time, nothing is removed that the
// origin did not remove, and at rest clients see what the origin has for what
// they asked for.
func TestP50_TwoStreamsAgainstAnOrigin(t *testing.T) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		t.Run(v.String(), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { twoStreams(t, rt, v) })
		})
	}
}

func twoStreams(t *testing.T, rt *rapid.T, variant xds.Variant) {
	o := options(t)
	o.Linger, o.FirstAnswerTimeout = 2*time.Second, 1000*time.Hour
	w := newWorld(t, o)
	g, v := w.manual(cds)
	other := newView(xds.TypeOf(eds), g.meters.Type(eds), new(past))
	other.members++
	g.setViews([]*view{v, other})
	origin := &control{t: t, variant: variant, have: map[string]int{}, removed: map[string]int{}}
	universe := []string{"aa", "bb", "cc", "od1", "od2"}
	now := time.Now()

	type seen struct {
		name string
		wild bool
	}
	last := map[seen]int{} // what a part held
	_, anchor := w.member(g, eds)
	anchor.Subscribe(anchor.Intern(subscription("e")))
	clients := []*member{anchor}
	wants := map[*member]*xds.Subscription{anchor: xds.Nothing}
	for range 3 {
		_, m := w.member(g, cds)
		g.post(m, func(*letter) {})
		clients, wants[m] = append(clients, m), xds.Nothing
	}

	step := func() {
		g.step(now)
		origin.talks = slices.DeleteFunc(origin.talks, func(c *conversation) bool { return !slices.Contains(g.lines(), c.link) })
		for _, l := range g.lines() {
			l.Status(upstream.Status{Connected: true})
			if !slices.ContainsFunc(origin.talks, func(c *conversation) bool { return c.link == l }) {
				origin.talks = append(origin.talks, &conversation{control: origin, link: l, feed: l.stream.(*feed)})
			}
		}
		for _, name := range universe {
			for _, wild := range []bool{true, false} {
				at := seen{name, wild}
				wanted := wild && v.wildcard || !wild && v.names.Has(name)
				r := v.part(wild).Held(name)
				switch {
				case !wanted:
					delete(last, at)
				case r != nil:
					var n int
					if _, err := fmt.Sscan(content(r), &n); err != nil {
						rt.Fatal(err)
					}
					if n < last[at] {
						rt.Fatalf("%s of part %v goes back from %d to %d", name, wild, last[at], n)
					}
					last[at] = n
				case last[at] > origin.removed[name]:
					rt.Fatalf("%s of part %v was removed at %d and not since, but %d is gone", name, wild, origin.removed[name], last[at])
				default:
					delete(last, at)
				}
			}
		}
	}
	run := func(c *conversation) bool {
		switch {
		case c.read < len(c.feed.interests):
			c.hear()
		case len(c.queue) > 0:
			c.deliver(g)
		default:
			return false
		}
		return true
	}
	some := rapid.SliceOfDistinct(rapid.SampledFrom(universe), rapid.ID[string])
	for range rapid.IntRange(1, 80).Draw(rt, "steps") {
		switch rapid.SampledFrom([]string{"ask", "change", "change", "run", "run", "run", "run", "wait"}).Draw(rt, "do") {
		case "ask":
			i := rapid.IntRange(0, len(clients)-1).Draw(rt, "client")
			names := some.Draw(rt, "names")
			if i == 0 {
				names = []string{"e"}[:rapid.IntRange(0, 1).Draw(rt, "busy")]
			} else if rapid.Bool().Draw(rt, "wildcard") {
				names = append(names, "*")
			}
			m := clients[i]
			wants[m] = m.Intern(subscription(names...))
			m.Subscribe(wants[m])
		case "change":
			origin.change(rapid.SampledFrom(universe).Draw(rt, "name"), rapid.Bool().Draw(rt, "remove"))
		case "run":
			if n := len(origin.talks); n > 0 {
				run(origin.talks[rapid.IntRange(0, n-1).Draw(rt, "stream")%n])
			}
		case "wait":
			now = now.Add(time.Second)
		}
		step()
	}

	// To rest: everything is delivered, and linger is over.
	for range 3 {
		for busy := true; busy; {
			busy = false
			for _, c := range slices.Clone(origin.talks) {
				busy = run(c) || busy
				step()
			}
		}
		now = now.Add(o.Linger)
		step()
	}
	carry := make(map[*link]bool)
	for _, of := range g.views {
		if of.asks() && of.wildAt == of.namesAt {
			rt.Fatal("wildcard and names on one stream")
		}
		carry[of.wildAt], carry[of.namesAt] = true, true
	}
	delete(carry, nil)
	if len(g.lines()) != max(1, len(carry)) {
		rt.Fatalf("%d streams, of which %d carry something", len(g.lines()), len(carry))
	}
	s := g.stable.state.Load().Snapshot(cds)
	for m, sub := range wants {
		for _, name := range universe {
			if m == anchor || !sub.Covers(name) {
				continue
			}
			want := "-"
			if n, ok := origin.have[name]; ok && (sub.Names.Has(name) || name[:2] != "od") {
				want = fmt.Sprint(n)
			}
			got := "?"
			switch r, is := s.Look(sub, name); is {
			case xds.Present:
				got = content(r)
			case xds.Absent:
				got = "-"
			}
			switch {
			case got == want:
			case variant == xds.SotW && want == "-" && got == "?":
				// Never received, so its absence says nothing (P65).
			default:
				rt.Fatalf("to %v %v %s is %s, want %s", sub.Wildcard, slices.Collect(sub.Names.All()), name, got, want)
			}
		}
	}
}
