package model

import (
	"fmt"
	"maps"
	"slices"
)

// check checks a response against the rules for what may not be sent.
func (c *client) check(w *relayFixture, t *clientType, r response) error {
	for n, content := range r.items {
		if content != 0 && !t.covers(n) && !t.ever[n] {
			return fmt.Errorf("P51, P50: %s was never requested", n)
		}
	}
	if c.full(t) {
		if err := c.checkFull(w, t, r); err != nil {
			return err
		}
	} else {
		for n, content := range r.items {
			if err := c.checkItem(w, t, r, n, content); err != nil {
				return err
			}
		}
	}
	// P37: the load assignment of a cluster.
	if t.typ == cds {
		for n, content := range r.items {
			if content != 0 {
				c.types[eds].excuse(n)
			}
		}
	}
	t.answered = true
	for n, content := range r.items {
		t.told[n] = content
		delete(t.initialVersions, n)
		delete(t.unsure, n)
	}
	// A name that is answered by itself may be part of a rejected response: the rest follows (P15).
	for _, of := range t.nacks {
		for n, content := range r.items {
			if was, in := of.items[n]; in && was != content {
				for other := range of.items {
					t.excuse(other)
				}
				break
			}
		}
	}
	// Names that a response covers again are no longer rejected.
	t.nacks = slices.DeleteFunc(t.nacks, func(of rejected) bool {
		for n := range of.items {
			if _, again := r.items[n]; !again && t.covers(n) {
				return c.full(t) // it holds everything
			}
		}
		return true
	})
	return nil
}

// checkFull checks a response that holds everything. It may not leave out a permanent resource, and
// it may not equal the previous one.
func (c *client) checkFull(w *relayFixture, t *clientType, r response) error {
	for n, content := range t.told {
		if _, there := r.items[n]; there || content == 0 || !t.covers(n) {
			continue
		}
		// A client that subscribes to the wildcard again, or unsubscribes from a name beside it,
		// does not wait for all parts of the answer (P67).
		if w.permanent(t.typ, n) && !(t.wild && w.o.splits) {
			return fmt.Errorf("P65: %s is left out, and the origin never removed it", n)
		}
		if c.removedTooSoon(w, t, n) {
			return fmt.Errorf("P36: %s is left out, and the origin removed it just now", n)
		}
	}
	if t.resumes && !t.answered {
		for n := range t.holds {
			if t.covers(n) && w.permanent(t.typ, n) && r.items[n] == 0 {
				return fmt.Errorf("P67: %s is left out of the first response, and the client has it", n)
			}
		}
	}
	if len(t.told) > 0 && len(t.nacks) == 0 && maps.Equal(r.items, present(t.told)) {
		// Each newly listed name is answered, by the set without it once it is known to be absent
		// (P22).
		if t.answers == 0 {
			return fmt.Errorf("P33: sent again, and nothing changed")
		}
		t.answers--
	}
	clear(t.told)
	return nil
}

// removedTooSoon reports whether a removed name should still exist. A name that no client
// acknowledged is removed at once. A client that subscribed to listeners later may not have had
// them when the response was sent.
func (c *client) removedTooSoon(w *relayFixture, t *clientType, n string) bool {
	at, accepted := t.accepted[n]
	return c.points && t.typ != lds && t.cause[n] == 0 && accepted && !w.o.ripe(t.typ, n, at, removalDelay)
}

func present(told map[string]int) map[string]int {
	out := maps.Clone(told)
	maps.DeleteFunc(out, func(_ string, content int) bool { return content == 0 })
	return out
}

func (c *client) checkItem(w *relayFixture, t *clientType, r response, n string, content int) error {
	was, told := t.told[n]
	caused := t.cause[n] > 0
	// A client may have unsubscribed while it was in flight.
	if !t.covers(n) {
		return nil
	}
	if content == 0 && w.permanent(t.typ, n) && !caused {
		return fmt.Errorf("P65: %s is said to be gone, and the origin never removed it", n)
	}
	if content == 0 && was != 0 && !caused && c.removedTooSoon(w, t, n) {
		return fmt.Errorf("P36: %s is said to be gone, and the origin removed it just now", n)
	}
	if v, resumed := t.initialVersions[n]; resumed && content != 0 && v == r.versions[n] && t.typ != eds && !caused && !told {
		return fmt.Errorf("P27: %s is sent, and the client resumed with its version", n)
	}
	if !told || was != content {
		return nil
	}
	if caused {
		t.cause[n]--
		return nil
	}
	if t.narrowed[n] {
		delete(t.narrowed, n)
		return nil
	}
	for _, of := range t.nacks {
		if _, in := of.items[n]; !in {
			continue
		}
		for other, rejected := range of.items {
			if key := string(t.typ) + other; t.covers(other) && w.o.pushesSoFar()[key] > of.pushes[key] {
				return nil // P15: the origin's next push is the retry
			}
			if now, again := r.items[other]; again && (now != rejected || t.told[other] != rejected || rejected == 0) {
				// P15: part of a rejected response has changed, even if only for a while. Or the
				// client, which rejected the removal of a name, subscribes to that name again.
				return nil
			}
		}
		if !w.still(t, of.items) {
			return nil
		}
	}
	return fmt.Errorf("P33, P15: %s is sent again, and nothing changed", n)
}
