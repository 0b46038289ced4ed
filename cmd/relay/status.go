package main

import (
	"cmp"
	"context"
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

	"xdsrelay/internal/adminclient"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/terminal"
	"xdsrelay/internal/xds"
)

func newStatusCmd() *cobra.Command {
	var (
		flags *runningFlags
		st    statusRun
		check bool
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the clients of a running relay and their state",
		Long: `Show the clients of a running relay, with the state and version of each type, the
worst first:

  NACKED    The client rejected the version. "relay diff NODE" shows the resources.
  STALE     The client has not answered the last response, or the relay has not sent
            all resources of the newest version. The column shows for how long.
  NOT SENT  The relay has sent nothing yet, or the client lacks only names for which
            the origin has not answered. "relay diff NODE" lists these names.
  UNCONFIRMED
            The client keeps what it had when it connected. The origin has not answered yet.
  SYNCED    The client acknowledged the newest version of all its resources.

A row is a node under a key. A node that has the same type on several streams has
several rows. With -o wide a row is a stream under a key, with the user agent, the peer,
and how long it has been open. "(older)" marks a type that a newer stream of the node requests as well,
on another connection. The node has often lost the connection of such a stream.

--state selects clients by the worst state of their types, or by the state of the type
of --type. Write a key as the column KEY shows it: a/b has two elements, "a/b" has
one. An unknown key and a node that is not connected are errors.

--members shows the clients of all relays of the cluster. The relay asks the others.
Each has 2 s. The command names those that did not answer, and exits with 1. A relay
that died is one of them for ten minutes, or for --ignore-dead.

--summary shows numbers instead of clients: by type, by key, and by user agent.

--watch prints again and again. If the terminal has too few lines, it leaves out the
last rows of the table.

Problems of the relay itself come last: unreachable or silent origins, unusable files,
types served from the store, and streams refused in the last minute. With --no-headers
they are on standard error. Of problems with the same impact and next step, only the
first three are shown. "relay status --summary -o json" has them all.

--check exits with 1 if the relay has problems. It prints the same as without --check.` + cutHelp,
		Example: `  relay status
  relay status --admin 127.0.0.1:19000 --key edge
  relay status --state NACKED,STALE --type CDS
  relay status --summary --watch
  relay status --summary --check
  relay status --members --key edge
  relay status --node sidecar~10.0.0.1~web-0 -o yaml`,
		Args: noArgs,
	}
	st.tableFlags = addTableFlags(cmd)
	flags = addRunningFlags(cmd)
	f := cmd.Flags()
	f.StringVarP(&st.key, "key", "k", "", "only clients of this key, as the column KEY shows it")
	f.StringVarP(&st.node, "node", "n", "", "only the node with this id")
	f.Var(&st.states, "state", "only clients in these states, separated by commas: SYNCED, UNCONFIRMED, NOT_SENT, STALE, NACKED")
	f.VarP(&st.typ, "type", "t", "only clients with this type, a short name such as CDS or a URL, and only its column")
	f.StringVar(&st.userAgent, "user-agent", "", "only clients with this user agent, with or without its version: envoy, \"envoy 1.40.0\"")
	f.BoolVar(&st.members, "members", false, "the clients of all relays of the cluster")
	addIgnoreDeadFlag(cmd, &st.ignoreDead)
	f.BoolVar(&st.summary, "summary", false, "print numbers instead of clients")
	f.BoolVar(&check, "check", false, "exit with 1 if the relay has problems")
	st.addWatchFlag(cmd)
	completeKeys(cmd, flags)
	completeNodes(cmd, flags)
	completeStates(cmd)
	completeTypes(cmd)
	completeNothing(cmd, "user-agent")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		st.given = f.Changed
		for _, of := range []string{"node", "state", "type", "user-agent", "members"} {
			if st.summary && f.Changed(of) {
				return usageErrorf("--summary: cannot be used with --%s, because it counts all clients of a key or of the relay", of)
			}
		}
		switch {
		case st.summary && st.NoHeaders:
			return usageErrorf("--summary: cannot be used with --no-headers, because it prints several tables; for scripts use -o json")
		case st.watch && check:
			return usageErrorf("--check: cannot be used with --watch, which goes on until a signal")
		case st.members && check:
			return usageErrorf("--check: cannot be used with --members, because each relay has problems of its own")
		}
		var err error
		if st.relay, err = flags.client(); err != nil {
			return err
		}
		defer st.relay.Close()
		err = st.run(cmd, st.print)
		if check && err == nil {
			err = st.check(cmd.Context())
		}
		return err
	}
	return cmd
}

// statusRun is a run of relay status.
type statusRun struct {
	*tableFlags
	relay     *adminclient.Client
	given     func(flag string) bool
	key, node string
	states    statesFlag
	typ       typeFlag
	userAgent string
	summary   bool
	members   bool // of all relays of the cluster
	// IgnoreDead is that of memberNames.
	ignoreDead time.Duration
}

// print asks the relay and prints its answer: the table, then the rest, and the relay's problems
// to the writer to. It prints nothing before it has the whole answer.
func (s *statusRun) print(ctx context.Context, table, rest, to io.Writer) error {
	if s.summary {
		return s.printSummary(ctx, table, to)
	}
	if s.members {
		return s.printMembers(ctx, table, rest, to)
	}
	path, all, filter := s.query()
	items, err := s.relay.ListOfKey(ctx, path, filter)
	// That the filters select no stream of a node is an error of the relay.
	none, of := len(items) == 0 && len(filter) > len(all) && (err == nil || s.given("node")), 0
	if none {
		items = []json.RawMessage{}
		of, err = s.count(ctx, path, all)
	}
	switch {
	case err != nil:
		return err
	case s.IsData():
		return terminal.PrintList(table, s.Format, items)
	}
	clients, err := adminclient.DecodeItems[inspect.ClientStatus](s.relay, items)
	if err != nil {
		return err
	}
	state, err := s.relay.State(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	t := newStatusTable(clients, xds.TypeURL(s.typ), s.Wide())
	if len(t.rows) > 0 {
		terminal.PrintTable(table, s.Layout, t.columns(now), t.rows)
	}
	switch {
	case s.NoHeaders:
	case !none || of == 0:
		if len(t.rows) > 0 {
			fmt.Fprintln(rest)
		}
		t.printCounts(rest)
		t.printNacks(rest)
	case s.typ == "" && s.userAgent == "":
		fmt.Fprintf(rest, "none of %s is %s\n", terminal.Counted(of, "stream"), &s.states)
	default:
		fmt.Fprintf(rest, "none of %s is selected\n", terminal.Counted(of, "stream"))
	}
	if text := reloadingText(state.Configuration.Reloading); text != "" && !s.NoHeaders {
		fmt.Fprintln(rest, text)
	}
	printProblems(to, state.Problems, now)
	return nil
}

// check returns errReported if the relay has problems.
func (s *statusRun) check(ctx context.Context) error {
	problems, err := s.relay.Problems(ctx)
	if err == nil && len(problems) > 0 {
		err = errReported
	}
	return err
}

// query returns the path of the clients, the query for all that have the key and the node, and the
// query with all filters.
func (s *statusRun) query() (path string, all, filter url.Values) {
	path, all = "/clients", url.Values{}
	if s.given("node") {
		path += "/" + url.PathEscape(s.node)
	}
	if s.given("key") {
		all.Set("key", s.key)
	}
	filter = maps.Clone(all)
	if len(s.states) > 0 {
		filter.Set("state", strings.Join(s.states, ","))
	}
	if s.typ != "" {
		filter.Set("type", string(s.typ))
	}
	if s.userAgent != "" {
		filter.Set("user_agent", s.userAgent)
	}
	return path, all, filter
}

// count returns how many clients a query selects. An unknown node is an error.
func (s *statusRun) count(ctx context.Context, path string, query url.Values) (int, error) {
	query.Set("sort", "worst") // the relay counts only for this order
	query.Set("limit", "1")
	var page struct{ Total int }
	err := s.relay.Get(ctx, path, query, &page)
	return page.Total, err
}

// statusRow is a node under a key.
type statusRow struct {
	client *inspect.ClientStatus // the stream, or the first of several
	key    string
	types  map[string]inspect.TypeStatus
}

// statusRows puts the streams of a node under a key into one row, unless two have the same type.
// With wide, each stream under a key has a row. The rows with the worst state come first. With only,
// they have only this type.
func statusRows(clients []inspect.ClientStatus, only xds.TypeURL, wide bool) []*statusRow {
	type place struct {
		member, node, key, variant string
		stream                     uint64 // 0 unless wide
	}
	var out []*statusRow
	type typed struct {
		place
		url string
	}
	at := map[place][]*statusRow{}
	filled := map[typed]int{} // how many rows of a place have the type; always the first rows
	put := func(c *inspect.ClientStatus, t *inspect.TypeStatus) {
		p := place{member: c.Member, node: c.Node, key: t.Key, variant: c.Variant}
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
			if only == "" || c.Types[j].Type == string(only) {
				put(c, &c.Types[j])
			}
		}
		if len(c.Types) == 0 {
			out = append(out, &statusRow{client: c})
		}
	}
	slices.SortStableFunc(out, func(a, b *statusRow) int {
		return cmp.Or(cmp.Compare(b.badness(), a.badness()), cmp.Compare(a.key, b.key), cmp.Compare(a.client.Node, b.client.Node))
	})
	return out
}

// badness orders rows by their worst state. A client without a type was sent nothing.
func (r *statusRow) badness() int {
	if len(r.types) == 0 {
		return slices.Index(allStates, inspect.StateNotSent)
	}
	worst := 0
	for _, t := range r.types {
		worst = max(worst, slices.Index(allStates, t.State))
	}
	return worst
}

var stateColours = map[string]string{inspect.StateSynced: terminal.Green, inspect.StateStale: terminal.Yellow, inspect.StateUnconfirmed: terminal.Yellow, inspect.StateNotSent: terminal.Faint, inspect.StateNacked: terminal.Red}

// statusTable is the table of clients. It knows how often each state occurs.
type statusTable struct {
	streams int
	rows    []*statusRow
	types   []string // URLs, in the order of the columns
	states  map[string]int
	wide    bool
	members bool // the rows have the member
}

func newStatusTable(clients []inspect.ClientStatus, only xds.TypeURL, wide bool) *statusTable {
	t := &statusTable{streams: len(clients), rows: statusRows(clients, only, wide), states: map[string]int{}, wide: wide}
	seen := map[string]bool{}
	for _, r := range t.rows {
		for url, s := range r.types {
			t.states[s.State]++
			if !seen[url] {
				seen[url] = true
				t.types = append(t.types, url)
			}
		}
	}
	slices.SortFunc(t.types, orderOfTypes)
	return t
}

// orderOfTypes compares two type URLs by the order in which the relay sends them.
func orderOfTypes(a, b string) int {
	x, y := xds.TypeOf(xds.TypeURL(a)), xds.TypeOf(xds.TypeURL(b))
	return cmp.Or(cmp.Compare(x.Order, y.Order), cmp.Compare(a, b))
}

func (t *statusTable) columns(now time.Time) []terminal.Column[*statusRow] {
	out := []terminal.Column[*statusRow]{
		terminal.TextColumn("NODE", func(r **statusRow) string { return (*r).client.Node }),
		terminal.TextColumn("KEY", func(r **statusRow) string { return (*r).key }),
		terminal.TextColumn("VARIANT", func(r **statusRow) string { return (*r).client.Variant }),
	}
	for _, url := range t.types {
		out = append(out, terminal.ColumnOf(terminal.ShortType(url), func(r **statusRow) terminal.Cell {
			s, has := (*r).types[url]
			if !has {
				return terminal.Cell{Text: "-", Colour: terminal.Faint}
			}
			return terminal.Coloured(statusText(&s, now), stateColours[s.State])
		}))
	}
	if t.members {
		out = slices.Insert(out, 2, terminal.TextColumn("MEMBER", func(r **statusRow) string { return (*r).client.Member }))
	}
	if t.wide {
		out = append(out,
			terminal.TextColumn("USER AGENT", func(r **statusRow) string {
				return strings.TrimSpace((*r).client.UserAgent + " " + (*r).client.UserAgentVersion)
			}),
			terminal.TextColumn("STREAM", func(r **statusRow) string { return strconv.FormatUint((*r).client.Stream, 10) }),
			terminal.TextColumn("PEER", func(r **statusRow) string { return (*r).client.Peer }),
			terminal.TextColumn("CONNECTED", func(r **statusRow) string { return terminal.Age(now.Sub((*r).client.Since)) }))
	}
	return out
}

func (t *statusTable) printCounts(w io.Writer) {
	if t.streams == 0 {
		fmt.Fprintln(w, "no clients")
		return
	}
	fmt.Fprintf(w, "%s; types on them: %s\n", terminal.Counted(t.streams, "stream"), statesText(terminal.StyleOf(w), t.states))
}

// statesText has the number of each state that occurs.
func statesText(t terminal.Style, states map[string]int) string {
	var sum []string
	for _, s := range allStates {
		if states[s] > 0 {
			sum = append(sum, fmt.Sprintf("%d %s", states[s], t.Colour(stateColours[s], s)))
		}
	}
	return cmp.Or(strings.Join(sum, ", "), "none")
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
	text := strings.TrimSpace(s.State + " " + terminal.ShortVersion(version))
	if s.State == inspect.StateStale || s.State == inspect.StateNacked {
		text += " " + terminal.Age(now.Sub(s.Since))
	}
	if s.Older {
		text += " (older)"
	}
	return text
}

// maxNacksShown bounds the printed messages; relay nacks lists them all.
const maxNacksShown = 10

// printNacks prints a line for each type and message, the most frequent first. It names one client
// and the version that this client rejects. One bad resource may be in a version of each key.
func (t *statusTable) printNacks(w io.Writer) {
	type rejection struct{ url, message string }
	count, first := map[rejection]int{}, map[rejection]string{}
	versions := map[rejection][]string{}
	var all []rejection
	for _, r := range t.rows {
		for _, url := range slices.Sorted(maps.Keys(r.types)) {
			s := r.types[url]
			if s.State != inspect.StateNacked || s.Nack == nil {
				continue
			}
			of := rejection{url, s.Nack.Message}
			if count[of]++; count[of] == 1 {
				first[of], all = r.client.Node, append(all, of)
			}
			if !slices.Contains(versions[of], s.Nack.Version) {
				versions[of] = append(versions[of], s.Nack.Version)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b rejection) int { return cmp.Compare(count[b], count[a]) })
	colours := terminal.StyleOf(w)
	for i, of := range all {
		if i == maxNacksShown {
			fmt.Fprintf(w, "  and %s; relay nacks lists them all\n", terminal.Counted(len(all)-i, "other message"))
			return
		}
		more := ""
		if n := count[of] - 1; n > 0 {
			more = fmt.Sprintf(" (%d more like this)", n)
			if v := len(versions[of]); v > 1 {
				more = fmt.Sprintf(" (%d more like this, in %d versions)", n, v)
			}
		}
		fmt.Fprintf(w, "%s %s rejects %s version %s: %s%s\n", colours.Colour(terminal.Red, "!"), terminal.Visible(terminal.OrNone(first[of])), terminal.ShortType(of.url), terminal.Visible(terminal.ShortVersion(versions[of][0])), terminal.OneLine(of.message), more)
	}
}
