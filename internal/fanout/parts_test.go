package fanout

import (
	"fmt"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

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
