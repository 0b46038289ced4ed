package orchestrator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// plain is a model of the interest, as maps: the wanted names, and those that were given up less
// than linger ago.
type plain struct {
	linger time.Duration
	until  map[string]time.Time // of subscribed names; zero: wanted
}

func (p *plain) step(subs map[*clientType]*snapshot.Subscription, answered func(name string) bool, now time.Time) {
	want := make(map[string]bool) // "*" is the wildcard
	for _, s := range subs {
		for n := range s.Names.All() {
			want[n] = true
		}
		if s.Wildcard {
			want["*"] = true
		}
	}
	for n := range want {
		p.until[n] = time.Time{}
	}
	for n, until := range p.until {
		if want[n] {
			continue
		}
		if until.IsZero() {
			if n != "*" && !answered(n) {
				delete(p.until, n)
				continue
			}
			until = now.Add(p.linger)
			p.until[n] = until
		}
		if !until.After(now) {
			delete(p.until, n)
		}
	}
}

// For any subscriptions and updates, exactly the subscribers that see a difference are woken. The
// interest and the held resources are those of a plain model (P16, P33, P51, P52, P65).
func TestGroupAgainstModel(t *testing.T) {
	universe := names("n", 12)
	rapid.Check(t, func(rt *rapid.T) {
		o := options(t)
		o.Linger = time.Duration(rapid.SampledFrom([]int{0, 5}).Draw(rt, "linger")) * time.Second
		w := newRegistryFixture(t, o)
		g, v := w.manual(eds)
		g.firstUpstream().Status(upstream.Status{Connected: true})
		anchor, am := w.subscriber(g, eds) // so that the group is never idle
		g.post(am, func(*changes) {})
		clients := map[*clientType]*testClient{am: anchor}
		subs := map[*clientType]*snapshot.Subscription{am: snapshot.Nothing}
		model := &plain{linger: o.Linger, until: make(map[string]time.Time)}
		now := time.Now()
		value := 0

		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			before := g.state.Load().Snapshot(eds)
			subscribed := make(map[*clientType]bool)
			some := rapid.SliceOfDistinct(rapid.SampledFrom(universe), rapid.ID[string])
			anyone := func() *clientType {
				all := slices.DeleteFunc(slices.Collect(maps.Keys(clients)), func(m *clientType) bool { return m == am })
				slices.SortFunc(all, func(a, b *clientType) int { return strings.Compare(a.client.PeerID, b.client.PeerID) })
				if len(all) == 0 {
					return nil
				}
				return rapid.SampledFrom(all).Draw(rt, "subscriber")
			}
			switch rapid.SampledFrom([]string{"join", "subscribe", "subscribe", "leave", "update", "update", "wait"}).Draw(rt, "do") {
			case "join":
				c, m := w.subscriber(g, eds)
				m.client.PeerID = fmt.Sprintf("%04d", value) // to sort by
				value++
				clients[m], subs[m] = c, snapshot.Nothing
				g.post(m, func(*changes) {})
			case "subscribe":
				if m := anyone(); m != nil {
					s := subscription(some.Draw(rt, "names")...)
					s.Wildcard = rapid.IntRange(0, 5).Draw(rt, "wildcard") == 0
					subs[m] = m.Intern(s)
					subscribed[m] = true
					m.Request(subs[m])
				}
			case "leave":
				if m := anyone(); m != nil {
					delete(clients, m)
					delete(subs, m)
					g.post(m, func(l *changes) { l.left = true })
				}
			case "update":
				u := snapshot.Update{Type: eds, Wildcard: rapid.Bool().Draw(rt, "of the wildcard")}
				for _, n := range some.Draw(rt, "changed") {
					u.Changed = append(u.Changed, resource(t, eds, n, fmt.Sprint(rapid.IntRange(0, 3).Draw(rt, "value"))))
				}
				u.Removed = slices.DeleteFunc(some.Draw(rt, "removed"), func(n string) bool {
					return slices.ContainsFunc(u.Changed, func(r *xds.Resource) bool { return r.Name == n })
				})
				from := v.streamOf(u.Wildcard)
				if from == nil {
					from = g.firstUpstream()
				}
				g.apply(update{u, from, make(chan bool, 1), nil})
			case "wait":
				now = now.Add(time.Duration(rapid.IntRange(1, 4).Draw(rt, "seconds")) * time.Second)
			}
			known := v.content.Newest().Part(snapshot.ByName).Known // an update is applied at once
			g.step(now)
			model.step(subs, known, now)
			if err := g.check(); err != nil {
				rt.Fatal(err)
			}
			for _, l := range g.upstreams() {
				l.Status(upstream.Status{Connected: true}) // otherwise the subscribers would be refused
			}

			after := g.state.Load().Snapshot(eds)
			for m, c := range clients {
				want := subscribed[m] || differs(universe, subs[m], before, after)
				if (c.wakes > 0) != want {
					rt.Fatalf("subscriber that wants %v %v: woken %v, want %v", subs[m].Wildcard, slices.Collect(subs[m].Names.All()), c.wakes > 0, want)
				}
				c.wakes = 0
			}
			if v.audience.Subscribers() != len(clients)+1 { // and the one of manual
				rt.Fatalf("%d subscribers, want %d", v.audience.Subscribers(), len(clients)+1)
			}
			names, wildcard := v.audience.Union()
			for _, n := range append(universe, "*") {
				_, want := model.until[n]
				got := n == "*" && wildcard || names.Has(n)
				if n == "*" && got && !want {
					continue // it serves a name, or did until lately (P50: see audience.TypeAudience.Check)
				}
				if got != want {
					rt.Fatalf("%s is subscribed: %v, want %v", n, got, want)
				}
			}
			// There are two streams while there are both parts, and only then (P50).
			both := wildcard && names.Len() > 0
			if got := len(g.upstreams()); (got == 2) != both || got > 2 || both && v.wildcardOn == v.namesOn {
				rt.Fatalf("%d streams, both parts subscribed: %v", got, both)
			}
			held := v.content.Newest()
			if held != nil && held.Answered && !wildcard {
				rt.Fatal("answered, though no subscriber has the wildcard")
			}
			for _, n := range universe {
				if held.Known(n) && !wildcard && !names.Has(n) {
					rt.Fatalf("%s is known, though no subscriber subscribes to it", n)
				}
			}
		}

		// After all subscribers have left, the index is empty.
		for m := range clients {
			if m != am {
				g.post(m, func(l *changes) { l.left = true })
			}
		}
		g.step(now)
		g.step(now.Add(o.Linger))
		if names, wildcard := v.audience.Union(); wildcard || names.Len() > 0 {
			rt.Fatal("something is still subscribed")
		}
	})
}

// differs reports, name by name, whether a client sees a difference. If the wildcard's answer comes
// or goes, each client with the wildcard sees one.
func differs(universe []string, sub *snapshot.Subscription, a, b *snapshot.Snapshot) bool {
	if sub.Wildcard && (a != nil && a.Answered) != (b != nil && b.Answered) {
		return true
	}
	return slices.ContainsFunc(universe, func(n string) bool {
		was, wasThere := a.Look(sub, n)
		is, isThere := b.Look(sub, n)
		return wasThere != isThere || isThere == snapshot.Present && !was.Same(is)
	})
}
