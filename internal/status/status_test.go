package status

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/admin/overview"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/terminal"
	"xdsrelay/internal/xds"
)

// Equal messages of many clients become one line, the most frequent first.
func TestRepeatedNacksAreOneLine(t *testing.T) {
	var clients []inspect.ClientStatus
	nacks := func(node, version, message string) {
		clients = append(clients, inspect.ClientStatus{Node: node, Types: []inspect.TypeStatus{{
			Type: string(xds.RouteType), Key: "k", State: inspect.StateNacked, Nack: &subscriber.Nack{Version: version, Message: message},
		}}})
	}
	nacks("a", "7", "only\nhere")
	for i := range 191 {
		nacks(fmt.Sprintf("b-%03d", i), "7", "no such cluster")
		nacks(fmt.Sprintf("d-%03d", i), fmt.Sprint(i%40), "no such listener")
	}
	for i := range maxNacksShown {
		nacks(fmt.Sprint("c-", i), "7", fmt.Sprint("other ", i))
	}
	var out bytes.Buffer
	newTable(clients, "", false).printNacks(&out)
	lines := strings.Split(out.String(), "\n")
	if len(lines) != maxNacksShown+2 || lines[0] != "! b-000 rejects RDS version 7: no such cluster (190 more like this)" ||
		lines[1] != "! d-000 rejects RDS version 0: no such listener (190 more like this, in 40 versions)" ||
		lines[2] != "! a rejects RDS version 7: only here" || lines[maxNacksShown] != "  and 3 other messages; relay nacks lists them all" {
		t.Errorf("%q", lines)
	}
}

// The clients in the worst state come first. With --type the table has only this type.
func TestStatusTable(t *testing.T) {
	now := time.Now()
	of := func(node, cds, eds string) inspect.ClientStatus {
		return inspect.ClientStatus{Node: node, Variant: "sotw", Types: []inspect.TypeStatus{
			{Type: string(xds.ClusterType), Key: "k", State: cds, Since: now}, {Type: string(xds.EndpointType), Key: "k", State: eds, Since: now}}}
	}
	clients := []inspect.ClientStatus{
		of("a", inspect.StateSynced, inspect.StateSynced), of("b", inspect.StateSynced, inspect.StateNacked),
		of("c", inspect.StateNotSent, inspect.StateSynced), of("d", inspect.StateStale, inspect.StateSynced), {Node: "e", Variant: "sotw"},
	}
	for only, want := range map[xds.TypeURL]string{
		"":               "b d e c a", // those that are NOT SENT by key, then by node
		xds.EndpointType: "b e a c d",
	} {
		table := newTable(clients, only, false)
		var out bytes.Buffer
		terminal.PrintTable(&out, terminal.Layout{NoHeaders: true}, table.columns(now), table.rows)
		var got []string
		for line := range strings.Lines(out.String()) {
			got = append(got, strings.Fields(line)[0])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %s", only, got, want)
		}
	}
	if got := newTable(clients, xds.EndpointType, false).states; fmt.Sprint(got) != "map[NACKED:1 SYNCED:3]" {
		t.Errorf("%v", got)
	}
}

func TestSummaryOfKeys(t *testing.T) {
	typ := func(url xds.TypeURL, states map[string]int) keystatus.TypeSummary {
		return keystatus.TypeSummary{Type: string(url), States: states}
	}
	var sum Summary
	sum.count([]keystatus.Key{
		{Key: "a", Clients: 2, Types: []keystatus.TypeSummary{typ(xds.EndpointType, map[string]int{"SYNCED": 1, "STALE": 1}), typ(xds.ClusterType, map[string]int{"SYNCED": 2})}},
		{Key: "b", Clients: 1, Types: []keystatus.TypeSummary{typ(xds.ClusterType, map[string]int{"SYNCED": 1})}},
		{Key: "c", Clients: 1, Types: []keystatus.TypeSummary{typ(xds.ClusterType, map[string]int{"NACKED": 1})}},
	})
	got := fmt.Sprint(sum.Types, sum.Keys)
	for _, typ := range []xds.TypeURL{xds.ClusterType, xds.EndpointType} {
		got = strings.ReplaceAll(got, string(typ), terminal.ShortType(string(typ)))
	}
	if got != "[{CDS  4 map[NACKED:1 SYNCED:3]} {EDS  2 map[STALE:1 SYNCED:1]}] [{ c 1 map[NACKED:1]} { a 2 map[STALE:1 SYNCED:3]} { b 1 map[SYNCED:1]}]" {
		t.Error(got)
	}
}

// rowsOf puts different types of a node into one row, or each stream into one.
func TestStatusRows(t *testing.T) {
	typ := func(url xds.TypeURL) inspect.TypeStatus {
		return inspect.TypeStatus{Type: string(url), Key: "k", State: inspect.StateSynced}
	}
	clients := []inspect.ClientStatus{
		{Stream: 1, Node: "b", Types: []inspect.TypeStatus{typ(xds.ClusterType)}},
		{Stream: 2, Node: "b", Types: []inspect.TypeStatus{typ(xds.EndpointType)}},
		{Stream: 3, Node: "b", Types: []inspect.TypeStatus{typ(xds.EndpointType)}},
		{Stream: 4, Node: "a", Types: []inspect.TypeStatus{typ(xds.ClusterType), typ(xds.EndpointType)}},
	}
	for wide, want := range map[bool]string{false: "[a2 b2 b1]", true: "[a2 b1 b1 b1]"} {
		var got []string
		for _, r := range rowsOf(clients, "", wide) {
			got = append(got, fmt.Sprint(r.client.Node, len(r.types)))
		}
		if fmt.Sprint(got) != want {
			t.Errorf("wide %v: %v, want %s", wide, got, want)
		}
	}
}

func TestWideStatus(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	types := []inspect.TypeStatus{{Type: string(xds.ClusterType), Key: "k", State: inspect.StateSynced, Acked: "7"}}
	var out bytes.Buffer
	table := newTable([]inspect.ClientStatus{
		{Stream: 12, Node: "a", Variant: "delta", UserAgent: "envoy", UserAgentVersion: "1.40.0", Peer: "10.0.0.1:5", Since: now.Add(-90 * time.Second), Types: types},
		{Stream: 13, Node: "b", Variant: "sotw", UserAgent: "gRPC\nGo", Peer: "10.0.0.2:5", Since: now, Types: types},
		{Stream: 14, Peer: "10.0.0.3:5", Variant: "sotw", Since: now},
	}, "", true)
	terminal.PrintTable(&out, terminal.Layout{Format: terminal.FormatWide}, table.columns(now), table.rows)
	want := `NODE  KEY  VARIANT  CDS       USER AGENT    STREAM  PEER        CONNECTED
-     -    sotw     -         -             14      10.0.0.3:5  0s
a     k    delta    SYNCED 7  envoy 1.40.0  12      10.0.0.1:5  1m30s
b     k    sotw     SYNCED 7  gRPC\nGo      13      10.0.0.2:5  0s
`
	if got := out.String(); !strings.HasPrefix(got, want) {
		t.Errorf("%s", got)
	}
}

func TestProblemLine(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	then := now.Add(-2 * time.Minute)
	for _, c := range []struct {
		p    overview.Problem
		want string
	}{
		{overview.Problem{Text: "the relay is draining"}, "the relay is draining"},
		{overview.Problem{Text: "origin one is away: refused\x1b[31m", Since: then}, "origin one is away: refused\\x1b[31m (for 2m00s)"},
		{overview.Problem{Text: "the relay refused a stream", Last: then}, "the relay refused a stream (last 2m00s ago)"},
	} {
		if got := problemLine(&c.p, now); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// Problems with the same impact and next step share one line with both.
func TestProblemsAreGrouped(t *testing.T) {
	of := func(text, impact string) overview.Problem {
		return overview.Problem{Severity: overview.Error, Text: text, Impact: impact, Next: "Look."}
	}
	problems := []overview.Problem{of("origin 0 is silent", "No changes."), of("the store is off", "Nothing is stored.")}
	for i := range 190 {
		problems = append(problems, of(fmt.Sprintf("origin %d is silent", i+1), "No changes."))
	}
	warning := of("origin 200 is silent", "No changes.")
	warning.Severity = overview.Warning
	var out bytes.Buffer
	printProblems(&out, append(problems, warning), time.Now())
	if want := "! origin 0 is silent\n! origin 1 is silent\n! origin 2 is silent\n  and 188 more like this\n  No changes. Look.\n" +
		"! the store is off\n  Nothing is stored. Look.\n! origin 200 is silent\n  No changes. Look.\n"; out.String() != want {
		t.Errorf("%s", &out)
	}
}
