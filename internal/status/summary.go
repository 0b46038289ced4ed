package status

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/admin/overview"
	"xdsrelay/internal/adminclient"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/spelling"
	"xdsrelay/internal/terminal"
)

// Summary is the output of relay status --summary.
type Summary struct {
	Clients int        `json:"clients"` // streams, and clients that poll
	Types   []statesOf `json:"types"`   // in the order in which the relay sends them
	Keys    []statesOf `json:"keys"`    // the worst first
	// UserAgents counts the clients of the relay by user agent; empty with --key.
	UserAgents []inspect.UserAgentCount `json:"user_agents"`
	Problems   []overview.Problem       `json:"problems"`
}

// statesOf counts clients of a type by their state, or types of clients of a key.
type statesOf struct {
	Type    string         `json:"type,omitempty"`
	Key     string         `json:"key,omitempty"`
	Clients int            `json:"clients"`
	States  map[string]int `json:"states"`
}

// maxKeysShown bounds the keys in the table; relay keys lists all.
const maxKeysShown = 20

// printSummary asks for the keys and the relay's state, which costs the relay less than a list of
// all clients.
func (s *Report) printSummary(ctx context.Context, out, to io.Writer) error {
	sum, err := s.summarize(ctx)
	switch {
	case err != nil:
		return err
	case s.IsData():
		return terminal.PrintData(out, s.Format, sum)
	}
	states := map[string]int{}
	for _, t := range sum.Types {
		for name, n := range t.States {
			states[name] += n
		}
	}
	if sum.Clients == 0 {
		fmt.Fprintln(out, "no clients")
	} else {
		fmt.Fprintf(out, "%s; types on them: %s\n", spelling.Counted(sum.Clients, "client"), statesText(terminal.StyleOf(out), states))
	}
	keys := sum.Keys[:min(len(sum.Keys), maxKeysShown)]
	for _, table := range []struct {
		rows    []statesOf
		columns []terminal.Column[statesOf]
	}{
		{sum.Types, stateCounts("TYPE", func(x *statesOf) string { return terminal.ShortType(x.Type) })},
		{keys, stateCounts("KEY", func(x *statesOf) string { return x.Key })},
	} {
		if len(table.rows) > 0 {
			fmt.Fprintln(out)
			terminal.PrintTable(out, s.Layout, table.columns, table.rows)
		}
	}
	if more := len(sum.Keys) - len(keys); more > 0 {
		fmt.Fprintf(out, "and %s; relay keys lists them all\n", spelling.Counted(more, "more key"))
	}
	if len(sum.UserAgents) > 0 {
		fmt.Fprintln(out)
		terminal.PrintTable(out, s.Layout, userAgentColumns, sum.UserAgents)
	}
	printProblems(to, sum.Problems, time.Now())
	return nil
}

func stateCounts(head string, name func(*statesOf) string) []terminal.Column[statesOf] {
	return append([]terminal.Column[statesOf]{
		terminal.TextColumn(head, name),
		terminal.TextColumn("CLIENTS", func(x *statesOf) string { return strconv.Itoa(x.Clients) }),
	}, StateColumns(func(x *statesOf) map[string]int { return x.States })...)
}

var userAgentColumns = []terminal.Column[inspect.UserAgentCount]{
	terminal.TextColumn("USER AGENT", func(c *inspect.UserAgentCount) string {
		if c.Other > 0 {
			return spelling.Counted(c.Other, "other")
		}
		return strings.TrimSpace(c.Name + " " + c.Version)
	}),
	terminal.TextColumn("CLIENTS", func(c *inspect.UserAgentCount) string { return strconv.Itoa(c.Clients) }),
}

func (s *Report) summarize(ctx context.Context) (*Summary, error) {
	var info struct {
		Streams    map[string]int           `json:"downstream_streams"`
		UserAgents []inspect.UserAgentCount `json:"user_agents"`
		Problems   []overview.Problem
	}
	if err := s.Relay.Get(ctx, "/server_info", nil, &info); err != nil {
		return nil, err
	}
	sum := &Summary{Types: []statesOf{}, Keys: []statesOf{}, UserAgents: []inspect.UserAgentCount{}, Problems: info.Problems}
	var keys []keystatus.Key
	if s.Key != nil {
		keys = make([]keystatus.Key, 1)
		if err := s.Relay.Get(ctx, "/keys/"+url.PathEscape(*s.Key), nil, &keys[0]); err != nil {
			return nil, err
		}
		sum.Clients = keys[0].Clients
	} else {
		var err error
		if keys, err = adminclient.ListOf[keystatus.Key](ctx, s.Relay, "/keys"); err != nil {
			return nil, err
		}
		for _, n := range info.Streams {
			sum.Clients += n
		}
		sum.UserAgents = info.UserAgents
	}
	sum.count(keys)
	return sum, nil
}

// count counts the states of these keys by key and by type.
func (sum *Summary) count(keys []keystatus.Key) {
	byType := map[string]*statesOf{}
	for i := range keys {
		k := &keys[i]
		sum.Keys = append(sum.Keys, statesOf{Key: k.Key, Clients: k.Clients, States: StatesOfKey(k)})
		for j := range k.Types {
			t := byType[k.Types[j].Type]
			if t == nil {
				t = &statesOf{Type: k.Types[j].Type, States: map[string]int{}}
				byType[t.Type] = t
			}
			for name, n := range k.Types[j].States {
				t.States[name] += n
				t.Clients += n
			}
		}
	}
	for _, t := range byType {
		sum.Types = append(sum.Types, *t)
	}
	slices.SortFunc(sum.Types, func(a, b statesOf) int { return orderOfTypes(a.Type, b.Type) })
	slices.SortStableFunc(sum.Keys, func(a, b statesOf) int {
		for _, s := range slices.Backward(inspect.States[1:]) { // all but SYNCED
			if n := cmp.Compare(b.States[s], a.States[s]); n != 0 {
				return n
			}
		}
		return 0
	})
}
