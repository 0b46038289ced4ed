package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/internal/admin/sources"
	"xdsrelay/internal/telemetry"
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

Only the relay that answers knows its keys and streams.`,
		Example: `  relay members
  relay members --admin 127.0.0.1:19000 -o json`,
	}, list[sources.Member]{path: "/members", empty: "no members", columns: memberColumns})
}

func memberColumns(now time.Time) []column[sources.Member] {
	count := func(head string, of func(l *sources.Load) int) column[sources.Member] {
		return textColumn(head, func(m *sources.Member) string {
			if m.Load == nil {
				return ""
			}
			return strconv.Itoa(of(m.Load))
		})
	}
	return []column[sources.Member]{
		textColumn("MEMBER", func(m *sources.Member) string { return m.Name }),
		{"STATE", func(m *sources.Member) cell { return memberState(m, now) }},
		count("OWNED", func(l *sources.Load) int { return l.KeysOwned }),
		count("FOLLOWED", func(l *sources.Load) int { return l.KeysFollowed }),
		count("DIRECT", func(l *sources.Load) int { return l.KeysDirect }),
		count("STREAMS", func(l *sources.Load) int { return l.Streams }),
		textColumn("VERSION", func(m *sources.Member) string { return m.Version }),
		textColumn("ADDRESS", func(m *sources.Member) string { return m.Address }),
		textColumn("COMPAT", func(m *sources.Member) string { return m.Compat }),
		{"PROBLEM", func(m *sources.Member) cell { return cell{orNone(onOneLine(m.Problem)), yellow} }},
	}
}

// memberState is the state of a member, and for how long it has been alive, left or dead.
func memberState(m *sources.Member, now time.Time) cell {
	text, colour := m.State, yellow
	switch {
	case m.State == telemetry.MemberDead.String():
		colour = red
	case m.State != telemetry.MemberAlive.String():
	case m.Draining:
		text = "draining"
	case !m.Ready:
		text = "not ready"
	default:
		text, colour = "ready", green
	}
	return cell{text + " " + age(now.Sub(m.Since)), colour}
}
