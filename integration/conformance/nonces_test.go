package conformance

import (
	"strings"
	"testing"

	"xdsrelay/internal/xdstest"
)

// Every response has a nonce that is unique on its stream, across all types.
func TestP10_NoncesAreUnique(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, cds, "a=0")
		c.site.put(c, eds, "a=0")
		cl := c.client("one")
		cl.sub(cds)
		cl.sub(eds, "a")
		seen := make(map[string]bool)
		look := func(a answer) {
			stream := a.nonce
			if !c.ads {
				stream += a.kind.short()
			}
			if a.nonce == "" || seen[stream] {
				c.Errorf("the nonce %q is not unique", a.nonce)
			}
			seen[stream] = true
		}
		look(cl.take(cds, "a=0"))
		look(cl.take(eds, "a=0"))
		for _, v := range []string{"1", "2", "3"} {
			c.site.put(c, eds, "a="+v)
			look(cl.take(eds, "a="+v))
		}
		c.site.put(c, cds, "a=1")
		look(cl.take(cds, "a=1"))
	})
}

// A nonce of another stream acknowledges nothing.
func TestP10_NoncesDoNotShare(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, rds, "a=0")
		far, cl := c.client("far"), c.client("one")
		far.gets(rds, "a=0")
		for _, v := range []string{"1", "2", "3"} {
			c.site.put(c, rds, "a="+v)
			far.take(rds, "a="+v)
		}
		foreign := far.state(rds).nonce
		cl.sub(rds, "a")
		a := cl.want(rds, "a=3")
		if a.nonce == foreign {
			c.Skip("both streams happen to have the same nonce")
		}
		if cl.delta {
			cl.tell(rds, rawRequest{nonce: foreign})
		} else {
			cl.tell(rds, rawRequest{names: []string{"a"}, nonce: foreign, version: a.version})
		}
		c.unanswered(cl, rds, "a=4")
		cl.ack(a)
		cl.take(rds, "a=4")
	})
}

// unanswered changes a resource, and checks that a client does not receive it, because it has not
// answered the previous response.
func (c *trial) unanswered(cl *client, k kind, change string) {
	c.Helper()
	witness := c.client("witness")
	var names []string
	for _, r := range cl.state(k).names {
		if r != "*" && !isFence(r) {
			names = append(names, r)
		}
	}
	witness.sub(k, names...)
	witness.ack(witness.next(k))
	c.site.put(c, k, change)
	witness.until(k, change)
	if cl.ads {
		cl.quiet()
	}
	cl.nothing(k, "the acknowledgement")
}

// The first request on a stream is never stale, whatever its version and nonce.
func TestP11_FirstRequestIsAnswered(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, cds, "a=1")
		c.site.put(c, eds, "a=1")
		cl := c.client("one")
		cl.sub(cds)
		cl.sub(eds, "a")
		clusters := cl.take(cds, "a=1")
		endpoints := cl.take(eds, "a=1")
		cl.quiet(cds, eds)
		cl.reconnect()
		cl.tell(cds, rawRequest{version: clusters.version, nonce: clusters.nonce})
		cl.take(cds, "a=1")
		cl.tell(eds, rawRequest{names: []string{"a"}, version: endpoints.version, nonce: endpoints.nonce})
		cl.take(eds, "a=1")
		if !cl.delta { // so is a first request with an error
			cl.reconnect()
			cl.tell(eds, rawRequest{names: []string{"a"}, version: endpoints.version, nonce: endpoints.nonce, err: "rejected"})
			cl.take(eds, "a=1")
		}
	})
}

// The first answer to a wildcard is sent even if it is empty, once the origin
// has answered.
func TestP11_EmptyWildcard(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		kinds := []kind{cds, lds, srds}
		if c.ads {
			kinds = append(kinds, acme)
		}
		c.site.manual(kinds...)
		cl := c.client("one")
		for _, k := range kinds {
			cl.sub(k)
			c.site.request(c, k, 1)
		}
		if c.ads {
			cl.quiet() // the origin has not answered
		}
		up := c.site.stream(c, 1)
		for _, k := range kinds {
			cl.nothing(k, "the origin's answer")
			up.reply(c, k, "empty-"+k.short())
			a := cl.take(k, "")
			if a.version != "empty-"+k.short() {
				c.Errorf("the empty answer has version %q", a.version)
			}
		}
		late := c.client("late")
		for _, k := range kinds {
			late.sub(k)
			late.take(k, "")
		}
	})
}

// Resources held for names do not answer a wildcard.
func TestP11_WildcardWaitsForTheOrigin(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, cds, "a=1")
		named, all := c.client("named"), c.client("all")
		named.gets(cds, "a=1")
		c.site.manual(cds)
		all.sub(cds)
		r := c.site.await(c, cds, "the wildcard", func(r request) bool { return len(r.names) == 0 && r.nonce == "" || holds(r.names, "*") })
		if c.ads {
			all.quiet()
		}
		all.nothing(cds, "the origin's answer")
		c.site.stream(c, r.stream).reply(c, cds, "all", "a=1", "b=1")
		all.take(cds, "a=1 b=1")
	})
}

// The same holds if the client has everything already.
func TestP11_WildcardWithNothingNew(t *testing.T) {
	each(t, patient, downDelta, func(c *trial) {
		c.site.put(c, cds, "a=1")
		cl := c.client("one")
		a := cl.getsAll(cds, "a=1")
		cl.reconnect()
		cl.state(cds).wild = true
		cl.tell(cds, rawRequest{resumed: map[string]string{"a": a.wraps["a"].Version}})
		cl.take(cds, "")
		cl.quiet(cds)
	})
}

// While a response is unanswered, a request without its nonce is stale. It is not answered and
// acknowledges nothing. Its names still go to the origin. They are compared with those of the last
// request that was not stale.
func TestP12_StaleRequest(t *testing.T) {
	each(t, patient, downSotW, func(c *trial) {
		c.site.put(c, rds, "a=1", "b=1", "c=1")
		cl := c.client("one")
		cl.sub(rds, "a")
		a := cl.want(rds, "a=1")
		cl.tell(rds, rawRequest{names: []string{"a", "b"}})
		c.site.await(c, rds, "the stale request's name", func(r request) bool { return holds(r.names, "b") })
		if c.ads {
			cl.quiet()
		}
		cl.nothing(rds, "the acknowledgement")
		cl.state(rds).names = []string{"a", "b"}
		cl.ack(a) // with b, which no request that was not stale had
		cl.take(rds, "b=1")

		c.site.put(c, rds, "a=2")
		a = cl.want(rds, "a=2")
		cl.tell(rds, rawRequest{names: []string{"a", "b", "c"}, nonce: "never-sent", version: a.version})
		c.site.await(c, rds, "the stale request's name", func(r request) bool { return holds(r.names, "c") })
		if c.ads {
			cl.quiet()
		}
		cl.nothing(rds, "the acknowledgement")
		cl.ack(a) // without c
		cl.quiet(rds)
	})
}

// A name that a stale request left out is not newly listed when the ACK has it. The ACK is compared
// with the last request that was not stale.
func TestP12_ComparedWithTheLastThatWasNotStale(t *testing.T) {
	each(t, patient, downSotW, func(c *trial) {
		c.site.put(c, rds, "a=1", "b=1")
		cl := c.served("one", rds, "a=1 b=1")
		c.site.put(c, rds, "a=2")
		a := cl.want(rds, "a=2")
		cl.tell(rds, rawRequest{names: []string{"a"}, nonce: cl.state(rds).nonce})
		cl.ack(a) // with a and b
		cl.quiet(rds)
	})
}

func holds(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

// No request is stale before the first response, nor after the newest response was answered.
func TestP12_NotStale(t *testing.T) {
	each(t, patient, downSotW, func(c *trial) {
		c.site.put(c, eds, "a=1", "b=1", "c=1", "d=1")
		c.site.manual(eds)
		cl := c.client("one")
		cl.sub(eds, "a")
		c.site.request(c, eds, 1)
		cl.tell(eds, rawRequest{names: []string{"a", "b"}, nonce: "of-another-time"})
		c.site.await(c, eds, "the second name", func(r request) bool { return holds(r.names, "b") })
		c.site.stream(c, 1).reply(c, eds, "1", "a=1", "b=1")
		cl.state(eds).names = []string{"a", "b"}
		first := cl.want(eds, "a=1 b=1")
		cl.ack(first)
		if c.ads {
			cl.quiet()
		}

		// Envoy's unified mux sends an old nonce after a NACK.
		c.site.stream(c, 1).reply(c, eds, "2", "a=2")
		cl.nack(cl.want(eds, "a=2"))
		cl.tell(eds, rawRequest{names: []string{"a", "b", "c"}, nonce: first.nonce, version: first.version})
		c.site.await(c, eds, "the third name", func(r request) bool { return holds(r.names, "c") })
		c.site.stream(c, 1).reply(c, eds, "3", "c=1")
		cl.take(eds, "c=1")
	})
}

// A NACK is a request with error_detail. Its version does not matter.
func TestP13_VersionsTellNothing(t *testing.T) {
	each(t, patient, downSotW, func(c *trial) {
		c.site.put(c, eds, "a=1", "b=1")
		for _, ack := range []bool{true, false} {
			cl := c.client("one")
			cl.sub(eds, "a", "b")
			a := cl.next(eds)
			r := rawRequest{names: []string{"a", "b"}, nonce: a.nonce} // the version looks like a NACK
			if !ack {
				r.version, r.err = a.version, "not taken" // the version looks like an ACK
			}
			cl.state(eds).nonce, cl.state(eds).version = a.nonce, a.version
			cl.tell(eds, r)
			cl.quiet(eds)
			if ack {
				c.site.put(c, eds, "a=2")
				cl.take(eds, "a=2")
			} else {
				c.site.put(c, eds, "a=3")
				cl.take(eds, "a=3 b=1") // P15
			}
		}
	})
}

// An error_detail with a nonce of another stream is not a NACK.
func TestP13_NonceOfThisStream(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, rds, "a=1", "b=1")
		cl := c.client("one")
		cl.sub(rds, "a", "b")
		a := cl.want(rds, "a=1 b=1")
		r := rawRequest{nonce: "never-sent", err: "not taken"}
		if !cl.delta {
			r.names = []string{"a", "b"}
		}
		cl.tell(rds, r)
		c.unanswered(cl, rds, "a=2")
		cl.ack(a)
		cl.take(rds, "a=2") // the response was acknowledged, so b is not sent again
		cl.quiet(rds)
		if all := c.relay.get(t, "/keys/"+c.key); strings.Contains(all, "not taken") {
			c.Errorf("it was counted as a NACK: %s", all)
		}
	})
}

// In delta, subscription changes apply whatever the nonce.
func TestP14_SubscriptionWithAnyNonce(t *testing.T) {
	each(t, patient, downDelta, func(c *trial) {
		c.site.put(c, eds, "a=1", "b=1", "c=1")
		cl := c.client("one")
		cl.sub(eds, "a")
		a := cl.want(eds, "a=1")
		cl.tell(eds, rawRequest{names: []string{"b"}, nonce: "never-sent"}) // while a response is unanswered
		b := cl.want(eds, "b=1")
		cl.ack(a)
		cl.ack(b)
		cl.tell(eds, rawRequest{names: []string{"c"}, drop: []string{"b"}, nonce: a.nonce}) // the nonce of an old response
		cl.take(eds, "c=1")
		c.site.put(c, eds, "a=2", "b=2", "c=2")
		cl.take(eds, "a=2 c=2")
	})
}

// A rejected resource is not sent again by itself. Other changes are sent without it. A change of
// any part of it resends all of it.
func TestP15_NACKedIsNotSentAgain(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, eds, "a=1", "b=1", "c=1")
		cl := c.client("one")
		cl.sub(eds, "a", "b")
		cl.nack(cl.want(eds, "a=1 b=1"))
		cl.quiet(eds)
		cl.gets(eds, "c=1")
		c.site.put(c, eds, "c=2")
		cl.take(eds, "c=2")
		c.site.put(c, eds, "b=2")
		cl.take(eds, "a=1 b=2")
		c.site.put(c, eds, "a=2")
		cl.take(eds, "a=2") // the accepted one
		cl.quiet(eds)
	})
}

// The origin's next push is the retry of a rejected response, even if nothing in it changed: once for
// each push, and for no other client. A repetition of a version is no push, and neither is the
// answer to a new stream.
func TestP15_PushedAgain(t *testing.T) {
	for _, k := range []kind{cds, eds, lds, srds, rds, sds, rtds, ecds} {
		t.Run(k.short(), func(t *testing.T) {
			each(t, patient, onADS, func(c *trial) {
				var names []string
				if !k.full() {
					names = []string{"a", "b"}
				}
				cl, u := c.byHand(k, names...)
				u.push(c, k, "1", "", "a=1", "b=1")
				cl.nack(cl.want(k, "a=1 b=1"))
				cl.quiet()
				happy := c.client("two")
				happy.sub(k, names...)
				happy.take(k, "a=1 b=1")
				for _, version := range []string{"2", "3"} {
					u.push(c, k, version, "", "a=1", "b=1")
					cl.nack(cl.want(k, "a=1 b=1"))
					cl.quiet()
				}
				u.push(c, k, "3", "again", "a=1", "b=1")
				cl.quiet()
				u.end(c, nil)
				u = c.site.stream(c, 2)
				u.push(c, k, "4", "", "a=1", "b=1")
				cl.quiet()
				u.push(c, k, "5", "", "a=1", "b=1")
				cl.take(k, "a=1 b=1")
				if k == sds || k == ecds {
					return // P33: the other client is sent them as well
				}
				u.push(c, k, "6", "", "a=1", "b=1")
				cl.quiet()
				happy.quiet()
			})
		})
	}
}

// A rejected response is sent again whole after a push of one of its resources, and not after a push
// of others.
func TestP15_PushedInPart(t *testing.T) {
	each(t, patient, onADS, func(c *trial) {
		cl, u := c.byHand(rds, "a", "b", "c")
		u.push(c, rds, "1", "", "a=1", "b=1")
		cl.nack(cl.want(rds, "a=1 b=1"))
		u.push(c, rds, "2", "", "c=1")
		cl.take(rds, "c=1")
		u.push(c, rds, "3", "", "c=1")
		cl.quiet()
		u.push(c, rds, "4", "", "b=1")
		cl.take(rds, "a=1 b=1")
		cl.quiet()
	})
}

// After a NACK under a wildcard, full-state SotW sends everything when anything changes, and
// nothing before.
func TestP15_NACKUnderAWildcard(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, cds, "a=1", "b=1")
		cl := c.client("one")
		cl.sub(cds)
		cl.nack(cl.want(cds, "a=1 b=1"))
		if c.ads {
			cl.quiet()
		}
		c.site.put(c, cds, "c=1")
		if c.up == "sotw" { // it sends all of them again, under a new version
			cl.nack(cl.want(cds, "a=1 b=1 c=1"))
			c.site.put(c, cds, "b=2")
			cl.take(cds, "a=1 b=2 c=1")
		} else {
			cl.takeFull(cds, "a=1 b=1 c=1", "c=1")
			c.site.put(c, cds, "b=2")
			cl.takeFull(cds, "a=1 b=2 c=1", "a=1 b=2")
		}
		c.site.put(c, cds, "a=2")
		cl.takeFull(cds, "a=2 b=2 c=1", "a=2")
	})
}

// If a resource of a rejected response is removed, the rest of the response is sent again.
func TestP15_NACKedAndRemoved(t *testing.T) {
	each(t, patient, downDelta, func(c *trial) {
		c.site.put(c, cds, "a=1", "b=1")
		cl := c.client("one")
		cl.sub(cds)
		cl.nack(cl.want(cds, "a=1 b=1"))
		c.site.put(c, cds, "-a")
		cl.take(cds, "b=1 -a")
		cl.quiet(cds)
	})
}

// Whatever one client does, the other receives exactly what it subscribes to.
func TestP16_OneClientDisturbsNoOther(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		big := strings.Repeat("x", 300_000)
		c.site.put(c, cds, "a=1")
		c.site.put(c, eds, "a=1", "b=1", "c=1")
		early := c.served("early", eds, "a=1 b=1 c=1")
		early.unsub(eds, "a", "b", "c")
		good := c.servedAll("good", cds, "a=1")
		good.gets(eds, "a=1")

		nacker, silent, greedy := c.client("nacker"), c.client("silent"), c.client("greedy")
		deaf := c.client("deaf").alone()
		deaf.deaf = true
		greedy.sub(eds, names("greedy-", 500)...)
		for _, cl := range []*client{nacker, silent, deaf} {
			cl.sub(cds)
			cl.sub(eds, "a", "b", "c")
		}
		nacker.nack(nacker.want(cds, "a=1"))
		nacker.nack(nacker.want(eds, "a=1 b=1 c=1"))
		silent.want(cds, "a=1")
		silent.want(eds, "a=1 b=1 c=1")

		for _, v := range []string{"2", "3", "4", "5"} {
			c.site.put(c, eds, "a="+v+big, "b="+v+big, "c="+v+big)
			good.take(eds, "a="+v+big)
			c.site.put(c, cds, "a="+v)
			good.take(cds, "a="+v)
			if c.ads { // P37
				good.take(eds, "a="+v+big)
			}
		}
		good.quiet(cds, eds)
	})
}

// NACKs are kept with the client, the resource and the reason.
func TestP17_NacksAreKept(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, cds, "a=1")
		cl := c.client("nacker-of-" + c.down)
		cl.sub(cds)
		a := cl.want(cds, "a=1")
		cl.nack(a)
		xdstest.Eventually(c, "the NACK at /nacks", func() error {
			body := c.relay.get(c, "/keys/"+c.key)
			for _, want := range []string{cl.node.Id, "not taken", string(cds), `"` + a.version + `"`} {
				if !strings.Contains(body, want) {
					return errorf("no %q in %s", want, body)
				}
			}
			return nil
		})
		if all := c.relay.get(c, "/metrics"); !strings.Contains(all, `xdsrelay_downstream_nacks_total{type="CDS"}`) {
			c.Errorf("NACKs are not counted by type: %s", all)
		}
	})
}
