package hostile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

func node(id, cluster string) *corev3.Node { return &corev3.Node{Id: id, Cluster: cluster} }

// ask is a delta client's first request for clusters: all, or these.
func ask(id, cluster string, names ...string) []byte {
	return xdstest.Wire(&discoveryv3.DeltaDiscoveryRequest{Node: node(id, cluster), TypeUrl: string(xds.ClusterType), ResourceNamesSubscribe: names})
}

// halfRequests announces a large request, sends all of it except a byte, and makes the relay hold
// it, on ten streams of each connection.
func halfRequests(a *assault) {
	const size = 15 << 20
	chunk := make([]byte, size)
	a.each(a.size, func(int) error {
		c, err := a.dial(a.XDS, discards)
		if err != nil {
			return err
		}
		defer c.close()
		for range 10 {
			id := c.open(deltaPath)
			granted := c.granted.Load()
			c.data(id, prefix(size+1))
			if c.flush() != nil {
				return nil
			}
			for c.granted.Load() <= granted { // waits for the window
				select {
				case <-c.gone:
					return nil
				case <-time.After(time.Millisecond):
				}
			}
			c.data(id, chunk)
			if c.flush() != nil {
				return nil
			}
			a.hit(1)
		}
		<-c.gone
		return nil
	})
}

// hugeRequests announce a size over request_bytes.
func hugeRequests(a *assault) {
	a.flood(a.XDS, a.size, func(c *h2) int {
		c.data(c.open(deltaPath), append(prefix(64<<20), make([]byte, 10_000)...))
		return 1
	})
}

// halfPolls send large bodies of REST polls except for their last byte, again and again. wholePolls
// send them to the end.
func halfPolls(a *assault)  { a.polls(1) }
func wholePolls(a *assault) { a.polls(0) }

// polls sends large bodies without their last bytes.
func (a *assault) polls(missing int) {
	const size = 15 << 20
	chunk := bytes.Repeat([]byte(" "), 64<<10)
	head := fmt.Sprintf("POST /v3/discovery:clusters HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", size+missing)
	a.each(a.size, func(int) error {
		var d net.Dialer
		c, err := d.DialContext(a.ctx, "tcp", a.REST)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		defer context.AfterFunc(a.ctx, func() { _ = c.Close() })()
		if _, err := io.WriteString(c, head); err != nil {
			return err
		}
		for range size / len(chunk) {
			if _, err := c.Write(chunk); err != nil {
				return err
			}
		}
		a.hit(1)
		_, _ = io.Copy(io.Discard, c) // until the relay ends it
		return nil
	})
}

// stream is a delta stream of a correct transport.
type stream = discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient

// streams opens a stream again and again, with its own connection for each worker.
func (a *assault) streams(workers int, do func(i int, s stream)) {
	a.each(workers, func(i int) error {
		conn, err := grpc.NewClient(a.XDS, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		for a.ctx.Err() == nil {
			ctx, cancel := context.WithCancel(a.ctx)
			s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
			if err == nil {
				do(i, s)
			}
			cancel()
			if err != nil {
				a.wait(time.Millisecond)
			}
		}
		return nil
	})
}

// discard reads a stream to its end.
func discard(s stream) {
	for {
		if _, err := s.Recv(); err != nil {
			return
		}
	}
}

// namesAtOnce subscribes to a million names in one request.
func namesAtOnce(a *assault) {
	q := &discoveryv3.DeltaDiscoveryRequest{Node: node("names", "hostile-names"), TypeUrl: string(xds.ClusterType)}
	for i := range 1_000_000 {
		q.ResourceNamesSubscribe = append(q.ResourceNamesSubscribe, fmt.Sprint("n-", i))
	}
	a.streams(a.size, func(_ int, s stream) {
		if s.Send(q) == nil {
			a.hit(1)
		}
		discard(s)
	})
}

// namesByOne subscribes to one more name in each request, as fast as it can.
func namesByOne(a *assault) {
	a.streams(a.size, func(i int, s stream) {
		q := &discoveryv3.DeltaDiscoveryRequest{Node: node("names", "hostile-names"), TypeUrl: string(xds.ClusterType)}
		go discard(s)
		for n := 0; ; n++ {
			q.ResourceNamesSubscribe = []string{fmt.Sprint("n-", i, "-", n)}
			if s.Send(q) != nil {
				return
			}
			a.hit(1)
			q.Node = nil
		}
	})
}

// requests sends one request on each of a.size streams, with this many streams per connection.
func (a *assault) requests(each int, request func(i, n int) []byte) {
	a.each(a.size/each, func(i int) error {
		c, err := a.dial(a.XDS, discards)
		if err != nil {
			return err
		}
		defer c.close()
		for n := range each {
			c.message(c.open(deltaPath), request(i, n))
			if c.flush() != nil {
				return nil
			}
			a.hit(1)
		}
		<-c.gone
		return nil
	})
}

// ownKeys are nodes that each have their own key.
func ownKeys(a *assault) {
	a.requests(100, func(i, n int) []byte { return ask("n", fmt.Sprint("own-", i, "-", n)) })
}

// largeNodes are different nodes of the maximal size.
func largeNodes(a *assault) {
	a.requests(50, func(i, n int) []byte {
		big := node("n", "hostile")
		big.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{
			"large": structpb.NewStringValue(strings.Repeat("x", 200_000) + fmt.Sprint(i, n))}}
		return xdstest.Wire(&discoveryv3.DeltaDiscoveryRequest{Node: big, TypeUrl: string(xds.ClusterType)})
	})
}

// denseNodes are nodes of the maximal size that contain only small values. Decoded, each would be
// thirty times as large.
func denseNodes(a *assault) {
	l := &structpb.ListValue{Values: make([]*structpb.Value, 500_000)}
	for i := range l.Values {
		l.Values[i] = &structpb.Value{}
	}
	dense := node("n", "hostile")
	dense.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"dense": structpb.NewListValue(l)}}
	body := xdstest.Wire(dense)
	typ := xdstest.Wire(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(xds.ClusterType)})
	a.requests(50, func(i, n int) []byte {
		another := append(bytes.Clone(body), xdstest.Wire(node(fmt.Sprint("dense-", i, "-", n), ""))...) // the last of two ids counts
		q := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), another)
		return append(q, typ...)
	})
}

// neverReading are clients of the honest key, and of one with large resources, that do not read.
// Half of them have a flow control window of zero, half do not read the socket.
func neverReading(a *assault) {
	a.each(a.size, func(i int) error {
		how, window := discards, uint32(0)
		if i%2 == 0 {
			how, window = ignores, 1<<31-1
		}
		c, err := a.dial(a.XDS, how, http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
		if err != nil {
			return err
		}
		defer c.close()
		for n := range 10 {
			cluster := honest
			if n%2 == 0 {
				cluster = "hostile"
			}
			c.message(c.open(deltaPath), ask("stuck", cluster))
		}
		if c.flush() == nil {
			a.hit(10)
		}
		if how == ignores { // until a write fails because the relay has disconnected it
			for a.ctx.Err() == nil && c.fr.WriteWindowUpdate(0, 1) == nil && c.flush() == nil {
				a.wait(500 * time.Millisecond)
			}
			return nil
		}
		<-c.gone
		return nil
	})
}

// nackLoops reject a response that is full of secrets, and request it again. Each message differs and
// quotes as many secrets as the relay reads. After 100 NACKs they open a new stream, so that no limit
// of a stream slows them down.
func nackLoops(a *assault) {
	var quoted strings.Builder
	for i := 0; quoted.Len() < 8<<10; i++ {
		fmt.Fprintf(&quoted, " %q", secretValue(i))
	}
	a.streams(a.size, func(i int, s stream) {
		q := &discoveryv3.DeltaDiscoveryRequest{Node: node(fmt.Sprint("nack-", i), honest), TypeUrl: string(xds.ListenerType), ResourceNamesSubscribe: []string{"secrets"}}
		for range 100 {
			if s.Send(q) != nil {
				return
			}
			m, err := s.Recv()
			if err != nil {
				return
			}
			a.hit(1)
			q.Node, q.ResponseNonce = nil, m.Nonce
			q.ErrorDetail = &statuspb.Status{Code: 3, Message: fmt.Sprint(i, " ", a.did.Load(), " rejects", quoted.String())}
		}
	})
}

// askingAgain alternately subscribes to everything and unsubscribes, with resources of a quarter of
// a megabyte.
func askingAgain(a *assault) {
	a.streams(a.size, func(i int, s stream) {
		q := &discoveryv3.DeltaDiscoveryRequest{Node: node(fmt.Sprint("again-", i), "hostile"), TypeUrl: string(xds.ClusterType), ResourceNamesSubscribe: []string{"*"}}
		go discard(s)
		for s.Send(q) == nil {
			a.hit(1)
			q = &discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(xds.ClusterType), ResourceNamesSubscribe: q.ResourceNamesUnsubscribe, ResourceNamesUnsubscribe: q.ResourceNamesSubscribe}
		}
	})
}
