package fleet

import (
	"reflect"
	"slices"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// script is a server that sends what a test says, also invalid responses.
type script struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	target string
	peers  chan *peer
}

func newScript(t *testing.T) *script {
	s := &script{peers: make(chan *peer, 16)}
	s.target = xdstest.ServeADS(t, s)
	return s
}

// ask is a request of either variant.
type ask struct {
	typ     xds.TypeURL
	node    *corev3.Node
	version string
	nonce   string
	err     string
	names   []string // SotW: all; delta: subscribed
	drop    []string
	initial map[string]string
}

// peer is the server's end of a client's stream. It is not safe for concurrent use.
type peer struct {
	variant Variant
	asks    chan ask
	end     chan error // ends the stream
	out     func(any) error
}

func (s *script) StreamAggregatedResources(st discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return serve(s, st, SotW, func(r *discoveryv3.DiscoveryRequest) ask {
		return ask{typ: xds.TypeURL(r.GetTypeUrl()), node: r.GetNode(), version: r.GetVersionInfo(), nonce: r.GetResponseNonce(),
			err: r.GetErrorDetail().GetMessage(), names: r.GetResourceNames()}
	})
}

func (s *script) DeltaAggregatedResources(st discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return serve(s, st, Delta, func(r *discoveryv3.DeltaDiscoveryRequest) ask {
		return ask{typ: xds.TypeURL(r.GetTypeUrl()), node: r.GetNode(), nonce: r.GetResponseNonce(),
			err: r.GetErrorDetail().GetMessage(), names: r.GetResourceNamesSubscribe(),
			drop: r.GetResourceNamesUnsubscribe(), initial: r.GetInitialResourceVersions()}
	})
}

func serve[R any](s *script, st interface {
	grpc.ServerStream
	Recv() (R, error)
}, v Variant, read func(R) ask) error {
	p := &peer{variant: v, asks: make(chan ask, 256), end: make(chan error, 1), out: st.SendMsg}
	s.peers <- p
	requests := xdstest.Receive(st)
	for {
		select {
		case r, more := <-requests:
			if !more {
				return nil
			}
			p.asks <- read(r)
		case err := <-p.end:
			return err
		}
	}
}

func (s *script) accept(t *testing.T, v Variant) *peer {
	t.Helper()
	select {
	case p := <-s.peers:
		if p.variant != v {
			t.Fatalf("a stream of %s, want %s", p.variant, v)
		}
		return p
	case <-time.After(20 * time.Second):
		t.Fatal("no stream came")
		return nil
	}
}

// next returns the client's next request.
func (p *peer) next(t *testing.T) ask {
	t.Helper()
	select {
	case a := <-p.asks:
		return a
	case <-time.After(20 * time.Second):
		t.Fatal("no request came")
		return ask{}
	}
}

// expect returns the client's next request, which must be of type typ.
func (p *peer) expect(t *testing.T, typ xds.TypeURL) ask {
	t.Helper()
	a := p.next(t)
	if a.typ != typ {
		t.Fatalf("request of %s: %+v, want one of %s", label(a.typ), a, label(typ))
	}
	return a
}

// send sends resources with a version; in delta it is also the version of each.
func (p *peer) send(t *testing.T, typ xds.TypeURL, version, nonce string, resources ...proto.Message) {
	t.Helper()
	if p.variant == SotW {
		r := &discoveryv3.DiscoveryResponse{TypeUrl: string(typ), VersionInfo: version, Nonce: nonce}
		for _, m := range resources {
			r.Resources = append(r.Resources, anyOf(typ, m))
		}
		p.post(t, r)
		return
	}
	p.sendDelta(t, typ, version, nonce, nil, resources...)
}

func (p *peer) sendDelta(t *testing.T, typ xds.TypeURL, version, nonce string, removed []string, resources ...proto.Message) {
	t.Helper()
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(typ), SystemVersionInfo: version, Nonce: nonce, RemovedResources: removed}
	for _, m := range resources {
		a := anyOf(typ, m)
		r.Resources = append(r.Resources, &discoveryv3.Resource{Name: nameOf(a.GetValue()), Version: version, Resource: a})
	}
	p.post(t, r)
}

func anyOf(typ xds.TypeURL, m proto.Message) *anypb.Any {
	if a, ok := m.(*anypb.Any); ok {
		return a
	}
	return &anypb.Any{TypeUrl: string(typ), Value: xdstest.Wire(m)}
}

func (p *peer) post(t *testing.T, m proto.Message) {
	t.Helper()
	if err := p.out(m); err != nil {
		t.Fatalf("send: %v", err)
	}
}

func equal(got []string, want ...string) bool { return slices.Equal(got, want) }

// OnResponse sees the whole response, also one that the client rejects.
func TestResponsesAreShown(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			s := newScript(t)
			type shown struct {
				identifier string
				names      []string
				body       []byte
				removed    []string
			}
			saw := make(chan shown, 1)
			run(t, ClientConfig{Target: s.target, Variant: v, Behaviour: Raw,
				Subscribe: []Subscription{{Type: xds.EndpointType, Names: []string{"a", "b"}}},
				OnResponse: func(_ *Client, r Response) {
					resources, removed := r.Contents()
					saw <- shown{r.Identifier, []string{resources[0].Name}, resources[0].Body, removed}
				}})
			p := s.accept(t, v)
			p.expect(t, xds.EndpointType)
			body, err := anypb.New(load("a", 1))
			if err != nil {
				t.Fatal(err)
			}
			from := &corev3.ControlPlane{Identifier: "relay/origin"}
			want := shown{"relay/origin", []string{"a"}, body.GetValue(), nil}
			if v == Delta {
				want.removed = []string{"b"}
				p.post(t, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(xds.EndpointType), Nonce: "1", ControlPlane: from,
					Resources: []*discoveryv3.Resource{{Name: "a", Version: "1", Resource: body}}, RemovedResources: want.removed})
			} else {
				p.post(t, &discoveryv3.DiscoveryResponse{TypeUrl: string(xds.EndpointType), Nonce: "1", VersionInfo: "1", ControlPlane: from,
					Resources: []*anypb.Any{body}})
			}
			if got := <-saw; !reflect.DeepEqual(got, want) {
				t.Errorf("saw %+v, want %+v", got, want)
			}
		})
	}
}
