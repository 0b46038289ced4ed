package fanout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/nonce"
	"xdsrelay/internal/fanout/session/sessiontest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// smallServer is a serverFixture whose responses have room for so many endpoints.
func smallServer(t *testing.T, room int, ackTimeout time.Duration) *serverFixture {
	w := sessiontest.New(t, xds.EndpointType)
	b := xds.ResponseBody{ResourceFormat: xds.ResourceFormat{Variant: xds.Delta}, Type: xds.EndpointType, Version: strings.Repeat("0", 32), Identifier: "replica/origin",
		Resources: slices.Repeat([]*xds.Resource{w.Resource("a=2")}, room)}
	return newServerFixture(t, func(o *Options) {
		o.AckTimeout = ackTimeout
		o.MaxResponse = nonce.Size + b.Size()
	})
}

// P59: responses of up to 256 MiB are sent.
func TestP59_ResponsesOf256MiB(t *testing.T) {
	if limit := newServerFixture(t, nil).srv.opts.MaxResponse; limit != 256<<20 {
		t.Fatalf("responses of up to %d bytes", limit)
	}
}

func TestP38_TooLargeResponseIsReported(t *testing.T) {
	r := smallServer(t, 3, time.Minute)
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.ListenerType, "a", "b"))
	var clients []*plain
	for i := range 3 {
		c := r.ads(r.dial(), xds.SotW)
		c.ask(node(fmt.Sprint("n", i)), xds.ListenerType)
		clients = append(clients, c)
	}
	recv := func(n int) {
		t.Helper()
		for _, c := range clients {
			if got := c.Ack(); len(got.Resources) != n {
				t.Fatalf("%v, want %d resources", got, n)
			}
		}
	}
	status := func() (out []inspect.TypeStatus) {
		for _, c := range r.srv.Clients() {
			out = append(out, c.Types[0])
		}
		return out
	}
	each := func(ok func(s inspect.TypeStatus) bool) {
		t.Helper()
		r.eventually(func() bool {
			for _, s := range status() {
				if !ok(s) {
					return false
				}
			}
			return true
		})
	}
	recv(2)
	each(func(s inspect.TypeStatus) bool { return s.State == inspect.StateSynced && s.Oversized == nil })

	g.Publish(update(t, xds.ListenerType, "c", "d", "e", "f", "g", "h"))
	each(func(s inspect.TypeStatus) bool {
		return s.State == inspect.StateStale && s.Oversized != nil && s.Oversized.Bytes > r.srv.opts.MaxResponse && s.Oversized.Version != ""
	})
	r.metric(`xdsrelay_downstream_oversized_total{type="LDS"} 3`)
	r.metrics.SetClientStates(r.srv.Count())
	r.metric(`xdsrelay_downstream_oversized_types{type="LDS"} 3`)
	if n := r.log.Count("too large"); n != 1 {
		t.Errorf("told %d times", n)
	}
	r.srv.newWatcher().look(time.Now()) // which wakes the streams that are behind
	g.Publish(update(t, xds.ListenerType, "-c", "-d", "-e", "-f", "-g", "-h"))
	each(func(s inspect.TypeStatus) bool {
		return s.State == inspect.StateSynced && s.Oversized == nil && s.Sends == 1
	}) // they have what there is
	g.Publish(update(t, xds.ListenerType, "a=2"))
	recv(2)
	each(func(s inspect.TypeStatus) bool { return s.State == inspect.StateSynced && s.Oversized == nil })
	r.metric(`xdsrelay_downstream_oversized_total{type="LDS"} 3`)
	r.metrics.SetClientStates(r.srv.Count())
	r.metric(`xdsrelay_downstream_oversized_types{type="LDS"} 0`)
}

// A large delta response reaches clients that receive 4 MiB at most: in parts, resources before
// removals and before other types, each with a nonce of its own. Streams share the parts. A NACK of a
// part is counted for its version.
func TestP38_LargeDeltaResponsesAreCut(t *testing.T) {
	r := newServerFixture(t, nil)
	g := r.groups.Group("edge")
	var specs, gone []string
	for i := range 9 {
		specs = append(specs, fmt.Sprintf("c%d=%s", i, strings.Repeat("x", 1<<20)))
		gone = append(gone, fmt.Sprintf("-c%d", i))
	}
	specs = append(specs, "huge="+strings.Repeat("x", 3<<20+1000)) // larger than a part
	g.Publish(update(t, xds.ClusterType, specs...), update(t, xds.ListenerType, "l"))
	clients := []*client{r.delta(nil), r.delta(nil)}
	for _, c := range clients {
		c.ask(xds.ClusterType)
		var got []string
		nonces := make(map[string]bool)
		for parts := 1; len(got) < len(specs); parts++ {
			one := xdstest.Must(c.Recv())(t)
			if len(one.Resources) == 0 || len(one.Resources) > 1 && proto.Size(one) > maxPart || nonces[one.Nonce] {
				t.Fatalf("a part of %d bytes with the nonce %s has %d resources", proto.Size(one), one.Nonce, len(one.Resources))
			}
			nonces[one.Nonce] = true
			for _, res := range one.Resources {
				got = append(got, res.Name)
			}
			if parts == 1 {
				c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(xds.ListenerType)}) // it does not overtake the parts
			}
			c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: one.TypeUrl, ResponseNonce: one.Nonce})
		}
		c.want("l ")
	}
	cur, _ := g.Snaps[0].Derived(func() any { return nil }).(*frameCache)
	if n := len(cur.byContent.all()); n != 1 {
		t.Errorf("%d frames", n)
	}
	status := func(ok func(inspect.TypeStatus) bool) {
		t.Helper()
		r.eventually(func() bool {
			for _, c := range r.srv.Clients() {
				if !ok(c.Types[0]) {
					return false
				}
			}
			return true
		})
	}
	status(func(s inspect.TypeStatus) bool {
		return s.State == inspect.StateSynced && s.Sends == s.Acks && s.Sends > 3
	})

	g.Publish(update(t, xds.ClusterType, append(gone, "huge=2")...))
	for _, c := range clients {
		c.want("huge -c0 -c1 -c2 -c3 -c4 -c5 -c6 -c7 -c8 ")
	}
	status(func(s inspect.TypeStatus) bool { return s.State == inspect.StateSynced })
}
