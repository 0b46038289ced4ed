package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"xdsrelay/config"
	"xdsrelay/internal/admin/grpcadmin"
	"xdsrelay/internal/relay"
	"xdsrelay/internal/telemetry/logging"
	"xdsrelay/internal/telemetry/logsample"
	"xdsrelay/internal/validation"
)

func newServeCmd() *cobra.Command {
	var file *string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the relay until SIGTERM, then drain",
		Long: `Run the relay until SIGTERM or SIGINT. The relay then accepts no connections, sends
GOAWAY, ends the open streams over downstream.drain, and exits with 0. A second signal ends it
at once.

The relay reloads the configuration when the file changes, and at SIGHUP. Rules,
limits, identity rules, the log level and some timeouts change without a restart.
The log and /server_info name changed keys that need a restart. A file with a fault
changes nothing. A configuration from a pipe is read once, and the files that it names
are followed.

If new rules give a client another key, the relay ends the streams of this client,
and the client reconnects. The relay spreads this over downstream.drain. Run
"relay explain --diff" first to see which clients that are.

Flags override environment variables, which override the file.`,
		Example: `  relay serve
  relay serve --config /etc/relay/relay.yaml
  RELAY_UPSTREAM_VARIANT=sotw relay serve --config relay.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			load := config.Loader(*file, cmd.Flags())
			cfg, err := load()
			if _, err := validation.Check(cfg, err, nil); err != nil {
				return err
			}
			// Otherwise Go ends the process when the reader of its stderr has gone.
			signal.Ignore(syscall.SIGPIPE)
			lines := logging.NewQueue(cmd.ErrOrStderr())
			log, level, err := logging.New(lines, cfg.Log)
			if err != nil {
				return err
			}
			go lines.Run(log)
			defer func() {
				log.Handler().(*logsample.Handler).Flush()
				if !lines.Flush() && err != nil {
					err = errReported // its text would wait for stderr
				}
			}()
			logging.SendLibrariesTo(log)
			hangups, stopHangups := hangups()
			defer stopHangups()
			grpcadmin.CountForChannelz(cfg.Admin.GRPCAddress != "")
			r, err := relay.New(cfg, log, level, build().Version)
			if err != nil {
				return err
			}
			r.LogsTo(lines)
			r.Follow(load, hangups)
			ctx, abort, stop := signals(cmd.Context(), log)
			defer stop()
			return r.Run(ctx, abort)
		},
	}
	file = addConfigFlags(cmd)
	return cmd
}

// signals returns a context that the first SIGTERM or SIGINT ends, and one that the second ends. A
// third ends the process at once.
func signals(parent context.Context, log *slog.Logger) (first, second context.Context, stop func()) {
	first, end1 := context.WithCancel(parent)
	second, end2 := context.WithCancel(context.WithoutCancel(parent))
	ch := make(chan os.Signal, 2)
	done := make(chan struct{})
	signal.Notify(ch, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		defer close(done)
		if _, ok := <-ch; !ok {
			return
		}
		end1()
		got, ok := <-ch
		if !ok {
			return
		}
		signal.Stop(ch)
		log.Warn("second signal: stopping at once", "signal", got.String())
		end2()
	}()
	return first, second, func() {
		signal.Stop(ch)
		close(ch)
		<-done
		end1()
		end2()
	}
}

// hangups receives SIGHUP, which would otherwise end the process, until the returned function is
// called.
func hangups() (received <-chan os.Signal, stop func()) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGHUP)
	return ch, func() { signal.Stop(ch) }
}
