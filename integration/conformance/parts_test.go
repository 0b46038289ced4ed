package conformance

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"
)

// A delta origin splits its answer to a wildcard: 200 clusters, 4 per response, as diderot does.
// The relay is restarted, and clients reconnect with their state. Delta clients receive no removal
// except the real one. SotW clients receive no CDS response that lacks clusters. A client without
// state is served at once.
func TestP67_WildcardAnsweredInParts(t *testing.T) {
	eachOwn(t, anywhere, func(t *testing.T, at place) {
		control := newTestControl(t)
		first := own(t, at.up, nil, control.addr)
		c := on(t, at, first, control)
		c.site.manual(cds)
		before := c.client("one")
		before.sub(cds)
		c.site.request(c, cds, 1)
		clusters := names("c", 200)
		slices.Sort(clusters)
		var all []string
		for _, n := range clusters {
			all = append(all, n+"=1")
		}
		c.site.stream(c, 1).reply(c, cds, "all", append(all, "gone=1")...)
		had := before.next(cds)
		before.ack(had)
		before.reconnect()
		if err := first.Terminate(); err != nil {
			t.Fatal(err)
		}
		c.relay = own(t, at.up, nil, control.addr)

		returns, fresh := c.client("one"), c.client("fresh")
		returns.state(cds).wild, fresh.state(cds).wild = true, true
		state := rawRequest{version: had.version}
		if returns.delta {
			state = rawRequest{resumed: make(map[string]string)}
			for n, r := range had.wraps {
				state.resumed[n] = r.Version
			}
		}
		returns.tell(cds, state)
		fresh.tell(cds, rawRequest{})
		asked := c.site.await(c, cds, "the wildcard after the restart", func(r request) bool { return r.stream > 1 })
		up := c.site.stream(c, asked.stream)
		all[len(all)-1] = "c99=2"
		if !up.delta {
			up.reply(c, cds, "new", all...)
		} else {
			// The pause before the first part allows each later one to be as long, on a busy machine too.
			<-time.After(4 * time.Second)
			pause := time.NewTicker(10 * time.Millisecond)
			defer pause.Stop()
			for part := range slices.Chunk(all, 4) {
				up.reply(c, cds, part[0], part...)
				if part[0] == all[0] {
					if got := fresh.next(cds); len(got.bodies) == 0 || len(got.bodies) > 8 {
						c.Errorf("a client without state got first %q", got)
					}
				}
				<-pause.C
			}
		}
		switch {
		case !returns.delta:
			returns.take(cds, strings.Join(all, " "))
		case up.delta:
			returns.take(cds, "c99=2")
			returns.take(cds, "-gone")
		default:
			returns.take(cds, "c99=2 -gone")
		}
		if at.ads {
			returns.quiet()
		}
		// A later client finds the wildcard answered.
		later := c.client("later")
		later.state(cds).wild = true
		later.tell(cds, state)
		if later.delta {
			later.take(cds, "c99=2 -gone")
		} else {
			later.take(cds, strings.Join(all, " "))
		}
	})
}

// Full-state responses of clusters wait for the rest of the answer. So do listeners and routes of
// clients that bring state, on all their streams, in either variant. A client without state does not
// wait.
func TestP67_RoutesWaitWithTheClusters(t *testing.T) {
	each(t, patient, downSotW, func(c *trial) {
		c.site.manual(cds, lds, rds, vhds)
		returns, fresh := c.client("returns"), c.client("fresh")
		hosts, added := c.clientOf("delta", false, "returns"), c.clientOf("delta", false, "another")
		for _, k := range []kind{cds, lds} {
			returns.state(k).wild = true
			returns.tell(k, rawRequest{version: "7"})
		}
		returns.state(rds).names, fresh.state(rds).names = []string{"r"}, []string{"r"}
		returns.tell(rds, rawRequest{names: []string{"r"}, version: "7"})
		fresh.tell(rds, rawRequest{names: []string{"r"}})
		hosts.tell(vhds, rawRequest{names: []string{"r/h"}, resumed: map[string]string{"r/h": "7"}})
		added.tell(vhds, rawRequest{names: []string{"r/h"}})
		c.site.await(c, cds, "clusters", func(request) bool { return true })
		c.site.await(c, lds, "listeners", func(request) bool { return true })
		c.site.asksFor(c, rds, "r")
		c.site.asksFor(c, vhds, "r/h")
		up := c.site.stream(c, 1)
		up.reply(c, lds, "1", "l=1")
		up.reply(c, rds, "1", "r=1")
		up.reply(c, vhds, "1", "r/h=1")
		fresh.take(rds, "r=1")
		added.take(vhds, "r/h=1")
		if up.delta {
			up.reply(c, cds, "1", "a=1")
			up.reply(c, cds, "2", "b=1")
		}
		up.reply(c, rds, "2", "r=2")
		fresh.take(rds, "r=2")
		for _, k := range []kind{cds, lds, rds} {
			returns.nothing(k, "the clusters are complete")
		}
		hosts.nothing(vhds, "the clusters are complete")
		if !up.delta {
			up.reply(c, cds, "2", "a=1", "b=1")
		}
		if c.ads {
			if a := returns.first(); a.kind != cds {
				c.Errorf("first came %s", a.kind.short())
			} else {
				returns.ack(a)
			}
		} else {
			returns.take(cds, "a=1 b=1")
		}
		returns.take(lds, "l=1")
		returns.take(rds, "r=2")
		hosts.take(vhds, "r/h=1")
		up.reply(c, rds, "3", "r=3")
		returns.take(rds, "r=3")
	})
}

// Routes wait for clusters that are requested by name for 5 s at most: a client that requests clusters
// by name gets the name of a new one only from its routes.
func TestP67_RoutesWaitForNamedClustersForAWhile(t *testing.T) {
	each(t, patient, downSotW, func(c *trial) {
		c.site.manual(cds, rds)
		cl := c.client("one")
		cl.state(cds).names, cl.state(rds).names = []string{"a", "gone"}, []string{"r"}
		cl.tell(cds, rawRequest{names: []string{"a", "gone"}, version: "7"})
		cl.tell(rds, rawRequest{names: []string{"r"}, version: "7"})
		began := time.Now()
		c.site.asksFor(c, cds, "a", "gone")
		c.site.asksFor(c, rds, "r")
		up := c.site.stream(c, 1)
		up.reply(c, rds, "1", "r=1")
		cl.take(rds, "r=1")
		if took := time.Since(began); took < 4900*time.Millisecond {
			c.Errorf("it waited for %v", took)
		}
		cl.nothing(cds, "any cluster is answered")
		up.reply(c, cds, "1", "a=1")
		cl.take(cds, "a=1")
	})
}

// A SotW client that resumes with a version waits for all clusters that it lists, at most 5 s. A
// client without a version does not wait.
func TestP67_NamesAreWaitedFor(t *testing.T) {
	each(t, patient, downSotW, func(c *trial) {
		c.site.manual(cds)
		returns, fresh := c.client("returns"), c.client("fresh")
		for _, cl := range []*client{returns, fresh} {
			cl.state(cds).names = []string{"a", "b"}
		}
		returns.tell(cds, rawRequest{names: []string{"a", "b"}, version: "7"})
		fresh.tell(cds, rawRequest{names: []string{"a", "b"}})
		c.site.asksFor(c, cds, "a", "b")
		up := c.site.stream(c, 1)
		up.reply(c, cds, "1", "a=1")
		began := time.Now()
		fresh.take(cds, "a=1")
		if c.ads {
			returns.quiet()
		}
		returns.nothing(cds, "b is answered")
		up.reply(c, cds, "2", "a=1", "b=1")
		fresh.take(cds, "a=1 b=1")
		returns.take(cds, "a=1 b=1")
		late := c.client("late")
		late.state(cds).names = []string{"a", "x"}
		late.tell(cds, rawRequest{names: []string{"a", "x"}, version: "7"})
		late.take(cds, "a=1")
		if took := time.Since(began); took < 5*time.Second {
			c.Errorf("it waited for %v", took)
		}
	})
}

// unconfirmed checks that a client keeps what it brought, and that relay wait does not count it as one
// that has the version.
func unconfirmed(t *testing.T, r *relay, node string) {
	t.Helper()
	xdstest.Eventually(t, "the client's state", func() error {
		var clients struct{ Items []struct{ Node string } }
		if err := r.GetJSON("/clients?state=UNCONFIRMED", &clients); err != nil || len(clients.Items) != 1 || clients.Items[0].Node != node {
			return errorf("UNCONFIRMED are %+v, want %s; %v", clients.Items, node, err)
		}
		return nil
	})
	var keys struct {
		Items []struct {
			Key   string
			Types []struct{ Version string }
		}
	}
	if err := r.GetJSON("/keys", &keys); err != nil {
		t.Fatal(err)
	}
	var progress struct {
		Known                     bool
		Clients, Reached, Pending int
	}
	k := keys.Items[0]
	err := r.GetJSON("/progress/"+k.Key+"?type=CDS&or_newer=true&version="+k.Types[0].Version, &progress)
	if err != nil || !progress.Known || progress.Clients != 2 || progress.Reached != 1 || progress.Pending != 1 {
		t.Errorf("progress is %+v, %v; want one of two clients", progress, err)
	}
}

// While the origin is away, a new client receives stored resources. A client that resumes does not:
// the store may be older, which would remove resources. When the origin is back, both receive its
// resources.
func TestP66_StoredAndClientsWithState(t *testing.T) {
	eachOwn(t, anywhere, func(t *testing.T, at place) {
		control, dir := newTestControl(t), t.TempDir()
		more := xdstest.Config{"store.path": dir, "store.interval": "20ms"}
		first := own(t, at.up, more, control.addr)
		c := on(t, at, first, control)
		c.site.put(c, cds, "a=1", "b=1")
		before := c.servedAll("before", cds, "a=1 b=1")
		before.reconnect()
		c.stopStored(dir)
		c.site.leave()
		c.relay = own(t, at.up, more, control.addr)

		returns, fresh := c.client("returns"), c.client("fresh")
		returns.state(cds).wild = true
		state := rawRequest{version: "a-newer-one"}
		if returns.delta {
			state = rawRequest{resumed: map[string]string{"a": "newer", "c": "newer"}}
		}
		returns.tell(cds, state)
		fresh.getsAll(cds, "a=1 b=1")
		if at.ads {
			ever, _ := c.site.opened()
			c.site.stream(c, ever+2) // the relay has tried again since
		}
		returns.nothing(cds, "the origin's return")
		unconfirmed(t, c.relay, returns.node.Id)

		c.site.put(c, cds, "a=2", "-b", "c=1")
		c.site.back()
		want := map[string]string{"a": "2", "c": "1"}
		for _, cl := range []*client{returns, fresh} {
			got := make(map[string]string)
			for !maps.Equal(got, want) {
				r := cl.next(cds)
				cl.ack(r)
				if cl == returns && slices.Contains(r.removed, "c") {
					t.Errorf("it received the removal of c: %q", r)
				}
				if !cl.delta {
					clear(got)
				}
				for _, thing := range strings.Fields(r.String()) {
					if name, value, gone := parse(thing); gone {
						delete(got, name)
					} else {
						got[name] = value
					}
				}
			}
		}
	})
}
