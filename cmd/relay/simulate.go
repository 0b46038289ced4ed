package main

import (
	"crypto/tls"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"xdsrelay/internal/demo"
	"xdsrelay/internal/telemetry/tlsfiles"
)

func newSimulateCmd() *cobra.Command {
	s := new(demo.Simulation)
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
			case s.Relay == "":
				return usageErrorf("--relay: must not be empty")
			case s.Clients < 1:
				return usageErrorf("--clients: must be at least 1, but is %d", s.Clients)
			case length < 0:
				return usageErrorf("--for: must not be negative, but is %s", length)
			}
			var err error
			if s.Dial, err = secure.options(); err != nil {
				return err
			}
			ctx, _, stop := signalsWithin(cmd.Context(), length)
			defer stop()
			s.Out = cmd.OutOrStdout()
			return s.Run(ctx)
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.Relay, "relay", "", "address of the relay for clients, such as 127.0.0.1:15010, or any gRPC target")
	f.IntVar(&s.Clients, "clients", 50, "number of simulated clients, each with its own connection")
	f.StringVar(&s.Cluster, "cluster", demo.Cluster, "cluster of the nodes")
	f.BoolVar(&s.Delta, "delta", false, "use delta instead of SotW")
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
