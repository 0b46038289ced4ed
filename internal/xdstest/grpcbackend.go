package xdstest

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
)

// GRPCBackend is a gRPC server of the health service. It adds the header
// "backend" with its name to each response.
type GRPCBackend struct {
	Name string
	Port int
}

// StartGRPCBackend starts a backend that runs until the end of the test.
func StartGRPCBackend(t testing.TB, name string) *GRPCBackend {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	named := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if err := grpc.SetHeader(ctx, metadata.Pairs("backend", name)); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
	g := grpc.NewServer(grpc.UnaryInterceptor(named))
	grpc_health_v1.RegisterHealthServer(g, health.NewServer())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Serve(l) // ended by Stop
	}()
	t.Cleanup(func() {
		g.Stop()
		<-done
	})
	return &GRPCBackend{Name: name, Port: l.Addr().(*net.TCPAddr).Port}
}
