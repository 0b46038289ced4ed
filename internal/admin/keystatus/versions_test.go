package keystatus

import (
	"fmt"
	"iter"
	"testing"
	"time"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/xds"
)

// states returns these, as fanout.Server does for its streams.
func states(all ...inspect.TypeState) func(func(xds.Key, xds.TypeURL) bool) iter.Seq[inspect.TypeState] {
	return func(wanted func(xds.Key, xds.TypeURL) bool) iter.Seq[inspect.TypeState] {
		return func(yield func(inspect.TypeState) bool) {
			for _, s := range all {
				if wanted(s.Key, s.Type) && !yield(s) {
					return
				}
			}
		}
	}
}

func every(xds.Key, xds.TypeURL) bool { return true }

func TestVersionsOfAKey(t *testing.T) {
	bubble(t, func(w *fixture) {
		web := xds.NewKey("web")
		c := w.join("web", cds, "*")
		f := w.feed(`web`)
		f.give("v1", "a=1", "b=1")
		w.later(time.Second)
		f.give("v2", "a=2")
		held := c.Newest()
		at := func(node string, stream, has uint64, refused bool) inspect.TypeState {
			s := inspect.TypeState{Key: web, Type: cds, Stream: stream, Node: node, State: inspect.StateStale,
				Since: time.Unix(int64(stream), 0), Lineage: held.Lineage, Has: has}
			if refused {
				s.Nack, s.Final = &subscriber.Nack{Gen: has + 1}, true
			}
			return s
		}
		has1, has2, none, no := at("has1", 4, held.Gen-1, false), at("has2", 3, held.Gen, false), at("none", 2, 0, false), at("no", 1, held.Gen-1, true)
		all := states(has1, has2, none, no)

		st, _ := w.Key(web)
		one := []Key{st}
		Count(one, all(every))
		vs := one[0].Types[0].Versions
		if len(vs) != 2 || vs[0].Version != "v2" || vs[1].Version != "v1" || vs[0].Changed != 1 || vs[1].Changed != 2 || !vs[0].Received.After(vs[1].Received) {
			t.Fatalf("%+v", vs)
		}
		for i, want := range []string{"1 in step, 1 nacking, 2 pending of 4, none is the laggard", "3 in step, 0 nacking, 1 pending of 4, none is the laggard"} {
			v := vs[i]
			if got := fmt.Sprintf("%d in step, %d nacking, %d pending of %d, %s is the laggard", v.InStep, v.Nacking, v.Pending, v.Clients, v.Laggard.Node); got != want {
				t.Errorf("%s: %s, want %s", v.Version, got, want)
			}
		}
		older := generationsOf(w.registry.Group(web).Versions(cds), 1)
		equal(t, "generations of v1", older, generations{held.Lineage, held.Gen - 1, held.Gen - 1, held.Gen - 1})
		no1 := at("no1", 1, held.Gen-2, true)
		equal(t, "a refusal of v1, for v1", versionStateOf(&no1, older), nacking)
		equal(t, "for v2", versionStateOf(&no1, vs[0].in), pending)
		no1.Final = false
		equal(t, "while a response to come may end it", versionStateOf(&no1, older), pending)
		equal(t, "states", one[0].Types[0].States[inspect.StateStale], 4)
		equal(t, "clients", one[0].Clients, 4)
		also := no
		also.Type = eds
		one[0].Clients = 0
		Count(one, states(no, also)(every))
		equal(t, "clients, of two types", one[0].Clients, 1)
	})
}
