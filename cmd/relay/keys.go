package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/status"
	"xdsrelay/internal/terminal"
)

func newKeysCmd() *cobra.Command {
	return newListCmd(&cobra.Command{
		Use:   "keys",
		Short: "List the aggregation keys of a running relay",
		Long: `List the aggregation keys of a running relay, with clients or without.

  CLIENTS    streams, and clients that poll
  SYNCED, UNCONFIRMED, NOT SENT, STALE, NACKED
             how many types of these clients are in each state; see relay status
  RESOURCES  how many resources the relay has for the key
  CHANGED    the time since the newest change from the origin
  ORIGIN     the origin that the key is connected to, or the member of the cluster
  PROBLEM    why the key gets no changes, why clients are refused or wait

With -o wide:

  NODE       the id of the node that the relay sends to the origin
  DIFFERS    in which fields the nodes of the clients differ, and how many values each
             field has; the id does not count. If the origin looks at such a field, its
             value belongs in the key: see docs/rules.md

and in a cluster:

  ROLE       owner: the relay asks origins, and serves the key to other members;
             follower: it asks another member; direct: it asks origins, although
             another member owns the key
  OWNER      the member that owns the key

"relay status --key KEY" shows the clients of a key, "relay dump --key KEY" its
resources.`,
		Example: `  relay keys
  relay keys --no-headers
  relay keys --admin 127.0.0.1:19000 -o json`,
	}, list[keystatus.Key]{path: "/keys", empty: "no keys", columns: keyColumns, wideQuery: "differences", wide: []terminal.Column[keystatus.Key]{
		terminal.TextColumn("NODE", func(k *keystatus.Key) string { return k.Node }),
		terminal.TextColumn("ROLE", func(k *keystatus.Key) string { return k.Role }),
		terminal.TextColumn("OWNER", func(k *keystatus.Key) string { return k.Owner }),
		terminal.TextColumn("DIFFERS", func(k *keystatus.Key) string {
			if k.Differences == nil {
				return ""
			}
			return terminal.Visible(k.Differences.String())
		}),
	}})
}

func keyColumns(now time.Time) []terminal.Column[keystatus.Key] {
	columns := []terminal.Column[keystatus.Key]{
		terminal.TextColumn("KEY", func(k *keystatus.Key) string { return k.Key }),
		terminal.TextColumn("CLIENTS", func(k *keystatus.Key) string { return strconv.Itoa(k.Clients) }),
	}
	columns = append(columns, status.StateColumns(status.StatesOfKey)...)
	return append(columns,
		terminal.TextColumn("RESOURCES", func(k *keystatus.Key) string {
			n := 0
			for i := range k.Types {
				n += k.Types[i].Resources
			}
			return strconv.Itoa(n)
		}),
		terminal.TextColumn("CHANGED", func(k *keystatus.Key) string {
			var newest time.Time
			for i := range k.Types {
				if t := k.Types[i].Received; t.After(newest) {
					newest = t
				}
			}
			if newest.IsZero() {
				return ""
			}
			return terminal.Age(now.Sub(newest))
		}),
		terminal.TextColumn("ORIGIN", func(k *keystatus.Key) string {
			if !k.Upstream.Connected {
				return ""
			}
			return k.Upstream.Origin
		}),
		terminal.ColumnOf("PROBLEM", func(k *keystatus.Key) terminal.Cell { return terminal.Problem(keyProblem(k, now)) }).Message(),
	)
}

// keyProblem says why a key gets no changes; empty: it does. The most important reason comes first.
func keyProblem(k *keystatus.Key, now time.Time) string {
	var says []string
	if k.Refused != "" {
		says = append(says, "refuses clients: "+k.Refused)
	}
	for _, u := range []*keystatus.Upstream{&k.Upstream, k.Second} {
		switch {
		case u == nil:
		case !u.SilentSince.IsZero():
			says = append(says, fmt.Sprintf("the origin has not answered node %q for %s", k.Node, terminal.Age(now.Sub(u.SilentSince))))
		case u.Arriving > 0:
			says = append(says, u.Arrived())
		case !u.Connected && k.Refused == "":
			says = append(says, "not connected: "+cmp.Or(u.Error, "connecting"))
		}
	}
	add := func(what fmt.Stringer, since time.Time) {
		says = append(says, fmt.Sprintf("%s (for %s)", what, terminal.Age(now.Sub(since))))
	}
	for i := range k.Suspended {
		add(&k.Suspended[i], k.Suspended[i].Since)
	}
	for i := range k.FrequentEnds {
		add(&k.FrequentEnds[i], k.FrequentEnds[i].Since)
	}
	for i := range k.Types {
		if p := k.Types[i].Unanswered; p != nil {
			add(p, p.Since)
		}
	}
	if slices.ContainsFunc(k.Types, func(t keystatus.TypeSummary) bool { return t.Stale }) {
		says = append(says, "last known good")
	}
	if !k.IdleSince.IsZero() {
		says = append(says, "no clients for "+terminal.Age(now.Sub(k.IdleSince)))
	}
	return terminal.OneLine(strings.Join(says, "; "))
}
