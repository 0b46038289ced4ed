package audience

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// holding returns a snapshot with resources that names brought, or the wildcard.
func holding(t testing.TB, wildcard bool, held ...string) *snapshot.Snapshot {
	t.Helper()
	b := snapshot.NewBuilder(xds.TypeOf(xds.ClusterType))
	u := snapshot.Update{Type: xds.ClusterType, Wildcard: wildcard}
	for _, n := range held {
		r, err := xds.NewResource(xds.TypeOf(xds.ClusterType), n, xdstest.NamedAny(string(xds.ClusterType), n, "1"))
		if err != nil {
			t.Fatal(err)
		}
		u.Changed = append(u.Changed, r)
	}
	b.Apply(u)
	s, _ := b.Snapshot(nil, 1)
	return s
}

// union returns what a type subscribes to, such as "* a b".
func union[M comparable](t *TypeAudience[M]) string {
	names, wildcard := t.Union()
	all := slices.Collect(names.All())
	if wildcard {
		all = append([]string{"*"}, all...)
	}
	return strings.Join(all, " ")
}

// A script is a list of events, each with the union then. "1:a,b" is what subscriber 1 wants, a
// number the seconds that pass, "closed" and "open" what the stream is from then on. Names linger
// for 10 s. The origin has answered a, b and the wildcard, with a resource w.
func TestAudienceScripts(t *testing.T) {
	long := strings.Repeat("x", xds.NameUnit+1) // counts twice
	named, wild := holding(t, false, "a", "b", long), holding(t, true, "w")
	for _, c := range []struct {
		name         string
		held         *snapshot.Snapshot
		limit        int
		script, want string
	}{
		{"the union", named, 0, "1:a 2:b,* 1:a,c", "a | * a b | * a b c"},
		{"an answered name lingers", named, 0, "1:a,b 1:b 9 1", "a b | a b | a b | b"},
		{"an unanswered name does not", named, 0, "1:a,c 1:a", "a c | a"},
		{"wanted again", named, 0, "1:a 2:b 1: 9 1:a 5", "a | a b | a b | a b | a b | a b"},
		{"the clock stops while the stream is closed", named, 0, "1:a 2:b 1: 5 closed 60 open 4 1", "a | a b | a b | a b | a b | a b | a b | a b | b"},
		{"the clock stops while nobody is there", named, 0, "1:a - 60 2:b 9 1", "a | a | a | a b | a b | b"},
		{"the clock goes on with the next subscriber", named, 0, "1:a - 60 2:b 5 - 60 3:b 4 1", "a | a | a | a b | a b | a b | a b | a b | a b | b"},
		{"room for wanted names", named, 2, "1:a,b 1:b 2:c", "a b | a b | b c"},
		{"only as much room as is needed", named, 3, "1:a," + long + " 1:a 1 1: 2:b,c", strings.Repeat("a "+long+" | ", 4) + "a b c"},
		{"the wildcard makes no room", named, 1, "1:* 1:a", "* | * a"},
		{"a lingering wildcard makes no room", wild, 1, "1:* 1: 2:a,b", "* | * | * a b"},
		{"the wildcard serves a name", wild, 0, "1:* 1:w 10 10", "* | * w | * w | * w"},
		{"and none any more", wild, 0, "1:* 1:w 10 1: 2:x 10", "* | * w | * w | * | * x | x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var a Audience[string]
			now, open := time.Now(), true
			ty := a.Add(func() *snapshot.Snapshot { return c.held })
			subs := make(map[string]*snapshot.Subscription)
			var table Table
			var got []string
			for _, event := range strings.Fields(c.script) {
				var seconds int
				m, wants, of := strings.Cut(event, ":")
				switch {
				case of && subs[m] == nil:
					ty.Join()
					subs[m] = snapshot.Nothing
					fallthrough
				case of:
					sub := table.Intern(subscription(strings.FieldsFunc(wants, func(r rune) bool { return r == ',' })...))
					ty.Subscribe(m, subs[m], sub)
					subs[m] = sub
				case event == "-":
					for m, sub := range subs {
						ty.Leave(m, sub)
					}
					clear(subs)
					a.Freeze()
				case event == "open", event == "closed":
					open = event == "open"
				default:
					if _, err := fmt.Sscan(event, &seconds); err != nil {
						t.Fatal(err)
					}
				}
				now = now.Add(time.Duration(seconds) * time.Second)
				a.Merge(now)
				a.Expire(now, open, 10*time.Second, c.limit)
				if err := a.Check(); err != nil {
					t.Fatalf("%s: %v", event, err)
				}
				got = append(got, union(ty))
			}
			if got := strings.Join(got, " | "); got != c.want {
				t.Errorf("%s\n%s, want\n%s", c.script, got, c.want)
			}
		})
	}
}

// A type that makes room for another one takes its lingering names along.
func TestRemovedTypeLeavesNothingLingering(t *testing.T) {
	var a Audience[int]
	ty, sub := a.Add(func() *snapshot.Snapshot { return holding(t, false, "a") }), subscription("*", "a")
	other := a.Add(func() *snapshot.Snapshot { return nil })
	ty.Join()
	ty.Subscribe(1, snapshot.Nothing, sub)
	a.Merge(time.Now())
	ty.Leave(1, sub)
	a.Merge(time.Now())
	equal(t, "lingering", a.lingering.Len(), 2)
	a.Remove(ty)
	equal(t, "lingering then", a.lingering.Len(), 0)
	equal(t, "the other type is left", len(a.types) == 1 && a.types[0] == other, true)
}

// Whether a subscriber exceeds the limit changes nothing. What it wanted is withdrawn, and it stays
// a subscriber.
func TestExceedsChangesNothing(t *testing.T) {
	var a Audience[int]
	ty, other := a.Add(func() *snapshot.Snapshot { return nil }), a.Add(func() *snapshot.Snapshot { return nil })
	two, three := subscription("a", "b"), subscription("c", "d", "e")
	ty.Join()
	ty.Subscribe(1, snapshot.Nothing, two)
	a.Merge(time.Now())
	for _, c := range []struct {
		of    *TypeAudience[int]
		limit int
		was   *snapshot.Subscription
		want  bool
	}{
		{ty, 0, snapshot.Nothing, false}, {ty, 4, snapshot.Nothing, true}, {ty, 5, snapshot.Nothing, false},
		{ty, 3, two, false}, {ty, 2, two, true}, {other, 4, snapshot.Nothing, true}, {other, 5, snapshot.Nothing, false},
	} {
		equal(t, fmt.Sprint("exceeds ", c.limit), c.of.Exceeds(c.limit, c.was, three), c.want)
	}
	equal(t, "names touched", len(ty.touched)+len(other.touched), 0)
	equal(t, "union", union(ty), "a b")
	ty.SetNacking(1, true)
	ty.Withdraw(1, two)
	a.Merge(time.Now())
	equal(t, "union", union(ty), "")
	equal(t, "subscribers", ty.Subscribers()*10+len(ty.nacking), 10)
}

// do_not_cache resources that no subscriber wants are forgotten without lingering (P63).
func TestP63_DropForgetsUnwantedNames(t *testing.T) {
	var a Audience[int]
	ty := a.Add(func() *snapshot.Snapshot { return holding(t, false, "a", "b") })
	ty.Join()
	all := subscription("*", "a", "b")
	ty.Subscribe(1, snapshot.Nothing, all)
	a.Merge(time.Now())
	ty.Drop([]string{"a"})
	ty.DropWildcard()
	equal(t, "wanted", union(ty), "* a b")
	ty.Subscribe(1, all, subscription("b"))
	a.Merge(time.Now())
	ty.Drop([]string{"a", "b"}) // one resource, which a subscriber wants by another name
	equal(t, "wanted by another name", union(ty), "* a b")
	ty.Drop([]string{"a"})
	ty.DropWildcard()
	equal(t, "not wanted", union(ty), "b")
	equal(t, "lingering", a.lingering.Len(), 0)
}
