package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// addOutputFlag adds -o; the first of the formats is the default. PreRunE checks the value.
func addOutputFlag(cmd *cobra.Command, formats ...string) *string {
	return addOutputFlagTo(cmd, new(string), formats...)
}

// addOutputFlagTo is addOutputFlag for a variable of the caller.
func addOutputFlagTo(cmd *cobra.Command, format *string, formats ...string) *string {
	cmd.Flags().StringVarP(format, "output", "o", formats[0], "output format: "+strings.Join(formats, ", "))
	completeWith(cmd, "output", func(string) []string { return formats })
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains(formats, *format) {
			return usageErrorf("--output: must be one of %s, but is %q", strings.Join(formats, ", "), *format)
		}
		return nil
	}
	return format
}
