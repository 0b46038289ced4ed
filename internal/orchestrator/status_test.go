package orchestrator

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
