package main

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
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"xdsrelay/config"
	"xdsrelay/internal/fleet"
	"xdsrelay/internal/relay"
	"xdsrelay/internal/telemetry/logging"
	"xdsrelay/internal/xds"
)

// newDemoCmd is `relay demo`.
func newDemoCmd() *cobra.Command {
	var clients int
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run an origin, the relay and simulated clients in one process",
		Long: `Run an origin, the relay and simulated clients in one process. The origin is a
directory of files. Half of the clients use SotW, half use delta, and some behave
like gRPC. A resource changes every few seconds. One client rejects every other
change of the routes.`,
		Example: `  relay demo
  relay demo --clients 500
  relay demo --for 20s`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case clients < 1:
				return usageErrorf("--clients: must be at least 1, but is %d", clients)
			case length < 0:
				return usageErrorf("--for: must not be negative, but is %s", length)
			}
			ctx, abort, stop := signalsWithin(cmd.Context(), length)
			defer stop()
			return runDemo(ctx, abort, cmd.OutOrStdout(), clients)
		},
	}
	cmd.Flags().IntVar(&clients, "clients", 50, "number of simulated clients")
	cmd.Flags().DurationVar(&length, "for", 0, "time after which the demo ends; 0: it ends at a signal")
	completeNothing(cmd, "clients", "for")
	return cmd
}

// signalsWithin is signals for a command with --for: the first context also ends after this time,
// unless it is 0.
func signalsWithin(parent context.Context, length time.Duration) (first, second context.Context, stop func()) {
	first, second, end := signals(parent, slog.New(slog.DiscardHandler))
	if length == 0 {
		return first, second, end
	}
	first, cancel := context.WithTimeout(first, length)
	return first, second, func() { cancel(); end() }
}

// runDemo runs until ctx ends.
func runDemo(ctx, abort context.Context, out io.Writer, clients int) (err error) {
	dir, err := os.MkdirTemp("", "relay-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	origin, err := newDemoOrigin(filepath.Join(dir, "origin"))
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	// Errors only: the demo prints the events itself.
	log, level, err := logging.New(out, config.Log{Level: "error"})
	if err != nil {
		return err
	}
	r, err := demoRelay(dir, origin.dir, log, level)
	if err != nil {
		return err
	}
	show := newDemoShow(out, r.AdminAddress(), r.ClientAddresses())
	f, err := demoFleet(r.ClientAddresses(), clients, show)
	if err != nil {
		return err
	}
	show.start(clients, origin.dir)

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
		visitors.Go(func() error { return demoChanges(until, r, f, origin, show) })
		return visitors.Wait()
	})
	err = g.Wait()
	show.end(f)
	return err
}

// demoRelay makes the relay with the demo's configuration. It uses the default admin address if
// that is free.
func demoRelay(dir, origin string, log *slog.Logger, level *slog.LevelVar) (*relay.Relay, error) {
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
	return relay.New(cfg, log, level, build().Version)
}

// Numbers of the demo's special clients.
const (
	demoNacker   = 0  // NACKs every other change of the routes
	demoGRPCEach = 10 // each tenth is like gRPC
)

// demoCluster is the cluster of the simulated Envoys' nodes.
const demoCluster = "edge"

// demoNode is the node of the i-th simulated client. Clients alternate between two zones.
func demoNode(i int, cluster string) *corev3.Node {
	return &corev3.Node{
		Id:            fmt.Sprintf("%s-%03d", cluster, i),
		Cluster:       cluster,
		Locality:      &corev3.Locality{Region: "eu", Zone: fmt.Sprintf("eu-%d", i%2+1)},
		UserAgentName: "envoy",
	}
}

func demoFleet(target string, n int, show *demoShow) (*fleet.Fleet, error) {
	return fleet.New(fleet.Config{
		Target:     target,
		Clients:    n,
		DeltaShare: 0.5,
		Nodes: func(i int) *corev3.Node {
			node := demoNode(i, demoCluster)
			if i%demoGRPCEach == demoGRPCEach-1 {
				node.Id, node.Cluster, node.UserAgentName = fmt.Sprintf("grpc-%03d", i), "mesh", "gRPC Go"
			}
			return node
		},
		Configure: func(i int, c *fleet.ClientConfig) {
			c.OnApplied = show.applied
			c.OnNack = show.rejected
			switch {
			case i%demoGRPCEach == demoGRPCEach-1:
				c.Behaviour, c.Listener = fleet.GRPC, "ingress" // which only a simulated one can use
			case i == demoNacker:
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

// demoEvery is the time between two changes. demoTakes is how long the demo waits before it reports
// one.
const (
	demoEvery = 3 * time.Second
	demoTakes = 500 * time.Millisecond
)

// demoChanges changes a resource every demoEvery until ctx ends.
func demoChanges(ctx context.Context, r *relay.Relay, f *fleet.Fleet, origin *demoOrigin, show *demoShow) error {
	if err := f.WaitAll(ctx, func(c *fleet.Client) bool { return c.Complete() }); err != nil {
		return ignoreEnd(ctx, err)
	}
	show.ready(f)
	tick := time.NewTicker(demoEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		what, err := origin.change(n, show.begin)
		if err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		show.changed(n, what)
		soon := time.NewTimer(demoTakes)
		select {
		case <-soon.C:
		case <-ctx.Done():
		}
		soon.Stop()
		show.report(r.Clients())
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
