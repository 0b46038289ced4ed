package integration

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec below is in front of it
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// wire is a message as it stands on the wire, whatever that is.
type wire []byte

// anyCodec sends wire as it is, and messages as gRPC does.
type anyCodec struct{ encoding.CodecV2 }

func newAnyCodec() anyCodec { return anyCodec{encoding.GetCodecV2("proto")} }

func (c anyCodec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(wire); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// methods of the aggregated service.
var methods = map[fleet.Variant]string{
	fleet.SotW:  "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
	fleet.Delta: "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
}

// raw opens a stream of a client that sends anything.
func raw(t testing.TB, target string, v fleet.Variant) grpc.ClientStream {
	t.Helper()
	return rawOn(t, target, methods[v])
}

// rawOn is raw on any service.
func rawOn(t testing.TB, target, method string) grpc.ClientStream {
	t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(xdstest.Context(t))
	t.Cleanup(func() {
		cancel()
		_ = conn.Close() // nothing is left to be said on it
	})
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method,
		grpc.ForceCodecV2(newAnyCodec()))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// refused reads a stream to its end, which has to have this code.
func refused(t testing.TB, s grpc.ClientStream, into proto.Message, want codes.Code) *status.Status {
	t.Helper()
	for {
		err := s.RecvMsg(into)
		if err == nil {
			continue
		}
		got := status.Convert(err)
		if got.Code() != want {
			t.Errorf("the stream ended with %v, want %v", err, want)
		} else if got.Message() == "" {
			t.Errorf("the stream ended with %v and no word of why", want)
		}
		return got
	}
}

// send sends messages until the server has ended the stream, which refused tells.
func send(t testing.TB, s grpc.ClientStream, messages ...any) {
	t.Helper()
	for _, m := range messages {
		if err := s.SendMsg(m); err != nil {
			t.Logf("send: %v", err) // the end is what is looked at
			return
		}
	}
}
