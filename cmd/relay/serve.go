package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"xdsrelay/config"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/xds"
)

// newServeCmd is `relay serve`.
func newServeCmd() *cobra.Command {
	var file *string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the relay until SIGTERM, then drain",
		Long: `Run the relay until SIGTERM or SIGINT. It then takes no new streams, ends those
there are evenly over downstream.drain, and exits 0. A second signal ends it at
once.

Every key of the file can be set by a flag or an environment variable as well:
flags win over the environment, the environment over the file.`,
		Example: `  relay serve
  relay serve --config /etc/relay/relay.yaml
  RELAY_UPSTREAM_VARIANT=sotw relay serve --config relay.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(*file, cmd.Flags())
			if err != nil {
				return err
			}
			log, level, err := newLog(cmd.ErrOrStderr(), cfg.Log)
			if err != nil {
				return err
			}
			r, err := newRelay(cfg, log, level)
			if err != nil {
				return err
			}
			ctx, hurry, stop := signals(cmd.Context())
			defer stop()
			return r.run(ctx, hurry)
		},
	}
	file = addConfigFlags(cmd)
	return cmd
}

// newLog makes the process' log and what changes its level.
func newLog(w io.Writer, c config.Log) (*slog.Logger, *slog.LevelVar, error) {
	level := new(slog.LevelVar)
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return nil, nil, fmt.Errorf("log.level: %w", err)
	}
	opts := &slog.HandlerOptions{Level: level}
	if c.Format == config.FormatJSON {
		return slog.New(slog.NewJSONHandler(w, opts)), level, nil
	}
	return slog.New(slog.NewTextHandler(w, opts)), level, nil
}

// signals returns a context that the first SIGTERM or SIGINT ends, and one that
// the second ends.
func signals(parent context.Context) (first, second context.Context, stop func()) {
	first, end1 := context.WithCancel(parent)
	second, end2 := context.WithCancel(context.WithoutCancel(parent))
	ch := make(chan os.Signal, 2)
	done := make(chan struct{})
	signal.Notify(ch, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		defer close(done)
		for _, end := range []func(){end1, end2} {
			if _, ok := <-ch; !ok {
				return
			}
			end()
		}
	}()
	return first, second, func() {
		signal.Stop(ch)
		close(ch)
		<-done
		end1()
		end2()
	}
}

// nodeOf makes the node that is sent upstream from a key's first client (P58).
func nodeOf(program *expr.Node) func(*xds.Node) ([]byte, error) {
	return func(n *xds.Node) ([]byte, error) {
		m, err := n.Decode()
		if err != nil {
			return nil, err
		}
		out, err := program.Eval(m)
		if err != nil {
			return nil, fmt.Errorf("upstream.node: %w", err)
		}
		wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(out)
		if err != nil {
			return nil, fmt.Errorf("upstream.node: %w", err)
		}
		return wire, nil
	}
}
