package status

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"strings"
	"time"

	"xdsrelay/internal/adminclient"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/spelling"
	"xdsrelay/internal/terminal"
	"xdsrelay/internal/xds"
)

// Report is what relay status prints of the clients of a relay.
type Report struct {
	terminal.Layout
	Relay      *adminclient.Client
	Key, Node  *string // nil: any
	States     []string
	Type       xds.TypeURL
	UserAgent  string
	Summary    bool          // numbers instead of clients
	AllMembers bool          // of all relays of the cluster
	IgnoreDead time.Duration // with AllMembers: that of adminclient.AskAll
}

// Print asks the relay and prints its answer: the table, then the rest, and the relay's problems
// to the writer to. It prints nothing before it has the whole answer.
func (s *Report) Print(ctx context.Context, table, rest, to io.Writer) error {
	if s.Summary {
		return s.printSummary(ctx, table, to)
	}
	if s.AllMembers {
		return s.printMembers(ctx, table, rest, to)
	}
	path, all, filter := s.query()
	items, err := s.Relay.ListOfKey(ctx, path, filter)
	// That the filters select no stream of a node is an error of the relay.
	none, of := len(items) == 0 && len(filter) > len(all) && (err == nil || s.Node != nil), 0
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
	clients, err := adminclient.DecodeItems[inspect.ClientStatus](s.Relay, items)
	if err != nil {
		return err
	}
	state, err := s.Relay.State(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	t := newTable(clients, s.Type, s.Wide())
	switch {
	case !none || of == 0:
		t.print(table, rest, s.Layout, now)
	case s.NoHeaders:
	case s.Type == "" && s.UserAgent == "":
		fmt.Fprintf(rest, "none of %s is %s\n", spelling.Counted(of, "stream"), strings.Join(s.States, " or "))
	default:
		fmt.Fprintf(rest, "none of %s is selected\n", spelling.Counted(of, "stream"))
	}
	if text := ReloadingText(state.Configuration.Reloading); text != "" && !s.NoHeaders {
		fmt.Fprintln(rest, text)
	}
	printProblems(to, state.Problems, now)
	return nil
}

// query returns the path of the clients, the query for all that have the key and the node, and the
// query with all filters.
func (s *Report) query() (path string, all, filter url.Values) {
	path, all = "/clients", url.Values{}
	if s.Node != nil {
		path += "/" + url.PathEscape(*s.Node)
	}
	if s.Key != nil {
		all.Set("key", *s.Key)
	}
	filter = maps.Clone(all)
	if len(s.States) > 0 {
		filter.Set("state", strings.Join(s.States, ","))
	}
	if s.Type != "" {
		filter.Set("type", string(s.Type))
	}
	if s.UserAgent != "" {
		filter.Set("user_agent", s.UserAgent)
	}
	return path, all, filter
}

// count returns how many clients a query selects. An unknown node is an error.
func (s *Report) count(ctx context.Context, path string, query url.Values) (int, error) {
	query.Set("sort", "worst") // the relay counts only for this order
	query.Set("limit", "1")
	var page struct{ Total int }
	err := s.Relay.Get(ctx, path, query, &page)
	return page.Total, err
}
