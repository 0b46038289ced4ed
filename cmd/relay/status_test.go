package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/admin/keystatus"
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
	newStatusTable(clients, "", false).printNacks(&out)
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
		table := newStatusTable(clients, only, false)
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
	if got := newStatusTable(clients, xds.EndpointType, false).states; fmt.Sprint(got) != "map[NACKED:1 SYNCED:3]" {
		t.Errorf("%v", got)
	}
}

func TestSummaryOfKeys(t *testing.T) {
	typ := func(url xds.TypeURL, states map[string]int) keystatus.TypeSummary {
		return keystatus.TypeSummary{Type: string(url), States: states}
	}
	var sum summary
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
