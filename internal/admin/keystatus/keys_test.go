package keystatus

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// NACKs are counted and kept per key, type and version, with client and message.
func TestP17_NacksAreCountedAndKept(t *testing.T) {
	bubble(t, func(w *fixture) {
		a, b := w.join("web", cds), w.join("web", eds)
		a.Nacked(subscriber.Nack{Version: "1", Code: 3, Message: "bad cluster", Node: "a"}, nil)
		time.Sleep(time.Second)
		a.Nacked(subscriber.Nack{Version: "1", Code: 3, Message: "bad cluster", Node: "a"}, nil)
		a.Nacked(subscriber.Nack{Version: "1", Code: 3, Message: "bad cluster", Node: "a2"}, nil)
		a.Nacked(subscriber.Nack{Version: "1", Code: 3, Message: "another fault", Node: "a"}, nil)
		a.Nacked(subscriber.Nack{Version: "2", Code: 3, Message: "bad cluster", Node: "a"}, nil)
		b.Nacked(subscriber.Nack{Version: "1", Code: 13, Message: "bad cluster", Node: "b"}, nil)
		st, _ := w.Key(xds.NewKey("web"))
		equal(t, "total", st.NacksTotal, 6)
		equal(t, "kept", len(st.Nacks), 4)
		newest, oldest := st.Nacks[0], st.Nacks[3]
		equal(t, "newest", newest.Type+" "+newest.Clients[0].Node+" "+newest.Message, string(eds)+" b bad cluster")
		equal(t, "oldest", strings.TrimSpace(fmt.Sprintln(oldest.Version, oldest.Count, oldest.Code, oldest.Message, oldest.Last.Sub(oldest.First))), "1 3 3 bad cluster 1s")
		equal(t, "its clients", fmt.Sprint(oldest.ClientsTotal, oldest.ClientsAtLeast, oldest.Clients[0].Node, oldest.Clients[1].Node, oldest.Clients[1].Count), "2 falsea2a2")
		// Other keys have their own.
		w.join("db", cds)
		st, _ = w.Key(xds.NewKey("db"))
		equal(t, "the other key", st.NacksTotal, 0)
	})
}

func TestKeys(t *testing.T) {
	bubble(t, func(w *fixture) {
		a := w.join("web/1", cds, "*")
		b := w.join("web/1", eds)
		b.Request(b.Intern(subscription("x", "y")))
		synctest.Wait()
		b.Request(b.Intern(subscription("x"))) // y has no answer, so it does not linger
		w.join("db", eds)
		f := w.feed(`"web/1"`)
		f.sink.Status(upstream.Status{Connected: true, Origin: "origin"})
		f.give("v1", "c=1")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		all := w.Keys()
		equal(t, "keys", fmt.Sprint(len(all), all[0].Key, all[1].Key), `2"web/1"db`)
		st := all[0]
		equal(t, "elements", strings.Join(st.Elements, ","), "web/1")
		equal(t, "members", st.Members, 2)
		equal(t, "generation", st.Generation, 1)
		equal(t, "upstream", st.Upstream, Upstream{Connected: true, Origin: "origin"})
		c := st.Types[0]
		equal(t, "CDS", strings.TrimSpace(fmt.Sprintln(c.Short, c.Members, c.Wildcard, c.Names, c.Resources, c.Version, c.Origin, c.Generation, c.Age)),
			"CDS 1 true 0 1 v1 origin 1 3")
		e := st.Types[1]
		equal(t, "EDS", strings.TrimSpace(fmt.Sprintln(e.Short, e.Members, e.Wildcard, e.Names, e.Received == nil)), "EDS 1 false 1 true")
		if _, err := json.Marshal(all); err != nil {
			t.Error(err)
		}
		a.Leave()
		synctest.Wait()
		st, _ = w.Key(xds.NewKey("web/1"))
		equal(t, "members", st.Members, 1)
		if _, ok := w.Key(xds.NewKey("web", "1")); ok {
			t.Error("another key's status")
		}
	})
}
