package session

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// aliased is a resource of the model: its content and the aliases that lead to it.
type aliased struct {
	content, version string
	by               []string
}

// spec is the resource as sessionFixture reads it.
func (r aliased) spec(name string) string {
	s := name
	for _, a := range r.by {
		if !strings.HasSuffix(a, "/*") {
			s += "|" + a
		}
	}
	switch {
	case r.content == "":
		return s
	case strings.Contains(s, "xdstp://"):
		return s + "@" + r.content
	}
	return s + "=" + r.content
}

// covers reports whether names ask for the resource.
func (r aliased) covers(names map[string]bool, name string) bool {
	return names[name] || slices.ContainsFunc(r.by, func(h string) bool { return names[h] })
}

// modelOrigin has resources with aliases and globs. It answers the names and the wildcard of
// one client on two streams, as a delta origin does. Each answer has all that is asked for, so
// that a removal is unambiguous where a name is an alias as well.
type modelOrigin struct {
	has      map[string]aliased
	told     map[string]aliased // sent on the stream of names
	absent   map[string]bool    // names that were answered as absent
	wild     map[string]bool    // sent on the wildcard's stream
	answered bool
}

// ofNames is the next answer to names.
func (o *modelOrigin) ofNames(names map[string]bool) (specs []string) {
	for _, n := range slices.Sorted(maps.Keys(o.has)) {
		if r := o.has[n]; r.covers(names, n) {
			specs = append(specs, r.spec(n))
			o.told[n] = r
		}
	}
	for _, n := range slices.Sorted(maps.Keys(o.told)) {
		if r, ok := o.has[n]; !ok || !r.covers(names, n) {
			delete(o.told, n)
			specs = append(specs, "-"+n)
		}
	}
	maps.DeleteFunc(o.absent, func(n string, _ bool) bool { return !names[n] })
	for _, k := range slices.Sorted(maps.Keys(names)) {
		leads := false
		for n, r := range o.has {
			leads = leads || n == k || slices.Contains(r.by, k)
		}
		switch {
		case leads:
			delete(o.absent, k)
		case !o.absent[k]:
			o.absent[k] = true
			if !slices.Contains(specs, "-"+k) {
				specs = append(specs, "-"+k)
			}
		}
	}
	return specs
}

// ofWildcard is the next answer to the wildcard; false if there is none.
func (o *modelOrigin) ofWildcard() (specs []string, any bool) {
	for _, n := range slices.Sorted(maps.Keys(o.has)) {
		o.wild[n] = true
		specs = append(specs, o.has[n].spec(n))
	}
	for _, n := range slices.Sorted(maps.Keys(o.wild)) {
		if _, ok := o.has[n]; !ok {
			delete(o.wild, n)
			specs = append(specs, "-"+n)
		}
	}
	any = len(specs) > 0 || !o.answered
	o.answered = true
	return specs, any
}

// modelClient asks by names, aliases and globs. It keeps what it accepted until that is
// removed, or until it asks for it by nothing any more.
type modelClient struct {
	*sessionFixture
	rt     *rapid.T
	origin *modelOrigin

	wild     bool
	names    map[string]bool
	dropped  map[string]bool // names that it once unsubscribed from
	parted   map[string]bool // and did not ask for again
	unwanted map[string]bool // names that it unsubscribed from, and the group has not yet
	unsure   map[string]bool // names that it unsubscribed from, which the session cannot know
	holds    map[string]aliased
	sent     map[string]aliased    // since its names changed; nil if anything may be sent again
	open     []map[string]*aliased // responses without an answer, oldest first; nil: removed
	refused  map[string]bool       // names that it rejected, and accepted nothing of since
	nacked   bool                  // any response
	late     bool                  // its newest names count once it has answered everything (P12, P22)
	log      []string
}

func (c *modelClient) logf(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf(format, args...))
}

func (c *modelClient) fail(format string, args ...any) {
	c.rt.Helper()
	c.rt.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(c.log, "\n"))
}

// list are the names as a SotW client repeats them.
func (c *modelClient) list() []string {
	out := slices.Sorted(maps.Keys(c.names))
	if c.wild {
		out = append(out, "*")
	}
	return out
}

// work receives all that there is to send. Nothing is sent that was not asked for (P51), or
// again without a cause (P33).
func (c *modelClient) work() {
	for range 50 {
		if c.s.form.Variant == xds.SotW && !c.s.fullState() {
			// A deletion sends nothing (P31). The resource is new when it returns.
			maps.DeleteFunc(c.sent, func(n string, _ aliased) bool { return c.Cur.Resource(n) == nil })
		}
		text := c.next()
		if text == "" {
			return
		}
		c.logf("<- %s", text)
		items := make(map[string]*aliased)
		for _, r := range c.frame.resources {
			_, content, _ := strings.Cut(strings.ReplaceAll(c.Describe(r), "@", "="), "=")
			item := aliased{content, r.Version.String(), r.AliasesAndGlob()}
			items[r.Name] = &item
			// P12, P24: the session may not yet follow the request that gave it up.
			if !c.wild && !item.covers(c.names, r.Name) && !c.s.sub.effective.Covers(r.Name) && !r.RequestedBy(c.s.sub.effective.Names) {
				c.fail("%s was not asked for", r.Name)
			}
			if was, before := c.sent[r.Name]; before && !c.s.fullState() && was.version == item.version {
				c.fail("%s is sent again", r.Name)
			}
			if c.sent != nil {
				c.sent[r.Name] = item
			}
		}
		for _, n := range c.frame.removed {
			items[n] = nil
			delete(c.sent, n)
		}
		if c.frame.Parts == nil {
			c.open = append(c.open, items)
		}
		for _, m := range c.frame.Parts { // P38: the client answers each part
			part := make(map[string]*aliased)
			for _, n := range m.names {
				part[n] = items[n]
			}
			c.open = append(c.open, part)
		}
	}
	c.fail("it never ends")
}

// answer accepts or rejects the oldest response; false if there is none.
func (c *modelClient) answer(refuse bool) bool {
	if len(c.open) == 0 {
		return false
	}
	items := c.open[0]
	c.open = c.open[1:]
	n := len(c.nonces) - len(c.open)
	if c.late {
		clear(c.sent)
		c.late = len(c.open) > 0
	}
	for name := range items {
		c.refused[name] = refuse
	}
	var r request
	if c.s.form.Variant == xds.SotW {
		r.names = c.list()
	}
	if refuse {
		r.nack, c.nacked, c.sent = n, true, nil
	} else {
		r.ack = n
		if c.s.fullState() {
			clear(c.holds)
		}
		for name, item := range items {
			if item == nil {
				delete(c.holds, name)
			} else {
				c.holds[name] = *item
			}
		}
		c.drop()
	}
	c.logf("-> answer %d, refuse %v", n, refuse)
	c.send(r)
	return true
}

// drop removes what the client asks for by nothing any more.
func (c *modelClient) drop() {
	maps.DeleteFunc(c.holds, func(n string, r aliased) bool { return !c.wild && !r.covers(c.names, n) })
}

// change asks for more names, and gives up others.
func (c *modelClient) change(add, drop []string) {
	var dropped []string
	for _, n := range add {
		if !c.names[n] && c.s.form.Variant == xds.SotW && c.s.sub.effective.Names.Has(n) {
			c.unsure[n] = true // it was unsubscribed by stale requests alone (P12)
		}
		c.names[n] = true
		delete(c.parted, n)
	}
	for _, n := range drop {
		if c.names[n] {
			delete(c.names, n)
			dropped = append(dropped, n)
			c.dropped[n], c.parted[n] = true, true
		}
	}
	c.logf("-> +%v -%v", add, dropped)
	if clear(c.sent); c.wild {
		c.sent = nil // each name has an answer of its own, maybe the same resource (P23)
	}
	c.late = c.s.form.Variant == xds.SotW && len(c.open) > 0
	switch {
	case c.s.form.Variant == xds.SotW:
		c.send(request{names: c.list()})
	case len(add)+len(dropped) > 0:
		c.send(request{names: add, unsub: dropped})
	}
	for n := range c.names {
		if !c.s.sub.requested.Names.Has(n) {
			c.fail("%s was given up with %v", n, dropped)
		}
	}
	// The group forgets what no client wants, and gives it up at the origin. It does so
	// after a while (P52), and not before the session follows the newest request.
	for _, n := range dropped {
		c.unwanted[n] = true
	}
	if c.s.sub.effective == c.s.sub.requested {
		maps.DeleteFunc(c.unwanted, func(n string, _ bool) bool { return c.names[n] })
		c.Builder.Forget(c.s.sub.requested.Names, slices.Sorted(maps.Keys(c.unwanted))...)
		maps.DeleteFunc(c.origin.absent, func(n string, _ bool) bool { return c.unwanted[n] || slices.Contains(dropped, n) })
		clear(c.unwanted)
		maps.DeleteFunc(c.origin.told, func(n string, r aliased) bool { return !r.covers(c.names, n) })
	}
	c.linger = slices.Sorted(maps.Keys(c.unwanted))
	c.sessionFixture.origin(false)
	c.drop()
}

// toggle asks for the wildcard, or gives it up.
func (c *modelClient) toggle() {
	switch {
	case c.wild && len(c.names) == 0:
		return // a list without names is another test
	case len(c.open) > 0, c.s.clientVersions != nil:
		return // the session cannot know whether it keeps what is in flight, or what it already had
	}
	c.sent = nil
	if c.wild = !c.wild; c.s.form.Variant == xds.SotW {
		c.logf("-> wildcard %v", c.wild)
		c.send(request{names: c.list()})
	} else if c.wild {
		c.logf("-> +*")
		c.send(request{names: []string{"*"}})
	} else {
		c.logf("-> -*")
		c.send(request{unsub: []string{"*"}})
	}
	c.drop()
}

// settleWildcard may have the group give up a wildcard that no client wants any more (P52),
// once the session follows the newest request.
func (c *modelClient) settleWildcard() bool {
	if c.s.sub.effective != c.s.sub.requested || !rapid.Bool().Draw(c.rt, "the wildcard ends") {
		return false
	}
	c.logf("the wildcard ends")
	c.origin.answered = false
	clear(c.origin.wild)
	c.Builder.EndWildcard()
	c.sessionFixture.origin(false)
	return true
}

// again reconnects with what the client has.
func (c *modelClient) again() {
	if c.s.form.Variant == xds.SotW {
		return
	}
	c.s = newSession(c.Type, c.s.form.Variant)
	c.open, c.nonces = nil, nil
	clear(c.sent)
	if !c.wild && len(c.names) == 0 {
		c.names["n0"] = true // none at all would be the legacy wildcard
		delete(c.origin.absent, "n0")
	}
	has := make(map[string]string)
	for n, r := range c.holds {
		has[n] = r.version
	}
	c.logf("-> again %v with %v", c.list(), has)
	c.send(request{names: c.list(), initial: has})
}

// sync has the origin answer on both streams, in any order.
func (c *modelClient) sync() {
	wildcard := func() {
		if !c.wild && (!c.origin.answered || c.settleWildcard()) {
			return
		}
		if specs, any := c.origin.ofWildcard(); any {
			c.logf("wild %s", strings.Join(specs, " "))
			c.sessionFixture.origin(true, specs...)
		}
	}
	first := rapid.Bool().Draw(c.rt, "the wildcard first")
	if first {
		wildcard()
	}
	asked := maps.Clone(c.names)
	maps.Copy(asked, c.unwanted)
	if specs := c.origin.ofNames(asked); len(specs) > 0 {
		c.logf("named %s", strings.Join(specs, " "))
		c.sessionFixture.origin(false, specs...)
	}
	if !first {
		if rapid.Bool().Draw(c.rt, "work in between") {
			c.work()
		}
		wildcard()
	}
}

// In the end a client has what the origin has of what it asked for: by names, aliases, globs
// and the wildcard, in either variant. Changes, NACKs, missing answers and reconnects on
// the way do not matter. A name may be one resource's own and, at the same time or later,
// another one's alias (P26).
func TestP26_Model(t *testing.T) {
	for _, url := range []xds.TypeURL{xds.VHostType, xds.ClusterType, xds.EndpointType} {
		for _, v := range variants {
			if url == xds.VHostType && v == xds.SotW {
				continue // there is none (P4)
			}
			for _, wild := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%v/wildcard=%v", xds.TypeOf(url).Short, v, wild), func(t *testing.T) {
					rapid.Check(t, func(rt *rapid.T) { runModel(t, rt, url, v, wild) })
				})
			}
		}
	}
}

// rapidTB reports the fixture's faults with the history that has them.
type rapidTB struct {
	testing.TB
	c *modelClient
}

func (t rapidTB) Fatalf(format string, args ...any) { t.c.fail(format, args...) }

func runModel(t *testing.T, rt *rapid.T, url xds.TypeURL, v xds.Variant, wild bool) {
	o := &modelOrigin{has: map[string]aliased{}, told: map[string]aliased{}, absent: map[string]bool{}, wild: map[string]bool{}}
	c := &modelClient{
		sessionFixture: newSessionFixture(t, url, v), rt: rt, origin: o, wild: wild,
		names: map[string]bool{}, dropped: map[string]bool{}, parted: map[string]bool{}, unwanted: map[string]bool{}, unsure: map[string]bool{},
		refused: map[string]bool{}, holds: map[string]aliased{}, sent: map[string]aliased{},
	}
	c.T = rapidTB{t, c}
	c.cut = rapid.SampledFrom([]int{0, 0, 1, 300}).Draw(rt, "the size of parts")
	resources := []string{"n0", "n1", "n2", "xdstp://o/T/c/0", "xdstp://o/T/c/1"}
	resource := rapid.SampledFrom(resources)
	aliases := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a0", "a1", "n2"}), 0, 2, rapid.ID[string])
	content := rapid.SampledFrom([]string{"", "2", "33"})
	some := rapid.SliceOfNDistinct(rapid.SampledFrom(append(resources, "a0", "a1", "xdstp://o/T/c/*")), 0, 3, rapid.ID[string])
	put := func(n, content string, aliases []string) {
		g := xds.Glob(n)
		r := aliased{content: content, by: slices.DeleteFunc(slices.Sorted(slices.Values(aliases)), func(a string) bool { return a == n || a == g })}
		if g != "" {
			r.by = append(r.by, g)
		}
		o.has[n] = r
	}

	for _, n := range some.Draw(rt, "first") {
		c.names[n] = true
	}
	if !wild && len(c.names) == 0 {
		c.names["n0"] = true // none at all would be the legacy wildcard
	}
	if wild && len(c.names) > 0 {
		c.sent = nil
	}
	c.logf("-> first %v", c.list())
	c.send(request{names: c.list()})
	steps := []string{"put", "put", "remove", "names", "names", "ack", "ack", "ack", "sync", "sync", "push", "time", "reconnect"}
	if rapid.Bool().Draw(rt, "refuses") {
		steps = append(steps, "nack", "wildcard")
	}
	for range rapid.IntRange(1, 30).Draw(rt, "steps") {
		switch what := rapid.SampledFrom(steps).Draw(rt, "step"); what {
		case "put":
			put(resource.Draw(rt, "name"), content.Draw(rt, "content"), aliases.Draw(rt, "aliases"))
		case "remove":
			delete(o.has, resource.Draw(rt, "name"))
		case "names":
			c.change(some.Draw(rt, "add"), some.Draw(rt, "drop"))
		case "ack", "nack":
			c.answer(what == "nack")
		case "sync", "push":
			c.Pushed = what == "push"
			c.sync()
			c.Pushed = false
		case "time":
			c.Pass(ackTimeout)
		case "reconnect":
			c.again()
		case "wildcard":
			c.toggle()
		}
		if rapid.Bool().Draw(rt, "work") {
			c.work()
		}
	}
	if c.rest(); !c.nacked {
		c.compare("at rest")
	}
	// The client rejects everything once. The origin's next push is the retry (P15).
	for _, n := range resources {
		put(n, "", o.has[n].by)
	}
	c.sync()
	for c.work(); c.answer(true); c.work() {
	}
	c.Pushed = true
	c.rest()
	c.compare("once everything was pushed again")
	c.Pushed = false
	// Everything changes that a rejected response may have held (P15), and something goes.
	for _, content := range []string{"2", "33"} {
		for _, n := range resources {
			put(n, content, o.has[n].by)
		}
		c.rest()
	}
	c.compare("once everything has changed")
	delete(o.has, "n0")
	delete(o.has, "n1")
	c.rest()
	c.compare("once something has gone")
}

// rest brings everything to the client, which accepts it.
func (c *modelClient) rest() {
	c.sync()
	// One member is not the whole answer to a glob. After the wildcard ended, a glob keeps
	// its resources until the origin says that they are gone.
	var gone []string
	for r := range c.Cur.Resources {
		if _, has := c.origin.has[r.Name]; !has {
			gone = append(gone, r.Name)
		}
	}
	c.Builder.Apply(snapshot.Update{Type: c.Type.URL, Origin: "o", Removed: gone})
	c.sessionFixture.origin(false)
	for range 60 {
		c.Pass(time.Second)
		if c.work(); !c.answer(false) {
			return
		}
	}
	c.fail("it does not come to rest")
}

// compare compares what the client has in the end with the origin.
func (c *modelClient) compare(when string) {
	want := make(map[string]string)
	for n, r := range c.origin.has {
		if c.wild || r.covers(c.names, n) {
			want[n] = r.content
		}
		// SotW without wrappers has no aliases. A client that gives up one of the names does
		// not know that its resource has another name as well.
		if _, has := c.holds[n]; !has && !c.wild && (c.s.form.Variant == xds.SotW && r.covers(c.parted, n) || r.covers(c.unsure, n)) {
			delete(want, n)
		}
	}
	holds := make(map[string]string)
	for n, r := range c.holds {
		has, there := c.origin.has[n]
		switch {
		case there && !c.wild && !has.covers(c.names, n):
			continue // under names that it did not ask for
		case !there && c.s.form.Variant == xds.SotW && !c.s.fullState():
			continue // it was deleted, and SotW sent nothing (P31)
		case !there && !c.wild && r.covers(c.dropped, n):
			continue // unsubscribed while the response was in flight
		case !there && !c.wild && !c.names[n] && c.refused[n]:
			continue // it rejected that the resource left its alias, and got nothing of it since (P15)
		}
		holds[n] = r.content
	}
	if !maps.Equal(holds, want) {
		c.fail("%s it holds %v, want %v", when, holds, want)
	}
}
