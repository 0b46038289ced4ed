package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newHealthCmd() *cobra.Command {
	var flags *runningFlags
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.client()
			if err != nil {
				return err
			}
			defer c.Close()
			var answer struct{ Live bool }
			if err := c.Get(cmd.Context(), "/live", nil, &answer); err != nil {
				return err
			}
			if !answer.Live {
				return fmt.Errorf("--admin: the answer of %s is not that of a relay", c.Base)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "the relay at %s is live\n", c.Base)
			return nil
		},
	}
	flags = addOpenFlags(cmd)
	return cmd
}
