package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/internal/admin/rulestatus"
	"xdsrelay/internal/adminclient"
	"xdsrelay/internal/explain"
	"xdsrelay/internal/spelling"
	"xdsrelay/internal/terminal"
)

func newRulesCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "List the aggregation rules of a running relay and what they match",
		Long: `List the aggregation rules of a running relay, and what they do to its clients.

  PLACE     the file and the line of the rule
  CLIENTS   connected clients that get a key from the rule, for one of their types
  KEYS      different keys that it gives to these clients
  FAILED    nodes for which match or key failed since the rules are in force. If match
            fails, the rule does not match; if key fails, the relay refuses the node
  MATCH     the expression of match, and the types

The command also prints the last failure of each rule, rules that give a key to none of
the clients, and metadata that a rule reads and no client has. Such a field may be
misspelt: has() is then false for all clients.`,
		Example: `  relay rules
  relay rules --admin 127.0.0.1:19000 -o json`,
		Args: noArgs,
	}
	cmd.Long += cutHelp
	shown := addTableFlags(cmd)
	flags := addRunningFlags(cmd)
	cmd.RunE = flags.run(func(cmd *cobra.Command, c *adminclient.Client) error {
		var answer json.RawMessage
		if err := c.Get(cmd.Context(), "/rules", nil, &answer); err != nil {
			return err
		}
		if shown.IsData() {
			return terminal.PrintData(cmd.OutOrStdout(), shown.Format, answer)
		}
		var r rulestatus.Report
		if err := c.Decode(answer, &r); err != nil {
			return err
		}
		printRules(cmd, shown, &r)
		return nil
	})
	return cmd
}

func printRules(cmd *cobra.Command, shown *tableFlags, r *rulestatus.Report) {
	columns := []terminal.Column[rulestatus.Rule]{
		terminal.TextColumn("RULE", func(x *rulestatus.Rule) string { return x.Rule }),
		terminal.TextColumn("PLACE", func(x *rulestatus.Rule) string {
			if x.Place.Line == 0 {
				return x.Place.File
			}
			return fmt.Sprintf("%s:%d", x.Place.File, x.Place.Line)
		}),
		terminal.TextColumn("CLIENTS", func(x *rulestatus.Rule) string { return strconv.Itoa(x.Clients) }),
		terminal.TextColumn("KEYS", func(x *rulestatus.Rule) string { return strconv.Itoa(x.Keys) }),
		terminal.ColumnOf("FAILED", func(x *rulestatus.Rule) terminal.Cell {
			return terminal.Alarming(int(x.Errors+x.KeyErrors), terminal.Yellow)
		}),
		terminal.TextColumn("MATCH", func(x *rulestatus.Rule) string { return explain.MatchText(x.Match, x.Types) }),
	}
	if shown.Wide() {
		columns = append(columns, terminal.TextColumn("KEY", func(x *rulestatus.Rule) string { return terminal.OneLine(strings.Join(x.Key, ", ")) }))
	}
	out := cmd.OutOrStdout()
	terminal.PrintTable(out, shown.Layout, columns, r.Items)
	if shown.NoHeaders {
		return
	}
	t := terminal.StyleOf(out)
	for _, x := range r.Items {
		if f := x.Last; f != nil {
			fmt.Fprintf(out, "%s %s failed for node %s, %s ago: %s\n", t.Colour(terminal.Yellow, "!"), x.Rule, terminal.Visible(f.Node), terminal.Age(time.Since(f.At)), terminal.OneLine(f.Error))
		}
	}
	for _, n := range r.Notices {
		fmt.Fprintf(out, "%s %s\n", t.Colour(terminal.Yellow, "!"), terminal.Visible(n))
	}
	if r.Partial {
		fmt.Fprintf(out, "The relay examined only %s, because more would take too long.\n", spelling.Counted(r.Examined, "client"))
	}
}
