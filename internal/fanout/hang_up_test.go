package fanout

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"

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
		r.groups.Refuse = func(Join) *Refusal { return Refuse(code, reason, "refused") }
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
