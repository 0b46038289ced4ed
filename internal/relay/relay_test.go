package relay

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"xdsrelay/config"
	"xdsrelay/internal/xdstest"
)

// The relay runs without admin, answers gRPC health, and ends with its context.
func TestRelayRunsAndEnds(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := xdstest.Files(t, map[string]string{"relay.yaml": "upstream: {origins: [{address: 'file:.'}]}\n" +
		"downstream: {address: '127.0.0.1:0', drain: 0s}\nadmin: {address: ''}\nlog: {level: error}\n"})
	cfg, err := config.Load(filepath.Join(dir, "relay.yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(cfg, slog.New(slog.DiscardHandler), new(slog.LevelVar), "")
	if err != nil {
		t.Fatal(err)
	}
	stop := xdstest.Run(t, func(ctx context.Context) error { return r.Run(ctx, context.Background()) })
	conn, err := grpc.NewClient(r.listeners[0].Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	call, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	got, err := grpc_health_v1.NewHealthClient(conn).Check(call, &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err != nil || got.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", got, err)
	}
	// Health by name: for each service, and for no other.
	health := grpc_health_v1.NewHealthClient(conn)
	services := r.grpc.GetServiceInfo()
	if _, ok := services["envoy.service.discovery.v3.AggregatedDiscoveryService"]; !ok {
		t.Errorf("services are %v", services)
	}
	for service := range services {
		got, err := health.Check(call, &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil || got.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health of %s: %v, %v", service, got, err)
		}
	}
	if _, err := health.Check(call, &grpc_health_v1.HealthCheckRequest{Service: "nope"}); status.Code(err) != codes.NotFound {
		t.Errorf("health of what is not there: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	stop()
}
