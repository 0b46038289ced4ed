package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

// column is a column of a table: its head, and the cell of a row.
type column[T any] struct {
	head string
	cell func(row *T) cell
}

// textColumn makes a column without colours. An empty text is shown as "-".
func textColumn[T any](head string, of func(row *T) string) column[T] {
	return column[T]{head, func(row *T) cell { return cell{text: orNone(of(row))} }}
}

// printTable writes rows as a table; noHeaders leaves out the first line.
func printTable[T any](w io.Writer, t tint, columns []column[T], rows []T, noHeaders bool) {
	var lines [][]cell
	if !noHeaders {
		head := make([]cell, len(columns))
		for i := range columns {
			head[i].text = columns[i].head
		}
		lines = append(lines, head)
	}
	for i := range rows {
		line := make([]cell, len(columns))
		for j := range columns {
			line[j] = columns[j].cell(&rows[i])
		}
		lines = append(lines, line)
	}
	t.table(w, lines)
}

// addNoHeadersFlag adds --no-headers. It is for scripts, which read the rows alone.
func addNoHeadersFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("no-headers", false, "print only the rows of the table")
}

// list is a list of the admin API, as a command prints it.
type list[T any] struct {
	path    string
	byKey   bool   // the command has --key
	empty   string // printed if the list is empty
	columns func(now time.Time) []column[T]
	// diffs prints the rows with their differences; nil: the command has no --diff.
	diffs func(w io.Writer, rows []T, now time.Time)
}

// newListCmd completes a command that prints a list of a running relay as a table, JSON or YAML.
func newListCmd[T any](cmd *cobra.Command, l list[T]) *cobra.Command {
	cmd.Args = cobra.NoArgs
	format := addOutputFlag(cmd, formatTable, formatJSON, formatYAML)
	noHeaders := addNoHeadersFlag(cmd)
	flags := addRunningFlags(cmd)
	key := new(string)
	if l.byKey {
		cmd.Flags().StringVarP(key, "key", "k", "", "only those of this key, as KEY shows it")
		completeKeys(cmd, flags)
	}
	diff := new(bool)
	if l.diffs != nil {
		cmd.Flags().BoolVar(diff, "diff", false, "show the rejected resources")
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := flags.client()
		if err != nil {
			return err
		}
		defer c.close()
		q := url.Values{}
		if l.byKey && cmd.Flags().Changed("key") {
			q.Set("key", *key)
		}
		if *diff {
			q.Set("diff", "true")
		}
		items, err := c.listOfKey(commandContext(cmd), l.path, q)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if *format != formatTable {
			return printData(out, *format, envelope{items})
		}
		rows, err := decode[T](c, items)
		switch {
		case err != nil:
			return err
		case len(rows) > 0 && *diff:
			l.diffs(out, rows, time.Now())
		case len(rows) > 0:
			printTable(out, tintOf(out), l.columns(time.Now()), rows, *noHeaders)
		case !*noHeaders:
			fmt.Fprintln(out, l.empty)
		}
		return nil
	}
	return cmd
}

// envelope is a list as JSON, as the admin API has it.
type envelope struct {
	Items []json.RawMessage `json:"items"`
}

// decode decodes the items of a list.
func decode[T any](c *adminClient, items []json.RawMessage) ([]T, error) {
	rows := make([]T, len(items))
	for i := range items {
		if err := json.Unmarshal(items[i], &rows[i]); err != nil {
			return nil, fmt.Errorf("--admin: the answer of %s is not that of a relay: %w", c.base, err)
		}
	}
	return rows, nil
}
