package fleet

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// A fleet of both variants and behaviours ends with the origin's resources.
func TestFleet(t *testing.T) {
	o := xdstest.StartOrigin(t, xdstest.OriginOptions{})
	o.Put("c", xdstest.APIListener("svc", "r"), route("r", xdstest.RouteTo("/", "a")), eds("a", ""), load("a", 1))
	var applied, responses atomic.Uint64
	f, err := New(Config{Target: o.Address, Clients: 40, DeltaShare: 0.25, Ramp: 20 * time.Millisecond,
		Nodes: func(int) *corev3.Node { return &corev3.Node{Id: "n", Cluster: "c"} },
		Client: ClientConfig{
			OnApplied:  func(*Client, xds.TypeURL, string, time.Time) { applied.Add(1) },
			OnResponse: func(*Client, Response) { responses.Add(1) },
		},
		Configure: func(i int, c *ClientConfig) {
			if i%2 == 0 {
				c.Behaviour, c.Listener = GRPC, "svc"
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	xdstest.Run(t, f.Run)
	if err := f.WaitAll(xdstest.Context(t), func(c *Client) bool { return c.Complete() && c.Len(xds.EndpointType) == 1 && c.Counters().Acks >= 4 }); err != nil {
		t.Fatal(err)
	}
	delta := 0
	for _, c := range f.Clients() {
		if c.Variant() == Delta {
			delta++
		}
	}
	if delta != 10 {
		t.Errorf("%d of 40 use delta", delta)
	}
	xdstest.Eventually(t, "a hook of each ACK", xdstest.Holds(func() bool { return f.Counters().Acks == applied.Load() }))
	n := f.Counters()
	if n.Streams != 40 || n.Reconnects != 0 || n.Nacks != 0 || n.Responses != responses.Load() || n.Acks != applied.Load() {
		t.Errorf("counters: %+v, hooks %d %d", n, responses.Load(), applied.Load())
	}
	if v := f.Violations(); len(v) > 0 {
		t.Errorf("violations: %q", v)
	}
}

// The error of WaitAll describes what is missing.
func TestWaitAllSaysWhatIsMissing(t *testing.T) {
	f, err := New(Config{Target: "127.0.0.1:1", Clients: 3, DeltaShare: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err = f.WaitAll(ctx, (*Client).Connected)
	if err == nil || !strings.Contains(err.Error(), "client 0, and 2 after it") || !strings.Contains(err.Error(), `"client-0" (envoy, delta) without a stream`) {
		t.Errorf("WaitAll: %v", err)
	}
}

func TestFaultyConfig(t *testing.T) {
	if _, err := New(Config{Clients: 1}); err == nil {
		t.Error("a fleet without a target")
	}
	if _, err := NewClient(ClientConfig{}); err == nil {
		t.Error("a client without a target")
	}
	if _, err := New(Config{Target: "x", Clients: 1, Client: ClientConfig{Behaviour: GRPC}}); err == nil {
		t.Error("a gRPC client without a listener")
	}
}
