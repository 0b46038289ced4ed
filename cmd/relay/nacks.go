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

relay diff --node shows which resources a client rejected.`,
		Example: `  relay nacks
  relay nacks --key edge
  relay nacks --admin 127.0.0.1:19000 -o json`,
		Args: cobra.NoArgs,
	}
	format := addOutputFlag(cmd, formatTable, formatJSON, formatYAML)
	flags = addRunningFlags(cmd)
	cmd.Flags().StringVarP(&key, "key", "k", "", "only those of this key, as KEY shows it")
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
		printNackList(cmd.OutOrStdout(), nacks, time.Now())
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
		clients, node, still := strconv.Itoa(n.ClientsTotal), "", cell{text: strconv.Itoa(n.StillNacking)}
		if n.ClientsAtLeast {
			clients += "+"
		}
		if len(n.Clients) > 0 {
			node = n.Clients[0].Node
		}
		if n.StillNacking > 0 {
			still.colour = red
		}
		rows = append(rows, []cell{{text: orNone(n.Key)}, {text: shortType(n.Type)}, {text: orNone(shortVersion(n.Version))},
			{text: strconv.FormatUint(n.Count, 10)}, {text: clients}, still, {text: age(now.Sub(n.Last))},
			{text: orNone(node)}, {text: onOneLine(n.Message)}})
	}
	tintOf(w).table(w, rows)
}
