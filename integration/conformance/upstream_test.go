package conformance

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"xdsrelay/internal/xdstest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// union is the whole subscription of the site's newest stream to a type. For SotW that is the
// newest list.
func (s *site) union(k kind) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.streams) == 0 {
		return nil
	}
	u := s.streams[len(s.streams)-1]
	asked := slices.DeleteFunc(s.picked(k), func(r request) bool { return r.stream != u.number })
	return slices.DeleteFunc(wanted(asked, u.delta, k), isFence)
}

// asksFor waits until the relay subscribes to exactly these names at the origin.
func (s *site) asksFor(t testing.TB, k kind, names ...string) {
	t.Helper()
	slices.Sort(names)
	xdstest.Eventually(t, "what is requested", func() error {
		if got := s.union(k); !slices.Equal(got, names) {
			return errorf("the subscription is %v, want %v", got, names)
		}
		return nil
	})
}

// One stream per key subscribes to the union of the key's clients.
func TestP50_UnionOnOneStream(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, eds, "a=1", "b=1", "c=1")
		c.site.put(c, cds, "x=1")
		one, two := c.client("one"), c.client("two")
		one.sub(eds, "a", "b")
		one.until(eds, "a=1")
		two.sub(eds, "b", "c")
		two.until(eds, "c=1")
		two.getsAll(cds, "x=1")
		c.site.asksFor(c, eds, "a", "b", "c")
		if ever, _ := c.site.opened(); ever != 1 {
			c.Errorf("the origin had %d streams, want 1", ever)
		}
		if delta := c.site.stream(c, 1).delta; delta != (c.up == "delta") {
			c.Errorf("the stream uses delta: %v", delta)
		}
	})
}

// A client receives what it subscribes to, whatever others subscribe to. One that gives up all its
// names ends its own interest, and does not become a wildcard.
func TestP51_OnlyRequestedResources(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		for _, k := range []kind{rds, cds} {
			c.site.put(c, k, "a=1", "b=1")
			one, two := c.client("one"), c.client("two")
			one.gets(k, "a=1")
			two.gets(k, "b=1")
			c.site.put(c, k, "a=2", "b=2")
			one.take(k, "a=2")
			two.take(k, "b=2")
			one.unsub(k, "a")
			if c.ads {
				one.quiet() // so the relay has the request
			}
			c.site.put(c, k, "a=3", "b=3")
			two.take(k, "b=3")
			if c.ads {
				one.quiet()
			}
			one.sub(k, "b")
			if c.ads {
				one.take(k, "b=3")
			} else {
				one.until(k, "b=3") // a may have been sent before
			}
			for _, r := range c.site.requests(k) {
				if holds(r.names, "*") {
					c.Errorf("the origin received a wildcard request: %v", r)
				}
			}
		}
	})
}

// New names go to the origin together.
func TestP52_NewNamesAreMerged(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		const n = 60
		all := names("n", n)
		for _, name := range all {
			c.site.put(c, rds, name+"=1")
		}
		cl := c.client("one")
		for _, name := range all { // as fast as possible, one by one
			cl.sub(rds, name)
		}
		c.site.asksFor(c, rds, all...)
		asks, asked := 0, make(map[string]bool)
		for _, r := range c.site.requests(rds) {
			was := len(asked)
			for _, name := range r.names {
				asked[name] = true
			}
			if len(asked) > was { // otherwise it is an ACK, which repeats the names in SotW
				asks++
			}
		}
		if asks > n/3 {
			c.Errorf("the origin received %d requests for %d names", asks, n)
		}
	})
}

// Names that are no longer wanted are unsubscribed after linger, not before. The same holds for a
// type. A client that wants one again in time causes no request to the origin.
func TestP52_Linger(t *testing.T) {
	each(t, hasty, anywhere, func(c *trial) {
		c.site.put(c, rds, "a=1", "b=1")
		cl := c.served("one", rds, "a=1 b=1")
		cl.unsub(rds, "b")
		c.site.asksFor(c, rds, "a")
		cl.gets(rds, "b=1") // subscribed again
		c.site.asksFor(c, rds, "a", "b")
	})
}

// Within linger the relay sends nothing to the origin.
func TestP52_WantedAgainInTime(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, rds, "a=1", "b=1")
		cl := c.served("one", rds, "a=1 b=1")
		cl.unsub(rds, "b")
		cl.quiet(rds)
		c.site.put(c, rds, "b=2") // is still subscribed
		cl.sub(rds, "b")
		cl.until(rds, "b=2")
		c.site.asksFor(c, rds, "a", "b")
		for _, r := range c.site.requests(rds) {
			if len(r.dropped) > 0 || len(r.names) == 1 && c.up == "sotw" {
				c.Errorf("the origin was told %v", r)
			}
		}
	})
}

// A key without clients is dropped after idle_ttl, and its stream ends; with
// clients it stays.
func TestP52_IdleTTL(t *testing.T) {
	each(t, hasty, anywhere, func(c *trial) {
		c.site.put(c, cds, "a=1")
		stays, goes := c.client("stays"), c.client("goes")
		for _, cl := range []*client{stays, goes} {
			cl.getsAll(cds, "a=1")
		}
		goes.reconnect()
		stays.quiet(cds)
		if ever, open := c.site.opened(); ever != 1 || open != 1 {
			c.Fatalf("%d of %d streams are open while a client is there", open, ever)
		}
		stays.reconnect()
		c.site.waitFor(c, "the end of the key's stream", func() bool { return c.site.streams[0].closed })
		goes.getsAll(cds, "a=1")
		if ever, _ := c.site.opened(); ever != 2 {
			c.Errorf("the origin had %d streams, want a second for a new key", ever)
		}
	})
}

// Losing the origin does not affect clients: streams stay open, and new clients receive held
// resources.
func TestP53_LosingTheOrigin(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, cds, "a=1")
		c.site.put(c, eds, "a=1", "b=1")
		cl := c.servedAll("one", cds, "a=1")
		cl.gets(eds, "a=1 b=1")
		c.site.leave()
		c.site.stream(c, 4) // it has failed, as two before it
		late := c.servedAll("late", cds, "a=1")
		late.gets(eds, "b=1")
		cl.nothing(cds, "the origin's return")
		cl.nothing(eds, "the origin's return")
		c.site.back()
		c.site.put(c, eds, "a=2")
		cl.take(eds, "a=2")
		cl.quiet(cds, eds)
	})
}

// If nothing is held and no origin is reachable, the stream ends with a status that lets the client
// fall back.
func TestP53_NothingHeld(t *testing.T) {
	eachOwn(t, anywhere, func(t *testing.T, at place) {
		control := newTestControl(t)
		c := on(t, at, own(t, at.up, nil, control.addr), control)
		c.site.leave()
		cl := c.client("one")
		cl.sub(cds)
		cl.ended(cds, codes.Unavailable)
	})
}

// An origin that is silent on an open stream ends no client's stream.
func TestP53_SilenceEndsNothing(t *testing.T) {
	each(t, hasty, anywhere, func(c *trial) {
		c.site.manual(cds)
		cl := c.client("one")
		cl.sub(cds)
		c.site.request(c, cds, 1)
		xdstest.Eventually(c, "first_answer_timeout has passed", func() error {
			if body := c.relay.get(c, "/keys/"+c.key); !strings.Contains(body, `"silent_since"`) {
				return errorf("%s", body)
			}
			return nil
		})
		cl.nothing(cds, "the origin's answer")
		c.site.stream(c, 1).reply(c, cds, "1", "a=1")
		cl.take(cds, "a=1")
	})
}

// The relay retries a failed stream. A stream that had a response and was ended by the origin is
// reopened soon.
func TestP54_Reconnects(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, cds, "a=1")
		cl := c.servedAll("one", cds, "a=1")
		c.site.stream(c, 1).end(c, nil) // OK
		c.site.stream(c, 2)
		c.site.await(c, cds, "the wildcard anew", func(r request) bool { return r.stream == 2 })
		c.site.put(c, cds, "a=2")
		cl.take(cds, "a=2")
		c.site.leave()
		c.site.stream(c, 6)
		c.site.back()
		c.site.put(c, cds, "a=3")
		cl.take(cds, "a=3")
	})
}

// On reconnect the nonce is empty. All names are listed, in delta with the versions that this origin
// sent. In SotW there is no version, and in delta one resource has none, so that a working origin
// answers. Clients only receive differences.
func TestP55_Reconnect(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.silent = true
		c.site.put(c, rds, "a=1", "b=1")
		all := []string{"a", "b", "pending"}
		cl := c.client("one")
		cl.sub(rds, all...)
		cl.take(rds, "a=1 b=1")
		c.site.await(c, rds, "the ACK", func(r request) bool { return r.nonce != "" })
		c.site.stream(c, 1).end(c, status.Error(codes.Unavailable, "a restart"))
		c.site.put(c, rds, "b=2")
		r := c.site.await(c, rds, "a request on the second stream", func(r request) bool { return r.stream == 2 })
		if r.nonce != "" {
			c.Errorf("the first request has the nonce %q", r.nonce)
		}
		if !slices.Equal(r.names, all) {
			c.Errorf("the subscription is %v, want %v", r.names, all)
		}
		if r.node == nil {
			c.Errorf("without a node")
		}
		if c.up == "delta" {
			delete(r.resumed, "pending") // or absent: it is not held
			if want := map[string]string{"a": "", "b": "r1"}; !maps.Equal(r.resumed, want) {
				c.Errorf("the versions are %v, want %v", r.resumed, want)
			}
		} else if r.version != "" {
			c.Errorf("the version is %q", r.version)
		}
		cl.take(rds, "b=2")
		cl.quiet(rds)
	})
}

// The relay learns of a removal while the stream was down. A delta origin reports it because of the
// sent versions. In SotW the resource is absent (P65).
func TestP55_RemovedMeanwhile(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, cds, "a=1", "b=1")
		cl := c.served("one", cds, "a=1 b=1")
		c.site.leave()
		c.site.waitFor(c, "the end of the stream", func() bool { return c.site.streams[0].closed })
		c.site.put(c, cds, "-b")
		c.site.back()
		cl.takeFull(cds, "a=1", "-b")
		cl.quiet(cds)
	})
}

// In SotW a request that adds names has no version, and so has the first one of a stream. If the
// origin leaves it unanswered for a second, it follows with the version that the origin gave last.
// The ACK that is due goes before it, with the names before.
func TestP55_UnansweredRequests(t *testing.T) {
	each(t, patient, upSotW, func(c *trial) {
		cl, up := c.byHand(rds, "a")
		wait := func(n int, want ...string) {
			c.Helper()
			for i, w := range want {
				if got := c.site.request(c, rds, n+i).String(); got != "RouteConfiguration "+w {
					c.Errorf("request %d is %q, want %q", n+i, got, w)
				}
			}
		}
		up.reply(c, rds, "v1", "a=1")
		cl.take(rds, "a=1")
		cl.sub(rds, "b")
		wait(3, "+a +b nonce=v1", "+a +b version=v1 nonce=v1")
		up.reply(c, rds, "v2", "b=1")
		cl.take(rds, "b=1")
		up.end(c, nil)
		wait(6, "+a +b", "+a +b version=v2")
		c.site.stream(c, 2).reply(c, rds, "v2", "a=2")
		cl.take(rds, "a=2")
	})
}

// A name without an answer stays pending, also on a new stream. Held resources stay.
func TestP57_UnansweredIsPending(t *testing.T) {
	each(t, hasty, downDelta, func(c *trial) {
		c.site.silent = true
		c.site.put(c, rds, "a=1")
		cl := c.served("one", rds, "a=1")
		cl.sub(rds, "b")
		c.site.await(c, rds, "the new name", func(r request) bool { return holds(r.names, "b") })
		cl.nothing(rds, "what is left unanswered")
		c.site.put(c, rds, "b=1")
		cl.take(rds, "b=1")
		// On a new stream the origin does not answer for the held resources.
		c.site.manual(rds)
		c.site.stream(c, 1).end(c, nil)
		c.site.await(c, rds, "the names anew", func(r request) bool { return r.stream == 2 })
		cl.sub(rds, "c")
		cl.nothing(rds, "the end")
	})
}

// implemented are the client features of the relay itself.
var implemented = []string{"xds.config.supports-resource-in-sotw", "xds.config.supports-resource-ttl"}

// The node sent upstream is that of the key's first client, for the key's whole life. It declares
// the features of the relay.
func TestP58_NodeOfTheFirstClient(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, cds, "a=1")
		one := c.client("one")
		one.node.ClientFeatures = []string{"xds.config.of-the-client-alone"}
		one.getsAll(cds, "a=1")
		two := c.client("two")
		two.node.UserAgentName = "another"
		two.getsAll(cds, "a=1")
		one.reconnect()
		c.site.stream(c, 1).end(c, nil)
		c.site.await(c, cds, "a second stream", func(r request) bool { return r.stream == 2 })
		for _, n := range []int{1, 2} {
			node := c.site.stream(c, n).node
			if node.GetId() != "one" || node.GetUserAgentName() != "conformance" {
				c.Errorf("on stream %d the node is %v", n, node)
			}
			if got := node.GetClientFeatures(); !slices.Equal(got, implemented) {
				c.Errorf("on stream %d the features are %v, want %v", n, got, implemented)
			}
		}
		xdstest.Eventually(c, "the member that is another program", func() error {
			if body := c.relay.get(c, "/keys/"+c.key); !strings.Contains(body, `"other_user_agents": 1`) {
				return errorf("%s", body)
			}
			return nil
		})
	})
}

// If the first client leaves and the origin has answered nothing, the node of a connected client is
// sent. The origin here answers only that one.
func TestP58_AnotherClientsNodeIfUnanswered(t *testing.T) {
	each(t, hasty, anywhere, func(c *trial) {
		c.site.manual(eds)
		odd := c.client("odd")
		odd.sub(eds, "a")
		if id := c.site.stream(c, c.site.request(c, eds, 1).stream).node.GetId(); id != "odd" {
			c.Fatalf("the first node is %q", id)
		}
		other := c.client("other")
		other.sub(eds, "a")
		odd.reconnect() // it does not come back
		next := c.site.await(c, eds, "another stream", func(r request) bool { return r.stream > 1 })
		up := c.site.stream(c, next.stream)
		if id := up.node.GetId(); id != "other" {
			c.Fatalf("the next node is %q", id)
		}
		up.push(c, eds, "1", "n1", "a=1")
		other.take(eds, "a=1")
	})
}

// The node is in each request: the first one, an ACK, a NACK, and a changed subscription. The
// configuration can restrict it to the first request of a stream.
func TestP58_NodeInEachRequest(t *testing.T) {
	eachOwn(t, both(onADS, downDelta), func(t *testing.T, at place) {
		control := newTestControl(t)
		for _, once := range []bool{false, true} {
			r := own(t, at.up, xdstest.Config{"upstream.set_node_on_first_message_only": once}, control.addr)
			c := on(t, at, r, control)
			cl, up := c.byHand(rds, "a")
			up.reply(c, rds, "1", "a=1")
			cl.take(rds, "a=1")
			up.reply(c, rds, "2", "a=1", "a=2")
			cl.sub(rds, "b")
			c.site.await(c, rds, "the new name", func(r request) bool { return holds(r.names, "b") })
			for i, r := range c.site.requests(rds) {
				if got, want := r.node.GetId(), "one"; (got == want) != (i == 0 || !once) {
					t.Errorf("once per stream: %v: request %d has the node %q", once, i, got)
				}
			}
		}
	})
}

// Large responses are received and sent. Requests stay small enough for any origin.
func TestP59_LargeResponses(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		big := strings.Repeat("x", 6<<20) // over gRPC's default of 4 MiB
		c.site.put(c, rds, "a="+big)
		cl := c.client("one")
		cl.sub(rds, "a")
		if a := cl.next(rds); a.bodies["a"] == nil || field(a.bodies["a"].Value, valueField) != big {
			c.Errorf("the large resource differs")
		}
	})
}
