package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/xds"
)

const cds = xds.ClusterType

// bounded makes a History that keeps this many bytes of NACKs. It counts the removed ones in
// dropped.
func bounded(max int64) (h *History, dropped *int) {
	dropped = new(int)
	h = New(func(int) {}, func(n int) { *dropped += n })
	h.nacks.rows.max = max
	return h, dropped
}

// none keeps no resources.
func none() *Rejected { return nil }

func nacksOf(max int64) *Nacks {
	h, _ := bounded(max)
	return h.NewNacks(xds.NewKey("web"))
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// The NACKs of all keys are bounded in bytes. The one that was seen longest ago is removed first.
// Removed ones are counted.
func TestP17_NacksOfAllKeysAreBounded(t *testing.T) {
	const room = 100 << 10
	h, dropped := bounded(room)
	now := time.Now()
	var keys []*Nacks
	for i := range 50 {
		keys = append(keys, h.NewNacks(xds.NewKey(fmt.Sprint("key", i))))
	}
	again := h.NewNacks(xds.NewKey("again"))
	n := 0
	for round := range 10 {
		for _, k := range keys {
			for i := range 3 {
				k.Note(cds, subscriber.Nack{Version: fmt.Sprint(round, i), Node: "n", Message: strings.Repeat("m", 1000)}, now, none)
				n++
			}
			again.Note(cds, subscriber.Nack{Version: "1", Node: fmt.Sprint("n", round), Message: "no"}, now, none)
		}
	}
	kept, bytes := 0, int64(0)
	for i, k := range keys {
		total, rows := k.All()
		equal(t, "total", total, 30)
		if kept += len(rows); len(rows) > 0 && i < 15 {
			t.Errorf("key %d keeps %d rows, though newer ones were removed", i, len(rows))
		}
		for _, s := range k.rows {
			bytes += s.size()
		}
	}
	_, rows := again.All()
	equal(t, "what comes again stays", rows[0].Count, 500)
	bytes += again.rows[0].size()
	equal(t, "counted", h.nacks.rows.bytes, bytes)
	equal(t, "gone", *dropped, n-kept)
	if bytes > room || kept < 50 {
		t.Errorf("%d bytes in %d rows", bytes, kept)
	}
	// In order over all keys, the newest first, starting at a place.
	var places []uint64
	for n := range h.Nacks(0) {
		places = append(places, n.Place)
	}
	var rest []uint64
	for n := range h.Nacks(places[9]) {
		rest = append(rest, n.Place)
	}
	if len(places) != kept+1 || !slices.IsSortedFunc(places, func(a, b uint64) int { return cmp.Compare(b, a) }) || !slices.Equal(rest, places[10:]) {
		t.Errorf("%d rows of %d, %v", len(places), kept+1, places)
	}
	for _, k := range append(keys, again) {
		k.Close()
		k.Note(cds, subscriber.Nack{Version: "late", Node: "n"}, now, none)
	}
	equal(t, "over", h.nacks.rows.bytes, 0)
	equal(t, "rows", h.nacks.rows.order.Len(), 0)
}

func TestP17_NacksAreBounded(t *testing.T) {
	k := nacksOf(allNackBytes)
	now := time.Now()
	k.Note(cds, subscriber.Nack{Version: "again", Node: "n"}, now, none)
	for i := range 2 * maxNacks {
		k.Note(cds, subscriber.Nack{Version: fmt.Sprint(i), Node: strings.Repeat("n", 10000), Message: strings.Repeat("ä", 10000)}, now, none)
		k.Note(cds, subscriber.Nack{Version: "again", Node: "n"}, now, none) // stays, since it is repeated
	}
	total, kept := k.All()
	equal(t, "total", total, 4*maxNacks+1)
	equal(t, "kept", len(kept), maxNacks)
	equal(t, "the one that comes again", kept[0].Count, 2*maxNacks+1)
	for _, n := range kept {
		if len(n.Message) > maxNackMessage+2 || len(n.Clients[0].Node) > maxNackName || !utf8.ValidString(n.Message) {
			t.Fatalf("kept %d bytes of message, %d of node", len(n.Message), len(n.Clients[0].Node))
		}
	}
}

// The clients of a NACK are bounded in names and in number, and the NACK shows that there were
// more.
func TestP17_ClientsOfANackAreBounded(t *testing.T) {
	k := nacksOf(allNackBytes)
	now := time.Now()
	say := func(i int) {
		k.Note(cds, subscriber.Nack{Version: "1", Node: fmt.Sprint("n", i), Message: "no"}, now, none)
	}
	row := func() Nack {
		_, all := k.All()
		return all[0]
	}
	for i := range maxNackCounted {
		say(i)
		say(i)
	}
	equal(t, "told apart", fmt.Sprint(row().ClientsTotal, row().ClientsAtLeast), fmt.Sprint(maxNackCounted, false))
	for i := range 3 * maxNackCounted {
		say(i)
	}
	at := row()
	equal(t, "bounded", fmt.Sprint(at.ClientsTotal, at.ClientsAtLeast, len(at.Clients)), fmt.Sprint(maxNackCounted, true, maxNackClients))
	equal(t, "the newest first", at.Clients[0].Node, fmt.Sprint("n", 3*maxNackCounted-1))
}
