package main

import (
	"github.com/spf13/cobra"

	"xdsrelay/config"
	"xdsrelay/internal/terminal"
	"xdsrelay/internal/validation"
)

func newValidateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check the configuration and the files that it names",
		Long: `Check the configuration as serve would load it, with environment variables and flags.
The command compiles the rules and expressions. It reads the certificates, the tokens,
the keys of issuers in files, the rules file, and all files of an origin that is a
directory. It checks whether the relay can use the directory of the store. It creates
no file, opens no socket and contacts no origin.

It prints each fault as "file:line: key: reason" and exits with 1 if there is a fault.
With a fault, serve does not start and a reload changes nothing. There are two
exceptions: faults in the files of an origin, and certificates that have expired. serve
starts with them and logs them.

Warnings do not change the exit code. serve starts with them and logs them.

The command does not check whether another relay uses the directory of the store.
In that case serve does not start.`,
		Example: "  relay validate --config relay.yaml\n  RELAY_UPSTREAM_VARIANT=sotw relay validate --config relay.yaml -o json",
		Args:    noArgs,
	}
	file := addConfigFlags(cmd)
	format := addOutputFlag(cmd, terminal.FormatText, terminal.FormatJSON, terminal.FormatYAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := config.Load(*file, cmd.Flags())
		report, err := validation.ReportOn(*file, cfg, err)
		if err != nil {
			return err
		}
		err = terminal.Print(cmd.OutOrStdout(), *format, report, report.Print)
		if err == nil && !report.Valid {
			err = errReported
		}
		return err
	}
	return cmd
}
