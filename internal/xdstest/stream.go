package xdstest

import (
	"context"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that rawCodec extends
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// The methods of the aggregated service.
const (
	SotWMethod  = discoveryv3.AggregatedDiscoveryService_StreamAggregatedResources_FullMethodName
	DeltaMethod = discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName
)

// Raw is an encoded message, which may be malformed.
type Raw []byte

// rawCodec sends Raw as it is, and other messages as gRPC does.
type rawCodec struct{ encoding.CodecV2 }

func newRawCodec() rawCodec { return rawCodec{encoding.GetCodecV2("proto")} }

func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(Raw); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Dial returns a connection that is closed at the end of the test. Without
// credentials it is in plain text.
func Dial(t testing.TB, target string, creds credentials.TransportCredentials, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	conn, err := grpc.NewClient(target, append(opts, grpc.WithTransportCredentials(creds))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the streams on it are not needed any more
	return conn
}

// Stream is the client's side of a discovery stream. It sends what the test
// says and nothing else.
type Stream struct {
	grpc.ClientStream

	t     testing.TB
	delta bool
}

// OpenStream opens a stream of a discovery method on a connection of its own.
func OpenStream(t testing.TB, target, method string) *Stream {
	t.Helper()
	return OpenStreamOn(t, Dial(t, target, nil), method)
}

// OpenStreamOn opens a stream of a discovery method on a connection.
func OpenStreamOn(t testing.TB, conn *grpc.ClientConn, method string) *Stream {
	t.Helper()
	return OpenStreamUntil(t, Context(t), conn, method)
}

// OpenStreamUntil is OpenStreamOn for a stream that ends with ctx, not after Patience.
func OpenStreamUntil(t testing.TB, ctx context.Context, conn *grpc.ClientConn, method string) *Stream {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel)
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method,
		grpc.ForceCodecV2(newRawCodec()))
	if err != nil {
		t.Fatal(err)
	}
	return &Stream{s, t, strings.Contains(method, "/Delta")}
}

// Send sends messages. If the stream has ended, the rest is not sent: WantEnd
// returns the reason.
func (s *Stream) Send(messages ...any) {
	s.t.Helper()
	for _, m := range messages {
		if err := s.SendMsg(m); err != nil {
			s.t.Logf("send: %v", err)
			return
		}
	}
}

// Ask sends a request for names of a type, in the stream's variant.
func (s *Stream) Ask(node *corev3.Node, url string, names ...string) {
	s.t.Helper()
	s.Send(NewRequest(s.delta, node, url, names...))
}

// NewRequest returns a request for names of a type.
func NewRequest(delta bool, node *corev3.Node, url string, names ...string) proto.Message {
	if delta {
		return &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: url, ResourceNamesSubscribe: names}
	}
	return &discoveryv3.DiscoveryRequest{Node: node, TypeUrl: url, ResourceNames: names}
}

// Nack rejects a response. In SotW the request repeats the names.
func (s *Stream) Nack(url, nonce, why string, names ...string) {
	s.t.Helper()
	detail := &statuspb.Status{Code: int32(codes.InvalidArgument), Message: why}
	if s.delta {
		s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResponseNonce: nonce, ErrorDetail: detail})
		return
	}
	s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: url, ResourceNames: names, ResponseNonce: nonce, ErrorDetail: detail})
}

// Response is what a server sent, in either variant.
type Response struct {
	Type, Version, Nonce, Identifier string
	Resources                        []*anypb.Any
	Names                            []string // delta: of Resources
	Removed                          []string // delta
}

// Receive receives a response.
func (s *Stream) Receive() (Response, error) {
	if !s.delta {
		r := new(discoveryv3.DiscoveryResponse)
		err := s.RecvMsg(r)
		return Response{Type: r.TypeUrl, Version: r.VersionInfo, Nonce: r.Nonce, Identifier: r.GetControlPlane().GetIdentifier(), Resources: r.Resources}, err
	}
	r := new(discoveryv3.DeltaDiscoveryResponse)
	err := s.RecvMsg(r)
	out := Response{Type: r.TypeUrl, Version: r.SystemVersionInfo, Nonce: r.Nonce, Identifier: r.GetControlPlane().GetIdentifier(), Removed: r.RemovedResources}
	for _, one := range r.Resources {
		out.Names = append(out.Names, one.Name)
		out.Resources = append(out.Resources, one.Resource)
	}
	return out, err
}

// Next receives a response. The end of the stream fails the test.
func (s *Stream) Next() Response {
	s.t.Helper()
	r, err := s.Receive()
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// Ack receives a response and acknowledges it. In SotW the request repeats the names.
func (s *Stream) Ack(names ...string) Response {
	s.t.Helper()
	r := s.Next()
	s.Accept(r, names...)
	return r
}

// Accept acknowledges a response. In SotW the request repeats the names.
func (s *Stream) Accept(r Response, names ...string) {
	s.t.Helper()
	if s.delta {
		s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.Type, ResponseNonce: r.Nonce})
		return
	}
	s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: r.Type, VersionInfo: r.Version, ResourceNames: names, ResponseNonce: r.Nonce})
}

// WantEnd receives until the stream ends, which has to be with this code and a message.
func (s *Stream) WantEnd(want codes.Code) *status.Status {
	s.t.Helper()
	for {
		_, err := s.Receive()
		if err == nil {
			continue
		}
		got := status.Convert(err)
		if got.Code() != want || got.Message() == "" {
			s.t.Errorf("the stream ended with %v, want %v and a message", err, want)
		}
		return got
	}
}
