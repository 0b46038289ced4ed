package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/internal/admin"
	"xdsrelay/internal/adminclient"
	"xdsrelay/internal/status"
	"xdsrelay/internal/terminal"
)

func newReloadCmd() *cobra.Command {
	var (
		flags *runningFlags
		force bool
	)
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Make a running relay read its configuration again",
		Long: `Make a running relay read its configuration file and the files that it names again.
The relay also does so when a file changes. The command shows the result, and exits
with 1 if the relay rejects the new configuration. The relay then changes nothing.

If clients have other keys by the new rules, the command prints how many have to connect
again, and within which time.

The relay also rejects new rules that change the key of more clients than
aggregation.max_rekeyed allows. --force applies them. It holds for this reload only.
Run "relay explain --diff" first to see which clients get another key.`,
		Example: `  relay reload
  relay reload --force --admin 127.0.0.1:19000`,
		Args: noArgs,
	}
	format := addOutputFlag(cmd, terminal.FormatText, terminal.FormatJSON, terminal.FormatYAML)
	flags = addRunningFlags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "apply rules that change the key of more clients than aggregation.max_rekeyed")
	cmd.RunE = flags.run(func(cmd *cobra.Command, c *adminclient.Client) error {
		var out admin.Reload
		if err := c.Post(cmd.Context(), fmt.Sprintf("/reload?force=%t", force), nil, &out); err != nil {
			return err
		}
		err := terminal.Print(cmd.OutOrStdout(), *format, &out, func(w io.Writer) {
			printReload(w, cmd.ErrOrStderr(), &out)
			if out.Result != admin.ReloadRejected {
				printMoving(cmd.Context(), w, c)
			}
		})
		if err == nil && out.Result == admin.ReloadRejected {
			err = errReported
		}
		return err
	})
	return cmd
}

// findingTime bounds how long relay reload waits for how many clients have to end.
const findingTime = 5 * time.Second

// printMoving prints how many clients the reload ends, once the relay has checked all.
func printMoving(ctx context.Context, w io.Writer, c *adminclient.Client) {
	ctx, cancel := context.WithTimeout(ctx, findingTime)
	defer cancel()
	var last *admin.Reloading
	for {
		s, err := c.State(ctx)
		if err == nil {
			last = s.Configuration.Reloading
		}
		if err != nil || last == nil || last.Ending > 0 {
			break
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	if last != nil {
		fmt.Fprintln(w, status.ReloadingText(last)+`; "relay status" shows the progress`)
	}
}

func printReload(w, errs io.Writer, r *admin.Reload) {
	switch {
	case r.Result == admin.ReloadRejected:
		for _, f := range r.Faults {
			fmt.Fprintln(errs, terminal.Visible(f))
		}
		fmt.Fprintln(errs, "the relay rejects the configuration; the previous one stays in force")
		return
	case r.Result == admin.ReloadUnchanged:
		fmt.Fprintln(w, "the configuration has not changed")
	case len(r.Changed) > 0:
		fmt.Fprintln(w, "reloaded:", terminal.Visible(strings.Join(r.Changed, " ")))
	default:
		fmt.Fprintln(w, "reloaded; no value changed that applies without a restart")
	}
	if len(r.NeedsRestart) > 0 {
		fmt.Fprintln(w, "these values need a restart:", terminal.Visible(strings.Join(r.NeedsRestart, " ")))
	}
}
