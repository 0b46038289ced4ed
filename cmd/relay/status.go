package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/xds"
)

func newStatusCmd() *cobra.Command {
	var (
		flags     *runningFlags
		key, node string
		only      statesFlag
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the clients of a running relay and their state",
		Long: `Show the clients of a running relay, with the state and version of each type:

  SYNCED    The client acknowledged the newest version of all its resources.
  NOT SENT  The relay has sent nothing yet, or the client lacks only names for which
            the origin has not answered. "relay diff --node" lists these names.
  STALE     The client has not answered the last response, or the relay has not sent
            all resources of the newest version. The column shows for how long.
  NACKED    The client rejected the version. "relay diff --node" shows the resources.

A row is a node under a key. A node that has the same type on several streams has
several rows. With -o wide a row is a stream under a key, with the user agent, the
peer, and how long it has been open. --state selects the clients that have one of the states for any type.
Write a key as the column KEY shows it: a/b has two elements, "a/b" has one. An
unknown key and a node that is not connected are errors.

Problems of the relay itself go to standard error: unreachable or silent origins,
unusable files, types served from the store, and streams refused in the last minute.`,
		Example: `  relay status
  relay status --admin 127.0.0.1:19000 --key edge
  relay status --state NACKED,STALE
  relay status --key edge -o wide
  relay status --node sidecar~10.0.0.1~web-0 -o yaml`,
		Args: cobra.NoArgs,
	}
	format := addOutputFlag(cmd, formatTable, formatWide, formatJSON, formatYAML)
	flags = addRunningFlags(cmd)
	cmd.Flags().StringVarP(&key, "key", "k", "", "only clients of this key, as the column KEY shows it")
	cmd.Flags().StringVarP(&node, "node", "n", "", "only the node with this id")
	cmd.Flags().Var(&only, "state", "only clients in these states, separated by commas: SYNCED, NOT_SENT, STALE, NACKED")
	completeKeys(cmd, flags)
	completeNodes(cmd, flags)
	completeStates(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := flags.client()
		if err != nil {
			return err
		}
		defer c.close()
		path, q := "/clients", url.Values{}
		if cmd.Flags().Changed("node") {
			path += "/" + url.PathEscape(node)
		}
		if cmd.Flags().Changed("key") {
			q.Set("key", key)
		}
		items, err := c.listOfKey(commandContext(cmd), path, q)
		if err != nil {
			return err
		}
		clients := make([]inspect.ClientStatus, 0, len(items))
		shown := items[:0]
		for _, item := range items {
			var one inspect.ClientStatus
			if err := json.Unmarshal(item, &one); err != nil {
				return fmt.Errorf("--admin: the answer of %s is not that of a relay: %w", c.base, err)
			}
			if only.has(&one) {
				clients, shown = append(clients, one), append(shown, item)
			}
		}
		if *format != formatTable && *format != formatWide {
			return printData(cmd.OutOrStdout(), *format, map[string]any{"clients": shown})
		}
		if len(clients) == 0 && len(items) > 0 {
			fmt.Fprintf(cmd.OutOrStdout(), "none of %s is %s\n", counted(len(items), "stream"), &only)
		} else {
			printStatus(cmd.OutOrStdout(), clients, *format == formatWide, time.Now())
		}
		return printProblems(commandContext(cmd), cmd.ErrOrStderr(), c, time.Now())
	}
	return cmd
}

// statusRow is a node under a key.
type statusRow struct {
	client *inspect.ClientStatus // the stream, or the first of several
	key    string
	types  map[string]inspect.TypeStatus
}

// statusRows puts the streams of a node under a key into one row, unless two have the same type.
// If wide, each stream under a key has a row.
func statusRows(clients []inspect.ClientStatus, wide bool) []*statusRow {
	type place struct {
		node, key, variant string
		stream             uint64 // 0 unless wide
	}
	var out []*statusRow
	type typed struct {
		place
		url string
	}
	at := map[place][]*statusRow{}
	filled := map[typed]int{} // how many rows of a place have the type; always the first rows
	put := func(c *inspect.ClientStatus, t *inspect.TypeStatus) {
		p := place{node: c.Node, key: t.Key, variant: c.Variant}
		if wide {
			p.stream = c.Stream
		}
		n := filled[typed{p, t.Type}]
		filled[typed{p, t.Type}]++
		if n < len(at[p]) {
			at[p][n].types[t.Type] = *t
			return
		}
		r := &statusRow{c, t.Key, map[string]inspect.TypeStatus{t.Type: *t}}
		at[p] = append(at[p], r)
		out = append(out, r)
	}
	for i := range clients {
		c := &clients[i]
		for j := range c.Types {
			put(c, &c.Types[j])
		}
		if len(c.Types) == 0 {
			out = append(out, &statusRow{client: c})
		}
	}
	slices.SortStableFunc(out, func(a, b *statusRow) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.client.Node, b.client.Node))
	})
	return out
}

var stateColours = map[string]string{inspect.StateSynced: green, inspect.StateStale: yellow, inspect.StateNotSent: faint, inspect.StateNacked: red}

// column is a column of the table: its head, and the cell of a row.
type column struct {
	head string
	cell func(*statusRow) cell
}

// statusColumns returns the columns for these types.
func statusColumns(types []string, wide bool, now time.Time) []column {
	text := func(f func(*statusRow) string) func(*statusRow) cell {
		return func(r *statusRow) cell { return cell{text: orNone(f(r))} }
	}
	out := []column{
		{"NODE", text(func(r *statusRow) string { return r.client.Node })},
		{"KEY", text(func(r *statusRow) string { return r.key })},
		{"VARIANT", text(func(r *statusRow) string { return r.client.Variant })},
	}
	for _, url := range types {
		out = append(out, column{shortType(url), func(r *statusRow) cell {
			s, has := r.types[url]
			if !has {
				return cell{text: "-", colour: faint}
			}
			return cell{statusText(&s, now), stateColours[s.State]}
		}})
	}
	if wide {
		out = append(out,
			column{"USER AGENT", text(func(r *statusRow) string {
				return strings.TrimSpace(r.client.UserAgent + " " + r.client.UserAgentVersion)
			})},
			column{"STREAM", text(func(r *statusRow) string { return strconv.FormatUint(r.client.Stream, 10) })},
			column{"PEER", text(func(r *statusRow) string { return r.client.Peer })},
			column{"CONNECTED", text(func(r *statusRow) string { return age(now.Sub(r.client.Since)) })})
	}
	return out
}

func printStatus(w io.Writer, clients []inspect.ClientStatus, wide bool, now time.Time) {
	t := tintOf(w)
	rows := statusRows(clients, wide)
	var types []string
	seen, states := map[string]bool{}, map[string]int{}
	for _, r := range rows {
		for url, s := range r.types {
			states[s.State]++
			if !seen[url] {
				seen[url] = true
				types = append(types, url)
			}
		}
	}
	slices.SortFunc(types, func(a, b string) int {
		x, y := xds.TypeOf(xds.TypeURL(a)), xds.TypeOf(xds.TypeURL(b))
		return cmp.Or(cmp.Compare(x.Order, y.Order), cmp.Compare(a, b))
	})
	if len(rows) == 0 {
		fmt.Fprintln(w, "no clients")
		return
	}
	columns := statusColumns(types, wide, now)
	lines := make([][]cell, 1+len(rows))
	for _, c := range columns {
		lines[0] = append(lines[0], cell{text: c.head})
		for i, r := range rows {
			lines[i+1] = append(lines[i+1], c.cell(r))
		}
	}
	t.table(w, lines)
	var sum []string
	for _, s := range []string{inspect.StateSynced, inspect.StateNotSent, inspect.StateStale, inspect.StateNacked} {
		if states[s] > 0 {
			sum = append(sum, fmt.Sprintf("%d %s", states[s], t.as(stateColours[s], s)))
		}
	}
	fmt.Fprintf(w, "\n%s; types on them: %s\n", counted(len(clients), "stream"), strings.Join(sum, ", "))
	printNacks(w, t, rows)
}

// statusText is a state with its version, and with its age if it should not last.
func statusText(s *inspect.TypeStatus, now time.Time) string {
	version := s.Acked
	switch {
	case s.State == inspect.StateNacked && s.Nack != nil:
		version = s.Nack.Version
	case s.State == inspect.StateStale && s.PendingACKSince != nil:
		version = s.Sent
	}
	text := strings.TrimSpace(s.State + " " + shortVersion(version))
	if s.State == inspect.StateStale || s.State == inspect.StateNacked {
		text += " " + age(now.Sub(s.Since))
	}
	return text
}

// shortVersion is enough of a version to tell it from others.
func shortVersion(v string) string {
	if len(v) == 32 && strings.Trim(v, "0123456789abcdef") == "" { // a hash that the relay made
		return v[:8]
	}
	return cut(v)
}

// counted is a number with its noun, in the plural unless it is 1.
func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// age formats a duration for users.
func age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// maxNacksShown bounds the printed messages; relay status -o json has all.
const maxNacksShown = 10

func printNacks(w io.Writer, t tint, rows []*statusRow) {
	n := 0
	for _, r := range rows {
		for _, url := range slices.Sorted(maps.Keys(r.types)) {
			s := r.types[url]
			if s.State != inspect.StateNacked || s.Nack == nil {
				continue
			}
			if n++; n <= maxNacksShown {
				fmt.Fprintf(w, "%s %s rejects %s version %s: %s\n", t.as(red, "!"), plain(orNone(r.client.Node)), shortType(url), plain(shortVersion(s.Nack.Version)), onOneLine(s.Nack.Message))
			}
		}
	}
	if n > maxNacksShown {
		fmt.Fprintf(w, "  and %d more\n", n-maxNacksShown)
	}
}
