package fanout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"xdsrelay/internal/xds"
)

// modelClient is a client as plain maps: what it asked for, and what it holds.
type modelClient struct {
	*world
	rt *rapid.T

	wildcard bool
	names    map[string]bool
	holds    map[string]string // name -> content

	open  []modelResponse // not answered yet, oldest first
	sent  map[string]string
	cause map[string]bool // names that may be sent though equal to what was sent

	// SotW: names given up, perhaps by stale requests alone (P12), and those of
	// them that were asked for again since.
	parted, unsure map[string]bool
	// dropped are names that a SotW client gave up beside the wildcard: that is not
	// answered (P22), and the next set has no more of them.
	dropped map[string]bool
	// refused are what refused responses held, until a response has covered
	// all that is still asked for of one again (P15).
	refused []map[string]string
}

type modelResponse struct {
	text  string
	items map[string]string // content, or "-" for removed
}

// itemOf reads what world.next writes of a resource; "" for none.
func itemOf(item string) (name, content string) {
	name, content, _ = strings.Cut(item, "=")
	switch {
	case item == "(empty)":
		return "", ""
	case name[0] == '-':
		return name[1:], "-"
	case content == "":
		content = "1"
	}
	return name, content
}

func itemsOf(text string) map[string]string {
	items := map[string]string{}
	for _, item := range strings.Fields(text) {
		if name, content := itemOf(item); name != "" {
			items[name] = content
		}
	}
	return items
}

func (c *modelClient) covers(name string) bool { return c.wildcard || c.names[name] }

// work lets the session send, and holds each response against what was sent
// before: nothing goes twice without cause (P33).
func (c *modelClient) work(origin map[string]string) {
	for {
		if c.s.variant == xds.SotW && !c.s.full() {
			// What went without a word is new when it returns.
			maps.DeleteFunc(c.sent, func(n, _ string) bool { return origin[n] == "" })
		}
		text := c.next()
		if text == "" {
			return
		}
		r := modelResponse{text: text, items: itemsOf(text)}
		for _, item := range strings.Fields(text) {
			name, content := itemOf(item)
			if name == "" {
				continue
			}
			again := slices.ContainsFunc(c.refused, func(of map[string]string) bool { return of[name] != "" })
			if !c.s.full() && !c.cause[name] && !again && c.sent[name] == content {
				c.rt.Fatalf("%s sent again: %q", item, text)
			}
			// Under the wildcard an unsubscribed name is answered (P24); a name
			// that a stale request gave up still stands (P12).
			if !c.covers(name) && !c.s.sub.Covers(name) && content != "-" {
				c.rt.Fatalf("%s was not asked for: %q", item, text)
			}
			c.sent[name] = content
			delete(c.cause, name)
			delete(c.unsure, name)
		}
		if c.s.full() {
			for name := range c.sent {
				if _, ok := r.items[name]; !ok {
					delete(c.sent, name)
				}
			}
		}
		c.refused = slices.DeleteFunc(c.refused, func(of map[string]string) bool {
			for n := range of {
				if r.items[n] == "" && c.covers(n) {
					return c.s.full() // that one held everything
				}
			}
			return true
		})
		c.rt.Logf("%d: %s", len(c.nonces), text)
		c.open = append(c.open, r)
	}
}

// answer takes or refuses the oldest unanswered response.
func (c *modelClient) answer(refuse bool) {
	if len(c.open) == 0 {
		return
	}
	r := c.open[0]
	c.open = c.open[1:]
	n := len(c.nonces) - len(c.open)
	req := request{names: c.list(c.asked()), ack: n}
	if refuse {
		req.ack, req.nack = 0, n
		if !c.s.full() || len(c.open) == 0 { // else the next one holds everything
			c.refused = append(c.refused, maps.Clone(r.items))
			for n := range r.items {
				if !c.covers(n) {
					c.letGo(n)
				}
			}
		}
	} else {
		if c.s.full() {
			c.holds = map[string]string{}
		}
		for name, content := range r.items {
			switch {
			case content == "-":
				delete(c.holds, name)
			case c.covers(name): // it may have been given up meanwhile
				c.holds[name] = content
			}
		}
	}
	c.request(req)
}

// request sends a request. Unless it is stale, what a SotW one leaves out is
// given up.
func (c *modelClient) request(r request) {
	if len(c.open) == 0 {
		clear(c.parted)
	}
	c.send(r)
}

// letGo has what was refused of a name that was given up since be no matter any
// more, also if it is asked for again.
func (c *modelClient) letGo(name string) {
	for _, of := range c.refused {
		if of[name] != "" {
			of[name] = "given up"
		}
	}
}

// asked is the list of names as a SotW client repeats it.
func (c *modelClient) asked() []string {
	names := slices.Sorted(maps.Keys(c.names))
	if c.wildcard {
		names = append(names, "*")
	}
	return names
}

// subscribe changes the names.
func (c *modelClient) subscribe(add, drop []string) {
	for _, n := range add {
		if c.s.variant == xds.Delta || !c.names[n] {
			c.cause[n] = true
		}
		c.unsure[n] = c.unsure[n] || c.parted[n] // P22 compares with the last request that was not stale
		c.names[n] = true
		delete(c.dropped, n)
	}
	for _, n := range drop {
		if c.s.variant == xds.SotW && c.names[n] {
			c.parted[n] = true
			c.dropped[n] = c.wildcard
		}
		delete(c.names, n)
		delete(c.unsure, n)
		if !c.wildcard {
			c.letGo(n)
		}
		if c.wildcard {
			c.cause[n] = true
		} else {
			delete(c.holds, n)
			delete(c.sent, n)
		}
	}
	if c.s.variant == xds.Delta {
		c.send(request{names: add, unsub: drop})
	} else {
		c.request(request{names: c.asked()})
	}
}

// A client of either variant ends with what the origin holds for what it asked
// for, whatever it subscribed to, refused or withheld on the way; and nothing is
// sent twice without cause.
func TestModel(t *testing.T) {
	for _, url := range []xds.TypeURL{xds.ClusterType, xds.EndpointType} {
		for _, v := range variants {
			for _, wild := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/wildcard=%v", xds.TypeOf(url).Short, v, wild), func(t *testing.T) {
					rapid.Check(t, func(rt *rapid.T) { runModel(t, rt, url, v, wild) })
				})
			}
		}
	}
}

func runModel(t *testing.T, rt *rapid.T, url xds.TypeURL, v xds.Variant, wild bool) {
	c := &modelClient{
		world: newWorld(t, url, v), rt: rt, wildcard: wild,
		parted: map[string]bool{}, unsure: map[string]bool{}, dropped: map[string]bool{},
		names: map[string]bool{}, holds: map[string]string{}, sent: map[string]string{}, cause: map[string]bool{},
	}
	origin := map[string]string{}
	name := rapid.SampledFrom(modelNames)
	some := rapid.SliceOfNDistinct(name, 0, 3, rapid.ID[string])
	change := func(specs map[string]string) {
		var list []string
		for n, content := range specs {
			switch content {
			case "-":
				list = append(list, "-"+n)
				delete(origin, n)
			case "1":
				list = append(list, n)
				origin[n] = content
			default:
				list = append(list, n+"="+content)
				origin[n] = content
			}
		}
		if !wild {
			c.origin(false, list...)
			return
		}
		// Names beside the wildcard are answered on a stream of their own (P50).
		first := rapid.Bool().Draw(rt, "the wildcard first")
		c.origin(first, list...)
		if rapid.Bool().Draw(rt, "work in between") {
			c.work(origin)
		}
		c.origin(!first, list...)
	}
	first := some.Draw(rt, "first")
	if !wild && len(first) == 0 {
		first = []string{"a"} // none at all would be the legacy wildcard
	}
	for _, n := range first {
		c.names[n] = true
	}
	if wild {
		c.send(request{names: c.asked()})
	} else {
		c.send(request{names: first})
	}
	for range rapid.IntRange(1, 40).Draw(rt, "steps") {
		switch rapid.SampledFrom([]string{"change", "change", "names", "ack", "ack", "nack", "work", "time"}).Draw(rt, "step") {
		case "change":
			specs := map[string]string{}
			for _, n := range some.Draw(rt, "changed") {
				specs[n] = rapid.SampledFrom([]string{"1", "2", "33", "-"}).Draw(rt, "content")
			}
			change(specs)
		case "names":
			c.subscribe(some.Draw(rt, "add"), some.Draw(rt, "drop"))
		case "ack":
			c.answer(false)
		case "nack":
			c.answer(true)
		case "time":
			c.pass(ackTimeout)
		}
		if rapid.Bool().Draw(rt, "work") {
			c.work(origin)
		}
	}
	// To rest: what is left is taken. Then everything changes, so that what was
	// refused is let go (P15); and something goes.
	c.rest(origin)
	c.compare("at rest", origin)
	all := func(content string) map[string]string {
		specs := map[string]string{}
		for _, n := range modelNames {
			specs[n] = content
		}
		return specs
	}
	for _, specs := range []map[string]string{all("2"), all("33"), {"a": "-", "b": "-"}} {
		change(specs)
		c.rest(origin)
	}
	c.compare("once everything has changed", origin)
}

var modelNames = []string{"a", "b", "c", "d", "e", "f"}

// rest lets the client take all that there is.
func (c *modelClient) rest(origin map[string]string) {
	for range 100 {
		c.pass(time.Second)
		c.work(origin)
		if len(c.open) == 0 {
			break
		}
		c.answer(false)
	}
	if c.work(origin); len(c.open) > 0 {
		c.rt.Fatalf("does not come to rest: %v", c.open)
	}
}

// compare holds what the client has against what the origin has of what was
// asked for, but for what was refused and is as it was then (P15).
func (c *modelClient) compare(when string, origin map[string]string) {
	quiet := c.s.variant == xds.SotW && !c.s.full() // a removal sends nothing
	for _, n := range modelNames {
		has, there := origin[n]
		holds, held := c.holds[n]
		switch {
		case slices.ContainsFunc(c.refused, func(of map[string]string) bool { return (c.s.full() || of[n] != "") && !c.moved(of, origin) }):
		case !c.covers(n):
			// A SotW client is not told of what it gave up itself.
			if held && c.s.variant == xds.Delta {
				c.rt.Fatalf("%s: %s is held, and not asked for", when, n)
			}
		case there && !held && c.unsure[n]:
			// It let go what the session could not know that it had (P12).
		case !there && c.dropped[n]:
		case there && holds != has, !there && held && !quiet:
			// What a SotW client of other than full-state types holds of a removed
			// resource stays until its parent changes (P60).
			c.rt.Fatalf("%s: holds %v, want %v", when, c.holds, origin)
		}
	}
}

// moved reports whether anything of what was refused has changed since, and has
// to be said with all the rest (P15).
func (c *modelClient) moved(refused, origin map[string]string) bool {
	quiet := c.s.variant == xds.SotW && !c.s.full()
	return slices.ContainsFunc(modelNames, func(n string) bool {
		was, has := refused[n], cmp.Or(origin[n], "-")
		if c.s.full() {
			was = cmp.Or(was, "-")
		}
		return was != "" && !c.dropped[n] && was != "given up" && c.covers(n) && has != was && (has != "-" || !quiet)
	})
}
