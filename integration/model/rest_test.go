package model

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"xdsrelay/internal/xds"
)

// rest waits until all messages are sent and received.
func (w *relayFixture) rest() {
	for quiet, rounds := 0, 0; quiet < 5; rounds++ {
		if rounds > 200 {
			w.tb.Fatalf("the relay does not come to rest")
		}
		quiet++
		if w.flush() {
			quiet = 0
		}
		for _, c := range w.clients {
			took := w.take(c)
			for _, typ := range types {
				for c.answer(c.types[typ], false) {
					took = true
				}
			}
			if took {
				quiet = 0
			}
		}
		pass(4 * time.Second)
	}
}

// finish brings everything to rest and compares the clients with the origin, in four steps. First
// as it is, except for rejected contents. Then after the origin has sent everything again, which is
// the retry of rejected responses (P15). Then after everything has changed, which replaces
// rejected contents (P15). Then after something was removed.
func (w *relayFixture) finish() {
	for _, c := range w.clients {
		c.setSlow(false)
	}
	w.rest()
	w.compare("at rest")
	for range 2 { // the first one may be the answer to a new stream
		for _, typ := range types {
			for n := range w.o.has[typ] {
				w.o.stamp(typ, n)
			}
		}
		w.rest()
	}
	w.pushed = true
	w.compare("once everything was sent again")
	w.pushed = false
	w.change()
	w.compare("once everything has changed")
	for _, typ := range types {
		for _, n := range fleeting {
			if rapid.Bool().Draw(w.rt, "remove "+n) {
				w.o.remove(typ, n)
			}
		}
	}
	w.rest()
	w.compare("once something has gone")
	w.o.idle()
	if len(w.o.faults) > 0 {
		w.tb.Fatalf("the relay said to its origin: %q", w.o.faults)
	}
}

// change changes everything twice, the second time while the first is unanswered. Then the ACKs
// alone bring the rest, without waiting (P19).
func (w *relayFixture) change() {
	for content := range 2 {
		for _, typ := range types {
			for _, n := range names {
				w.o.put(typ, n, 10+content)
			}
		}
		w.flush()
	}
	for took := true; took; {
		took = false
		for _, c := range w.clients {
			took = w.take(c) || took
			for _, typ := range types {
				for c.answer(c.types[typ], false) {
					took = true
				}
			}
		}
		pass(20 * time.Millisecond) // names of new clusters are requested again (P52)
		took = w.flush() || took
	}
}

// compare compares what the clients hold with the origin's resources for their subscriptions.
func (w *relayFixture) compare(when string) {
	for _, c := range w.clients {
		for _, typ := range types {
			if err := w.differs(c, c.types[typ]); err != nil {
				w.o.tell(w.tb.Logf)
				w.tb.Fatalf("%s, %s (%v): %s: %v", when, c.id, c.v, typ, err)
			}
		}
	}
}

// differs describes how a client differs from what it should hold, except for rejected contents
// that are unchanged (P15).
func (w *relayFixture) differs(c *client, t *clientType) error {
	if t.wild && !t.answered {
		return errors.New("P11: the wildcard was never answered")
	}
	for _, n := range names {
		if slices.ContainsFunc(t.nacks, func(of rejected) bool {
			_, in := of.items[n]
			return (in || c.full(t)) && !w.moved(c, t, of.items) && !w.pushedAgain(t, of.items)
		}) {
			continue
		}
		has, there := w.o.has[t.typ][n]
		holds, held := t.holds[n]
		switch {
		case !t.covers(n):
			// A SotW client receives no removal of names that it unsubscribed itself.
			if held && c.v == xds.Delta {
				return fmt.Errorf("%s is held, and not subscribed", n)
			}
		case w.leftOut(t, n):
		case there && !held && t.unsure[n]:
			// it unsubscribed a name that the relay may not have known to be subscribed (P12)
		case there && holds != has:
			return fmt.Errorf("holds %v, want %v: %s", t.holds, w.o.has[t.typ], n)
		case !there && held && w.restarted && w.o.sotwSeen && t.names[n]:
			// The relay started after the removal, and a SotW origin cannot report that a name does
			// not exist (P65).
		case !there && held && !w.silent(c, t):
			return fmt.Errorf("holds %v, want %v: %s was removed", t.holds, w.o.has[t.typ], n)
		}
	}
	for n := range maps.Keys(t.holds) {
		if !slices.Contains(names, n) {
			return fmt.Errorf("holds %s, which the origin does not have", n)
		}
	}
	return nil
}

// pushedAgain reports whether the origin has sent anything again that a client rejected, after
// everything else was at rest (P15).
func (w *relayFixture) pushedAgain(t *clientType, rejected map[string]int) bool {
	return w.pushed && slices.ContainsFunc(names, func(n string) bool {
		was, in := rejected[n]
		has, there := w.o.has[t.typ][n]
		return in && t.covers(n) && there && has == was
	})
}

// moved reports whether anything that a client rejected has certainly changed.
func (w *relayFixture) moved(c *client, t *clientType, rejected map[string]int) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		was, in := rejected[n]
		has, there := w.o.has[t.typ][n]
		return (in || c.full(t)) && was != givenUp && t.covers(n) && has != was && (there || !w.silent(c, t)) && !w.leftOut(t, n)
	})
}

// leftOut: the origin may have removed the cluster that leads to these endpoints. A SotW origin is
// then not asked for them (P52).
func (w *relayFixture) leftOut(t *clientType, n string) bool {
	_, led := w.o.has[xds.ClusterType][n]
	return t.typ == xds.EndpointType && w.o.sotwSeen && !led && (!t.wild || hidden(n))
}

// silent: a removed resource may remain if SotW cannot express its removal, for types that are not
// full-state (P60).
func (w *relayFixture) silent(c *client, t *clientType) bool {
	return !fullState(t.typ) && (w.o.sotwSeen || c.v == xds.SotW && !t.wild)
}
