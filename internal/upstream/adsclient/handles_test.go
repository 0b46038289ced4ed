package upstream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	"xdsrelay/internal/xds"
)

const (
	vhds = xds.VHostType
	glob = "xdstp://o/T/c/*"
)

// goes is a resource that goes by aliases; in SotW they stand in a wrapper.
func goes(name string, aliases ...string) res {
	return res{Name: name, Version: "v" + name, Aliases: aliases, Wrap: true}
}

// What goes by an alias that was asked for is no less asked for than what was
// asked for by its name; what goes by none is dropped (P65).
func TestP26_AnsweredByAlias(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newProtocolFixture(t, v)
		r.want(named(eds, "a", "m"))
		r.flush()
		_, n := r.respond(resp{Type: eds, Resources: []res{goes("n", "a", "b"), goes("m"), goes("o", "b")}})
		if n.unasked != 1 {
			t.Errorf("%d resources were not asked for", n.unasked)
		}
		r.holds(eds, "m", "n")
		r.is(eds, xds.Elsewhere, "a")
		r.flush()
		// What is held for the alias changes.
		r.respond(resp{Type: eds, Resources: []res{{Name: "n", Content: "new", Aliases: []string{"a"}, Wrap: true}}})
		r.is(eds, xds.Elsewhere, "a")
		r.is(eds, xds.Pending, "b")
		// It goes by another alias from now on: to who asked for this one it is gone.
		r.respond(resp{Type: eds, Resources: []res{goes("n", "b")}})
		r.holds(eds, "m")
		r.is(eds, xds.Absent, "a")
		// With the last one that wants the alias it is forgotten.
		r.respond(resp{Type: eds, Resources: []res{goes("n", "a")}})
		r.holds(eds, "m", "n")
		r.want(named(eds, "m"))
		r.holds(eds, "m")
	})
}

// An incremental origin removes it under its own name, or the alias under its.
func TestP26_RemovedByName(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	r.want(named(vhds, "r/a", "r/b", "r/v"))
	r.flush()
	r.respond(resp{Type: vhds, Resources: []res{goes("r/n", "r/a"), goes("r/v", "r/b")}})
	_, n := r.respond(resp{Type: vhds, Removed: []string{"r/n", "r/unasked"}})
	if n.unasked != 1 {
		t.Errorf("%d names were not asked for", n.unasked)
	}
	r.holds(vhds, "r/v")
	r.is(vhds, xds.Absent, "r/a")
	if r.sink.Held(vhds).Known("r/n") {
		t.Error("something is kept under a name that nobody asked for")
	}
	r.respond(resp{Type: vhds, Removed: []string{"r/b"}})
	r.holds(vhds, "r/v")
	r.is(vhds, xds.Absent, "r/b")
}

// A full-state SotW response removes by leaving out, also what came for an alias
// or a glob.
func TestP65_LeftOutByHandle(t *testing.T) {
	r := newProtocolFixture(t, xds.SotW)
	r.want(named(cds, "a", glob))
	r.flush()
	r.respond(resp{Type: cds, Version: "1", Resources: []res{goes("n", "a"), {Name: "xdstp://o/T/c/x"}, {Name: "xdstp://o/T/c/y"}}})
	r.holds(cds, "n", "xdstp://o/T/c/x", "xdstp://o/T/c/y")
	r.respond(resp{Type: cds, Version: "2", Resources: []res{{Name: "xdstp://o/T/c/y"}}})
	r.holds(cds, "xdstp://o/T/c/y")
	r.is(cds, xds.Absent, "a")
	r.respond(resp{Type: cds, Version: "3"})
	r.holds(cds)
	r.is(cds, xds.Absent, glob)
}

// On reconnect it is named by its own name, beside the alias that it is asked
// for by.
func TestP55_ReconnectByHandle(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	r.want(named(eds, "a", "b"))
	r.sent("EDS +[a b] node")
	r.respond(resp{Type: eds, Resources: []res{goes("n", "a"), {Name: "b", Version: "1"}}})
	r.flush()
	r.connect()
	r.sent("EDS +[a b] b=1 n=vn node")

	s := newProtocolFixture(t, xds.SotW)
	s.want(named(eds, "a", glob))
	s.sent("EDS [a " + glob + "] node")
	s.respond(resp{Type: eds, Version: "7", Resources: []res{goes("n", "a"), {Name: "xdstp://o/T/c/x"}}})
	s.flush()
	s.connect()
	s.sent("EDS [a " + glob + "] version 7 node")
	s.respond(resp{Type: eds, Version: "8", Resources: []res{goes("n", "b")}}) // a leads nowhere
	s.flush()
	s.connect()
	s.sent("EDS [a " + glob + "] node")
}

// What is held for a handle has its place in the first request with the handle,
// which is counted once for all that goes by it (P59).
func TestP59_VersionsByHandle(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	names := []string{glob}
	for i := range 20 {
		names = append(names, fmt.Sprint("plain-", i))
	}
	r.want(named(eds, names...))
	r.flush()
	var rs []res
	for i := range 20 {
		rs = append(rs, res{Name: fmt.Sprint("xdstp://o/T/c/", i), Version: "1"})
	}
	r.respond(resp{Type: eds, Resources: rs})
	r.flush()
	r.max = 700
	r.connect()
	req := r.next()
	first := show(t, xds.Delta, req.bytes())
	if len(req.bytes()) > r.max || req.leftOut > 2 || !strings.Contains(first, glob) || strings.Count(first, "=1") < 18 {
		t.Errorf("%d bytes, %d left out: %s", len(req.bytes()), req.leftOut, first)
	}
}

// Aliases are bounded, in number and in length.
func TestP26_AliasesAreBounded(t *testing.T) {
	aliases := make([]string, xds.MaxAliases+1)
	for i := range aliases {
		aliases[i] = fmt.Sprint("r/", i)
	}
	for _, c := range []struct {
		aliases []string
		want    error
	}{
		{aliases, xds.ErrAliases}, {aliases[1:], nil},
		{[]string{strings.Repeat("x", xds.MaxNameBytes+1)}, xds.ErrLongName}, {[]string{strings.Repeat("x", xds.MaxNameBytes)}, nil},
	} {
		eachVariant(t, func(t *testing.T, v xds.Variant) {
			if _, err := xds.ParseResponse(v, resp{Type: vhds, Resources: []res{goes("r/v", c.aliases...)}}.Encode(t, v, "1")); !errors.Is(err, c.want) {
				t.Errorf("fault %v, want %v", err, c.want)
			}
		})
	}
}

// An alias that the origin cannot resolve is no fault and no resource. It is an
// answer, until somebody asks again.
func TestP18_UnresolvedAlias(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	r.want(named(vhds, "r/a", "r/b", "r/c"))
	r.sent("VHDS +[r/a r/b r/c] node")
	word := res{Name: "r/cannot", Aliases: []string{"r/a", "r/b", "r/z"}, Version: "1", Heartbeat: true}
	v, n := r.respond(resp{Type: vhds, Resources: []res{word}})
	r.sent("VHDS nonce 1")
	if !v.take || n.bodyless != 1 || n.unasked != 0 {
		t.Errorf("%+v, %+v", v, n)
	}
	if u := r.last().Unresolved; len(u) != 1 || !slices.Equal(u[0].Names, []string{"r/a", "r/b"}) {
		t.Fatalf("%+v", u)
	}
	r.holds(vhds)
	r.is(vhds, xds.Unresolvable, "r/a", "r/b")
	r.is(vhds, xds.Pending, "r/c")

	// Of none that was asked for.
	_, n = r.respond(resp{Type: vhds, Resources: []res{{Name: "r/x", Aliases: []string{"r/x"}, Heartbeat: true}}})
	if len(r.last().Unresolved) != 0 || n.unasked != 1 {
		t.Errorf("%+v, %+v", r.last(), n)
	}
	r.flush()

	// Once more, and this time the origin is silent.
	again := named(vhds, "r/a", "r/b", "r/c")
	again.Again = r.sink.Builder(vhds).Again("r/a")
	r.sink.Publish(vhds)
	r.want(again)
	r.sent("VHDS -[r/a]", "VHDS +[r/a]")
	r.want(named(vhds, "r/a", "r/b", "r/c"))
	r.sent()
	r.is(vhds, xds.Unresolvable, "r/a")

	// It is there, and what it goes by is no longer unresolved.
	r.respond(resp{Type: vhds, Resources: []res{goes("r/v", "r/a", "r/b")}})
	r.is(vhds, xds.Elsewhere, "r/a", "r/b")
	// A resource that is held stays, whatever is said of its alias.
	r.respond(resp{Type: vhds, Resources: []res{word}})
	r.is(vhds, xds.Elsewhere, "r/a", "r/b")
	r.holds(vhds, "r/v")
}

// A Resource without a body is a heartbeat where it bears a TTL, or the version
// of what is held.
func TestP18_HeartbeatsHaveAliases(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	r.want(named(vhds, "r/a"))
	r.flush()
	r.respond(resp{Type: vhds, Resources: []res{{Name: "r/v", Aliases: []string{"r/a"}, Version: "1", TTL: time.Minute}}})
	_, n := r.respond(resp{Type: vhds, Resources: []res{{Name: "r/v", Aliases: []string{"r/a"}, Version: "1", TTL: time.Minute, Heartbeat: true}}})
	if n.renewed != 1 || len(r.last().Unresolved) != 0 {
		t.Errorf("%+v, %+v", n, r.last())
	}
	r.respond(resp{Type: vhds, Resources: []res{{Name: "r/v", Aliases: []string{"r/a"}, Version: "1", Heartbeat: true}}})
	if len(r.last().Unresolved) != 0 {
		t.Errorf("%+v", r.last())
	}
}

// A directory answers names, aliases, globs and the wildcard as any origin does: after any
// changes of the files and of what is asked, a group holds what goes by what it asks for,
// and knows of the rest that there is none. Nothing is told twice, and another origin may
// have been used before.
func TestP80_FilesModel(t *testing.T) {
	resources := []string{"n0", "n1", "n2", "xdstp://o/T/c/x", "xdstp://o/T/c/y", "xdstp://o/T/d/z"}
	aliases := []string{"a0", "a1", "n0"}
	keys := append(slices.Clone(resources), "a0", "a1", glob, "nowhere")
	make := func(name, content string, aliases ...string) *xds.Resource {
		body := new(anypb.Any)
		mustUnmarshal(t, widget(t, name, content).Any(), body)
		msg := resp{Type: odd, Resources: []res{{Name: name, Aliases: aliases, Any: body}}}.Encode(t, xds.Delta, "1")
		r, err := xds.ParseResponse(xds.Delta, msg)
		if err != nil {
			t.Fatal(err)
		}
		return r.Resources[0].Take(xds.TypeOf(odd), nil)
	}
	rapid.Check(t, func(rt *rapid.T) {
		some := rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 0, 6, rapid.ID[string])
		which := rapid.SliceOfNDistinct(rapid.SampledFrom(resources), 0, 5, rapid.ID[string])
		goes := rapid.SliceOfNDistinct(rapid.SampledFrom(aliases), 0, 2, rapid.ID[string])
		sink, c := newTestSink(), newCell()
		if before := some.Draw(rt, "held of another origin"); len(before) > 0 {
			c.set(sink.Want(named(odd, before...)))
			u := xds.Update{Type: odd, Origin: "other"}
			for _, n := range which.Draw(rt, "its names") {
				if r := make(n, "0", goes.Draw(rt, "its aliases")...); r.AskedBy(xds.NewNameSet(before...)) {
					u.Changed = append(u.Changed, r)
				}
			}
			_, _ = sink.Update(t.Context(), u)
		}
		now, state := nothing, &told{at: nothing}
		for range rapid.IntRange(1, 10).Draw(rt, "steps") {
			if rapid.Bool().Draw(rt, "files change") {
				now = &fileType{resources: map[string]*xds.Resource{}}
				for _, n := range which.Draw(rt, "files' names") {
					now.resources[n] = make(n, rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "content"), goes.Draw(rt, "aliases")...)
				}
				now.index()
			}
			var interest xds.TypeInterest
			for range rapid.IntRange(1, 3).Draw(rt, "interests") {
				if interest = named(odd, some.Draw(rt, "names")...); rapid.Bool().Draw(rt, "wildcard") {
					interest = all(odd)
				}
				c.set(sink.Want(interest))
			}
			i, lapsed := c.take()
			if i == nil || empty(interest) {
				state = &told{at: nothing}
				continue
			}
			if u, any := state.update(interest, lapsed[odd], now, sink.Held(odd), time.Unix(1, 0)); any {
				if !slices.IsSortedFunc(u.Changed, func(a, b *xds.Resource) int { return strings.Compare(a.Name, b.Name) }) || !slices.IsSorted(u.Removed) {
					rt.Fatalf("not in order: %+v", u)
				}
				for _, r := range u.Changed {
					if !interest.Wildcard && !r.AskedBy(interest.Names) {
						rt.Fatalf("%s was not asked for", r.Name)
					}
				}
				_, _ = sink.Update(t.Context(), u)
			}
			if again, any := state.update(interest, nil, now, sink.Held(odd), time.Unix(1, 0)); any {
				rt.Fatalf("told twice: %+v", again)
			}
			held := sink.Held(odd)
			var got, want []string
			for r := range held.Part(interest.Wildcard).Resources {
				if got = append(got, r.Name); !r.Same(now.resources[r.Name]) {
					rt.Fatalf("another %s is held", r.Name)
				}
			}
			if interest.Wildcard && !held.Answered {
				rt.Fatal("the wildcard is not answered")
			}
			for n, r := range now.resources {
				if interest.Wildcard || r.AskedBy(interest.Names) {
					want = append(want, n)
				}
			}
			slices.Sort(want)
			if !slices.Equal(got, want) {
				rt.Fatalf("held are %v, want %v", got, want)
			}
			for n := range interest.Names.All() {
				r, is := held.Look(&xds.Subscription{Names: interest.Names}, n)
				switch of := now.resources[n]; {
				case of != nil && (is != xds.Present || !r.Same(of)), of == nil && len(now.goes[n]) > 0 && is != xds.Elsewhere,
					of == nil && len(now.goes[n]) == 0 && is != xds.Absent:
					rt.Fatalf("%s: %v %d, want %v, or %v", n, r, is, of, now.goes[n])
				}
			}
		}
	})
}
