package keystatus

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/upstream/timing"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
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
		equal(t, "EDS", strings.TrimSpace(fmt.Sprintln(e.Short, e.Members, e.Wildcard, e.Names, e.Received.IsZero())), "EDS 1 false 1 true")
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

// The owner of a key owns it whatever its source is. Another relay follows, unless it has chosen an
// origin.
func TestRoles(t *testing.T) {
	bubble(t, func(w *fixture) {
		for key, st := range map[string]upstream.Status{
			"my-a": {Origin: "origin", Connected: true}, "my-b": {Origin: "two", Relayed: true, Connected: true},
			"a": {Origin: "two", Relayed: true, Connected: true}, "b": {Origin: "two", Relayed: true}, "c": {},
			"d": {Origin: "origin"},
		} {
			w.join(key, cds, "*")
			synctest.Wait()
			w.feed(key).sink.Status(st)
		}
		synctest.Wait()
		if got := w.Roles(); len(got) > 0 {
			t.Errorf("without a cluster: %v", got)
		}
		w.owner = func(key xds.Key) (string, bool) {
			if strings.HasPrefix(key.String(), "my-") {
				return "me", true
			}
			return "other", false
		}
		if got := w.Roles(); !maps.Equal(got, map[telemetry.KeyRole]int{telemetry.KeyOwner: 2, telemetry.KeyFollower: 3, telemetry.KeyDirect: 1}) {
			t.Errorf("%v", got)
		}
		for key, want := range map[string]string{"my-b": "owner me two", "a": "follower other two", "d": "direct other origin"} {
			k, _ := w.Key(xds.NewKey(key))
			if got := k.Role + " " + k.Owner + " " + k.Upstream.Origin; got != want {
				t.Errorf("%s: %s, want %s", key, got, want)
			}
		}
		if got := w.Owner(xds.NewKey("not-used")); got != "other" {
			t.Error(got)
		}
		w.owner = func(xds.Key) (string, bool) { return "", false }
		if got := w.Roles(); got[telemetry.KeyDirect] != 6 {
			t.Errorf("no member owns keys: %v", got)
		}
	})
}

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

// What a client refused and what it has are compared by generation, also after both were replaced;
// a resource that is gone is marked.
func TestDifferences(t *testing.T) {
	bubble(t, func(w *fixture) {
		web := xds.NewKey("web")
		c := w.join("web", cds, "*")
		f := w.feed("web")
		f.give("v1", "a=1", "b=1")
		one := c.Newest()
		f.give("v2", "a=2", "c=1")
		two := c.Newest()
		f.give("v3", "a=3", "b=3")
		u := inspect.Unacknowledged{Key: web, Type: xds.TypeOf(cds), Offer: snapshot.Offer{Sub: subscription("*"), Lineage: one.Lineage, Has: one.Gen, Of: two.Gen}}
		text := func(u inspect.Unacknowledged, most int) string {
			all, more, known := w.Differences(&u, most)
			var out []string
			for _, d := range all {
				side := func(r *xds.Resource, gone bool) string {
					switch {
					case gone:
						return "?"
					case r == nil:
						return "-"
					}
					return xdstest.ContentOf(r.Any())
				}
				out = append(out, d.Name+":"+side(d.Has, d.HasGone)+">"+side(d.Offered, d.OfferedGone))
			}
			return fmt.Sprint(strings.Join(out, " "), " +", more, " ", known)
		}
		equal(t, "what differs", text(u, 10), "a:1>2 c:->1 +0 true")
		equal(t, "the first", text(u, 1), "a:1>2 +1 true")
		named := u
		named.Names = []string{"a", "b"}
		equal(t, "b was not another then", text(named, 10), "a:1>2 +0 true")
		named.Names = []string{"c"}
		equal(t, "of one name", text(named, 10), "c:->1 +0 true")
		none := u
		none.Has = 0
		equal(t, "of a client that has nothing", text(none, 10), "a:->2 b:->1 c:->1 +0 true")

		for i := range 300 {
			f.give(fmt.Sprint("w", i), fmt.Sprint("z=", i))
		}
		equal(t, "long ago", text(u, 10), " +0 false")
		named.Names = []string{"a"}
		equal(t, "by name", text(named, 10), "a:?>? +0 true")
		other := u
		other.Lineage++
		equal(t, "of another view", text(other, 10), " +0 false")
		other.Key = xds.NewKey("nobody")
		equal(t, "of no key", text(other, 10), " +0 false")
		held, ok := w.Snapshots(web)
		equal(t, "resources", fmt.Sprint(len(held), held[0].Len(), ok), "1 4 true")
		if _, ok := w.Snapshots(xds.NewKey("nobody")); ok {
			t.Error("an unknown key has resources")
		}
	})
}

// While clients wait for more than 30 s, the names without an answer are shown, at most five. They
// are not shown if another problem explains them.
func TestP57_PendingNamesOfAKey(t *testing.T) {
	bubble(t, func(w *fixture) {
		w.join("web", eds, "a", "b", "c", "d", "e", "f")
		w.join("web", cds, "*")
		f := w.feed("web")
		key := xds.NewKey("web")
		pending := func(want string) {
			t.Helper()
			k, _ := w.Key(key)
			got := ""
			for _, typ := range k.Types {
				if typ.Unanswered != nil {
					got += fmt.Sprint(typ.Unanswered, ". ")
				}
			}
			equal(t, "pending", got, want)
		}
		f.sink.Status(upstream.Status{Connected: true, Origin: "origin"})
		f.sink.Status(upstream.Status{Connected: true, Origin: "origin", Responded: true})
		w.later(time.Second)
		pending("")
		since := time.Now()
		w.waiting[inspect.KeyType{Key: key, Type: eds}] = inspect.Waiting{Clients: 2, Since: since}
		w.waiting[inspect.KeyType{Key: key, Type: cds}] = inspect.Waiting{Clients: 1, Since: since}
		pending("the origin has not answered EDS a, b, c, d, e and more; 2 clients wait. the origin has not answered CDS (wildcard); 1 client waits. ")
		f.give("1", "c=1")
		f.names(eds, "b", "d")
		pending("the origin has not answered EDS a, c, e, f; 2 clients wait. ")

		f.suspended = []upstream.Suspended{{Type: eds, Names: []string{"c"}, Count: 1, Since: since, Err: errors.New("no c")}}
		pending("the origin has not answered EDS a, e, f; 2 clients wait. ")
		f.suspended[0].Count = 2
		pending("")
		f.suspended = nil
		for _, other := range []upstream.Status{{Connected: true, SilentSince: since}, {Err: errors.New("refused"), Failed: true}} {
			f.sink.Status(other)
			pending("")
		}
		f.sink.Status(upstream.Status{Connected: true, Origin: "origin"})
		f.names(eds, "a", "c", "e", "f")
		pending("")
	})
}

// What the origin ends each stream with, and streams that end often, are shown with the origin's words,
// without secrets.
func TestP68_SuspendedSubscriptionsOfAKey(t *testing.T) {
	bubble(t, func(w *fixture) {
		w.join("web", eds, "a")
		f := w.feed("web")
		since := time.Now()
		f.suspended = []upstream.Suspended{
			{Type: eds, Names: []string{"a", "b"}, Count: 9, Since: since, Err: errors.New("no a, Bearer abcdefghijkl")},
			{Type: "acme.Thing", Since: since, Err: errors.New("unknown type")},
		}
		f.ends = &timing.Ends{Origin: "one", Count: 7, Since: since, Err: errors.New("EOF")}
		k := w.Keys()[0]
		equal(t, "suspended", len(k.Suspended), 2)
		equal(t, "names", k.Suspended[0].String(), "the origin ends each stream with EDS a, b and more: no a, Bearer [redacted]")
		equal(t, "type", k.Suspended[1].String(), "the origin ends each stream with acme.Thing (wildcard): unknown type")
		equal(t, "ends", len(k.FrequentEnds), 1)
		equal(t, "ends", k.FrequentEnds[0].String(), "origin one ended the stream 7 times in a row: EOF")
	})
}
