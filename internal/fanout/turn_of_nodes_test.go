package fanout

import (
	"context"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"xdsrelay/internal/xds"
)

// A stream whose large node waits for its turn is over when its client is: else those who
// come and go would be kept, one after the other, each with its node.
func TestWhoWaitsForATurnMayGiveUp(t *testing.T) {
	const large = 1 << 18
	for { // until nobody has a turn to give
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
		leave := xds.Turn(ctx, large)
		stop()
		if leave == nil {
			break
		}
		t.Cleanup(leave)
	}
	r := newRig(t, nil)
	publishAll(r, "a", "edge")
	n := node(strings.Repeat("n", large))
	n.Cluster = "edge"
	conn := r.dial()
	ctx, stop := context.WithCancel(t.Context())
	gone, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 { // who is nobody yet says more
		if err := gone.Send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: string(xds.ClusterType)}); err != nil {
			t.Fatal(err)
		}
		n = nil
	}
	r.eventually(func() bool { return len(r.srv.all()) == 1 && r.srv.all()[0].spoke.Load() })
	r.opened("edge") // the small wait for nobody
	stop()
	r.eventually(func() bool { return len(r.srv.all()) == 1 })
}
