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
	if url == xds.ClusterType && rapid.Bool().Draw(rt, "removals wait") {
		c.hold = delay
	}
	if whole := v == xds.SotW && (c.typ.FullState || wild); !whole && rapid.Bool().Draw(rt, "limited") {
		c.limit = c.room(rapid.IntRange(1, 3).Draw(rt, "limit"))
		c.s.limit = c.limit
	}
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
	work := func() {
		for text := c.next(); text != ""; text = c.next() {
			c.take(text)
		}
	}
	for range rapid.IntRange(1, 40).Draw(rt, "steps") {
		switch rapid.SampledFrom([]string{"change", "change", "names", "ack", "ack", "nack", "time", "grain", "late", "routed", "refresh", "move", "star"}).Draw(rt, "step") {
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
			if c.cur != nil && c.limit == 0 {
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
		case "grain":
			c.pass(delay / grain / 2)
		case "late":
			c.pass(ackTimeout)
		case "routed":
			c.routed = c.now
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
		c.routed = c.now
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

// A client that takes what it is sent falls behind by no more than removals wait, however
// many of them there are.
func TestP36_ManyRemovalsKeepNobodyBehind(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			w := troop(t, v, 1)[0]
			var all []string
			const n = 400
			for i := range n {
				all = append(all, fmt.Sprintf("n%03d", i))
			}
			w.wild(all...)
			w.sub()
			w.next()
			w.ack()
			type came struct {
				gen uint64
				at  int
			}
			var of []came
			least := uint64(0)
			for i := range n {
				w.wild("-" + all[i])
				of = append(of, came{w.cur.Gen, i})
				if w.next() != "" {
					w.ack()
				}
				look := newSurvey()
				has, _, _ := look.owned(w.s, w.cur, look.unsent(w.s, w.cur))
				if has < least {
					t.Fatalf("had %d, and has %d", least, has)
				}
				least = has
				if at := slices.IndexFunc(of, func(c came) bool { return c.gen > has }); at >= 0 && i-of[at].at > 2*50+50/grain+2 {
					t.Fatalf("after %d removals it has %d of %d", i, has, w.cur.Gen)
				}
				w.pass(delay / 50)
				if i%3 == 0 {
					w.routed = w.now
				}
			}
		})
	}
}

// owns is what the session says that its client has, arrears taken off.
func (w *world) owns() uint64 {
	has, owes, _, _ := stand(w)
	return owes.before(has)
}

// What went, came back as something else and went again, all before the client was told of
// any of that, it has as before the first of these.
func TestP36_WhatIsHadIsHeldOfWhatComesBack(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			w := troop(t, v, 1)[0]
			w.wild("a", "b")
			w.sub()
			w.next()
			w.ack()
			w.wild("-b", "c")
			went := w.cur.Gen
			w.next()
			w.wild("b=2")
			if got := w.next(); got != "" {
				t.Fatalf("sends %q before the answer", got)
			}
			w.wild("-b", "c=2")
			w.ack()
			w.next()
			w.ack()
			if w.s.over().get("b").r == nil {
				t.Fatal("b is not held back")
			}
			if got := w.owns(); got != went-1 {
				t.Errorf("has %d, want %d: b is as it was before", got, went-1)
			}
			w.pass(2 * delay)
			w.next()
			w.ack()
			if got := w.owns(); got != w.cur.Gen {
				t.Errorf("in the end it has %d of %d", got, w.cur.Gen)
			}
		})
	}
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
