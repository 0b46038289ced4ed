package conformance

import (
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// SotW requests list the whole union and the newest nonce. A NACK repeats the previous list, and a
// changed union follows in a plain request.
func TestP64_SotWRequests(t *testing.T) {
	each(t, patient, upSotW, func(c *trial) {
		c.site.manual(rds)
		cl := c.client("one")
		cl.sub(rds, "a")
		r := c.site.request(c, rds, 1)
		if got := r.String(); got != "RouteConfiguration +a" {
			c.Errorf("the first request is %q", got)
		}
		up := c.site.stream(c, 1)
		if got := up.reply(c, rds, "v1", "a=1").String(); got != "RouteConfiguration +a version=v1 nonce=v1" {
			c.Errorf("the ACK is %q", got)
		}
		cl.take(rds, "a=1")
		cl.sub(rds, "b")
		if got := c.site.request(c, rds, 3).String(); got != "RouteConfiguration +a +b nonce=v1" { // P55: no version
			c.Errorf("the changed union is %q", got)
		}
		up.send(c, &discoveryv3.DiscoveryResponse{TypeUrl: string(rds), VersionInfo: "v2", Nonce: "v2",
			Resources: []*anypb.Any{body(rds, "a", "2"), body(rds, "a", "2")}})
		if got := up.reaction(c, rds, "v2").String(); got != "RouteConfiguration +a +b version=v1 nonce=v2 error" {
			c.Errorf("the NACK is %q", got)
		}
		cl.sub(rds, "c")
		r = c.site.await(c, rds, "the name c", func(r request) bool { return holds(r.names, "c") })
		if got := r.String(); got != "RouteConfiguration +a +b +c nonce=v2" {
			c.Errorf("the union after a NACK is %q", got)
		}
	})
}

// In delta, names change in separate requests without a nonce. A held name is not requested again
// on the same stream.
func TestP64_DeltaRequests(t *testing.T) {
	each(t, patient, upDelta, func(c *trial) {
		c.site.manual(rds)
		cl := c.client("one")
		cl.sub(rds, "a", "b")
		if got := c.site.request(c, rds, 1).String(); got != "RouteConfiguration +a +b" {
			c.Errorf("the first request is %q", got)
		}
		up := c.site.stream(c, 1)
		if got := up.reply(c, rds, "v1", "a=1", "b=1").String(); got != "RouteConfiguration nonce=v1" {
			c.Errorf("the ACK is %q", got)
		}
		cl.take(rds, "a=1 b=1")
		other := c.served("other", rds, "a=1 b=1")
		other.reconnect()
		other.sub(rds, "b", "c")
		other.take(rds, "b=1")
		if got := c.site.request(c, rds, 3).String(); got != "RouteConfiguration +c" {
			c.Errorf("the request for the new name is %q", got)
		}
		up.send(c, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(rds), Nonce: "v2", RemovedResources: []string{"c"},
			Resources: []*discoveryv3.Resource{{Name: "c", Version: "1", Resource: body(rds, "c", "1")}}})
		if got := c.site.request(c, rds, 4).String(); got != "RouteConfiguration nonce=v2 error" {
			c.Errorf("the NACK is %q", got)
		}
	})
}

// Names that are no longer wanted are unsubscribed in a separate request.
func TestP64_DeltaDropsNames(t *testing.T) {
	each(t, hasty, upDelta, func(c *trial) {
		c.site.put(c, rds, "a=1", "b=1")
		cl := c.served("one", rds, "a=1 b=1")
		cl.unsub(rds, "b")
		r := c.site.await(c, rds, "the name's end", func(r request) bool { return len(r.dropped) > 0 })
		if got := r.String(); got != "RouteConfiguration -b" {
			c.Errorf("the name's end is %q", got)
		}
	})
}

// The wildcard is an empty first list, or "*" for the types where an empty list is no interest.
func TestP64_Wildcards(t *testing.T) {
	each(t, patient, onADS, func(c *trial) {
		for _, k := range []kind{cds, lds, srds, acme, eds, rds} {
			c.site.put(c, k, "a=1")
			cl := c.client("one")
			cl.sub(k, "*")
			cl.take(k, "a=1")
			var want []string
			if k.noLegacy() {
				want = []string{"*"}
			}
			if r := c.site.requests(k)[0]; !slices.Equal(r.names, want) {
				c.Errorf("%s: the request for the wildcard is %v", k.short(), r)
			}
		}
	})
}

// A type that no client wants is not requested.
func TestP64_UnwantedTypeIsNotRequested(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, cds, "a=1")
		cl := c.servedAll("one", cds, "a=1")
		if c.ads {
			cl.sub(eds)
			cl.sub(rtds)
			cl.quiet()
		}
		for _, r := range c.site.requests("") {
			if r.kind != cds {
				c.Errorf("unexpected request %v", r)
			}
		}
	})
}

// Absence in a SotW response removes a listener, cluster or scoped route. For other types it means
// nothing.
func TestP65_Absence(t *testing.T) {
	each(t, patient, upSotW, func(c *trial) {
		c.site.manual(cds, lds, srds, rds)
		for _, k := range []kind{cds, lds, srds, rds} {
			cl := c.client("one-" + k.short())
			cl.sub(k, "a", "b")
			up := c.site.stream(c, 1)
			c.site.request(c, k, 1)
			up.reply(c, k, k.short()+"1", "a=1", "b=1")
			cl.take(k, "a=1 b=1")
			up.reply(c, k, k.short()+"2", "a=2")
			if k.full() {
				cl.takeFull(k, "a=2", "a=2 -b")
				continue
			}
			cl.take(k, "a=2")
			late := c.client("late-" + k.short())
			late.gets(k, "b=1")
		}
	})
}

// Absence removes a name only if a response had it since its last addition to the union. The origin
// may not have seen the request yet.
func TestP65_AbsenceOfANewName(t *testing.T) {
	each(t, patient, upSotW, func(c *trial) {
		cl, up := c.byHand(cds, "a")
		up.reply(c, cds, "1", "a=1")
		cl.take(cds, "a=1")
		cl.sub(cds, "b")
		c.site.await(c, cds, "the new name", func(r request) bool { return holds(r.names, "b") })
		up.reply(c, cds, "2", "a=2")
		cl.take(cds, "a=2") // without b
		up.reply(c, cds, "3", "a=2", "b=1")
		cl.takeFull(cds, "a=2 b=1", "b=1")
		up.reply(c, cds, "4", "a=2")
		cl.takeFull(cds, "a=2", "-b")
	})
}

// Names that are no longer wanted are forgotten when they are unsubscribed.
func TestP65_ForgottenWhenUnwanted(t *testing.T) {
	each(t, hasty, anywhere, func(c *trial) {
		c.site.put(c, rds, "a=1", "b=1")
		cl := c.served("one", rds, "a=1 b=1")
		cl.unsub(rds, "b")
		c.site.asksFor(c, rds, "a")
		c.site.manual(rds) // no longer answers by itself
		cl.sub(rds, "b")
		c.site.asksFor(c, rds, "a", "b")
		cl.nothing(rds, "the origin's answer")
		c.site.stream(c, 1).reply(c, rds, "new", "b=2")
		cl.until(rds, "b=2")
	})
}

// A resource without a subscription is dropped, and is not a fault.
func TestP65_NotRequested(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		cl, up := c.byHand(rds, "a")
		up.accepts(c, rds, "1", "a=1", "unrequested=1")
		cl.take(rds, "a=1")
		late := c.client("late")
		late.sub(rds, "unrequested")
		c.site.await(c, rds, "the name", func(r request) bool { return holds(r.names, "unrequested") })
		up.reply(c, rds, "2", "unrequested=2")
		late.take(rds, "unrequested=2")
	})
}

// A client receives the same in all combinations. It receives a removal wherever both sides can
// express it.
func TestP60_SameInAllCombinations(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		for _, k := range []kind{cds, lds, rds, eds} {
			c.site.put(c, k, "a=1", "b=1", "c=1")
			cl := c.client("one")
			cl.sub(k, "a", "b", "c")
			have := map[string]string{}
			keep := func(a answer) {
				if !cl.delta && k.full() {
					clear(have)
				}
				for name, b := range a.bodies {
					have[name] = field(b.Value, valueField)
				}
				for _, name := range a.removed {
					delete(have, name)
				}
				cl.ack(a)
			}
			keep(cl.want(k, "a=1 b=1 c=1"))
			c.site.put(c, k, "a=2")
			keep(cl.next(k))
			c.site.put(c, k, "-b")
			if k.full() || c.up == "delta" && c.down == "delta" {
				keep(cl.next(k))
			}
			c.site.put(c, k, "c=2")
			keep(cl.next(k))
			want := map[string]string{"a": "2", "c": "2"}
			if !k.full() && (c.up == "sotw" || c.down == "sotw") {
				want["b"] = "1" // it may remain until its parent changes
			}
			if len(have) != len(want) || have["a"] != want["a"] || have["b"] != want["b"] || have["c"] != want["c"] {
				c.Errorf("%s: the client has %v, want %v", k.short(), have, want)
			}
			cl.reconnect()
		}
	})
}

// Versions of delta resources are computed from the content. They are the same in every relay,
// whatever the origin's variant and versions.
func TestP61_ContentVersions(t *testing.T) {
	each(t, patient, downDelta, func(c *trial) {
		c.site.put(c, rds, "a=1", "b=1", "c=1")
		cl := c.client("one")
		a := cl.gets(rds, "a=1 b=1")
		va, vb := a.wraps["a"].Version, a.wraps["b"].Version
		if va == "" || va == vb || strings.HasPrefix(va, "r1") {
			c.Errorf("the versions are %q and %q", va, vb)
		}
		c.site.put(c, rds, "a=2")
		if v := cl.take(rds, "a=2").wraps["a"].Version; v == va {
			c.Errorf("another content has the same version %q", v)
		}
		c.site.put(c, rds, "a=1")
		if v := cl.take(rds, "a=1").wraps["a"].Version; v != va {
			c.Errorf("the same content has version %q, and had %q", v, va)
		}
		other := "delta"
		if c.up == other {
			other = "sotw"
		}
		r, control := shared(c, patient, other)
		there := &trial{TB: c.TB, place: c.place, key: c.key + ".elsewhere", relay: r}
		there.site = control.site(there.key)
		there.site.put(c, rds, "a=1")
		far := there.client("far")
		far.sub(rds, "a")
		if v := far.take(rds, "a=1").wraps["a"].Version; v != va {
			c.Errorf("another relay gives the version %q, this one %q", v, va)
		}
	})
}

// The version of a response is the origin's newest for the type, verbatim.
func TestP61_VersionOfTheOrigin(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		cl, up := c.byHand(cds)
		for _, v := range []string{"2024-01-01T00:00:00Z/7", "no order"} {
			up.reply(c, cds, v, "a="+v)
			if a := cl.take(cds, "a="+v); a.version != v {
				c.Errorf("the version is %q, want the origin's %q", a.version, v)
			}
		}
	})
}

// If the origin sends no version, it is computed from the content of the set.
func TestP61_VersionOfTheSet(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		cl, up := c.byHand(cds)
		seen := map[string]string{}
		for i, v := range []string{"1", "2", "1"} {
			nonce := names("n", 3)[i]
			m := up.response(cds, nonce, "a="+v)
			switch r := m.(type) {
			case *discoveryv3.DiscoveryResponse:
				r.VersionInfo = ""
			case *discoveryv3.DeltaDiscoveryResponse:
				r.SystemVersionInfo = ""
			}
			up.send(c, m)
			up.reaction(c, cds, nonce)
			a := cl.take(cds, "a="+v)
			if before := seen[v]; a.version == "" || before != "" && a.version != before {
				c.Errorf("the set of a=%s has version %q, and had %q", v, a.version, before)
			}
			seen[v] = a.version
		}
		if seen["1"] == seen["2"] {
			c.Errorf("two sets have the version %q", seen["1"])
		}
	})
}
