package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"xdsrelay/internal/admin/jsonyaml"
)

// Formats of -o.
const (
	FormatTable = "table"
	FormatWide  = "wide" // the table, not cut to the terminal; relay status has more columns
	FormatText  = "text"
	FormatJSON  = "json"
	FormatYAML  = "yaml"
)

// Print writes v as JSON or YAML, or calls text for the other formats.
func Print(w io.Writer, format string, v any, text func(io.Writer)) error {
	if format == FormatJSON || format == FormatYAML {
		return PrintData(w, format, v)
	}
	text(w)
	return nil
}

// PrintList writes the items of a list as JSON or YAML, as the admin API has it.
func PrintList(w io.Writer, format string, items []json.RawMessage) error {
	return PrintData(w, format, struct {
		Items []json.RawMessage `json:"items"`
	}{items})
}

// PrintData writes v as JSON or YAML, with the same names in the same order.
func PrintData(w io.Writer, format string, v any) error {
	b, err := jsonyaml.YAML(v)
	if format == FormatJSON {
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
