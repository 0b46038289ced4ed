package integration

import (
	"net"
	"slices"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// fake is an origin that says what it is told to, in either variant, and
// anything.
type fake struct {
	Address string

	mu     sync.Mutex
	stream grpc.ServerStream // the newest
	ends   error             // each stream, at once, if not nil
	opened int
	said   []xdstest.Request
}

func newFake(t testing.TB) *fake {
	t.Helper()
	l := xdstest.Listen(t)
	f := &fake{Address: l.Addr().String()}
	g := grpc.NewServer(grpc.ForceServerCodecV2(newAnyCodec()))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, f)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Serve(net.Listener(l)) // ended by Stop
	}()
	t.Cleanup(func() {
		g.Stop()
		<-done
	})
	return f
}

func (f *fake) StreamAggregatedResources(s discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	if err := f.begin(s); err != nil {
		return err
	}
	for {
		r, err := s.Recv()
		if err != nil {
			return nil
		}
		f.heard(xdstest.SotWRequest(r))
	}
}

func (f *fake) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	if err := f.begin(s); err != nil {
		return err
	}
	for {
		r, err := s.Recv()
		if err != nil {
			return nil
		}
		f.heard(xdstest.DeltaRequest(r))
	}
}

func (f *fake) begin(s grpc.ServerStream) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stream = s
	f.opened++
	return f.ends
}

// refuse has all streams to come end with err; nil: no more.
func (f *fake) refuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ends = err
}

func (f *fake) heard(r xdstest.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said = append(f.said, r)
}

// waitRequest waits for a xdstest.Request, and returns the newest such.
func (f *fake) waitRequest(t testing.TB, what string, pick func(xdstest.Request) bool) xdstest.Request {
	t.Helper()
	var found xdstest.Request
	xdstest.Eventually(t, what, xdstest.Holds(func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, r := range slices.Backward(f.said) {
			if pick(r) {
				found = r
				return true
			}
		}
		return false
	}))
	return found
}

// waitAnswer waits for the ACK or NACK of a response.
func (f *fake) waitAnswer(t testing.TB, nonce string) xdstest.Request {
	t.Helper()
	return f.waitRequest(t, "an answer to "+nonce, func(r xdstest.Request) bool { return r.Nonce == nonce })
}

// streams is how many there were.
func (f *fake) streams() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened
}

// send sends a response, or anything else.
func (f *fake) send(t testing.TB, m any) {
	t.Helper()
	f.mu.Lock()
	s := f.stream
	f.mu.Unlock()
	if err := s.SendMsg(m); err != nil {
		t.Fatalf("origin: send: %v", err)
	}
}

// response is one of a variant with these entries.
func response(v fleet.Variant, typ string, nonce string, entries ...entry) proto.Message {
	if v == fleet.SotW {
		r := &discoveryv3.DiscoveryResponse{TypeUrl: string(typ), VersionInfo: nonce, Nonce: nonce}
		for _, e := range entries {
			r.Resources = append(r.Resources, e.body)
		}
		return r
	}
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(typ), SystemVersionInfo: nonce, Nonce: nonce}
	for _, e := range entries {
		r.Resources = append(r.Resources, &discoveryv3.Resource{Name: e.name, Version: nonce, Resource: e.body})
	}
	return r
}

// entry of a response.
type entry struct {
	name string
	body *anypb.Any
}

func entryOf(m proto.Message) entry {
	_, name := xdstest.NameOf(m)
	return entry{name: name, body: xdstest.Pack(m)}
}
