package fanout

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// noTurns has large nodes wait for a turn until the test ends.
func noTurns(t *testing.T) {
	for { // until nobody has a turn to give
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
		leave := xds.Turn(ctx, nil, 1<<20)
		stop()
		if leave == nil {
			return
		}
		t.Cleanup(leave)
	}
}

// A stream whose large node waits for its turn is over when its client is: else those who
// come and go would be kept, one after the other, each with its node.
func TestWhoWaitsForATurnMayGiveUp(t *testing.T) {
	const large = 1 << 18
	noTurns(t)
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

// What requests keep alive that wait for the turn of their node counts against pinned_bytes:
// with a node of a megabyte each may be of sixteen.
func TestRequestsThatWaitForATurnArePinned(t *testing.T) {
	noTurns(t)
	r := newRig(t, func(o *Options) { o.Limits.PinnedBytes = 3 << 20 })
	n := node(strings.Repeat("n", 1<<17))
	for range 5 {
		c := r.delta(nil)
		c.must(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: string(xds.ClusterType), ErrorDetail: &status.Status{Message: strings.Repeat("x", 1<<20)}})
	}
	r.counted(telemetry.LimitPinnedBytes, 3)
	r.eventually(func() bool { return len(r.srv.all()) == 2 })
}

// So does what polls keep alive.
func TestP72_PollsThatWaitForATurnArePinned(t *testing.T) {
	noTurns(t)
	r := newREST(t, func(o *Options) { o.Limits.PinnedBytes = 3 << 17 })
	n := node(strings.Repeat("n", 1<<17))
	got := make(chan *reply, 4)
	ctx, stop := context.WithCancel(testContext(t))
	var all sync.WaitGroup
	for range cap(got) {
		all.Go(func() {
			if a, err := r.post(ctx, r.web("http1"), "/v3/discovery:clusters", asEnvoy(t, envoyPoll(n, xds.ClusterType, ""))); err == nil {
				got <- a
			}
		})
	}
	for range 2 {
		select {
		case a := <-got:
			if f := r.refused(a, http.StatusTooManyRequests); f.Reason != telemetry.LimitPinnedBytes.String() {
				t.Errorf("%+v", f)
			}
		case <-ctx.Done():
			t.Fatal("none is ended")
		}
	}
	r.eventually(func() bool { return len(r.srv.polls.all()) == 2 })
	stop()
	all.Wait()
}
