package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/internal/admin"
	"xdsrelay/internal/spelling"
	"xdsrelay/internal/terminal"
)

func newNacksCmd() *cobra.Command {
	return newListCmd(&cobra.Command{
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
newer. The relay keeps at most 50 resources and 2 MiB of a row, old and new ones
together, and 64 MiB in all. The output has no secrets.`,
		Example: `  relay nacks
  relay nacks --key edge --diff
  relay nacks --admin 127.0.0.1:19000 -o json`,
	}, list[admin.Nack]{path: "/nacks", byKey: true, empty: "no client rejected a response", columns: nackColumns, diffs: printNackDiffs})
}

// lastNode returns the id of the client that rejected it last.
func lastNode(n *admin.Nack) string {
	if len(n.Clients) == 0 {
		return ""
	}
	return n.Clients[0].Node
}

func nackColumns(now time.Time) []terminal.Column[admin.Nack] {
	return []terminal.Column[admin.Nack]{
		terminal.TextColumn("KEY", func(n *admin.Nack) string { return n.Key }),
		terminal.TextColumn("TYPE", func(n *admin.Nack) string { return terminal.ShortType(n.Type) }),
		terminal.TextColumn("VERSION", func(n *admin.Nack) string { return terminal.ShortVersion(n.Version) }),
		terminal.TextColumn("NACKS", func(n *admin.Nack) string { return strconv.FormatUint(n.Count, 10) }),
		terminal.TextColumn("CLIENTS", func(n *admin.Nack) string {
			if n.ClientsAtLeast {
				return strconv.Itoa(n.ClientsTotal) + "+"
			}
			return strconv.Itoa(n.ClientsTotal)
		}),
		terminal.ColumnOf("STILL", func(n *admin.Nack) terminal.Cell { return terminal.Alarming(n.StillNacking, terminal.Red) }),
		terminal.TextColumn("LAST", func(n *admin.Nack) string { return terminal.Age(now.Sub(n.Last)) }),
		terminal.TextColumn("NODE", lastNode),
		terminal.TextColumn("MESSAGE", func(n *admin.Nack) string { return terminal.OneLine(n.Message) }).Message(),
	}
}

// printNackDiffs prints each row with its rejected resources.
func printNackDiffs(w io.Writer, nacks []admin.Nack, now time.Time) {
	t := terminal.StyleOf(w)
	for i := range nacks {
		n := &nacks[i]
		if i > 0 {
			fmt.Fprintln(w)
		}
		more, still := "", "no client rejects it now"
		if n.ClientsAtLeast {
			more = "more than "
		}
		if n.StillNacking > 0 {
			still = "now rejected by " + spelling.Counted(n.StillNacking, "client")
		}
		fmt.Fprintf(w, "%s under %s: version %s: %s by %s%s, the last %s ago by %s; %s\n", terminal.ShortType(n.Type), terminal.Visible(cmp.Or(n.Key, "-")), terminal.Visible(cmp.Or(n.Version, "-")),
			spelling.Counted(int(n.Count), "NACK"), more, spelling.Counted(n.ClientsTotal, "client"), terminal.Age(now.Sub(n.Last)), terminal.Visible(cmp.Or(lastNode(n), "-")), still)
		fmt.Fprintf(w, "%s\n", t.Colour(terminal.Red, terminal.OneLine(n.Message)))
		if n.Rejected == nil { // an older relay
			continue
		}
		if n.NotHeld {
			fmt.Fprintln(w, "the relay has not kept the resources of this version")
		}
		printDifferences(w, t, n.Version, n.Resources, n.More)
	}
}
