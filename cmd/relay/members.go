package main

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/internal/admin/sources"
	"xdsrelay/internal/adminclient"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/terminal"
)

func newMembersCmd() *cobra.Command {
	return newListCmd(&cobra.Command{
		Use:   "members",
		Short: "List the members of a running relay's cluster",
		Long: `List the members of a running relay's cluster, as this relay sees them.

  STATE     ready; not ready: it has not started to serve; draining; unusable: it is
            alive, and can own no keys; left; dead. The time is since when it is
            alive, left or dead
  OWNED     keys that the member subscribes to at origins, and serves to the others
  FOLLOWED  keys that it subscribes to at another member
  DIRECT    keys that it subscribes to at origins, although another member owns them
  STREAMS   streams of clients, and clients that poll
  COMPAT    only members with the same compat share keys. It is a hash of the rules and
            of what else they must have in common

The relay asks the members for their keys and streams. The command names those that do
not answer, and exits with 1 then. It does not ask members that have left or are dead.`,
		Example: `  relay members
  relay members --admin 127.0.0.1:19000 -o json`,
	}, list[sources.Member]{path: "/members", empty: "no members", columns: memberColumns, complete: withLoads})
}

// withLoads adds their keys and streams to members. An error names those that did not answer.
func withLoads(ctx context.Context, c *adminclient.Client, items []json.RawMessage) ([]json.RawMessage, error) {
	rows, err := adminclient.DecodeItems[sources.Member](c, items)
	if err != nil {
		return items, err
	}
	place := make(map[string]int)
	var names []string
	for i, m := range rows {
		if !m.Self && (m.State == telemetry.MemberAlive || m.State == telemetry.MemberUnusable) {
			place[m.Name] = i
			names = append(names, m.Name)
		}
	}
	answers := adminclient.Ask(c, names, func(member *adminclient.Client, _ string) (*sources.Load, error) {
		its, err := adminclient.ListOf[sources.Member](ctx, member, "/members")
		for _, m := range its {
			if m.Self {
				return m.Load, err
			}
		}
		return nil, err
	})
	for _, a := range answers {
		i := place[a.Member]
		rows[i].Load = a.Value
		if items[i], err = json.Marshal(&rows[i]); err != nil {
			return items, err
		}
	}
	return items, adminclient.Silent(answers)
}

func memberColumns(now time.Time) []terminal.Column[sources.Member] {
	count := func(head string, of func(l *sources.Load) int) terminal.Column[sources.Member] {
		return terminal.TextColumn(head, func(m *sources.Member) string {
			if m.Load == nil {
				return ""
			}
			return strconv.Itoa(of(m.Load))
		})
	}
	return []terminal.Column[sources.Member]{
		terminal.TextColumn("MEMBER", func(m *sources.Member) string { return m.Name }),
		terminal.ColumnOf("STATE", func(m *sources.Member) terminal.Cell { return memberState(m, now) }),
		count("OWNED", func(l *sources.Load) int { return l.KeysOwned }),
		count("FOLLOWED", func(l *sources.Load) int { return l.KeysFollowed }),
		count("DIRECT", func(l *sources.Load) int { return l.KeysDirect }),
		count("STREAMS", func(l *sources.Load) int { return l.Streams }),
		terminal.TextColumn("VERSION", func(m *sources.Member) string { return m.Version }),
		terminal.TextColumn("ADDRESS", func(m *sources.Member) string { return m.Address }),
		terminal.TextColumn("COMPAT", func(m *sources.Member) string { return m.Compat }),
		terminal.ColumnOf("PROBLEM", func(m *sources.Member) terminal.Cell {
			return terminal.Coloured(cmp.Or(terminal.OneLine(m.Problem), "-"), terminal.Yellow)
		}).Message(),
	}
}

// memberState is the state of a member, and for how long it has been alive, left or dead.
func memberState(m *sources.Member, now time.Time) terminal.Cell {
	text, colour := string(m.State), terminal.Yellow
	switch {
	case m.State == telemetry.MemberDead:
		colour = terminal.Red
	case m.State != telemetry.MemberAlive:
	case m.Draining:
		text = "draining"
	case !m.Ready:
		text = "not ready"
	default:
		text, colour = "ready", terminal.Green
	}
	return terminal.Coloured(text+" "+terminal.Age(now.Sub(m.Since)), colour)
}
