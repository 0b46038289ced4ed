package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/telemetry/tlsfiles"
	"xdsrelay/internal/terminal"
)

func newSimulateCmd() *cobra.Command {
	s := new(simulation)
	var (
		length time.Duration
		secure clientTLS
	)
	cmd := &cobra.Command{
		Use:   "simulate --relay ADDRESS",
		Short: "Connect simulated clients to a relay",
		Long: `Connect simulated clients to a relay, or to any other xDS server with the aggregated
service. The clients behave like Envoys and accept every response. They ping after
30 s without traffic, and wait for the answer for 10 s. Their nodes have the ids
edge-000, edge-001 and so on, and the user agent envoy without a version. They are in
the cluster edge, and in turn in the zones eu-1 and eu-2. --cluster replaces "edge" in
the ids and in the cluster.

The command prints a line every few seconds:

  connected  clients with an open stream
  complete   clients that have all resources that they subscribe to
  errors     streams that failed or that the relay ended

If the relay refuses clients, the command prints the error of the newest failure. The
clients try again after a random time, at most 5 s. The command ends at a signal or
after --for. It exits with 1 if a client is not complete at the end.`,
		Example: `  relay simulate --relay 127.0.0.1:15010 --clients 500
  relay simulate --relay relay.example:15010 --delta --for 1m --tls-ca ca.crt --tls-cert edge.crt --tls-key edge.key`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case s.relay == "":
				return usageErrorf("--relay: must not be empty")
			case s.clients < 1:
				return usageErrorf("--clients: must be at least 1, but is %d", s.clients)
			case length < 0:
				return usageErrorf("--for: must not be negative, but is %s", length)
			}
			var err error
			if s.dial, err = secure.options(); err != nil {
				return err
			}
			ctx, _, stop := signalsWithin(cmd.Context(), length)
			defer stop()
			s.out = cmd.OutOrStdout()
			return s.run(ctx)
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.relay, "relay", "", "address of the relay for clients, such as 127.0.0.1:15010, or any gRPC target")
	f.IntVar(&s.clients, "clients", 50, "number of simulated clients, each with its own connection")
	f.StringVar(&s.cluster, "cluster", demoCluster, "cluster of the nodes")
	f.BoolVar(&s.delta, "delta", false, "use delta instead of SotW")
	f.DurationVar(&length, "for", 0, "time after which the command ends; 0: it ends at a signal")
	f.StringVar(&secure.ca, "tls-ca", "", "file with CA certificates that verify the relay; turns TLS on")
	f.StringVar(&secure.cert, "tls-cert", "", "file with the certificate of the clients; turns TLS on")
	f.StringVar(&secure.key, "tls-key", "", "file with the key of --tls-cert")
	markRequired(cmd, "relay")
	completeNothing(cmd, "relay", "clients", "cluster", "for")
	return cmd
}

// clientTLS names the files of clients for TLS. Without files the clients use plaintext.
type clientTLS struct{ ca, cert, key string }

// options returns the dial options of the clients. They ping as Envoys with the bootstraps of
// config/clients do, so that they notice a dead path.
func (f *clientTLS) options() ([]grpc.DialOption, error) {
	pings := grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second})
	if *f == (clientTLS{}) {
		return []grpc.DialOption{pings, grpc.WithTransportCredentials(insecure.NewCredentials())}, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		var err error
		if cfg.RootCAs, err = tlsfiles.ReadCAs(f.ca); err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
	}
	if f.cert != "" || f.key != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert and --tls-key: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return []grpc.DialOption{pings, grpc.WithTransportCredentials(credentials.NewTLS(cfg))}, nil
}

// simulation is a run of relay simulate. The clients call failed on their goroutines.
type simulation struct {
	relay, cluster string
	clients        int
	delta          bool
	dial           []grpc.DialOption
	out            io.Writer

	mu     sync.Mutex
	errors int    // streams that failed or that the relay ended
	newest string // the error of the last of them
	shown  int    // errors at the last line
}

// simulateEvery is the time between two lines.
const simulateEvery = 2 * time.Second

// run runs until ctx ends.
func (s *simulation) run(ctx context.Context) error {
	share := 0.0
	if s.delta {
		share = 1
	}
	f, err := fleet.New(fleet.Config{
		Target: s.relay, DialOptions: s.dial, Clients: s.clients, DeltaShare: share,
		Client: fleet.ClientConfig{DiscardBodies: true, OnStream: func(c *fleet.Client, err error) {
			if err != nil && ctx.Err() == nil {
				s.failed(c, err)
			}
		}},
		Nodes: func(i int) *corev3.Node { return demoNode(i, s.cluster) },
	})
	if err != nil {
		return err
	}
	// The clients leave after the last line, which counts them.
	clients, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	ended := make(chan error, 1)
	go func() { ended <- f.Run(clients) }()
	began := time.Now()
	tick := time.NewTicker(simulateEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.print(f, time.Since(began))
			continue
		case err := <-ended: // no client can use the target
			return fmt.Errorf("--relay: %s", terminal.FirstLine(err))
		case <-ctx.Done():
		}
		complete := s.print(f, time.Since(began))
		leave()
		if err := <-ended; err != nil {
			return err
		}
		printTotals(s.out, f)
		if complete < s.clients {
			return fmt.Errorf("simulate: %d of %d clients are not complete", s.clients-complete, s.clients)
		}
		return nil
	}
}

func (s *simulation) failed(c *fleet.Client, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errors++
	s.newest = c.ID() + ": " + err.Error()
}

// print prints the line of this moment, and the newest error if there were errors since the last
// line. It returns the number of complete clients.
func (s *simulation) print(f *fleet.Fleet, after time.Duration) (complete int) {
	connected := 0
	for _, c := range f.Clients() {
		if c.Connected() {
			connected++
		}
		if c.Complete() {
			complete++
		}
	}
	sum := f.Counters()
	s.mu.Lock()
	total, since, newest := s.errors, s.errors-s.shown, s.newest
	s.shown = s.errors
	s.mu.Unlock()
	// A terminal that has gone away is no reason to stop.
	_, _ = fmt.Fprintf(s.out, "%6.1fs  %d of %d connected, %d complete, %d ACKs, %d NACKs, %d errors\n",
		after.Seconds(), connected, len(f.Clients()), complete, sum.Acks, sum.Nacks, total)
	if since > 0 {
		_, _ = fmt.Fprintf(s.out, "         %s failed; the clients try again; the newest: %s\n", terminal.Counted(since, "stream"), terminal.OneLine(newest))
	}
	return complete
}

// printTotals prints what the clients of a fleet received and answered.
func printTotals(w io.Writer, f *fleet.Fleet) {
	c := f.Counters()
	_, _ = fmt.Fprintf(w, "the clients received %d responses, acknowledged %d and rejected %d\n", c.Responses, c.Acks, c.Nacks)
	for _, v := range f.Violations() {
		_, _ = fmt.Fprintf(w, "a client saw a protocol violation: %s\n", v)
	}
}
