package model

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/xds"
)

// absence is a client of one type that subscribes to "a", which the origin does not have, and to
// "p", which it has.
type absence struct {
	*relayFixture
	t                    *testing.T
	upstream, downstream xds.Variant
	service              string
	typ                  xds.TypeURL
}

// eachAbsence runs f in all combinations, for a full-state type and another.
func eachAbsence(t *testing.T, f func(a *absence)) {
	for up, upstream := range variants {
		for down, downstream := range variants {
			for _, service := range []string{"ads", "per-type"} {
				t.Run(up+"-"+down+"/"+service, func(t *testing.T) {
					t.Parallel()
					for _, typ := range []xds.TypeURL{cds, eds} {
						synctest.Test(t, func(t *testing.T) {
							w, stop := newRelayFixture(t, t, upstream, 1)
							defer stop()
							w.o.whole = true
							f(&absence{relayFixture: w, t: t, upstream: upstream, downstream: downstream, service: service, typ: typ})
						})
					}
				})
			}
		}
	}
}

// asks connects a client that subscribes to the names.
func (a *absence) asks(names ...string) *client {
	own := a.typ
	if a.service == "ads" {
		own = ""
	}
	return a.join(a.downstream, own, func(c *client) {
		for _, n := range names {
			c.types[a.typ].names[n] = true
		}
	})
}

// settle waits until names have gone upstream and the origin has answered.
func (a *absence) settle() {
	time.Sleep(20 * time.Millisecond)
	a.flush()
}

// until lets time pass until at.
func (a *absence) until(at time.Time) {
	time.Sleep(time.Until(at))
	synctest.Wait()
}

// gets fails the test unless the client has since received exactly these responses, as content by
// name, 0 for a removal.
func (a *absence) gets(c *client, when string, want ...map[string]int) {
	a.t.Helper()
	typ := c.types[a.typ]
	if _, err := c.take(a.relayFixture); err != nil {
		a.t.Fatalf("%s: %s: %v", a.typ, when, err)
	}
	var got []map[string]int
	for _, r := range typ.open {
		got = append(got, r.items)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) { // fmt sorts maps
		a.t.Fatalf("%s: %s: sent %v, want %v", a.typ, when, got, want)
	}
	for c.answer(typ, false) {
	}
	synctest.Wait()
}

// gone returns the responses that report the absence of a to a client that has the rest. In delta
// it is a's name. In SotW of a full-state type it is everything else; of other types there is none.
func (a *absence) gone(rest map[string]int) []map[string]int {
	switch {
	case a.downstream == xds.Delta:
		return []map[string]int{{"a": 0}}
	case fullState(a.typ):
		return []map[string]int{rest}
	}
	return nil
}

// come returns the response that has a.
func (a *absence) come(rest map[string]int, content int) map[string]int {
	out := map[string]int{"a": content}
	if a.downstream == xds.SotW && fullState(a.typ) {
		maps.Copy(out, rest)
	}
	return out
}

// A name without an answer is pending, however long, also on a new stream. It is sent when it
// appears. Held resources stay held.
func TestP57_SilenceIsPending(t *testing.T) {
	eachAbsence(t, func(a *absence) {
		p := map[string]int{"p": 1}
		a.o.hush(a.typ, "a", true)
		c := a.asks("a", "p")
		a.settle()
		a.gets(c, "at first", p)
		a.o.hush(a.typ, "p", true)
		a.until(time.Now().Add(24 * time.Hour))
		a.gets(c, "after a day")
		late := a.asks("p")
		synctest.Wait()
		a.gets(late, "what is held, to a late joiner", p)
		a.o.leave(true)
		a.until(time.Now().Add(time.Hour))
		a.gets(c, "while the origin is away")
		a.o.leave(false)
		a.until(time.Now().Add(24 * time.Hour))
		a.gets(c, "after a day on the next stream")
		a.gets(late, "what it requested, after a day")

		a.o.put(a.typ, "a", 2)
		a.o.hush(a.typ, "a", false)
		a.flush()
		a.gets(c, "once it is there", a.come(p, 2))
		a.gets(late, "of what it did not ask for")
	})
}

// If the origin can express absence, it is passed on at once. In delta by name; in SotW a
// full-state type is sent without it to a client that had it. A later client is answered at once,
// too. Answered clients receive the resource as soon as it appears.
func TestP25_AbsenceStatedByTheOrigin(t *testing.T) {
	eachAbsence(t, func(a *absence) {
		p := map[string]int{"p": 1}
		heard := a.upstream == xds.Delta || fullState(a.typ)
		a.o.put(a.typ, "a", 1)
		c := a.asks("a", "p")
		a.settle()
		a.gets(c, "at first", map[string]int{"a": 1, "p": 1})
		a.o.remove(a.typ, "a")
		a.flush()
		var gone []map[string]int
		if heard {
			gone = a.gone(p)
		}
		a.gets(c, "once it is gone", gone...)
		late := a.asks("a")
		synctest.Wait()
		switch {
		case heard:
			a.gets(late, "a later client", a.gone(map[string]int{})...)
		default: // the origin could not express it
			a.gets(late, "a later client", map[string]int{"a": 1})
		}
		a.until(time.Now().Add(time.Hour))
		a.gets(c, "long after")
		a.gets(late, "long after")

		a.o.put(a.typ, "a", 2)
		a.flush()
		a.gets(c, "once it is back", a.come(p, 2))
		a.gets(late, "once it is back", a.come(nil, 2))
	})
}

// A name that never existed is pending until the origin reports that. Then it is answered at once,
// even if no other name is.
func TestP25_NameThatNeverExisted(t *testing.T) {
	eachAbsence(t, func(a *absence) {
		if a.upstream == xds.SotW {
			return // it cannot express that: TestP57_SilenceIsPending
		}
		a.o.hush(a.typ, "a", true)
		a.o.hush(a.typ, "p", true)
		c := a.asks("a", "p")
		a.settle()
		a.until(time.Now().Add(time.Hour))
		a.gets(c, "while it is pending")
		a.o.hush(a.typ, "a", false)
		a.flush()
		a.gets(c, "once the origin has said so", a.gone(map[string]int{})...)
		a.o.hush(a.typ, "p", false)
		a.flush()
		a.gets(c, "then what was pending", map[string]int{"p": 1})
	})
}
