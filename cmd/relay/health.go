package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"xdsrelay/internal/adminclient"
)

func newHealthCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Check that a running relay is live",
		Long: `Exit with 0 if a running relay is live, and with 1 otherwise. The command needs no
token. Use it for the health check of a container. A live relay may have problems,
which "relay status" shows. To check whether the relay is ready for clients, use the
path /ready of the admin address.`,
		Example: `  relay health
  relay health --config /etc/relay/relay.yaml`,
		Args: noArgs,
	}
	cmd.RunE = addOpenFlags(cmd).run(func(cmd *cobra.Command, c *adminclient.Client) error {
		var answer struct{ Live bool }
		if err := c.Get(cmd.Context(), "/live", nil, &answer); err != nil {
			return err
		}
		if !answer.Live {
			return fmt.Errorf("--admin: the answer of %s is not that of a relay", c.Base)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "the relay at %s is live\n", c.Base)
		return nil
	})
	return cmd
}
