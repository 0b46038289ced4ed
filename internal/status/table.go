package status

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/spelling"
	"xdsrelay/internal/terminal"
	"xdsrelay/internal/xds"
)

// row is a node under a key.
type row struct {
	client *inspect.ClientStatus // the stream, or the first of several
	key    string
	types  map[string]inspect.TypeStatus
}

// rowsOf puts the streams of a node under a key into one row, unless two have the same type.
// With wide, each stream under a key has a row. The rows with the worst state come first. With only,
// they have only this type.
func rowsOf(clients []inspect.ClientStatus, only xds.TypeURL, wide bool) []*row {
	type place struct {
		member, node, key, variant string
		stream                     uint64 // 0 unless wide
	}
	var out []*row
	type typed struct {
		place
		url string
	}
	at := map[place][]*row{}
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
		r := &row{c, t.Key, map[string]inspect.TypeStatus{t.Type: *t}}
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
			out = append(out, &row{client: c})
		}
	}
	slices.SortStableFunc(out, func(a, b *row) int {
		return cmp.Or(cmp.Compare(b.badness(), a.badness()), cmp.Compare(a.key, b.key), cmp.Compare(a.client.Node, b.client.Node))
	})
	return out
}

// badness orders rows by their worst state. A client without a type was sent nothing.
func (r *row) badness() int {
	if len(r.types) == 0 {
		return slices.Index(inspect.States, inspect.StateNotSent)
	}
	worst := 0
	for _, t := range r.types {
		worst = max(worst, slices.Index(inspect.States, t.State))
	}
	return worst
}

// table is the table of clients. It knows how often each state occurs.
type table struct {
	streams int
	rows    []*row
	types   []string // URLs, in the order of the columns
	states  map[string]int
	wide    bool
	members bool // the rows have the member
}

func newTable(clients []inspect.ClientStatus, only xds.TypeURL, wide bool) *table {
	t := &table{streams: len(clients), rows: rowsOf(clients, only, wide), states: map[string]int{}, wide: wide}
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

func (t *table) columns(now time.Time) []terminal.Column[*row] {
	out := []terminal.Column[*row]{
		terminal.TextColumn("NODE", func(r **row) string { return (*r).client.Node }),
		terminal.TextColumn("KEY", func(r **row) string { return (*r).key }),
		terminal.TextColumn("VARIANT", func(r **row) string { return (*r).client.Variant }).Least(),
	}
	for _, url := range t.types {
		out = append(out, terminal.ColumnOf(terminal.ShortType(url), func(r **row) terminal.Cell {
			s, has := (*r).types[url]
			if !has {
				return terminal.Cell{Text: "-", Colour: terminal.Faint}
			}
			return terminal.Coloured(textOf(&s, now), Colours[s.State])
		}))
	}
	if t.members {
		out = slices.Insert(out, 2, terminal.TextColumn("MEMBER", func(r **row) string { return (*r).client.Member }))
	}
	if t.wide {
		out = append(out,
			terminal.TextColumn("USER AGENT", func(r **row) string {
				return strings.TrimSpace((*r).client.UserAgent + " " + (*r).client.UserAgentVersion)
			}),
			terminal.TextColumn("STREAM", func(r **row) string { return strconv.FormatUint((*r).client.Stream, 10) }),
			terminal.TextColumn("PEER", func(r **row) string { return (*r).client.Peer }),
			terminal.TextColumn("CONNECTED", func(r **row) string { return terminal.Age(now.Sub((*r).client.Since)) }))
	}
	return out
}

// print writes the table, and then the counts and the NACKs.
func (t *table) print(w, rest io.Writer, as terminal.Layout, now time.Time) {
	if len(t.rows) > 0 {
		terminal.PrintTable(w, as, t.columns(now), t.rows)
	}
	if as.NoHeaders {
		return
	}
	if len(t.rows) > 0 {
		fmt.Fprintln(rest)
	}
	t.printCounts(rest)
	t.printNacks(rest)
}

func (t *table) printCounts(w io.Writer) {
	if t.streams == 0 {
		fmt.Fprintln(w, "no clients")
		return
	}
	fmt.Fprintf(w, "%s; types on them: %s\n", spelling.Counted(t.streams, "stream"), statesText(terminal.StyleOf(w), t.states))
}

// textOf is a state with its version, and with its age if it should not last.
func textOf(s *inspect.TypeStatus, now time.Time) string {
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
func (t *table) printNacks(w io.Writer) {
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
			fmt.Fprintf(w, "  and %s; relay nacks lists them all\n", spelling.Counted(len(all)-i, "other message"))
			return
		}
		more := ""
		if n := count[of] - 1; n > 0 {
			more = fmt.Sprintf(" (%d more like this)", n)
			if v := len(versions[of]); v > 1 {
				more = fmt.Sprintf(" (%d more like this, in %d versions)", n, v)
			}
		}
		fmt.Fprintf(w, "%s %s rejects %s version %s: %s%s\n", colours.Colour(terminal.Red, "!"), terminal.Visible(cmp.Or(first[of], "-")), terminal.ShortType(of.url), terminal.Visible(terminal.ShortVersion(versions[of][0])), terminal.OneLine(of.message), more)
	}
}
