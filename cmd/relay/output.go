package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"xdsrelay/internal/admin/jsonyaml"
)

// Formats of -o.
const (
	formatTable = "table"
	formatWide  = "wide" // the table, not cut to the terminal; relay status has more columns
	formatText  = "text"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

// addOutputFlag adds -o; the first of the formats is the default. PreRunE checks the value.
func addOutputFlag(cmd *cobra.Command, formats ...string) *string {
	format := cmd.Flags().StringP("output", "o", formats[0], "output format: "+strings.Join(formats, ", "))
	completeWith(cmd, "output", func(string) []string { return formats })
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains(formats, *format) {
			return usageErrorf("--output: must be one of %s, but is %q", strings.Join(formats, ", "), *format)
		}
		return nil
	}
	return format
}

// printAs writes v as JSON or YAML, or calls text for the other formats.
func printAs(w io.Writer, format string, v any, text func(io.Writer)) error {
	if format == formatJSON || format == formatYAML {
		return printData(w, format, v)
	}
	text(w)
	return nil
}

// printData writes v as JSON or YAML, with the same names in the same order.
func printData(w io.Writer, format string, v any) error {
	b, err := jsonyaml.YAML(v)
	if format == formatJSON {
		b, err = jsonyaml.JSON(v)
		if err == nil {
			var out bytes.Buffer
			err = json.Indent(&out, b, "", "  ")
			b = out.Bytes()
		}
	}
	if err == nil {
		_, err = w.Write(b)
	}
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return nil
}
