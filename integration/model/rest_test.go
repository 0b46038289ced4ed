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

// rest lets everyone say and take all that there is.
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

// finish brings everything to rest and holds the clients against the origin:
// first as it came, but for what was refused, then once everything has changed,
// which lets go what was refused (P15), and once something has gone.
func (w *relayFixture) finish() {
	for _, c := range w.clients {
		c.setSlow(false)
	}
	w.rest()
	w.compare("at rest")
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

// change changes everything twice, the second time while the first is
// unanswered: then the ACKs alone bring the rest, and no time has to pass (P19).
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
		pass(time.Millisecond)
		took = w.flush() || took
	}
}

// compare holds what the clients have against what the origin has of what they
// asked for.
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

// differs says in what a client differs from what it should hold, but for what
// it refused and is as it was then (P15).
func (w *relayFixture) differs(c *client, t *clientType) error {
	if t.wild && !t.heard {
		return errors.New("P11: the wildcard was never answered")
	}
	for _, n := range names {
		if slices.ContainsFunc(t.refusals, func(of map[string]int) bool { _, in := of[n]; return (in || c.full(t)) && !w.moved(c, t, of) }) {
			continue
		}
		has, there := w.o.has[t.typ][n]
		holds, held := t.holds[n]
		switch {
		case !t.covers(n):
			// A SotW client is not told of what it gave up itself.
			if held && c.v == xds.Delta {
				return fmt.Errorf("%s is held, and not asked for", n)
			}
		case there && !held && t.unsure[n]:
			// It let go what the relay could not know that it had (P12).
		case there && holds != has:
			return fmt.Errorf("holds %v, want %v: %s", t.holds, w.o.has[t.typ], n)
		case !there && held && w.restarted && w.o.sotwSeen && t.names[n]:
			// The relay started after it was removed, and a SotW origin does not say that a
			// name does not exist (P65).
		case !there && held && !w.silent(c, t):
			return fmt.Errorf("holds %v, want %v: %s was removed", t.holds, w.o.has[t.typ], n)
		}
	}
	for n := range maps.Keys(t.holds) {
		if !slices.Contains(names, n) {
			return fmt.Errorf("holds %s, which nobody has", n)
		}
	}
	return nil
}

// moved reports whether anything of what a client refused is surely known to
// have changed.
func (w *relayFixture) moved(c *client, t *clientType, refused map[string]int) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		was, in := refused[n]
		has, there := w.o.has[t.typ][n]
		return (in || c.full(t)) && was != givenUp && t.covers(n) && has != was && (there || !w.silent(c, t))
	})
}

// silent: what is gone may remain where a SotW of other than full-state types
// has no way to say so (P60).
func (w *relayFixture) silent(c *client, t *clientType) bool {
	return !fullState(t.typ) && (w.o.sotwSeen || c.v == xds.SotW && !t.wild)
}
