package main

import (
	"context"
	"encoding/json"
	"errors"
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

// printTable writes rows as a table. A terminal shows it cut, unless with -o wide.
func printTable[T any](w io.Writer, f *tableFlags, columns []column[T], rows []T) {
	var lines [][]cell
	if !f.noHeaders {
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
	t := tintOf(w)
	if f.wide() {
		t.width = 0
	}
	t.table(w, lines)
}

// tableFlags say how a command prints a list.
type tableFlags struct {
	format    *string
	noHeaders bool // for scripts, which read the rows alone
}

func addTableFlags(cmd *cobra.Command) *tableFlags {
	f := &tableFlags{format: addOutputFlag(cmd, formatTable, formatWide, formatJSON, formatYAML)}
	cmd.Flags().BoolVar(&f.noHeaders, "no-headers", false, "print only the rows of the table")
	return f
}

// cutHelp is for the help of commands with a table.
const cutHelp = `

On a terminal, columns are cut to its width, and some are left out if they do not fit.
"…" marks both. -o wide shows all columns whole.`

func (f *tableFlags) wide() bool   { return *f.format == formatWide }
func (f *tableFlags) isData() bool { return *f.format == formatJSON || *f.format == formatYAML }

// list is a list of the admin API, as a command prints it.
type list[T any] struct {
	path    string
	byKey   bool   // the command has --key
	empty   string // printed if the list is empty
	columns func(now time.Time) []column[T]
	wide    []column[T] // further columns with -o wide
	// wideQuery is a parameter of the request with -o wide, JSON and YAML; empty: none.
	wideQuery string
	// diffs prints the rows with their differences; nil: the command has no --diff.
	diffs func(w io.Writer, rows []T, now time.Time)
	// complete adds to the items what others know. They are printed before its error is returned. nil: none do.
	complete func(ctx context.Context, c *adminClient, items []json.RawMessage) ([]json.RawMessage, error)
}

// newListCmd completes a command that prints a list of a running relay as a table, JSON or YAML.
func newListCmd[T any](cmd *cobra.Command, l list[T]) *cobra.Command {
	cmd.Args = noArgs
	cmd.Long += cutHelp
	shown := addTableFlags(cmd)
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
		if *diff && shown.noHeaders {
			return usageErrorf("--diff: cannot be used with --no-headers, because it prints no table")
		}
		c, err := flags.client()
		if err != nil {
			return err
		}
		defer c.close()
		q := url.Values{}
		if l.byKey && cmd.Flags().Changed("key") {
			q.Set("key", *key)
		}
		if l.wideQuery != "" && (shown.wide() || shown.isData()) {
			q.Set(l.wideQuery, "true")
		}
		if *diff {
			q.Set("diff", "true")
		}
		items, err := c.listOfKey(cmd.Context(), l.path, q)
		if err != nil {
			return err
		}
		var partly error
		if l.complete != nil {
			items, partly = l.complete(cmd.Context(), c, items)
		}
		out := cmd.OutOrStdout()
		if shown.isData() {
			return errors.Join(printData(out, *shown.format, envelope{items}), partly)
		}
		rows, err := decode[T](c, items)
		switch {
		case err != nil:
			return err
		case len(rows) > 0 && *diff:
			l.diffs(out, rows, time.Now())
		case len(rows) > 0:
			columns := l.columns(time.Now())
			if shown.wide() {
				columns = append(columns, l.wide...)
			}
			printTable(out, shown, columns, rows)
		case !shown.noHeaders:
			fmt.Fprintln(out, l.empty)
		}
		return partly
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
