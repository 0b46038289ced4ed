package fanout

import (
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"xdsrelay/internal/xds"
)

// more asks for what is named last besides the others.
func (c *teller) more(names ...string) {
	c.t.Helper()
	if c.delta != nil {
		names = names[len(names)-1:]
	}
	c.say("", names...)
}

// has waits until the only client has that generation, and declined what came from that one
// on; 0: nothing. Of the versions up to then it does not have these: it is to take yet, or
// declined, what it asked for later.
func (r *rig) has(when string, gen, declined uint64, not ...uint64) {
	r.t.Helper()
	var s Standing
	var lacks []uint64
	for range 500 {
		s, lacks = r.stands(), nil
		for g := uint64(1); g <= s.Has; g++ {
			if s.Arrears.with(s.Declined).Of(Span{g, g}) {
				lacks = append(lacks, g)
			}
		}
		if s.Has == gen && s.Declined.From == declined && slices.Equal(lacks, not) {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	r.t.Fatalf("%s: %s, has %d but for %d, and declined %d, want %d but for %d, and %d", when, s.State, s.Has, lacks, s.Declined.From, gen, not, declined)
}

// Who took a version, and asks for another name of it, does not have the version before
// it took that, whether it refuses it or is slow. The others it has.
func TestP23_WhatIsAskedForLaterIsNotHad(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			for _, url := range []xds.TypeURL{xds.EndpointType, xds.ClusterType} { // SotW: what is asked for, and everything
				r := newRig(t, nil)
				g := r.house.group("edge")
				give := func(specs ...string) {
					u := update(t, url, specs...)
					u.Wildcard = false
					g.publish(u)
				}
				give("a", "b", "c")
				c := r.teller(t, v)
				c.url = url
				c.say("", "a")
				c.recv()
				c.answer("", "a")
				r.is(Synced)
				give("a=22", "b=22")
				second := r.gen()
				c.recv()
				c.answer("", "a")
				r.is(Synced)
				r.has("all is taken", second, 0)
				give("c=333")
				r.has("what others ask for", r.gen(), 0)

				c.more("a", "b")
				c.recv()
				r.has("b is on its way", r.gen(), 0, 1, second)
				c.answer("no", "a", "b")
				r.is(Refused)
				r.has("b is refused", r.gen()-1, r.gen(), 1, second)
				give("b=4444")
				c.recv()
				c.answer("", "a", "b")
				r.is(Synced)
				r.has("another b is taken", r.gen(), 0)

				c.more("a", "b", "c")
				c.recv()
				c.answer("", "a", "b", "c")
				r.is(Synced)
				has := r.gen()
				give("a=55555")
				c.recv()
				r.has("c is taken, and a is on its way", has, 0)
			}
		})
	}
}

// What was sent ahead is answered by itself: who takes what went out before does not
// have it yet.
func TestP23_WhatWasSentAheadIsNotHad(t *testing.T) {
	r := newRig(t, nil)
	g := r.house.group("edge")
	g.publish(update(t, xds.EndpointType, "a", "b"))
	c := r.teller(t, xds.Delta)
	c.url = xds.EndpointType
	c.say("", "a")
	c.recv()
	c.say("")
	r.is(Synced)
	g.publish(update(t, xds.EndpointType, "a=22", "b=22"))
	c.recv()
	first := c.nonce
	c.nonce = ""
	c.say("", "b")
	c.recv()
	second := c.nonce
	r.has("nothing is answered", 1, 0, 1)
	c.nonce = first
	c.say("")
	r.eventually(func() bool { return r.srv.Clients()[0].Types[0].Acks == 2 })
	r.has("b is not answered", r.gen(), 0, 1, 2)
	g.settling(update(t, xds.EndpointType, "a=333"))
	c.nonce = second
	c.say("")
	r.has("b is answered, and something newer settles", r.gen()-1, 0)
}

// Who refused what it asked for later, and gives it up, has the version.
func TestP24_WhatIsGivenUpIsNotAwaited(t *testing.T) {
	r := newRig(t, nil)
	g := r.house.group("edge")
	g.publish(update(t, xds.EndpointType, "a", "b", "c"))
	c := r.teller(t, xds.Delta)
	c.url = xds.EndpointType
	c.say("", "a", "c")
	c.recv()
	c.say("")
	r.is(Synced)
	c.say("", "b")
	c.recv()
	c.say("no")
	r.has("b is refused", 0, r.gen())
	c.delta.must(&discoveryv3.DeltaDiscoveryRequest{Node: node("n"), TypeUrl: string(c.url), ResourceNamesUnsubscribe: []string{"b"}})
	r.has("b is given up", r.gen(), 0)
	g.publish(update(t, xds.EndpointType, "c=22"))
	c.recv()
	r.has("b is given up, and c is on its way", r.gen()-1, 0)
}

// A refusal that stands keeps nothing else from being had that the client asks for later.
func TestP15_WhatIsAskedForBesideARefusalIsHad(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			r := newRig(t, nil)
			g := r.house.group("edge")
			g.publish(update(t, xds.EndpointType, "a", "b"))
			first := r.gen()
			c := r.teller(t, v)
			c.url = xds.EndpointType
			c.say("", "a")
			c.recv()
			c.answer("", "a")
			r.is(Synced)
			g.publish(update(t, xds.EndpointType, "a=22"))
			c.recv()
			c.answer("no", "a")
			r.has("a is refused", first, r.gen())
			c.more("a", "b")
			c.recv()
			r.has("b is on its way", first, r.gen(), first)
			c.answer("", "a", "b")
			r.has("b is taken", first, r.gen())
		})
	}
}

// Who asks for everything has it once it took that.
func TestP21_TheWildcardIsNotHadBeforeItIsTaken(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			r := newRig(t, nil)
			g := r.house.group("edge")
			g.publish(update(t, xds.ClusterType, "a", "b"))
			c := r.teller(t, v)
			c.say("", "a")
			c.recv()
			c.answer("", "a")
			r.is(Synced)
			r.has("a is taken", r.gen(), 0)
			c.more("a", "*")
			c.recv()
			r.has("all is on its way", r.gen(), 0, r.gen())
			c.answer("no", "a", "*")
			r.has("all is refused", 0, r.gen())
			g.publish(update(t, xds.ClusterType, "a=22", "b=22"))
			c.recv()
			c.answer("", "a", "*")
			r.is(Synced)
			r.has("all is taken", r.gen(), 0)
			g.publish(update(t, xds.ClusterType, "a=333"))
			c.recv()
			r.has("something newer is on its way", r.gen()-1, 0)
		})
	}
}
