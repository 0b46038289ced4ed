package xdstest

import (
	"context"
	"slices"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// ScriptedOrigin is an origin that sends only what the test says, in either
// variant of the aggregated service.
type ScriptedOrigin struct {
	Address string

	t testing.TB

	mu       sync.Mutex
	stream   grpc.ServerStream // the newest
	delta    bool              // of the newest stream
	ending   error             // ends each new stream, if not nil
	opened   int
	requests []Request
}

// StartScriptedOrigin starts an origin that runs until the end of the test.
func StartScriptedOrigin(t testing.TB) *ScriptedOrigin {
	t.Helper()
	o := &ScriptedOrigin{t: t}
	o.Address = ServeADS(t, o, grpc.ForceServerCodecV2(newRawCodec()))
	return o
}

// ServeADS serves the aggregated service on loopback until the end of the test,
// and returns the address.
func ServeADS(t testing.TB, service discoveryv3.AggregatedDiscoveryServiceServer, opts ...grpc.ServerOption) string {
	t.Helper()
	l := Listen(t)
	g := grpc.NewServer(opts...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, service)
	var served sync.WaitGroup
	served.Go(func() { _ = g.Serve(l) }) // ended by Stop
	t.Cleanup(func() {
		g.Stop()
		served.Wait()
	})
	return l.Addr().String()
}

// Receive receives the requests of a stream on another goroutine. The channel is closed when the
// stream ends.
func Receive[R any](s interface {
	Recv() (R, error)
	Context() context.Context
}) <-chan R {
	requests := make(chan R)
	go func() {
		defer close(requests)
		for {
			r, err := s.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- r:
			case <-s.Context().Done():
				return
			}
		}
	}()
	return requests
}

// StreamAggregatedResources serves SotW.
func (o *ScriptedOrigin) StreamAggregatedResources(s discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return o.serve(s, false, func() (Request, error) {
		r, err := s.Recv()
		return SotWRequest(r), err
	})
}

// DeltaAggregatedResources serves delta.
func (o *ScriptedOrigin) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return o.serve(s, true, func() (Request, error) {
		r, err := s.Recv()
		return DeltaRequest(r), err
	})
}

func (o *ScriptedOrigin) serve(s grpc.ServerStream, delta bool, receive func() (Request, error)) error {
	o.mu.Lock()
	o.stream, o.delta = s, delta
	o.opened++
	ending := o.ending
	o.mu.Unlock()
	if ending != nil {
		return ending
	}
	for {
		r, err := receive()
		if err != nil {
			return nil
		}
		o.mu.Lock()
		o.requests = append(o.requests, r)
		o.mu.Unlock()
	}
}

// EndStreams ends each later stream at once with err. If err is nil, they stay open.
func (o *ScriptedOrigin) EndStreams(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ending = err
}

// Streams returns how many streams were ever opened.
func (o *ScriptedOrigin) Streams() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.opened
}

// WaitRequest waits for a request for which pick returns true, and returns the newest.
func (o *ScriptedOrigin) WaitRequest(what string, pick func(Request) bool) Request {
	o.t.Helper()
	var found Request
	Eventually(o.t, what, Holds(func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, r := range slices.Backward(o.requests) {
			if pick(r) {
				found = r
				return true
			}
		}
		return false
	}))
	return found
}

// WaitType waits for a request of a type.
func (o *ScriptedOrigin) WaitType(url string) {
	o.t.Helper()
	o.WaitRequest("a request of "+url, func(r Request) bool { return r.Type == url })
}

// WaitAnswer waits for the ACK or NACK of a response. It returns each only once, so that a nonce
// may be used again.
func (o *ScriptedOrigin) WaitAnswer(nonce string) Request {
	o.t.Helper()
	of := func(r Request) bool { return r.Nonce == nonce }
	answer := o.WaitRequest("an answer to "+nonce, of)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.requests = slices.DeleteFunc(o.requests, of)
	return answer
}

// Send sends a message on the newest stream.
func (o *ScriptedOrigin) Send(m any) {
	o.t.Helper()
	o.mu.Lock()
	s := o.stream
	o.mu.Unlock()
	if err := s.SendMsg(m); err != nil {
		o.t.Fatalf("origin: send: %v", err)
	}
}

// Respond sends a response on the newest stream, in its variant.
func (o *ScriptedOrigin) Respond(url, nonce string, resources ...proto.Message) {
	o.t.Helper()
	o.mu.Lock()
	delta := o.delta
	o.mu.Unlock()
	o.Send(NewResponse(delta, url, nonce, resources...))
}

// NewResponse returns a response whose version is its nonce. A resource that is
// an Any is taken as it is, without a name in delta.
func NewResponse(delta bool, url, nonce string, resources ...proto.Message) proto.Message {
	sotw := &discoveryv3.DiscoveryResponse{TypeUrl: url, VersionInfo: nonce, Nonce: nonce}
	d := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: url, SystemVersionInfo: nonce, Nonce: nonce}
	for _, r := range resources {
		name := ""
		body, ok := r.(*anypb.Any)
		if !ok {
			_, name = NameOf(r)
			body = Pack(r)
		}
		sotw.Resources = append(sotw.Resources, body)
		d.Resources = append(d.Resources, &discoveryv3.Resource{Name: name, Version: nonce, Resource: body})
	}
	if delta {
		return d
	}
	return sotw
}
