package orchestrator

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// travel is a group of which a part of CDS is on its way from the second stream
// to the first, which EDS keeps busy: the part of names, which are a, b, c and p,
// or the wildcard's.
type travel struct {
	*world
	t             *testing.T
	variant       xds.Variant
	wild          bool
	client        *client
	sub           *xds.Subscription
	first, second *feed
	busy          *client // of EDS
	told          map[*feed]map[string]string
}

// travels runs f for each variant of the origin and each of the two parts, of
// which this is held: "a=1 b=1".
func travels(t *testing.T, held string, f func(t *testing.T, m *travel)) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		t.Run(v.String(), func(t *testing.T) {
			for _, wild := range []bool{false, true} {
				bubble(t, nil, func(w *world) { f(t, departure(w, t, v, wild, held)) })
			}
		})
	}
}

func departure(w *world, t *testing.T, v xds.Variant, wild bool, held string) *travel {
	m := &travel{world: w, t: t, variant: v, wild: wild, told: make(map[*feed]map[string]string)}
	m.busy = w.join("web", eds).want("e")
	names, all := []string{"a", "b", "c", "p"}, []string{"*"}
	if wild {
		names, all = all, []string{"z"}
	}
	other := w.join("web", cds).want(all...)
	synctest.Wait()
	m.client, m.sub = w.join("web", cds).want(names...), subscription(names...)
	m.first, m.second = w.feed("web"), w.second("web")
	connect(m.first, m.second)
	m.first.update(t, cds, !wild)
	m.says(m.second, held)
	other.leave()
	time.Sleep(10 * time.Second)
	m.client.woken()
	equal(t, "asked for on both", m.first.asks(cds), m.second.asks(cds))
	return m
}

// says has a stream bring all that the origin has by then: in SotW as that, of
// which what is left out is gone as upstream takes it, in incremental as what
// changed since it last did.
func (m *travel) says(f *feed, all string) {
	m.t.Helper()
	now := make(map[string]string)
	u := xds.Update{Type: cds, Origin: "origin", Wildcard: m.wild, Received: time.Now()}
	for _, s := range strings.Fields(all) {
		name, value, _ := strings.Cut(s, "=")
		now[name] = value
		if was, told := m.told[f][name]; m.variant == xds.SotW || !told || was != value {
			u.Changed = append(u.Changed, resource(m.t, cds, name, value))
		}
	}
	if m.variant == xds.SotW {
		for r := range f.sink.Held(cds).Part(m.wild).Resources {
			if _, ok := now[r.Name]; !ok {
				u.Removed = append(u.Removed, r.Name)
			}
		}
	}
	for name := range m.told[f] {
		if _, ok := now[name]; !ok && !slices.Contains(u.Removed, name) {
			u.Removed = append(u.Removed, name)
		}
	}
	m.told[f] = now
	f.hand(m.t, u)
}

// is checks what the client sees of a, b, c and p, and how many streams there are.
func (m *travel) is(when, sees string, streams int) {
	m.t.Helper()
	var got []string
	for i, want := range strings.Fields(sees) {
		is := m.client.sees(m.sub, []string{"a", "b", "c", "p"}[i])
		if want == "?" && is == "-" && m.wild {
			is = "?" // what a wildcard leaves out
		}
		got = append(got, is)
	}
	equal(m.t, when, strings.Join(got, " "), sees)
	equal(m.t, when+": streams", len(m.streams("web")), streams)
}

// What the two say alike counts for nothing once they differ again.
func TestP50_AlikeAndThenNot(t *testing.T) {
	travels(t, "a=1 b=1", func(t *testing.T, m *travel) {
		m.says(m.second, "a=1 b=2")
		m.says(m.first, "a=1 b=1") // a is alike
		m.is("b is older", "1 2", 2)
		m.says(m.second, "a=2 b=2")
		m.says(m.first, "a=1 b=2")
		m.is("b is alike, and a is not any more", "2 2", 2)
		m.says(m.second, "b=2")
		m.is("removed on the old", "- 2", 2)
		m.says(m.first, "a=2 b=2")
		m.is("and not yet on the new", "- 2", 2)
		m.says(m.first, "b=2")
		m.is("gone from both", "- 2", 1)
		m.says(m.first, "a=3 b=3")
		m.is("afterwards", "3 3", 1)
	})
}

// The old stream goes away with what it had: once the new one has answered all of
// it, that is the newer. A wildcard has to be answered as well.
func TestP50_TheOldStreamGoesAway(t *testing.T) {
	travels(t, "a=1 b=1", func(t *testing.T, m *travel) {
		m.says(m.first, "a=2 b=1")
		m.is("both are there", "1 1", 2)
		m.second.sink.Status(upstream.Status{Failed: true})
		m.is("the old one is away", "2 1", 1)
		m.second.sink.Status(upstream.Status{Connected: true})
		m.is("it is not asked any more", "2 1", 1)
	})
	travels(t, "a=1 b=1", func(t *testing.T, m *travel) {
		m.second.sink.Status(upstream.Status{Failed: true})
		m.is("the new one has said nothing", "1 1", 2)
		connect(m.second)
		m.says(m.second, "a=2 b=1")
		m.is("the old one is back", "2 1", 2)
		m.says(m.first, "a=2 b=1")
		m.is("both say the same", "2 1", 1)
	})
}

// Nothing else is wanted of the first stream any more, so that it is not needed,
// and what was on its way there stays where it is. It costs nobody anything.
func TestP50_AMoveIsGivenUp(t *testing.T) {
	travels(t, "a=1 b=1", func(t *testing.T, m *travel) {
		m.says(m.first, "a=1 b=2")
		m.busy.leave()
		told := m.second.said()
		time.Sleep(10 * time.Second)
		m.is("given up", "1 1", 1)
		equal(t, "told the stream that is left", m.second.said(), told)
		equal(t, "woken", m.client.woken(), 0)
		equal(t, "the stream that is left", m.feed("web"), m.second)
		m.says(m.second, "a=1 b=2")
		m.is("afterwards", "1 2", 1)
		time.Sleep(time.Hour)
		m.is("for good", "1 2", 1)
		equal(t, "told the stream that is left", m.second.said(), told)
	})
}

// But not while clients were told what only the new stream has said: of the old
// one an older answer may be on its way, and would take it back.
func TestP50_AMoveIsNotGivenUpWhileItIsAhead(t *testing.T) {
	for _, agrees := range []bool{true, false} {
		travels(t, "a=1 b=1", func(t *testing.T, m *travel) {
			if m.wild {
				return // what it says nothing of does not exist
			}
			m.says(m.first, "a=2 b=1 p=1")
			m.is("p is ahead", "1 1 ? 1", 2)
			m.busy.leave()
			time.Sleep(10 * time.Second)
			m.says(m.second, "a=1 b=1")
			m.is("an older answer", "1 1 ? 1", 2)
			if !agrees {
				m.says(m.first, "a=1 b=1 p=2")
				m.is("arrived", "1 1 ? 2", 1)
				equal(t, "the stream that is left", m.feed("web"), m.first)
				return
			}
			m.says(m.second, "a=1 b=1 p=1")
			m.is("the old stream says it as well", "1 1 ? 1", 1)
			equal(t, "the stream that is left", m.feed("web"), m.second)
			m.says(m.second, "a=1 b=1")
			m.is("and counts", "1 1 ? -", 1)
		})
	}
}

// The new stream goes away for long when it is ahead: what the old one has said
// since counts then, though it was kept aside.
func TestP50_AheadAndAway(t *testing.T) {
	travels(t, "a=1 b=1", func(t *testing.T, m *travel) {
		if m.wild {
			return
		}
		m.says(m.first, "c=1")
		m.is("ahead", "1 1 1 ?", 2)
		m.says(m.second, "a=1 b=1 c=2")
		m.is("kept aside", "1 1 1 ?", 2)
		m.first.sink.Status(upstream.Status{Failed: true})
		time.Sleep(15*time.Second - 1)
		m.is("away for a moment", "1 1 1 ?", 2)
		time.Sleep(time.Nanosecond)
		m.is("away for long", "1 1 2 ?", 2)
		m.says(m.second, "a=1 b=1 c=3 p=3")
		m.is("the old stream counts", "1 1 3 3", 2)
		connect(m.first)
		m.says(m.first, "a=1 b=1 c=3 p=3")
		m.is("all has moved", "1 1 3 3", 1)
	})
}

// An error on either stream counts as the rest of what it says does, and the move
// waits for it to be said on the new.
func TestP39_ErrorsWhileNamesMove(t *testing.T) {
	travels(t, "a=1 b=1", func(t *testing.T, m *travel) {
		fails := func(f *feed, name string) {
			t.Helper()
			f.hand(t, xds.Update{Type: cds, Origin: "origin", Wildcard: m.wild, Errors: []*xds.ResourceError{failed(t, name, codes.Internal)}})
		}
		is := func(when, want string, streams int) {
			t.Helper()
			synctest.Wait()
			var got []string
			m.client.State().Snapshot(cds).Errors(m.sub, func(e *xds.ResourceError) bool { got = append(got, e.Name); return true })
			equal(t, when, strings.Join(got, " "), want)
			equal(t, when+": streams", len(m.streams("web")), streams)
		}
		fails(m.second, "a")
		is("the old stream's", "a", 2)
		m.says(m.first, "a=1 b=1")
		is("which the new one did not say", "a", 2)
		if !m.wild {
			fails(m.first, "p")
			is("what is known of nothing else", "a p", 2)
		}
		m.client.woken()
		fails(m.first, "a")
		left := " p"
		if m.wild {
			left = ""
		}
		is("both say it", "a"+left, 1)
		equal(t, "woken by what was said", m.client.woken(), 0)
		m.says(m.first, "a=2 b=1")
		is("cleared by the next", strings.TrimSpace(left), 1)
	})
}

// The old stream turns to another origin, while the part moves to one that has
// not: what is said there is held against what that origin itself said (P55).
func TestP56_TheOriginSwitchesMeanwhile(t *testing.T) {
	travels(t, "a=1 b=1", func(t *testing.T, m *travel) {
		backup := func(f *feed, values ...string) {
			t.Helper()
			u := xds.Update{Type: cds, Origin: "backup", Wildcard: m.wild, Received: time.Now()}
			for i, v := range values {
				u.Changed = append(u.Changed, resource(t, cds, []string{"a", "b"}[i], v))
			}
			f.hand(t, u)
		}
		origin := func(f *feed) string { return f.sink.Held(cds).Part(m.wild).Origin() }
		m.second.sink.Status(upstream.Status{Connected: true, Origin: "backup"})
		backup(m.second, "2", "1")
		m.is("the old stream's", "2 1", 2)
		m.says(m.first, "a=1 b=1")
		m.is("the origin before", "2 1", 2)
		equal(t, "held for the old", origin(m.second), "backup")
		equal(t, "held for the new", origin(m.first), "origin")
		m.first.sink.Status(upstream.Status{Connected: true, Origin: "backup"})
		backup(m.first, "2")
		m.is("both have switched", "2 1", 1)
		equal(t, "held", origin(m.first), "backup")
	})
}

// Names that nobody wants any more are nothing to wait for, by whatever they were
// asked for, and nothing of them is left.
func TestP50_NamesAreForgottenMeanwhile(t *testing.T) {
	for _, aliased := range []bool{false, true} {
		bubble(t, nil, func(w *world) {
			m := departure(w, t, xds.Delta, false, "a=1")
			if aliased {
				m.second.brings(t, cds, goes(t, cds, "v", "1", "b"))
			} else {
				m.second.update(t, cds, false, "b=1")
			}
			m.first.update(t, cds, false, "a=1")
			if aliased {
				m.first.brings(t, cds, goes(t, cds, "w", "1", "p"))
			} else {
				m.first.update(t, cds, false, "p=1")
			}
			m.is("b has yet to come", "1", 2)
			m.client.want("a", "c")
			time.Sleep(10 * time.Second)
			m.is("nobody wants it", "1", 1)
			for _, n := range []string{"b", "v", "p", "w"} {
				if m.first.sink.Held(cds).Known(n) {
					t.Errorf("of %s something is known", n)
				}
			}
		})
	}
	// Wanted again, it has yet to be answered on the new stream.
	bubble(t, nil, func(w *world) {
		m := departure(w, t, xds.Delta, false, "a=1")
		m.second.brings(t, cds, goes(t, cds, "v", "1", "b"))
		m.first.brings(t, cds, goes(t, cds, "v", "1", "b"))
		m.client.want("a")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		m.client.want("a", "b")
		synctest.Wait()
		m.second.brings(t, cds, goes(t, cds, "v", "2", "b"))
		m.second.sink.Status(upstream.Status{Failed: true})
		m.first.update(t, cds, false, "a=1")
		equal(t, "streams", len(w.streams("web")), 2)
		equal(t, "v", m.client.sees(subscription("a", "b"), "v"), "2")
		m.first.brings(t, cds, goes(t, cds, "v", "3", "b"))
		equal(t, "streams", len(w.streams("web")), 1)
		equal(t, "v", m.client.sees(subscription("a", "b"), "v"), "3")
	})
}

// What goes by an alias moves by it.
func TestP26_AnAliasMoves(t *testing.T) {
	bubble(t, nil, func(w *world) {
		m := departure(w, t, xds.Delta, false, "a=1")
		v := func(value string) *xds.Resource { return goes(t, cds, "v", value, "b", "p") }
		is := func(when, want string, streams int) {
			t.Helper()
			equal(t, when, m.client.sees(m.sub, "v"), want)
			equal(t, when+": streams", len(w.streams("web")), streams)
		}
		m.first.brings(t, cds, v("1"))
		is("of which nothing was known", "1", 2)
		m.second.update(t, cds, false, "b") // older, as it comes from the old stream
		is("an older word on the alias", "1", 2)
		equal(t, "to who asks by it", m.client.sees(subscription("b"), "v"), "1")
		m.second.brings(t, cds, v("0"))
		is("an older one on the resource", "1", 2)
		m.second.brings(t, cds, v("1"))
		m.second.brings(t, cds, v("2"))
		is("both said the same, and the old one is newer", "2", 2)
		m.first.update(t, cds, false, "a=1")
		is("the new one has yet to say it", "2", 2)
		m.first.update(t, cds, false, "b")
		is("by one alias it went there", "2", 2)
		m.second.update(t, cds, false, "b")
		is("by which it goes no more", "2", 2)
		m.first.update(t, cds, false, "v")
		m.second.update(t, cds, false, "v")
		equal(t, "v is gone from both", m.client.sees(m.sub, "b")+m.client.sees(m.sub, "p"), "--")
		equal(t, "streams", len(w.streams("web")), 1)
	})
}
