package fanout

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"xdsrelay/internal/fanout/session/sessiontest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// Each limit ends the stream that exceeds it, with its code, reason and
// counter, and no other: a neighbour under the same key goes on.
func TestLimits(t *testing.T) {
	second := func(r *serverFixture, conn *grpc.ClientConn) *client {
		c := r.delta(conn)
		c.ask(xds.ClusterType)
		return c
	}
	sends := func(all ...*discoveryv3.DeltaDiscoveryRequest) func(*serverFixture, *grpc.ClientConn) *client {
		return func(r *serverFixture, _ *grpc.ClientConn) *client {
			c := r.delta(nil)
			for _, m := range all {
				m.Node = cmp.Or(m.Node, node("n"))
				c.must(m)
			}
			return c
		}
	}
	request := func(url xds.TypeURL, names ...string) *discoveryv3.DeltaDiscoveryRequest {
		return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(url), ResourceNamesSubscribe: names}
	}
	long, big := strings.Repeat("x", 2000), request(xds.ClusterType)
	big.Node = node("n")
	big.Node.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewStringValue(strings.Repeat("x", 3000))}}
	fromBefore := func(versions map[string]string) *discoveryv3.DeltaDiscoveryRequest {
		return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(xds.ClusterType), InitialResourceVersions: versions}
	}
	tenNames := func(o *Options) { o.Limits.NamesPerStream = 10 }
	for _, tc := range []struct {
		reason  telemetry.Reason
		code    codes.Code
		limit   func(*Options)
		exceeds func(*serverFixture, *grpc.ClientConn) *client // conn: that of the neighbour
	}{
		{telemetry.LimitStreams, codes.Unavailable, func(o *Options) { o.Limits.Streams = 1 }, second},
		{telemetry.LimitStreamsPerSecond, codes.Unavailable, func(o *Options) { o.Limits.StreamsPerSecond = 1 }, second},
		{telemetry.LimitStreamsPerPeer, codes.ResourceExhausted, func(o *Options) { o.Limits.StreamsPerPeer = 1 }, second},
		{telemetry.LimitStreamsPerConnection, codes.ResourceExhausted, func(o *Options) { o.Limits.StreamsPerConnection = 1 }, func(r *serverFixture, c *grpc.ClientConn) *client {
			other := r.delta(nil) // on a connection of its own there is room
			other.ask(xds.ClusterType)
			other.want("a ")
			return second(r, c)
		}},
		{telemetry.LimitRequestBytes, codes.ResourceExhausted, func(o *Options) { o.Limits.RequestBytes = 2000 }, sends(big)},
		{telemetry.LimitNodeBytes, codes.ResourceExhausted, func(o *Options) { o.Limits.NodeBytes = 2000 }, sends(big)},
		// The names of all types count, in bytes: a name of 2 KB counts for eight.
		{telemetry.LimitNamesPerStream, codes.ResourceExhausted, tenNames, sends(request(xds.EndpointType, names(6)...), request(xds.RouteType, names(5)...))},
		{telemetry.LimitNamesPerStream, codes.ResourceExhausted, tenNames, sends(request(xds.EndpointType, long), request(xds.RouteType, "a", "b", "c"))},
		{telemetry.LimitNamesPerStream, codes.ResourceExhausted, tenNames, sends(request(xds.EndpointType, "a", "b", "c", long))},
		// So do versions that a client brings, and the same name, which has to be scanned each time.
		{telemetry.LimitNamesPerStream, codes.ResourceExhausted, tenNames, sends(fromBefore(map[string]string{"a": strings.Repeat("v", 3000)}))},
		{telemetry.LimitNamesPerStream, codes.ResourceExhausted, tenNames, sends(fromBefore(versions(names(11))))},
		{telemetry.LimitNamesPerStream, codes.ResourceExhausted, tenNames, sends(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(xds.ClusterType), ResourceNamesUnsubscribe: make([]string, 11)})},
		{telemetry.LimitNamesPerStream, codes.ResourceExhausted, func(o *Options) { o.Limits.NamesPerStream = 11 }, givingUp},
		{telemetry.LimitTypesPerStream, codes.ResourceExhausted, func(o *Options) { o.Limits.TypesPerStream = 2 },
			sends(request(xds.ClusterType, "x"), request(xds.EndpointType, "x"), request(xds.RouteType, "x"))},
		{telemetry.SendTimeout, codes.Unavailable, func(o *Options) { o.SendTimeout = 40 * time.Millisecond }, stalled},
		{telemetry.LimitPinnedBytes, codes.ResourceExhausted, func(o *Options) { o.Limits.PinnedBytes, o.SendTimeout = 1000, time.Hour }, pinning},
	} {
		t.Run(string(tc.reason), func(t *testing.T) {
			r := newServerFixture(t, tc.limit)
			r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
			conn := r.dial()
			neighbour := r.delta(conn)
			neighbour.ask(xds.ClusterType)
			neighbour.want("a ")
			c := tc.exceeds(r, conn)
			if s := c.ends(); s.Code() != tc.code {
				// (SendTimeout: the connection is closed on a client that minProgress
				// nothing, which to it is UNAVAILABLE as well.)
				t.Fatalf("ended with %v %q, want %v", s.Code(), s.Message(), tc.code)
			}
			r.counted(tc.reason, 1)
			r.groups.Group("edge").Publish(update(t, xds.ClusterType, "b"))
			neighbour.want("b ")
		})
	}
}

// givingUp is a client that gives up more names of a type than the stream may have. The type
// has no answer.
func givingUp(r *serverFixture, _ *grpc.ClientConn) *client {
	c := r.delta(nil)
	c.must(&discoveryv3.DeltaDiscoveryRequest{Node: node("n"), TypeUrl: silentType, ResourceNamesSubscribe: []string{"*"}})
	for i := range 3 {
		var some []string
		for _, n := range names(4) {
			some = append(some, fmt.Sprint(n, i))
		}
		c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: silentType, ResourceNamesSubscribe: some})
		c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: silentType, ResourceNamesUnsubscribe: some})
	}
	return c
}

const silentType = "type.googleapis.com/acme.Silent"

// A client that reconnects may bring as many versions of each type as it may have names.
func TestP27_ClientVersionsCountPerType(t *testing.T) {
	r := newServerFixture(t, func(o *Options) { o.Limits.NamesPerStream = 10 })
	c := r.delta(nil)
	for _, u := range []xds.TypeURL{xds.ClusterType, xds.EndpointType} {
		c.must(&discoveryv3.DeltaDiscoveryRequest{Node: node("n"), TypeUrl: string(u), InitialResourceVersions: versions(names(8)), ResourceNamesSubscribe: []string{"*"}})
	}
	for _, u := range []xds.TypeURL{xds.ClusterType, xds.EndpointType} {
		r.groups.Group("edge").Publish(snapshot.Update{Type: u, Wildcard: true})
		xdstest.Must(c.Recv())(t)
	}
}

// versions are the names with a version each.
func versions(names []string) map[string]string {
	out := make(map[string]string)
	for _, n := range names {
		out[n] = "v"
	}
	return out
}

// stalled is a client that asks for more than its window takes and does not
// read; reading starts once the server has cut it.
func stalled(r *serverFixture, _ *grpc.ClientConn) *client { return stalledOn(r, nil) }

// stalledOn is stalled on a connection, a new one if it is nil.
func stalledOn(r *serverFixture, on *grpc.ClientConn) *client {
	publishBlobs(r, "blobs")
	c := stallOn(r, on, "blobs")
	r.eventually(func() bool { return r.srv.streamsOf("slow") == 1 })
	r.eventually(func() bool { return r.srv.streamsOf("slow") == 0 })
	return c
}

const blobType xds.TypeURL = "type.googleapis.com/acme.Blob"

// publishBlobs publishes a megabyte for every client.
func publishBlobs(r *serverFixture, groups ...string) {
	u := snapshot.Update{Type: blobType, Wildcard: true}
	w := sessiontest.New(r.t, u.Type)
	for _, n := range names(100) {
		u.Changed = append(u.Changed, w.Resource(n+"="+strings.Repeat("x", 10000)))
	}
	for _, g := range groups {
		r.groups.Group(g).Publish(u)
	}
}

// stallOn is a client that asks for the blobs and does not read.
func stallOn(r *serverFixture, on *grpc.ClientConn, group string) *client {
	c := r.delta(on)
	c.must(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "slow", Cluster: group}, TypeUrl: string(blobType)})
	return c
}

// pinning is a client that does not acknowledge while what it has is replaced.
func pinning(r *serverFixture, _ *grpc.ClientConn) *client {
	g := r.groups.Group("blobs")
	blob := func(fill string) snapshot.Update {
		u := snapshot.Update{Type: blobType, Wildcard: true}
		u.Changed = append(u.Changed, sessiontest.New(r.t, u.Type).Resource("a="+strings.Repeat(fill, 600)))
		return u
	}
	g.Publish(blob("x"))
	c := r.delta(nil)
	c.must(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "slow", Cluster: "blobs"}, TypeUrl: string(blobType)})
	xdstest.Must(c.Recv())(r.t)
	g.Publish(blob("y"))
	g.Publish(blob("z"))
	return c
}

// streamsOf counts the streams of a node.
func (s *Server) streamsOf(node string) (n int) {
	for _, c := range s.Clients() {
		if c.Node == node {
			n++
		}
	}
	return n
}

// A proxy sends the streams of many clients on one connection, and a stream that is tried again too.
// So HTTP/2 and no refusal limits its streams: the proxy opens another connection.
func TestStreamsOfProxyAreNotRefused(t *testing.T) {
	r := newServerFixture(t, func(o *Options) { o.Limits.StreamsPerConnection = 2 })
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	conn := r.dial()
	for _, id := range []string{"a", "b", "c"} { // one more than the limit, as HTTP/2 allows
		c := r.delta(conn)
		c.must(&discoveryv3.DeltaDiscoveryRequest{Node: node(id), TypeUrl: string(xds.ClusterType)})
		c.want("a ")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("HTTP/2 allows a further stream: %v", err)
	}
}

// eventually waits for a state that no event tells.
func (r *serverFixture) eventually(ok func() bool) {
	r.t.Helper()
	xdstest.Eventually(r.t, "the state", xdstest.Holds(ok))
}
