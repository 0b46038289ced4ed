package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/internal/demo"
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
			return demo.Run(ctx, abort, cmd.OutOrStdout(), clients, build().Version)
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
