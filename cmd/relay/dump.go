package main

import (
	"fmt"
	"net/url"
	"xdsrelay/internal/adminclient"

	"github.com/spf13/cobra"

	"xdsrelay/internal/terminal"
	"xdsrelay/internal/xds"
)

func newDumpCmd() *cobra.Command {
	var (
		flags     *runningFlags
		key, name string
		typ       typeFlag
	)
	cmd := &cobra.Command{
		Use:   "dump --key KEY",
		Short: "Print the resources of a key from a running relay",
		Long: `Print the resources that a running relay has for a key, without secrets. For types
that the relay does not know, the command prints the type and the size.`,
		Example: `  relay dump --key edge
  relay dump --key edge --type CDS --name backend -o json`,
		Args: noArgs,
	}
	format := addOutputFlag(cmd, terminal.FormatYAML, terminal.FormatJSON)
	flags = addRunningFlags(cmd)
	cmd.Flags().StringVarP(&key, "key", "k", "", "the key, as relay status shows it")
	cmd.Flags().VarP(&typ, "type", "t", "only this resource type, a short name such as CDS or a URL")
	cmd.Flags().StringVar(&name, "name", "", "only the resource with this name")
	markRequired(cmd, "key")
	completeKeys(cmd, flags)
	completeTypes(cmd)
	completeResources(cmd, flags, &key, &typ)
	cmd.RunE = flags.run(func(cmd *cobra.Command, c *adminclient.Client) error {
		q := url.Values{"key": {key}}
		if typ != "" {
			q.Set("type", string(typ))
		}
		if cmd.Flags().Changed("name") {
			q.Set("name", name)
		}
		items, err := c.List(cmd.Context(), "/config_dump", q)
		if err != nil {
			return err
		}
		return terminal.PrintList(cmd.OutOrStdout(), *format, items)
	})
	return cmd
}

// typeFlag is a resource type as a URL or a short name.
type typeFlag xds.TypeURL

func (t *typeFlag) String() string { return string(*t) }
func (t *typeFlag) Type() string   { return "type" }

// Set implements pflag.Value.
func (t *typeFlag) Set(s string) error {
	url, ok := xds.ParseType(s)
	if !ok {
		return fmt.Errorf("must be a URL or a short name such as CDS")
	}
	*t = typeFlag(url)
	return nil
}

// markRequired marks flags as required. The caller has defined them.
func markRequired(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		_ = cmd.MarkFlagRequired(name)
	}
}
