package fanout

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"xdsrelay/internal/xds"
)

// aliased are the names of resources, and what else they go by: p and q lead to two of
// them, r to one.
var aliased = map[string]string{"a": "a|p", "b": "b|p", "c": "c|q", "d": "d", "e": "e|q|r"}

var (
	aliasedNames = slices.Sorted(maps.Keys(aliased))
	aliases      = []string{"p", "q", "r"}
)

// asker is a client as plain maps, which asks by names, aliases and the wildcard, and
// never gives up what is on its way to it.
type asker struct {
	*world
	witness
	rt *rapid.T

	answers bool // the origin answers the wildcard
	wild    bool
	names   map[string]bool
	holds   map[string]string // name -> content
	open    []map[string]string
	// calm: it asks for the same all the time, and is sent everything at once: it never
	// has less than before, unless it refuses something.
	calm bool
}

// What clients that ask by aliases are said to have they hold; who takes everything has
// everything, and refuses nothing; and who has a version keeps it.
func TestP36_WhatIsHadByAliasesIsHeld(t *testing.T) {
	for _, url := range []xds.TypeURL{xds.ClusterType, xds.EndpointType, xds.VHostType} {
		for _, v := range variants {
			if url == xds.VHostType && v == xds.SotW {
				continue
			}
			for _, wild := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/wildcard=%v", xds.TypeOf(url).Short, v, wild), func(t *testing.T) {
					rapid.Check(t, func(rt *rapid.T) { runAsker(t, rt, url, v, wild) })
				})
			}
		}
	}
}

func runAsker(t *testing.T, rt *rapid.T, url xds.TypeURL, v xds.Variant, wild bool) {
	c := &asker{world: newWorld(t, url, v), rt: rt, answers: wild, names: map[string]bool{}, holds: map[string]string{}}
	c.calm = rapid.Bool().Draw(rt, "calm")
	names := aliasedNames
	if rapid.Bool().Draw(rt, "by aliases") {
		names = slices.Concat(aliasedNames, aliases)
	}
	some := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 4, rapid.ID[string])
	content := rapid.SampledFrom([]string{"1", "2", "33", "-"})
	c.wild = wild && rapid.Bool().Draw(rt, "asks for everything")
	for _, n := range some.Draw(rt, "first") {
		c.names[n] = true
	}
	if !c.wild && len(c.names) == 0 {
		c.names["a"] = true // none at all would be the legacy wildcard
	}
	if c.calm || rapid.Bool().Draw(rt, "before") {
		c.change(map[string]string{"a": "1", "c": "2", "e": "1"})
	}
	c.send(request{names: c.asked()})
	c.work()
	steps := []string{"change", "change", "change", "ack", "ack", "ack", "nack", "time", "late"}
	if !c.calm {
		steps = append(steps, "again", "drop", "names", "star", "move", "unresolved")
	}
	for range rapid.IntRange(1, 40).Draw(rt, "steps") {
		c.check()
		had := c.had
		step := rapid.SampledFrom(steps).Draw(rt, "step")
		switch step {
		case "change":
			specs := map[string]string{}
			for _, n := range rapid.SliceOfNDistinct(rapid.SampledFrom(aliasedNames), 0, 3, rapid.ID[string]).Draw(rt, "changed") {
				specs[n] = content.Draw(rt, "content")
			}
			c.change(specs)
		case "unresolved": // the origin takes back that it has anything for an alias
			if h := rapid.SampledFrom(aliases).Draw(rt, "alias"); v == xds.Delta && c.names[h] && c.cur != nil && len(c.cur.Linked(h)) == 0 {
				c.origin(false, "?"+h)
				c.see(c.cur)
			}
		case "move": // to another origin, or key
			if c.cur != nil {
				c.move(content)
			}
		case "names":
			c.add(some.Draw(rt, "add"))
		case "again":
			c.add([]string{rapid.SampledFrom(names).Draw(rt, "again")})
		case "drop":
			c.drop(some.Draw(rt, "drop"))
		case "star":
			c.star()
		case "ack":
			c.answer(false)
		case "nack":
			c.answer(true)
		case "time":
			c.pass(delay / 2)
		case "late":
			c.pass(ackTimeout)
		}
		if c.calm || rapid.Bool().Draw(rt, "work") {
			c.work()
		}
		if c.check(); c.calm && step != "nack" {
			c.keeps(rt, had)
		}
	}
	if c.rest(); !c.s.refusing() {
		c.complete(rt, c.world)
	}
	// Everything changes, so that what was refused is let go (P15).
	for _, content := range []string{"2", "33"} {
		specs := map[string]string{}
		for _, n := range aliasedNames {
			specs[n] = content
		}
		c.change(specs)
		c.rest()
	}
	c.complete(rt, c.world)
}

// covers reports whether the client asks for a resource, by whatever it goes by.
func (c *asker) covers(name string) bool {
	return c.wild || slices.ContainsFunc(strings.Split(aliased[name], "|"), func(n string) bool { return c.names[n] })
}

// asked is the list of names as a SotW client repeats it.
func (c *asker) asked() []string {
	names := slices.Sorted(maps.Keys(c.names))
	if c.wild {
		names = append(names, wildcard)
	}
	return names
}

// check holds what the client is said to have against what it holds.
func (c *asker) check() {
	c.witness.check(c.rt, c.world, slices.DeleteFunc(slices.Clone(aliasedNames), func(n string) bool { return !c.covers(n) }), c.holds)
}

// change has the origin answer the wildcard, if it does that, and names.
func (c *asker) change(contents map[string]string) {
	var specs []string
	for _, n := range slices.Sorted(maps.Keys(contents)) {
		switch content := contents[n]; content {
		case "-":
			specs = append(specs, "-"+n)
		case "1":
			specs = append(specs, aliased[n])
		default:
			specs = append(specs, aliased[n]+"="+content)
		}
	}
	if c.answers {
		c.origin(true, specs...)
		c.see(c.cur)
		if c.calm && c.s.began {
			c.work()
		}
	}
	c.origin(false, specs...)
	c.see(c.cur)
	c.rt.Logf("generation %d: %v", c.cur.Gen, specs)
}

// move has everything counted anew.
func (c *asker) move(content *rapid.Generator[string]) {
	// What was had by aliases, and is not answered there, nobody knows of any more.
	byAliases := slices.ContainsFunc(aliases, func(n string) bool { return c.names[n] })
	if byAliases || rapid.Bool().Draw(c.rt, "with what is held") {
		c.builder = begunWith(c.cur)
	} else {
		c.builder = xds.NewBuilder(c.typ)
	}
	specs := map[string]string{}
	for _, n := range aliasedNames {
		specs[n] = content.Draw(c.rt, "content")
	}
	c.cur, c.states = nil, nil
	c.change(specs)
}

// add asks for names, some of them perhaps again.
func (c *asker) add(names []string) {
	for _, n := range names {
		c.names[n] = true
	}
	if c.s.variant == xds.SotW {
		names = c.asked()
	}
	c.rt.Logf("asks for %v", names)
	c.send(request{names: names})
}

// drop gives names up, and not the last ones: none at all would be the legacy wildcard.
func (c *asker) drop(names []string) {
	if c.wild || c.s.variant == xds.SotW && len(c.open) > 0 {
		return // P24, P12: what the client holds then is another model's
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !c.names[n] })
	if len(names) == 0 || len(names) == len(c.names) {
		return
	}
	for _, n := range names {
		delete(c.names, n)
	}
	r := request{unsub: names}
	if c.s.variant == xds.SotW {
		r = request{names: c.asked()}
	}
	c.rt.Logf("gives up %v", names)
	c.send(r)
	c.letGo()
}

// star gives the wildcard up, or asks for it again. What is on its way would be taken or
// not, as it crosses that.
func (c *asker) star() {
	if !c.answers || len(c.open) > 0 || len(c.names) == 0 {
		return
	}
	c.wild = !c.wild
	r := request{names: c.asked()}
	switch {
	case c.s.variant == xds.SotW:
	case c.wild:
		r = request{names: []string{wildcard}}
	default:
		r = request{unsub: []string{wildcard}}
	}
	c.rt.Logf("asks for everything: %v", c.wild)
	c.send(r)
	c.letGo()
}

// letGo lets go of what is not asked for any more.
func (c *asker) letGo() {
	maps.DeleteFunc(c.holds, func(n, _ string) bool { return !c.covers(n) })
}

// work has all that there is sent.
func (c *asker) work() {
	for text := c.next(); text != ""; text = c.next() {
		c.rt.Logf("%d: %s", len(c.nonces), text)
		c.open = append(c.open, itemsOf(text))
	}
}

// answer takes or refuses the oldest unanswered response.
func (c *asker) answer(refuse bool) {
	if len(c.open) == 0 {
		return
	}
	items := c.open[0]
	c.open = c.open[1:]
	r := request{names: c.list(c.asked()), ack: len(c.nonces) - len(c.open)}
	if refuse {
		r.ack, r.nack = 0, r.ack
	} else {
		if c.s.full() {
			clear(c.holds)
		}
		for name, content := range items {
			switch {
			case content == "-":
				delete(c.holds, name)
			case c.covers(name): // it may have been given up meanwhile
				c.holds[name] = content
			}
		}
	}
	c.rt.Logf("answers %d, refuses it: %v", r.ack+r.nack, refuse)
	c.send(r)
}

// rest lets the client take all that there is.
func (c *asker) rest() {
	for i := 0; i < 80 && (i < 8 || len(c.open) > 0); i++ {
		c.pass(delay)
		c.work()
		c.check()
		c.answer(false)
		c.check()
	}
	if c.work(); len(c.open) > 0 {
		c.rt.Fatalf("does not come to rest: %v", c.open)
	}
}
