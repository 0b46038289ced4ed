package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

func newNacksCmd() *cobra.Command {
	var (
		flags *runningFlags
		key   string
		diff  bool
	)
	cmd := &cobra.Command{
		Use:   "nacks",
		Short: "List the responses that clients of a running relay rejected",
		Long: `List the responses that clients of a running relay rejected, the newest first. There
is one row for each key, type, version and message.

  NACKS    how often clients rejected it
  CLIENTS  how many clients rejected it; NODE is the last of them
  STILL    how many clients reject it now
  LAST     the time since the last NACK

--diff shows the rejected resources as YAML diffs against those that the client had,
for the last 16 rows of each key. These diffs stay when the client accepts something
newer. The output has no secrets.`,
		Example: `  relay nacks
  relay nacks --key edge --diff
  relay nacks --admin 127.0.0.1:19000 -o json`,
		Args: cobra.NoArgs,
	}
	format := addOutputFlag(cmd, formatTable, formatJSON, formatYAML)
	flags = addRunningFlags(cmd)
	cmd.Flags().StringVarP(&key, "key", "k", "", "only those of this key, as KEY shows it")
	cmd.Flags().BoolVar(&diff, "diff", false, "show the rejected resources")
	completeKeys(cmd, flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := flags.client()
		if err != nil {
			return err
		}
		defer c.close()
		q := url.Values{}
		if cmd.Flags().Changed("key") {
			q.Set("key", key)
		}
		if diff {
			q.Set("diff", "true")
		}
		items, err := c.listOfKey(commandContext(cmd), "/nacks", q)
		if err != nil {
			return err
		}
		if *format != formatTable {
			return printData(cmd.OutOrStdout(), *format, map[string]any{"items": items})
		}
		nacks := make([]keyNack, len(items))
		for i := range items {
			if err := json.Unmarshal(items[i], &nacks[i]); err != nil {
				return fmt.Errorf("--admin: %s does not answer as a relay does: %w", c.base, err)
			}
		}
		if diff && len(nacks) > 0 {
			printNackDiffs(cmd.OutOrStdout(), nacks, time.Now())
		} else {
			printNackList(cmd.OutOrStdout(), nacks, time.Now())
		}
		return nil
	}
	return cmd
}

// keyNack is an item of /nacks.
type keyNack struct {
	Key     string    `json:"key"`
	Type    string    `json:"type"`
	Version string    `json:"version"`
	Message string    `json:"message"`
	Count   uint64    `json:"count"`
	Last    time.Time `json:"last"`
	Clients []struct {
		Node string `json:"node"`
	} `json:"clients"`
	ClientsTotal   int  `json:"clients_total"`
	ClientsAtLeast bool `json:"clients_at_least"`
	StillNacking   int  `json:"still_nacking"`

	// With ?diff=true.
	Resources []resourceDiff `json:"resources"`
	NotHeld   bool           `json:"not_held_any_more"`
	More      int            `json:"more"`
}

// lastNode returns the id of the client that rejected it last.
func (n *keyNack) lastNode() string {
	if len(n.Clients) == 0 {
		return ""
	}
	return n.Clients[0].Node
}

func printNackList(w io.Writer, nacks []keyNack, now time.Time) {
	if len(nacks) == 0 {
		fmt.Fprintln(w, "no client rejected a response")
		return
	}
	rows := [][]cell{{{text: "KEY"}, {text: "TYPE"}, {text: "VERSION"}, {text: "NACKS"}, {text: "CLIENTS"},
		{text: "STILL"}, {text: "LAST"}, {text: "NODE"}, {text: "MESSAGE"}}}
	for i := range nacks {
		n := &nacks[i]
		clients, still := strconv.Itoa(n.ClientsTotal), cell{text: strconv.Itoa(n.StillNacking)}
		if n.ClientsAtLeast {
			clients += "+"
		}
		if n.StillNacking > 0 {
			still.colour = red
		}
		rows = append(rows, []cell{{text: orNone(n.Key)}, {text: shortType(n.Type)}, {text: orNone(shortVersion(n.Version))},
			{text: strconv.FormatUint(n.Count, 10)}, {text: clients}, still, {text: age(now.Sub(n.Last))},
			{text: orNone(n.lastNode())}, {text: onOneLine(n.Message)}})
	}
	tintOf(w).table(w, rows)
}

// printNackDiffs prints each row with its rejected resources.
func printNackDiffs(w io.Writer, nacks []keyNack, now time.Time) {
	t := tintOf(w)
	for i := range nacks {
		n := &nacks[i]
		if i > 0 {
			fmt.Fprintln(w)
		}
		of := "of " + counted(n.ClientsTotal, "client")
		if n.ClientsAtLeast {
			of = "of more than " + counted(n.ClientsTotal, "client")
		}
		fmt.Fprintf(w, "%s under %s: version %s: %s %s, the last %s ago of %s; rejected now by %d\n", shortType(n.Type), plain(orNone(n.Key)), plain(orNone(n.Version)),
			counted(int(n.Count), "NACK"), of, age(now.Sub(n.Last)), plain(orNone(n.lastNode())), n.StillNacking)
		fmt.Fprintf(w, "%s\n", t.as(red, onOneLine(n.Message)))
		if n.NotHeld {
			fmt.Fprintln(w, "the relay has not kept the resources of this version")
		}
		printDifferences(w, t, n.Version, n.Resources, n.More)
	}
}
