package fanout

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"xdsrelay/internal/xds"
)

// timely is a client that counts TTLs as Envoy does: a heartbeat for what it
// does not hold, or not at that version, is an error to it.
type timely struct {
	t     *rapid.T
	w     *world
	took  string // SotW: version_info
	holds map[string]living
}

type living struct {
	version, body string
	until         time.Time // zero: for ever
}

// expire drops what is over by now.
func (c *timely) expire() {
	maps.DeleteFunc(c.holds, func(_ string, l living) bool { return !l.until.IsZero() && !c.w.now.Before(l.until) })
}

// take applies the last response, or refuses it.
func (c *timely) take(refuse bool) {
	c.expire()
	version, items, removed := c.read()
	full := c.w.s.variant == xds.SotW && c.w.s.full()
	next := maps.Clone(c.holds)
	if full {
		clear(next)
	}
	for _, r := range items {
		var until time.Time
		if r.Ttl != nil {
			until = c.w.now.Add(r.Ttl.AsDuration())
		}
		if r.Resource != nil {
			next[r.Name] = living{r.Version, string(r.Resource.Value), until}
			continue
		}
		had, ok := c.holds[r.Name]
		switch {
		case !ok:
			c.t.Fatalf("heartbeat for %s, which the client does not hold", r.Name)
		case c.w.s.variant == xds.Delta && r.Version != had.version:
			c.t.Fatalf("heartbeat for %s at %s, the client has %s", r.Name, r.Version, had.version)
		case c.w.s.variant == xds.SotW && (version != c.took || r.Version != c.took):
			c.t.Fatalf("heartbeat for %s at %s under %s, the client took %s", r.Name, r.Version, version, c.took)
		case full:
			c.t.Fatalf("a full-state response has a heartbeat")
		}
		had.until = until
		next[r.Name] = had
	}
	for _, n := range removed {
		delete(next, n)
	}
	if !refuse {
		c.holds, c.took = next, version
	}
}

func (c *timely) read() (version string, items []*discoveryv3.Resource, removed []string) {
	if c.w.s.variant == xds.Delta {
		m := new(discoveryv3.DeltaDiscoveryResponse)
		if err := proto.Unmarshal(c.w.frame.body, m); err != nil {
			c.t.Fatal(err)
		}
		return m.SystemVersionInfo, m.Resources, m.RemovedResources
	}
	m := new(discoveryv3.DiscoveryResponse)
	if err := proto.Unmarshal(c.w.frame.body, m); err != nil {
		c.t.Fatal(err)
	}
	for _, a := range m.Resources {
		r := new(discoveryv3.Resource)
		if err := a.UnmarshalTo(r); err != nil {
			c.t.Fatal(err)
		}
		items = append(items, r)
	}
	return m.VersionInfo, items, nil
}

// Whatever an origin does with TTLs, and however slowly a client answers: it
// gets no heartbeat that it could not apply, and at rest it holds what is held,
// for as long as that lives and less than two seconds more.
func TestP62_ClientsThatCountTTLs(t *testing.T) {
	for _, v := range variants {
		for _, wild := range []bool{false, true} {
			t.Run(fmt.Sprint(v, " wildcard ", wild), func(t *testing.T) {
				rapid.Check(t, func(rt *rapid.T) { timelyModel(t, rt, v, wild) })
			})
		}
	}
}

func timelyModel(t *testing.T, rt *rapid.T, v xds.Variant, wild bool) {
	names := []string{"a", "b", "c"}
	w := newWorld(t, xds.EndpointType, v)
	w.timely()
	c := &timely{t: rt, w: w, holds: make(map[string]living)}
	list := []string{"*"}
	if !wild {
		list = names
	}
	w.sub(list...)
	w.origin(wild)
	type response struct {
		number int // its nonce's
		refuse bool
	}
	var open []response // unanswered
	pass := func(d time.Duration) {
		// The group is on time, to the millisecond.
		for end := w.now.Add(d); ; {
			at := w.builder.NextExpiry()
			if at.IsZero() || at.After(end) {
				w.now = end
				return
			}
			w.now = at
			w.lapse()
		}
	}
	send := func(refuse bool) bool {
		if w.next() == "" {
			return false
		}
		if v == xds.SotW && len(open) > 0 {
			rt.Fatal("two responses are unanswered")
		}
		open = append(open, response{len(w.nonces), refuse})
		c.take(refuse)
		return true
	}
	answer := func() {
		if len(open) == 0 {
			return
		}
		r := request{names: w.list(list), ack: open[0].number}
		if open[0].refuse {
			r.ack, r.nack = 0, open[0].number
		}
		open = open[1:]
		w.send(r)
	}
	for range rapid.IntRange(1, 40).Draw(rt, "steps") {
		name := rapid.SampledFrom(names).Draw(rt, "name")
		switch rapid.SampledFrom([]string{"put", "put", "beat", "beat", "beat", "remove", "pass", "pass", "send", "send", "answer", "answer"}).Draw(rt, "what") {
		case "put":
			ttl := time.Duration(rapid.IntRange(0, 12).Draw(rt, "ttl")) * time.Second
			spec := name + rapid.SampledFrom([]string{"", "=2", "=33"}).Draw(rt, "content")
			w.apply(xds.Update{Origin: "o", Wildcard: wild, Changed: []*xds.Resource{w.with(spec, "", ttl)}})
		case "beat":
			if w.cur.Held(name) != nil {
				w.beat(wild, name)
			}
		case "remove":
			w.origin(wild, "-"+name)
		case "pass":
			pass(time.Duration(rapid.IntRange(1, 6000).Draw(rt, "ms")) * time.Millisecond)
		case "send":
			if _, out := w.s.outstanding(w.now, ackTimeout); len(open) > 0 && !out {
				continue // overtaking is the business of other tests
			}
			send(rapid.IntRange(0, 9).Draw(rt, "refuse") == 0)
		case "answer":
			answer()
		}
	}
	for len(open) > 0 || send(false) {
		answer()
	}
	c.expire()
	sub := w.s.sub
	for _, n := range names {
		refused := w.s.isRefused(n) || w.s.refuses
		has, is := w.cur.Look(sub, n)
		held, ok := c.holds[n]
		switch {
		case refused:
		case is == xds.Present && !ok:
			rt.Fatalf("%s is not with the client", n)
		case is == xds.Present:
			if got := w.describe(has); held.body != string(anyValue(has)) {
				rt.Fatalf("the client has another %s than %s", n, got)
			}
			if (has.TTL() == 0) != held.until.IsZero() {
				rt.Fatalf("%s: TTL %v, with the client until %v", n, has.TTL(), held.until)
			}
			if has.TTL() == 0 {
				continue
			}
			if left := has.Left(w.now); held.until.Sub(w.now) < left-time.Second || held.until.Sub(w.now) > left+2*time.Second {
				rt.Fatalf("%s lives for %v more, with the client for %v", n, left, held.until.Sub(w.now))
			}
		case ok && is == xds.Absent && (v == xds.Delta || w.s.full()):
			rt.Fatalf("%s was removed, and is with the client", n)
		case ok && is == xds.Lapsed && (v == xds.Delta || w.s.full()) && (held.until.IsZero() || held.until.Sub(w.now) > 2*time.Second):
			rt.Fatalf("%s expired, and is with the client until %v", n, held.until)
		}
	}
	if len(c.holds) > len(names) {
		rt.Fatal(slices.Collect(maps.Keys(c.holds)))
	}
}

// anyValue is the value of a resource's Any.
func anyValue(r *xds.Resource) []byte {
	m := new(discoveryv3.Resource)
	b := (&xds.Body{Form: xds.Form{Variant: xds.Delta}, Type: r.TypeURL(), Resources: []*xds.Resource{r}}).Encode()
	d := new(discoveryv3.DeltaDiscoveryResponse)
	if proto.Unmarshal(b, d) != nil || len(d.Resources) != 1 {
		return nil
	}
	m = d.Resources[0]
	return m.Resource.Value
}
