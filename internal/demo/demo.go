package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"golang.org/x/sync/errgroup"

	"xdsrelay/config"
	"xdsrelay/internal/fleet"
	"xdsrelay/internal/relay"
	"xdsrelay/internal/telemetry/logging"
	"xdsrelay/internal/xds"
)

// Run runs the demo until ctx ends. abort cuts the draining short. version is that of the program.
func Run(ctx, abort context.Context, out io.Writer, clients int, version string) (err error) {
	dir, err := os.MkdirTemp("", "relay-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	origin, err := newOriginFiles(filepath.Join(dir, "origin"))
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	// Errors only: the demo prints the events itself.
	log, level, err := logging.New(out, config.Log{Level: "error"})
	if err != nil {
		return err
	}
	r, err := newRelay(dir, origin.dir, log, level, version)
	if err != nil {
		return err
	}
	show := newOutput(out, r.AdminAddress(), r.ClientAddresses(), clients)
	f, err := newFleet(r.ClientAddresses(), clients, show)
	if err != nil {
		return err
	}
	show.start(origin.dir)

	// The clients leave before the relay does, so that it has nothing to drain.
	parts, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, parts := errgroup.WithContext(parts)
	g.Go(func() error { return r.Run(parts, abort) })
	g.Go(func() error {
		defer stop()
		until, cancel := context.WithCancel(parts)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		visitors, until := errgroup.WithContext(until)
		visitors.Go(func() error { return f.Run(until) })
		visitors.Go(func() error { return changeFiles(until, f, origin, show) })
		return visitors.Wait()
	})
	err = g.Wait()
	show.end(f)
	return err
}

// newRelay makes the relay with the demo's configuration. It uses the default admin address if
// that is free.
func newRelay(dir, origin string, log *slog.Logger, level *slog.LevelVar, version string) (*relay.Relay, error) {
	admin := config.Default().Admin.Address
	if l, err := net.Listen("tcp", admin); err != nil {
		admin = "127.0.0.1:0"
	} else if err := l.Close(); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	file := filepath.Join(dir, "relay.yaml")
	text := fmt.Sprintf(`name: demo
downstream: {address: "127.0.0.1:0", drain: 0s}
upstream: {origins: [{address: %q, name: demo-files}]}
aggregation: {rules: [{key: [node.cluster, node.locality.zone]}]}
admin: {address: %q}
`, "file://"+origin, admin)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	cfg, err := config.Load(file, nil)
	if err != nil {
		return nil, err
	}
	return relay.New(cfg, log, level, version)
}

// Numbers of the demo's special clients.
const (
	nacker   = 0  // NACKs every other change of the routes
	grpcEach = 10 // each tenth is like gRPC
)

// Cluster is the cluster of the simulated Envoys' nodes.
const Cluster = "edge"

// nodeOf is the node of the i-th simulated client. Clients alternate between two zones.
func nodeOf(i int, cluster string) *corev3.Node {
	return &corev3.Node{
		Id:            fmt.Sprintf("%s-%03d", cluster, i),
		Cluster:       cluster,
		Locality:      &corev3.Locality{Region: "eu", Zone: fmt.Sprintf("eu-%d", i%2+1)},
		UserAgentName: "envoy",
	}
}

func newFleet(target string, n int, show *output) (*fleet.Fleet, error) {
	return fleet.New(fleet.Config{
		Target:     target,
		Clients:    n,
		DeltaShare: 0.5,
		Nodes: func(i int) *corev3.Node {
			node := nodeOf(i, Cluster)
			if i%grpcEach == grpcEach-1 {
				node.Id, node.Cluster, node.UserAgentName = fmt.Sprintf("grpc-%03d", i), "mesh", "gRPC Go"
			}
			return node
		},
		Configure: func(i int, c *fleet.ClientConfig) {
			c.OnApplied = show.applied
			c.OnNack = show.rejected
			switch {
			case i%grpcEach == grpcEach-1:
				c.Behaviour, c.Listener = fleet.GRPC, "ingress" // which only a simulated one can use
			case i == nacker:
				c.Nack = func(t xds.TypeURL, rs []fleet.Resource) error {
					if t == xds.RouteType && show.odd() {
						return errors.New("this client rejects every other change of the routes")
					}
					return nil
				}
			}
		},
	})
}

// changeInterval is the time between two changes. The demo reports what a change did when all its
// clients have answered, and after reportWithin at the latest.
const (
	changeInterval = 3 * time.Second
	reportWithin   = 2 * time.Second
)

// changeFiles changes a resource of the origin once per changeInterval until ctx ends.
func changeFiles(ctx context.Context, f *fleet.Fleet, origin *originFiles, show *output) error {
	if err := f.WaitAll(ctx, func(c *fleet.Client) bool { return c.Complete() }); err != nil {
		return ignoreEnd(ctx, err)
	}
	show.ready(f)
	tick := time.NewTicker(changeInterval)
	defer tick.Stop()
	for n := 1; ; n++ {
		what, answered, err := origin.change(n, show.begin)
		if err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		show.changed(n, what)
		select {
		case <-answered:
		case <-time.After(reportWithin):
		case <-ctx.Done():
		}
		show.report()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// ignoreEnd drops err if ctx ended.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
