package model

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"xdsrelay/config"
	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/fanout"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/orchestrator"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

func TestMain(m *testing.M) {
	// The defaults of `make test`: the same histories for the same code. The command line goes
	// first.
	for name, value := range map[string]string{"rapid.shrinktime": "10s", "rapid.checks": "1000", "rapid.seed": "1"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// Times of the relay under test, in the bubble's time.
const (
	ackTimeout = 15 * time.Second
	linger     = 3137 * time.Millisecond // no multiple of other times: in a bubble both would end in the same instant

	removalDelay = 5 * time.Second
)

// This is created once, because it has no goroutine.
var metrics = sync.OnceValues(func() (*telemetry.Metrics, error) { return telemetry.New(telemetry.Options{}) })

var rules = sync.OnceValues(func() (*aggregator.Rules, error) {
	cfg := config.Default()
	cfg.Aggregation.Rules = []config.Rule{{Key: config.Strings{"node.cluster"}}}
	return aggregator.Compile(&cfg)
})

// startRelay runs a relay with the origin behind dial. Clients connect to the listener that it
// returns.
func startRelay(t testing.TB, variant xds.Variant, dial dialer) (down *bufconn.Listener, stop func()) {
	t.Helper()
	m, err := metrics()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := rules()
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	origins, err := upstream.New(upstream.Options{
		Origins: []upstream.OriginOptions{{Name: "origin", Address: "passthrough:///origin", Variant: variant}},
		Dialer:  dial, Metrics: m, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	registry, err := orchestrator.New(orchestrator.Options{
		Settings: orchestrator.Settings{Keys: keys, RemovalDelay: removalDelay, Linger: linger, IdleTTL: 10 * time.Minute, MaxIdle: 10},
		NewSource: func(key xds.Key, node []byte, sink upstream.Sink, first *upstream.CurrentOrigin) orchestrator.Source {
			return origins.NewSource(key, node, sink, first)
		},
		SotWOrigins:        variant == xds.SotW,
		FirstAnswerTimeout: time.Minute,
		Metrics:            m, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	server := fanout.NewServer(fanout.Options{Joiner: registry, Metrics: m, Log: log, Replica: "relay",
		Settings: fanout.Settings{AckTimeout: ackTimeout}})
	g := grpc.NewServer(server.ServerOptions(fanout.Keepalive{Time: time.Hour, Timeout: time.Hour, MinTime: time.Second})...)
	server.Register(g)
	down = bufconn.Listen(1 << 16)

	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	for _, run := range []func(context.Context) error{origins.Run, registry.Run, server.Run} {
		parts.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	parts.Go(func() {
		if err := g.Serve(server.Listen(down, &listener.Policy{Key: "model"})); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return down, func() {
		g.Stop()
		cancel()
		parts.Wait()
	}
}

// dialer connects to a listener in memory.
type dialer = func(ctx context.Context, target string) (net.Conn, error)

func dialerOf(l *bufconn.Listener) dialer {
	return func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
}
