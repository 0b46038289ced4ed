//go:build linux

package main

import (
	"maps"
	"math/rand/v2"
	"slices"

	"xdsrelay/integration/robust/check"
)

// place is an event, by its index, and a resource name in it.
type place struct {
	i    int
	name string
}

// index finds places to alter in a history.
type index struct {
	events   []check.Event
	key      map[[2]any]string    // of a client's stream
	receipts map[[4]any][]place   // of a stream, type and name
	times    map[string]int       // how often any origin published a content
	origin   map[string]string    // of a content that only one origin published
	ever     map[[3]string]string // any content, by key, type and name
}

func newIndex(events []check.Event) *index {
	x := &index{events: events, key: make(map[[2]any]string), receipts: make(map[[4]any][]place), times: make(map[string]int),
		origin: make(map[string]string), ever: make(map[[3]string]string)}
	for i := range events {
		switch e := &events[i]; e.What {
		case check.Opening:
			x.key[[2]any{e.Client, e.Stream}] = e.Key
		case check.Publish:
			for name, content := range e.Resources {
				x.times[content]++
				x.origin[content] = e.Origin
				if content != "" {
					x.ever[[3]string{e.Key, e.Type, name}] = content
				}
			}
		case check.Receipt:
			for name := range e.Resources {
				of := [4]any{e.Client, e.Stream, e.Type, name}
				x.receipts[of] = append(x.receipts[of], place{i, name})
			}
		}
	}
	return x
}

// any returns a random event for which ok holds.
func (x *index) any(rng *rand.Rand, ok func(e *check.Event) bool) (int, bool) {
	from := rng.IntN(len(x.events))
	for n := range x.events {
		if i := (from + n) % len(x.events); ok(&x.events[i]) {
			return i, true
		}
	}
	return 0, false
}

// anyReceipt returns a random receipt of a resource.
func (x *index) anyReceipt(rng *rand.Rand) (*check.Event, string) {
	i, _ := x.any(rng, func(e *check.Event) bool { return e.What == check.Receipt && len(e.Resources) > 0 })
	e := &x.events[i]
	e.Resources = maps.Clone(e.Resources)
	return e, pick(rng, slices.Sorted(maps.Keys(e.Resources)))
}

// successive returns two receipts of a resource on a stream. Their contents differ, and the same
// origin published each of them once.
func (x *index) successive(rng *rand.Rand) (a, b place, ok bool) {
	e, name := x.anyReceipt(rng)
	all := x.receipts[[4]any{e.Client, e.Stream, e.Type, name}]
	if len(all) < 2 {
		return a, b, false
	}
	n := rng.IntN(len(all) - 1)
	a, b = all[n], all[n+1]
	one, two := x.events[a.i].Resources[name], x.events[b.i].Resources[name]
	// For these types a step back may be known if they came by name. With a store, names that are
	// given up and subscribed again may be older.
	if e.Type == check.Cluster || e.Type == check.Listener || e.Relay == relayName(0) {
		return a, b, false
	}
	return a, b, one != two && x.times[one] == 1 && x.times[two] == 1 && x.origin[one] == x.origin[two]
}

func (x *index) set(at place, content string) {
	e := &x.events[at.i]
	e.Resources = maps.Clone(e.Resources)
	e.Resources[at.name] = content
}

// replace sets another list of events and numbers them again.
func (x *index) replace(events []check.Event) {
	upto := make(map[int]int)
	for i := range events {
		if _, twice := upto[events[i].N]; !twice {
			upto[events[i].N] = i + 1
		}
		events[i].N = i + 1
	}
	for i := range events {
		events[i].Upto = upto[events[i].Upto]
	}
	x.events = events
}

// mutations are alterations of a history, each with the rule that it breaks; an empty rule means
// none. An alteration returns false if its random choice does not apply.
var mutations = []struct {
	name, rule string
	change     func(rng *rand.Rand, x *index) bool
}{
	{"nothing is changed", "", func(*rand.Rand, *index) bool { return true }},
	{"a content is altered", check.RulePublished, func(rng *rand.Rand, x *index) bool {
		e, name := x.anyReceipt(rng)
		e.Resources[name] = "0" + e.Resources[name][1:] + "0"
		return true
	}},
	{"a content is of another key", check.RulePublished, func(rng *rand.Rand, x *index) bool {
		e, name := x.anyReceipt(rng)
		key := x.key[[2]any{e.Client, e.Stream}]
		for of, content := range x.ever {
			if of[0] != key && of[1] == e.Type {
				e.Resources[name] = content
				return true
			}
		}
		return false
	}},
	{"two receipts are swapped", check.RuleOrder, func(rng *rand.Rand, x *index) bool {
		a, b, ok := x.successive(rng)
		if ok {
			one, two := x.events[a.i].Resources[a.name], x.events[b.i].Resources[b.name]
			x.set(a, two)
			x.set(b, one)
		}
		// The newer one must not have been published before the first receipt.
		return ok && !slices.ContainsFunc(x.events[a.i:], func(e check.Event) bool {
			return e.What == check.Publish && slices.Contains(slices.Collect(maps.Values(e.Resources)), x.events[a.i].Resources[a.name])
		})
	}},
	{"an old content comes again", check.RuleOrder, func(rng *rand.Rand, x *index) bool {
		a, b, ok := x.successive(rng)
		if !ok {
			return false
		}
		again := x.events[b.i]
		again.Resources = map[string]string{a.name: x.events[a.i].Resources[a.name]}
		again.Removed = nil
		events := slices.Insert(slices.Clone(x.events), b.i+1, again)
		x.replace(events)
		return true
	}},
	{"a receipt is there twice", "", func(rng *rand.Rand, x *index) bool {
		i, _ := x.any(rng, func(e *check.Event) bool { return e.What == check.Receipt })
		x.replace(slices.Insert(slices.Clone(x.events), i+1, x.events[i]))
		return true
	}},
	{"what came last before a rest is missing", check.RuleNewest, func(rng *rand.Rand, x *index) bool {
		h, ok := x.any(rng, func(e *check.Event) bool { return e.What == check.Holds && len(e.Resources) > 0 })
		if !ok {
			return false
		}
		e := &x.events[h]
		name := pick(rng, slices.Sorted(maps.Keys(e.Resources)))
		gone := 0
		for i := range x.events[:h] {
			r := &x.events[i]
			if r.What == check.Receipt && r.Client == e.Client && r.Type == e.Type && r.Resources[name] == e.Resources[name] {
				r.Resources = maps.Clone(r.Resources)
				delete(r.Resources, name)
				gone++
			}
		}
		return gone > 0
	}},
	{"a content comes before it was published", check.RulePublished, func(rng *rand.Rand, x *index) bool {
		a, b, ok := x.successive(rng)
		if !ok {
			return false
		}
		content := x.events[b.i].Resources[b.name]
		x.set(a, content)
		return slices.ContainsFunc(x.events[a.i:], func(e check.Event) bool {
			return e.What == check.Publish && e.Resources[b.name] == content
		})
	}},
	{"something is removed that always was there", check.RuleRemoval, func(rng *rand.Rand, x *index) bool {
		i, ok := x.any(rng, func(e *check.Event) bool {
			return e.What == check.Receipt && e.Type == check.Listener && e.Resources[apiListener] != ""
		})
		if ok {
			e := x.events[i]
			e.Resources, e.Removed = nil, []string{apiListener}
			x.replace(slices.Insert(slices.Clone(x.events), i+1, e))
		}
		return ok
	}},
	{"a client did not leave", check.RuleUnbroken, func(rng *rand.Rand, x *index) bool {
		touched := make(map[string]bool)
		for i := range x.events {
			touched[x.events[i].Conn] = touched[x.events[i].Conn] || x.events[i].What == check.Touched
		}
		i, ok := x.any(rng, func(e *check.Event) bool {
			return e.What == check.Closed && e.Asked && e.Conn != "" && !touched[e.Conn]
		})
		x.events[i].Asked = false
		return ok
	}},
	{"a fault is not told", check.RuleUnbroken, func(rng *rand.Rand, x *index) bool {
		answered := make(map[[2]any]bool) // other clients may be refused (P53)
		for of := range x.receipts {
			answered[[2]any{of[0], of[1]}] = true
		}
		i, ok := x.any(rng, func(e *check.Event) bool {
			return e.What == check.Closed && !e.Asked && !e.Silent && answered[[2]any{e.Client, e.Stream}]
		})
		if !ok {
			return false
		}
		conn := x.events[i].Conn
		x.replace(slices.DeleteFunc(slices.Clone(x.events), func(e check.Event) bool { return e.What == check.Touched && e.Conn == conn }))
		return ok
	}},
	{"a client that subscribes to stored resources is refused", check.RuleUnbroken, func(rng *rand.Rand, x *index) bool {
		killed, ok := x.any(rng, func(e *check.Event) bool { return e.What == check.Ending })
		return ok && x.refuse(killed)
	}},
	{"a relay is not told to end", check.RuleProcess, func(rng *rand.Rand, x *index) bool {
		i, ok := x.any(rng, func(e *check.Event) bool { return e.What == check.Ended })
		x.events[i].Error = "signal: killed"
		return ok
	}},
}
