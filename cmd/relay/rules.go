package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/internal/admin/rulestatus"
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
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := flags.client()
		if err != nil {
			return err
		}
		defer c.close()
		var answer json.RawMessage
		if err := c.get(cmd.Context(), "/rules", nil, &answer); err != nil {
			return err
		}
		if shown.isData() {
			return printData(cmd.OutOrStdout(), *shown.format, answer)
		}
		var r rulestatus.Report
		if err := json.Unmarshal(answer, &r); err != nil {
			return fmt.Errorf("--admin: the answer of %s is not that of a relay: %w", c.base, err)
		}
		printRules(cmd, shown, &r)
		return nil
	}
	return cmd
}

func printRules(cmd *cobra.Command, shown *tableFlags, r *rulestatus.Report) {
	columns := []column[rulestatus.Rule]{
		textColumn("RULE", func(x *rulestatus.Rule) string { return x.Rule }),
		textColumn("PLACE", func(x *rulestatus.Rule) string {
			if x.Place.Line == 0 {
				return x.Place.File
			}
			return fmt.Sprintf("%s:%d", x.Place.File, x.Place.Line)
		}),
		textColumn("CLIENTS", func(x *rulestatus.Rule) string { return strconv.Itoa(x.Clients) }),
		textColumn("KEYS", func(x *rulestatus.Rule) string { return strconv.Itoa(x.Keys) }),
		{"FAILED", func(x *rulestatus.Rule) cell { return alarming(int(x.Errors+x.KeyErrors), yellow) }},
		textColumn("MATCH", func(x *rulestatus.Rule) string { return matchText(x.Match, x.Types) }),
	}
	if shown.wide() {
		columns = append(columns, textColumn("KEY", func(x *rulestatus.Rule) string { return onOneLine(strings.Join(x.Key, ", ")) }))
	}
	out := cmd.OutOrStdout()
	printTable(out, shown, columns, r.Items)
	if shown.noHeaders {
		return
	}
	t := tintOf(out)
	for _, x := range r.Items {
		if f := x.Last; f != nil {
			fmt.Fprintf(out, "%s %s failed for node %s, %s ago: %s\n", t.as(yellow, "!"), x.Rule, plain(f.Node), age(time.Since(f.At)), onOneLine(f.Error))
		}
	}
	for _, n := range r.Notices {
		fmt.Fprintf(out, "%s %s\n", t.as(yellow, "!"), plain(n))
	}
	if r.Partial {
		fmt.Fprintf(out, "The relay examined only %s, because more would take too long.\n", counted(r.Examined, "client"))
	}
}

// matchText is the match of a rule on one line, with its types.
func matchText(match string, types []string) string {
	match = onOneLine(match)
	if len(types) > 0 {
		match += " for " + strings.Join(shortTypes(types), " ")
	}
	return match
}
