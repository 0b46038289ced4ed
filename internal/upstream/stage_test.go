package upstream

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/xds"
)

// heldAs returns what is held under a name.
func (s *testSink) heldAs(typ xds.TypeURL, name string) *xds.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[typ].Held(name)
}

// served has the second origin serve clusters and the route r.
func (b *fakeStream) served(t *testing.T, sink *testSink, clusters ...res) {
	t.Helper()
	b.send(resp{typ: cds, version: "B", res: clusters})
	b.send(resp{typ: rds, version: "B", res: []res{{name: "r", version: "B"}}})
	sink.until(t, "the second origin's word", func() bool {
		return sink.held[rds].Len() == 1 && sink.held[cds].Len() == len(clusters)
	})
}

// returned has the first origin answer the last type.
func (a *fakeStream) returned(t *testing.T, sink *testSink, f *fakeOrigin, typ xds.TypeURL) {
	t.Helper()
	a.send(resp{typ: rds, version: "A", res: []res{{name: "r", version: "A"}}})
	sink.from(t, rds, f.address)
	sink.from(t, typ, f.address)
}

// A heartbeat means what the origin that sends it gave, though another serves:
// whether their versions are the same or not, what it gave takes over, with the
// TTL that it gave last.
func TestP56_HeartbeatsOfAnOriginThatIsTriedOut(t *testing.T) {
	for _, version := range []string{"1", "B"} {
		t.Run(version, func(t *testing.T) {
			eachVariant(t, func(t *testing.T, v xds.Variant) {
				first, second := startFake(t), startFake(t)
				r := startRelay(t, Options{Variant: v}, first.address, second.address)
				_, sink, b := r.failOver(first, second, all(cds), named(rds, "r"))
				b.served(t, sink, res{name: "a", content: "B", version: version, ttl: time.Hour}, res{name: "gone", version: version})
				before := sink.heldAs(cds, "a")
				a := first.serve(2)
				a.send(resp{typ: cds, version: "1", res: []res{{name: "a", content: "A", version: "1", ttl: time.Hour}}, removed: gone(v, "gone")})
				a.request()
				a.send(resp{typ: cds, version: "1", res: []res{{name: "a", version: "1", heartbeat: true, ttl: 2 * time.Hour}}})
				a.request()
				a.returned(t, sink, first, cds)
				is := sink.heldAs(cds, "a")
				if is == nil || is.Same(before) {
					t.Errorf("%v is held as the first origin's", is)
				}
				if is.TTL() != 2*time.Hour {
					t.Errorf("TTL %v", is.TTL())
				}
				sink.untilNames(t, cds, "a")
			})
		})
	}
}

// What only another origin gave no heartbeat means, and one is no answer.
func TestP62_HeartbeatsOfWhatAnotherOriginGave(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		first, second := startFake(t), startFake(t)
		r := startRelay(t, Options{Variant: v}, first.address, second.address)
		_, sink, b := r.failOver(first, second, all(cds), named(rds, "r"))
		b.served(t, sink, res{name: "a", content: "B", version: "1", ttl: time.Hour})
		a := first.serve(2)
		a.send(resp{typ: rds, version: "A", res: []res{{name: "r", version: "A"}}})
		a.request()
		a.send(resp{typ: cds, version: "1", res: []res{{name: "a", version: "1", heartbeat: true, ttl: 2 * time.Hour}}})
		a.request()
		sink.mu.Lock()
		if o := sink.held[rds].Origin; o != second.address {
			t.Errorf("%s serves: a heartbeat was taken for an answer", o)
		}
		sink.mu.Unlock()
		a.send(resp{typ: cds, version: "1", res: []res{{name: "b", version: "1"}}})
		sink.from(t, cds, first.address)
		if is := sink.heldAs(cds, "a"); is != nil && is.TTL() != time.Hour {
			t.Errorf("TTL %v", is.TTL())
		}
	})

	// So it is if another takes over because the first failed.
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newRig(t, v)
		r.want(named(eds, "a"))
		r.flush()
		beat := resp{typ: eds, version: "1", res: []res{{name: "a", version: "1", ttl: time.Hour, heartbeat: true}}}
		body := resp{typ: eds, version: "1", res: []res{{name: "a", version: "1", ttl: time.Hour}}}
		r.respond(body)
		r.origin = "two"
		r.connect()
		r.flush()
		if _, n := r.respond(beat); n.stale != 1 {
			t.Errorf("%+v before it gave it", n)
		}
		r.respond(body)
		if _, n := r.respond(beat); n.renewed != 1 {
			t.Errorf("%+v once it did", n)
		}
	})
}

// A response of heartbeats alone leaves standing that the one before held all
// there is: what the other origin added since is gone.
func TestP65_HeartbeatsAloneLeaveNothingOut(t *testing.T) {
	first, second := startFake(t), startFake(t)
	r := startRelay(t, Options{Variant: xds.SotW}, first.address, second.address)
	_, sink, b := r.failOver(first, second, all(cds), named(rds, "r"))
	b.served(t, sink, res{name: "a", version: "B", ttl: time.Hour})
	a := first.serve(2)
	a.send(resp{typ: cds, version: "1", res: []res{{name: "a", content: "A", version: "1", ttl: time.Hour}}})
	a.request()
	a.send(resp{typ: cds, version: "1", res: []res{{name: "a", version: "1", heartbeat: true, ttl: time.Hour}}})
	a.request()
	b.send(resp{typ: cds, version: "B2", res: []res{{name: "a", version: "B", ttl: time.Hour}, {name: "late"}}})
	sink.untilNames(t, cds, "a", "late")
	a.returned(t, sink, first, cds)
	sink.untilNames(t, cds, "a")
}

// What was said in turn counts in its order: a handle that the origin withdrew
// leads nowhere, and one that it gave again leads there.
func TestP26_AliasesOfAnOriginThatIsTriedOut(t *testing.T) {
	v := func(aliases ...string) res { return res{name: "r/v", version: "A", aliases: aliases} }
	for _, c := range []struct {
		what string
		says []resp
		want xds.Presence
	}{
		{"withdrawn", []resp{{res: []res{v("r/a")}}, {removed: []string{"r/a"}}}, xds.Absent},
		{"another now", []resp{{res: []res{v("r/a")}}, {res: []res{v("r/b")}}}, xds.Absent},
		{"given again", []resp{{removed: []string{"r/a"}}, {res: []res{v("r/a")}}}, xds.Elsewhere},
		{"removed by its name", []resp{{res: []res{v("r/a")}}, {removed: []string{"r/v"}}}, xds.Absent},
		{"under another name", []resp{{res: []res{{name: "r/w", version: "A", aliases: []string{"r/a"}}}, removed: []string{"r/v"}}}, xds.Elsewhere},
		{"not resolved", []resp{{removed: []string{"r/v"}}, {res: []res{{name: "r/x", aliases: []string{"r/a"}, heartbeat: true}}}}, xds.Unresolvable},
	} {
		for _, other := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%v", c.what, other), func(t *testing.T) {
				first, second := startFake(t), startFake(t)
				r := startRelay(t, Options{Variant: xds.Delta}, first.address, second.address)
				_, sink, b := r.failOver(first, second, named(vhds, "r/a"), named(rds, "r"))
				if other {
					b.send(resp{typ: vhds, res: []res{{name: "r/v", version: "B", aliases: []string{"r/a"}}}})
				}
				b.send(resp{typ: rds, res: clusters("r")})
				sink.until(t, "the second origin's word", func() bool { return sink.held[rds].Len() == 1 && sink.held[vhds].Len() == btoi(other) })
				first.refuse(1) // so that it is asked from here on
				a := first.serve(2)
				for _, p := range c.says {
					p.typ = vhds
					a.send(p)
					a.request()
				}
				a.returned(t, sink, first, vhds)
				sink.mu.Lock()
				defer sink.mu.Unlock()
				if is := sink.presence(vhds, "r/a"); is != c.want {
					t.Errorf("r/a is %d, want %d; held are %v", is, c.want, sink.names(vhds))
				}
			})
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// What is let go while an origin is tried out is forgotten of it as well: when it
// is wanted again, it is not served from what was said before.
func TestP65_WhatIsLetGoWhileAnOriginIsTriedOut(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		first, second := startFake(t), startFake(t)
		r := startRelay(t, Options{Variant: v}, first.address, second.address)
		stream, sink, b := r.failOver(first, second, named(eds, "a", "b"), named(rds, "r"))
		content := func(c string, names ...string) (p resp) {
			p = resp{typ: eds, version: c}
			for _, n := range names {
				p.res = append(p.res, res{name: n, content: c, version: c})
			}
			return p
		}
		b.send(content("B", "a", "b"))
		b.send(resp{typ: rds, res: clusters("r")})
		sink.until(t, "the second origin's word", func() bool { return sink.held[rds].Len() == 1 && sink.held[eds].Len() == 2 })
		a := first.serve(2)
		a.send(content("AA", "a", "b"))
		a.request()
		asks := func(s *fakeStream, does func(q string) bool) {
			t.Helper()
			for q := s.request(); !does(q); q = s.request() {
			}
		}
		stream.SetInterest(sink.want(named(eds, "a"), named(rds, "r")))
		for _, s := range []*fakeStream{a, b} {
			asks(s, func(q string) bool {
				return strings.Contains(q, "-[b]") || v == xds.SotW && strings.Contains(q, "EDS [a]")
			})
		}
		stream.SetInterest(sink.want(named(eds, "a", "b"), named(rds, "r")))
		for _, s := range []*fakeStream{a, b} {
			asks(s, func(q string) bool { return strings.Contains(q, "b]") })
		}
		b.send(content("BBB", "b"))
		sink.untilNames(t, eds, "a", "b")
		is := sink.heldAs(eds, "b")
		a.returned(t, sink, first, eds)
		if now := sink.heldAs(eds, "b"); now != is {
			t.Errorf("%v is held, which was given for what was let go", now)
		}
		if now := sink.heldAs(eds, "a"); now.OriginVersion != "AA" && v == xds.Delta {
			t.Errorf("%v is held", now)
		}
	})
}

// A name that came to be asked for while the origin was tried out keeps what the
// other gave, until this one speaks of it.
func TestP56_NamesThatCameWhileItWasTriedOut(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		first, second := startFake(t), startFake(t)
		r := startRelay(t, Options{Variant: v}, first.address, second.address)
		stream, sink, b := r.failOver(first, second, named(cds, "a"), named(rds, "r"))
		b.served(t, sink, res{name: "a", version: "B"})
		a := first.serve(2)
		a.send(resp{typ: cds, version: "A1", res: clusters("a")})
		a.request()
		stream.SetInterest(sink.want(named(cds, "a", "b"), named(rds, "r")))
		for q := b.request(); !strings.Contains(q, "b]"); q = b.request() {
		}
		b.send(resp{typ: cds, version: "B2", res: clusters("a", "b")})
		sink.untilNames(t, cds, "a", "b")
		for q := a.request(); !strings.Contains(q, "b]"); q = a.request() {
		}
		a.returned(t, sink, first, cds)
		sink.mu.Lock()
		if got := sink.names(cds); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("held are %v: b went before the first origin spoke of it", got)
		}
		sink.mu.Unlock()
		a.send(resp{typ: cds, version: "A2", res: clusters("a"), removed: gone(v, "b")})
		sink.untilNames(t, cds, "a")
	})
}

// P63: what is not to be cached goes by name with the stream that brought it:
// beside it stays what the origin that takes over has brought, which no client
// has to be sent again.
func TestP63_EachNameGoesWithItsStream(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		first, second := startFake(t), startFake(t)
		r := startRelay(t, Options{Variant: v}, first.address, second.address)
		_, sink, b := r.failOver(first, second, named(eds, "a", "b", "c"))
		b.send(resp{typ: eds, res: []res{{name: "a", version: "B", uncached: true}, {name: "b", version: "B", uncached: true}, {name: "c", version: "B"}}})
		sink.untilNames(t, eds, "a", "b", "c")
		a := first.serve(1)
		sink.mu.Lock()
		before, updates := sink.held[eds], len(sink.updates)
		sink.mu.Unlock()
		a.send(resp{typ: eds, res: []res{{name: "a", version: "A", uncached: true}}})
		sink.from(t, eds, first.address)
		sink.mu.Lock()
		if got := sink.names(eds); !slices.Equal(got, []string{"a", "c"}) {
			t.Errorf("held are %v, and the stream that brought b is over", got)
		}
		after := sink.held[eds]
		if got := after.Changes(before, everything); !slices.Equal(got, []string{"b"}) {
			t.Errorf("clients see a difference in %v", got)
		}
		if n := len(sink.updates) - updates; n != 1 {
			t.Errorf("%d updates", n)
		}
		sink.mu.Unlock()
		r.until("the count", func() bool { return r.counted(`dropped_resources_total{reason="stream_ended",type="EDS"}`) == 1 })
		a.done <- nil
		sink.untilNames(t, eds, "c")
	})
}

// What a stream brought that ended before it took over is not to be kept either,
// and what nobody held is not counted.
func TestP63_AnOriginTriedOutInVain(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		first, second := startFake(t), startFake(t)
		r := startRelay(t, Options{Variant: v}, first.address, second.address)
		_, sink, b := r.failOver(first, second, all(cds), named(rds, "r"))
		b.served(t, sink, res{name: "a", version: "B", uncached: true})
		a := first.serve(2)
		a.send(resp{typ: cds, version: "A", res: []res{{name: "a", version: "A", uncached: true}}})
		a.request()
		a.done <- nil
		a = first.serve(2) // once more
		if n := r.counted(`dropped_resources_total{reason="stream_ended",type="CDS"}`); n != 0 {
			t.Errorf("%d were dropped", n)
		}
		sink.mu.Lock()
		if got := sink.names(cds); !slices.Equal(got, []string{"a"}) {
			t.Errorf("held are %v", got)
		}
		sink.mu.Unlock()
		a.send(resp{typ: cds, version: "A", res: []res{{name: "b", version: "A"}}, removed: gone(v, "a")})
		a.returned(t, sink, first, cds)
		sink.untilNames(t, cds, "b")
	})

	news := make(chan struct{}, 1)
	s := newStage(xds.Delta, news)
	s.follow(&xds.Interest{Types: []xds.TypeInterest{named(rds, "a", "b")}}, nil)
	give := func(u xds.Update) {
		u.Type = rds
		if kept, err := s.put(context.Background(), &u, answer{}); !kept || err != nil {
			t.Fatal(kept, err)
		}
	}
	give(xds.Update{Changed: []*xds.Resource{
		resourceOf(t, rds, res{name: "a", uncached: true}), resourceOf(t, rds, res{name: "b"}),
	}})
	give(xds.Update{Ended: true})
	var got []string
	if _, err := s.handOver(func(xds.TypeURL) *xds.Snapshot { return nil }, func(u xds.Update) error {
		for _, r := range u.Changed {
			got = append(got, r.Name)
		}
		got = append(got, u.Removed...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, []string{"b"}) {
		t.Errorf("%v is handed over", got)
	}
}

// resourceOf is a resource as an incremental origin gives it.
func resourceOf(t *testing.T, typ xds.TypeURL, x res) *xds.Resource {
	t.Helper()
	r, err := xds.ParseResponse(xds.Delta, resp{typ: typ, res: []res{x}}.encode(t, xds.Delta, "1"))
	if err != nil {
		t.Fatal(err)
	}
	return r.Resources[0].Take(xds.TypeOf(typ), nil)
}

// counted is a counter's value, 0 if there is none.
func (r *relay) counted(series string) (n int) {
	rec := httptest.NewRecorder()
	r.client.opts.Metrics.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(rec.Body.String()) {
		if value, is := strings.CutPrefix(line, "xdsrelay_"+series+" "); is {
			n, _ = strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return n
}
