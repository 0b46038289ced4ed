package fanout

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"xdsrelay/internal/xds"
)

// claims is a client whose session says what it has.
type claims struct {
	*modelClient
	witness
}

// check holds that against what it holds.
func (c *claims) check() {
	c.witness.check(c.rt, c.world, slices.DeleteFunc(slices.Clone(modelNames), func(n string) bool {
		return !c.covers(n) || c.unsure[n] || c.dropped[n]
	}), c.holds)
}

// give is an answer of the origin.
func (c *claims) give(wild bool, specs ...string) {
	c.origin(wild, specs...)
	c.see(c.cur)
	if wild { // names beside the wildcard are answered on a stream of their own (P50)
		c.origin(false, specs...)
		c.see(c.cur)
	}
}

// spec is how describe writes it.
func (c *claims) spec(name, content string) string {
	if content == "1" {
		return name
	}
	return name + "=" + content
}

// What clients are said to have they hold: whatever they ask for later, refuse or are slow
// to take, and while removals wait (P36).
func TestP36_WhatIsHadIsHeld(t *testing.T) {
	for _, url := range []xds.TypeURL{xds.ClusterType, xds.EndpointType} {
		for _, v := range variants {
			for _, wild := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/wildcard=%v", xds.TypeOf(url).Short, v, wild), func(t *testing.T) {
					rapid.Check(t, func(rt *rapid.T) { runClaims(t, rt, url, v, wild) })
				})
			}
		}
	}
}

func runClaims(t *testing.T, rt *rapid.T, url xds.TypeURL, v xds.Variant, wild bool) {
	c := &claims{modelClient: &modelClient{
		world: newWorld(t, url, v), rt: rt, wildcard: wild,
		parted: map[string]bool{}, unsure: map[string]bool{}, dropped: map[string]bool{},
		names: map[string]bool{}, holds: map[string]string{}, sent: map[string]string{}, cause: map[string]bool{},
	}}
	some := rapid.SliceOfNDistinct(rapid.SampledFrom(modelNames), 0, 3, rapid.ID[string])
	first := some.Draw(rt, "first")
	if !wild && len(first) == 0 {
		first = []string{"a"} // none at all would be the legacy wildcard
	}
	for _, n := range first {
		c.names[n] = true
	}
	if rapid.Bool().Draw(rt, "before") {
		c.give(wild, "a", "b=2")
	}
	initial := map[string]string{}
	if v == xds.Delta && rapid.Bool().Draw(rt, "brings") {
		for _, n := range some.Draw(rt, "brought") {
			if !c.covers(n) {
				continue
			}
			content := rapid.SampledFrom([]string{"1", "2", "33"}).Draw(rt, "content")
			initial[n] = c.resource(c.spec(n, content)).Version.String()
			c.holds[n] = content
		}
	}
	if wild {
		c.send(request{names: c.asked(), initial: initial})
	} else {
		c.send(request{names: first, initial: initial})
	}
	if c.s.brought != nil {
		c.s.brought.late = true // it waits for no names (P67)
	}
	work := func() {
		for text := c.next(); text != ""; text = c.next() {
			c.take(text)
		}
	}
	for range rapid.IntRange(1, 40).Draw(rt, "steps") {
		switch rapid.SampledFrom([]string{"change", "change", "names", "ack", "ack", "nack", "time", "late", "refresh", "move", "star"}).Draw(rt, "step") {
		case "change":
			var specs []string
			for _, n := range some.Draw(rt, "changed") {
				switch content := rapid.SampledFrom([]string{"1", "2", "33", "-"}).Draw(rt, "content"); content {
				case "-":
					specs = append(specs, "-"+n)
				default:
					specs = append(specs, c.spec(n, content))
				}
			}
			c.give(wild, specs...)
		case "move": // to another origin, or key
			if c.cur != nil {
				c.move(rt, wild)
			}
		case "star": // the wildcard is given up, or asked for again
			if wild && len(c.open) == 0 { // else what is on its way is taken or not, as it crosses that
				c.star()
			}
		case "refresh":
			c.s.Refresh(some.Draw(rt, "refreshed"))
		case "names":
			drop := some.Draw(rt, "drop")
			c.subscribe(some.Draw(rt, "add"), drop)
			for _, n := range drop {
				c.dropped[n] = wild // what it is to be told of that is nothing it asks for
			}
		case "ack":
			c.answer(false)
		case "nack":
			c.answer(true)
		case "time":
			c.pass(delay / 2)
		case "late":
			c.pass(ackTimeout)
		}
		c.check()
		if rapid.Bool().Draw(rt, "work") {
			work()
			c.check()
		}
	}
	// Who takes everything has everything.
	for range 50 {
		c.pass(delay)
		work()
		c.answer(false)
		c.check()
	}
	if !c.s.refusing() {
		c.complete(rt, c.world)
	}
}

// star gives the wildcard up, or asks for it again.
func (c *claims) star() {
	c.wildcard = !c.wildcard
	req := request{names: c.asked()}
	if c.s.variant == xds.Delta {
		req = request{unsub: []string{"*"}}
		if c.wildcard {
			req = request{names: []string{"*"}}
		}
	}
	for _, n := range modelNames {
		switch {
		case c.wildcard:
			delete(c.dropped, n)
		case !c.names[n]:
			delete(c.holds, n)
			delete(c.sent, n)
			c.letGo(n)
		}
	}
	c.request(req)
}

// move has everything counted anew.
func (c *claims) move(rt *rapid.T, wild bool) {
	if rapid.Bool().Draw(rt, "with what is held") {
		c.builder = c.cur.Fork(c.typ)
	} else {
		c.builder = xds.NewBuilder(c.typ)
	}
	var specs []string
	for _, n := range modelNames {
		switch content := rapid.SampledFrom([]string{"", "1", "2", "33", "-"}).Draw(rt, "content"); content {
		case "":
		case "-":
			specs = append(specs, "-"+n)
		default:
			specs = append(specs, c.spec(n, content))
		}
	}
	c.cur, c.states = nil, nil
	c.give(wild, specs...)
}

// take notes a response.
func (c *claims) take(text string) {
	c.rt.Logf("%d: %s", len(c.nonces), text)
	r := modelResponse{text: text, items: itemsOf(text)}
	if c.s.full() {
		c.sent = map[string]string{}
	}
	maps.Copy(c.sent, r.items)
	c.open = append(c.open, r)
}

// owns is what the session says that its client has, arrears taken off.
func (w *world) owns() uint64 {
	has, owes, _, _ := stand(w)
	return owes.before(has)
}

// What was refused, and is said again in a response that is on its way, is not had with
// another that the client takes before.
func TestP19_WhatWasRefusedIsNotHadBeforeItIsTaken(t *testing.T) {
	w := newWorld(t, xds.ClusterType, xds.Delta)
	w.wild("a")
	w.sub()
	w.next()
	w.ack()
	has := w.cur.Gen
	w.wild("-a")
	w.want("-a")
	w.nack()
	w.wild("b")
	w.want("b")
	other := len(w.nonces)
	w.named("-a")
	w.sub("a")
	w.want("-a")
	w.send(request{ack: other})
	if got := w.owns(); got != has {
		t.Errorf("has %d, want %d", got, has)
	}
	w.ack()
	if got := w.owns(); got != w.cur.Gen {
		t.Errorf("in the end it has %d of %d", got, w.cur.Gen)
	}
}
