package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/internal/adminclient"
	"xdsrelay/internal/terminal"
)

// tableFlags say how a command prints a list.
type tableFlags struct {
	terminal.Layout
	watch bool // --watch
}

func addTableFlags(cmd *cobra.Command) *tableFlags {
	f := new(tableFlags)
	addOutputFlagTo(cmd, &f.Format, terminal.FormatTable, terminal.FormatWide, terminal.FormatJSON, terminal.FormatYAML)
	cmd.Flags().BoolVar(&f.NoHeaders, "no-headers", false, "print only the rows of the table")
	return f
}

func (f *tableFlags) addWatchFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "print again every 2 s, until a signal")
}

// run prints once, or with --watch again and again. print writes a table, then the rest, and problems,
// which standard output has too, unless it has only rows.
func (f *tableFlags) run(cmd *cobra.Command, print func(ctx context.Context, table, rest, problems io.Writer) error) error {
	ctx, out, errs := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	switch {
	case !f.watch && f.NoHeaders:
		return print(ctx, out, out, errs)
	case !f.watch:
		return print(ctx, out, out, out)
	case f.IsData():
		return usageErrorf("--watch: prints tables only, so it cannot be used with -o %s", f.Format)
	}
	ctx, _, stop := signals(ctx, slog.New(slog.DiscardHandler))
	defer stop()
	return terminal.Watch(ctx, out, errs, func(table, rest, problems io.Writer) error { return print(ctx, table, rest, problems) })
}

// cutHelp is for the help of commands with a table.
const cutHelp = `

On a terminal, columns are cut to its width, and some are left out if they do not fit,
but no column with a NACKED or STALE. "…" marks both. -o wide shows all columns whole.`

// list is a list of the admin API, as a command prints it.
type list[T any] struct {
	path    string
	byKey   bool   // the command has --key
	empty   string // printed if the list is empty
	columns func(now time.Time) []terminal.Column[T]
	wide    []terminal.Column[T] // further columns with -o wide
	// wideQuery is a parameter of the request with -o wide, JSON and YAML; empty: none.
	wideQuery string
	// diffs prints the rows with their differences; nil: the command has no --diff.
	diffs func(w io.Writer, rows []T, now time.Time)
	// complete adds to the items what others know. They are printed before its error is returned. nil: none do.
	complete func(ctx context.Context, c *adminclient.Client, items []json.RawMessage) ([]json.RawMessage, error)
}

// newListCmd completes a command that prints a list of a running relay as a table, JSON or YAML.
func newListCmd[T any](cmd *cobra.Command, l list[T]) *cobra.Command {
	cmd.Args = noArgs
	cmd.Long += cutHelp
	shown := addTableFlags(cmd)
	shown.addWatchFlag(cmd)
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
		if *diff && shown.NoHeaders {
			return usageErrorf("--diff: cannot be used with --no-headers, because it prints no table")
		}
		c, err := flags.client()
		if err != nil {
			return err
		}
		defer c.Close()
		q := url.Values{}
		if l.byKey && cmd.Flags().Changed("key") {
			q.Set("key", *key)
		}
		if l.wideQuery != "" && (shown.Wide() || shown.IsData()) {
			q.Set(l.wideQuery, "true")
		}
		if *diff {
			q.Set("diff", "true")
		}
		return shown.run(cmd, func(ctx context.Context, out, _, errs io.Writer) error {
			return l.print(ctx, c, q, shown, *diff, out, errs)
		})
	}
	return cmd
}

// print asks for the list and prints it.
func (l *list[T]) print(ctx context.Context, c *adminclient.Client, q url.Values, shown *tableFlags, diff bool, out, errs io.Writer) error {
	items, err := c.ListOfKey(ctx, l.path, q)
	if err != nil {
		return err
	}
	var partly error
	if l.complete != nil {
		items, partly = l.complete(ctx, c, items)
	}
	if shown.IsData() {
		return errors.Join(terminal.PrintList(out, shown.Format, items), partly)
	}
	rows, err := adminclient.DecodeItems[T](c, items)
	switch {
	case err != nil:
		return err
	case len(rows) > 0 && diff:
		l.diffs(out, rows, time.Now())
	case len(rows) > 0:
		columns := l.columns(time.Now())
		if shown.Wide() {
			columns = append(columns, l.wide...)
		}
		terminal.PrintTable(out, shown.Layout, columns, rows)
	case !shown.NoHeaders:
		fmt.Fprintln(out, l.empty)
	}
	if shown.watch && partly != nil { // an error would end the watch
		fmt.Fprintln(errs, "relay:", partly)
		return nil
	}
	return partly
}
