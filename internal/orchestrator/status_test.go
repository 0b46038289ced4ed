package orchestrator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"xdsrelay/internal/fanout"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// NACKs are counted and kept per key, type and version, with client and message.
func TestP17_NacksAreCountedAndKept(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a, b := w.join("web", cds), w.join("web", eds)
		a.Nacked(fanout.Nack{Version: "1", Code: 3, Message: "bad cluster", Node: "a"})
		time.Sleep(time.Second)
		a.Nacked(fanout.Nack{Version: "1", Code: 3, Message: "bad cluster", Node: "a"})
		a.Nacked(fanout.Nack{Version: "1", Code: 3, Message: "bad cluster", Node: "a2"})
		a.Nacked(fanout.Nack{Version: "1", Code: 3, Message: "another fault", Node: "a"})
		a.Nacked(fanout.Nack{Version: "2", Code: 3, Message: "bad cluster", Node: "a"})
		b.Nacked(fanout.Nack{Version: "1", Code: 13, Message: "bad cluster", Node: "b"})
		st, _ := w.reg.Key(xds.NewKey("web"))
		equal(t, "total", st.NacksTotal, 6)
		equal(t, "kept", len(st.Nacks), 4)
		newest, oldest := st.Nacks[0], st.Nacks[3]
		equal(t, "newest", newest.Type+" "+newest.Clients[0].Node+" "+newest.Message, string(eds)+" b bad cluster")
		equal(t, "oldest", strings.TrimSpace(fmt.Sprintln(oldest.Version, oldest.Count, oldest.Code, oldest.Message, oldest.Last.Sub(oldest.First))), "1 3 3 bad cluster 1s")
		equal(t, "its clients", fmt.Sprint(oldest.ClientsTotal, oldest.ClientsAtLeast, oldest.Clients[0].Node, oldest.Clients[1].Node, oldest.Clients[1].Count), "2 falsea2a2")
		// Other keys have their own.
		w.join("db", cds)
		st, _ = w.reg.Key(xds.NewKey("db"))
		equal(t, "the other key", st.NacksTotal, 0)
	})
}

// rowsOf is the place of all rows, with so much room, and counts what had no room.
func rowsOf(max int64) *roomy {
	r := &roomy{nackRows: nackRows{max: max}}
	r.nackRows.dropped = func(n int) { r.gone += n }
	return r
}

type roomy struct {
	nackRows
	gone int
}

func (r *roomy) key(name string) *nacks { return &nacks{key: xds.NewKey(name), in: &r.nackRows} }

// What all keys keep of refusals is bounded in bytes: the row of all that was seen
// longest ago goes first, and what goes is counted.
func TestP17_NacksOfAllKeysAreBounded(t *testing.T) {
	const room = 100 << 10
	all := rowsOf(room)
	now := time.Now()
	var keys []*nacks
	for i := range 50 {
		keys = append(keys, all.key(fmt.Sprint("key", i)))
	}
	again := all.key("again")
	n := 0
	for round := range 10 {
		for _, k := range keys {
			for i := range 3 {
				k.note(cds, fanout.Nack{Version: fmt.Sprint(round, i), Node: "n", Message: strings.Repeat("m", 1000)}, now)
				n++
			}
			again.note(cds, fanout.Nack{Version: "1", Node: fmt.Sprint("n", round), Message: "no"}, now)
		}
	}
	kept, bytes := 0, int64(0)
	for i, k := range keys {
		total, rows := k.all()
		equal(t, "total", total, 30)
		if kept += len(rows); len(rows) > 0 && i < 15 {
			t.Errorf("of key %d %d rows are kept, and newer ones went", i, len(rows))
		}
		for _, s := range k.kept {
			bytes += s.size()
		}
	}
	_, rows := again.all()
	equal(t, "what comes again stays", rows[0].Count, 500)
	bytes += again.kept[0].size()
	equal(t, "counted", all.bytes, bytes)
	equal(t, "gone", all.gone, n-kept)
	if bytes > room || kept < 50 {
		t.Errorf("%d bytes in %d rows", bytes, kept)
	}
	// In order over all keys, the newest first, and from a place on.
	reg := &Registry{}
	reg.past.nacks.order.PushBackList(&all.order)
	var places []uint64
	for n := range reg.Nacks(0) {
		places = append(places, n.Place)
	}
	var rest []uint64
	for n := range reg.Nacks(places[9]) {
		rest = append(rest, n.Place)
	}
	if len(places) != kept+1 || !slices.IsSortedFunc(places, func(a, b uint64) int { return cmp.Compare(b, a) }) || !slices.Equal(rest, places[10:]) {
		t.Errorf("%d rows of %d, %v", len(places), kept+1, places)
	}
	for _, k := range append(keys, again) {
		k.close()
		k.note(cds, fanout.Nack{Version: "late", Node: "n"}, now)
	}
	equal(t, "over", all.bytes, 0)
	equal(t, "rows", all.order.Len(), 0)
}

// The rows of a key go with it.
func TestP17_NacksGoWithTheirKey(t *testing.T) {
	bubble(t, func(o *Options) { o.IdleTTL = 0 }, func(w *registryFixture) {
		a, b := w.join("web", cds), w.join("db", cds)
		a.Nacked(fanout.Nack{Version: "1", Message: "no", Node: "a"})
		b.Nacked(fanout.Nack{Version: "1", Message: "no", Node: "b"})
		rows := func() (out []string) {
			for n := range w.reg.Nacks(0) {
				out = append(out, n.Key.String())
			}
			return out
		}
		equal(t, "rows", fmt.Sprint(rows()), "[db web]")
		a.leave()
		pass(time.Second)
		equal(t, "rows of keys in use", fmt.Sprint(rows()), "[db]")
	})
}

func TestP17_NacksAreBounded(t *testing.T) {
	k := rowsOf(allNackBytes).key("web")
	now := time.Now()
	k.note(cds, fanout.Nack{Version: "again", Node: "n"}, now)
	for i := range 2 * maxNacks {
		k.note(cds, fanout.Nack{Version: fmt.Sprint(i), Node: strings.Repeat("n", 10000), Message: strings.Repeat("ä", 10000)}, now)
		k.note(cds, fanout.Nack{Version: "again", Node: "n"}, now) // stays, since it comes again
	}
	total, kept := k.all()
	equal(t, "total", total, 4*maxNacks+1)
	equal(t, "kept", len(kept), maxNacks)
	equal(t, "the one that comes again", kept[0].Count, 2*maxNacks+1)
	for _, n := range kept {
		if len(n.Message) > maxNackMessage+2 || len(n.Clients[0].Node) > maxNackName || !utf8.ValidString(n.Message) {
			t.Fatalf("kept %d bytes of message, %d of node", len(n.Message), len(n.Clients[0].Node))
		}
	}
}

// Who refused is bounded by name and by number, and says so.
func TestP17_ClientsOfANackAreBounded(t *testing.T) {
	k := rowsOf(allNackBytes).key("web")
	now := time.Now()
	say := func(i int) {
		k.note(cds, fanout.Nack{Version: "1", Node: fmt.Sprint("n", i), Message: "no"}, now)
	}
	row := func() NackStatus {
		_, all := k.all()
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

func TestStatus(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a := w.join("web/1", cds).want("*")
		w.join("web/1", eds).want("x", "y").want("x")
		w.join("db", eds)
		f := w.feed(`"web/1"`)
		f.sink.Status(upstream.Status{Connected: true, Origin: "origin"})
		f.hand(t, xds.Update{Type: cds, Origin: "origin", Version: "v1", Wildcard: true, Received: time.Now(),
			Changed: []*xds.Resource{resource(t, cds, "c", "1")}})
		time.Sleep(3 * time.Second)
		synctest.Wait()
		all := w.reg.Keys()
		equal(t, "keys", fmt.Sprint(len(all), all[0].Key, all[1].Key), `2"web/1"db`)
		st := all[0]
		equal(t, "elements", strings.Join(st.Elements, ","), "web/1")
		equal(t, "members", st.Members, 2)
		equal(t, "generation", st.Generation, 1)
		equal(t, "upstream", st.Upstream, UpstreamStatus{Connected: true, Origin: "origin"})
		c := st.Types[0]
		equal(t, "CDS", strings.TrimSpace(fmt.Sprintln(c.Short, c.Members, c.Wildcard, c.Names, c.Resources, c.Version, c.Origin, c.Generation, c.Age)),
			"CDS 1 true 0 1 v1 origin 1 3")
		e := st.Types[1]
		equal(t, "EDS", strings.TrimSpace(fmt.Sprintln(e.Short, e.Members, e.Wildcard, e.Names, e.Received == nil)), "EDS 1 false 1 true")
		if _, err := json.Marshal(all); err != nil {
			t.Error(err)
		}
		a.leave()
		st, _ = w.reg.Key(xds.NewKey("web/1"))
		equal(t, "members", st.Members, 1)
		if _, ok := w.reg.Key(xds.NewKey("web", "1")); ok {
			t.Error("another key's status")
		}
	})
}

// That a subscription is one client's alone is known until another has it.
func TestSoleUntilShared(t *testing.T) {
	var in interned
	one := in.get(subscription("a"))
	equal(t, "the first one's is its own", one.Sole.Load(), true)
	if again := in.get(subscription("a")); again != one || one.Sole.Load() {
		t.Errorf("a second one has %v, alone: %v", again, one.Sole.Load())
	}
	equal(t, "another's is its own", in.get(subscription("b")).Sole.Load(), true)
	equal(t, "nothing", in.get(xds.Nothing).Sole.Load(), false)
}

// Clients that want the same share one subscription, for as long as one has it.
func TestInterning(t *testing.T) {
	var table interned
	a := table.get(subscription("x", "y"))
	if table.get(subscription("y", "x")) != a {
		t.Error("equal subscriptions are two")
	}
	for _, other := range []*xds.Subscription{subscription("x"), subscription("x", "y", "*"), subscription("*")} {
		if got := table.get(other); got == a || !got.Equal(other) {
			t.Errorf("interned as %v", got)
		}
	}
	equal(t, "nothing", table.get(subscription()), xds.Nothing)
	// A hash finds candidates; what is the same is decided by content.
	x := subscription("collides")
	table.subs.Keep(x.Names.Sum()<<1, subscription("x", "y"), func(*xds.Subscription) bool { return false })
	if got := table.get(x); !got.Equal(x) {
		t.Error("interned by its hash")
	}
	// A subscription of another table is not shared with this one.
	var second interned
	if second.get(a) == a {
		t.Error("two tables share a subscription")
	}
	for i := range 1000 {
		table.get(subscription(fmt.Sprint(i))) // and nobody keeps it
	}
	for table.subs.Len() > 2 { // a's, and the one that collided
		runtime.GC()
		runtime.Gosched()
	}
	equal(t, "the one in use", table.get(subscription("x", "y")), a)
	runtime.KeepAlive(a)
}
