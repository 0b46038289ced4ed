package fanout

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// A connection is closed after a refusal with a code after which another replica may serve the
// client. It stays open if it has other streams, and if the client is to come back.
func TestRefusalsCloseConnections(t *testing.T) {
	r := newServerFixture(t, nil)
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	refuse := func(code codes.Code, reason telemetry.Reason, beside bool) *grpc.ClientConn {
		conn := r.dial()
		if beside {
			r.groups.Refuse = nil
			c := r.delta(conn)
			c.ask(xds.ClusterType)
			c.want("a ")
		}
		r.groups.Refuse = func(subscribertest.Join) *refusal.Refusal { return refusal.New(code, reason, "refused") }
		c := r.delta(conn)
		c.ask(xds.ClusterType)
		if s := c.ends(); s.Code() != code || s.Message() != "refused" {
			t.Errorf("ended with %v", s)
		}
		return conn
	}
	stay := []*grpc.ClientConn{
		refuse(codes.Unavailable, telemetry.OriginUnreachable, true),
		refuse(codes.Unavailable, telemetry.KeyChanged, false),
		refuse(codes.PermissionDenied, telemetry.Unmapped, false),
	}
	for _, conn := range []*grpc.ClientConn{
		refuse(codes.Unavailable, telemetry.OriginUnreachable, false),
		refuse(codes.ResourceExhausted, telemetry.LimitNodeBytes, false),
	} {
		if !conn.WaitForStateChange(xdstest.Context(t), connectivity.Ready) {
			t.Error("the connection of a refused client stays open")
		}
	}
	// Their streams were refused before those of the connections that are closed now.
	for i, conn := range stay {
		if conn.GetState() != connectivity.Ready {
			t.Errorf("connection %d was closed", i)
		}
	}
}

// Handshakes begin later after refusals that hold for the relay. A refusal that concerns one key or
// one client does not delay the others.
func TestRefusalsOfTheRelayDelayHandshakes(t *testing.T) {
	for reason, want := range map[telemetry.Reason]bool{
		telemetry.OriginUnreachable: true, telemetry.LimitStreams: true, telemetry.LimitStreamsPerSecond: true, telemetry.LimitKeys: true,
		telemetry.LimitNamesPerKey: false, telemetry.LimitTypesPerKey: false, telemetry.SendTimeout: false, telemetry.LimitPinnedBytes: false,
	} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			r := newServerFixture(t, nil)
			r.groups.Refuse = func(subscribertest.Join) *refusal.Refusal { return refusal.New(codes.Unavailable, reason, "refused") }
			conn := r.dial()
			c := r.delta(conn)
			c.ask(xds.ClusterType)
			c.ends()
			conn.WaitForStateChange(xdstest.Context(t), connectivity.Ready) // it is closed after the decision
			if got := r.srv.refusing(); got != want {
				t.Errorf("handshakes begin later: %v, want %v", got, want)
			}
		})
	}
}
