package orchestrator

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// requested checks the CDS subscription of each stream of a key, in the order of opening.
func (w *registryFixture) asks(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	var got []string
	for _, f := range w.streams("web") {
		got = append(got, f.requested(cds))
	}
	equal(t, "requested of CDS", strings.Join(got, " | "), strings.Join(want, " | "))
}

// scrape returns the metrics as Prometheus reads them.
func scrape(w *registryFixture) string {
	r := httptest.NewRecorder()
	w.reg.opts.Metrics.Handler().ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return r.Body.String()
}

func connect(feeds ...*feed) {
	for _, f := range feeds {
		f.sink.Status(upstream.Status{Connected: true, Origin: "origin"})
	}
}

// There is a second stream while a type is subscribed by wildcard and by names, in whatever order
// they start and end. The first part is not requested again.
func TestP50_SecondStreamWhileNeeded(t *testing.T) {
	for _, c := range []struct{ first, then string }{{"*", "n"}, {"n", "*"}} {
		bubble(t, nil, func(w *registryFixture) {
			w.join("web", eds).want("e")
			a := w.join("web", cds).want(c.first)
			synctest.Wait()
			f := w.feed("web")
			connect(f)
			said := f.said()
			w.asks(t, c.first)

			b := w.join("web", cds).want(c.then)
			w.asks(t, c.first, c.then)
			time.Sleep(time.Hour)
			equal(t, "told the first stream", f.said(), said)
			equal(t, "requested of EDS", f.requested(eds), "e")
			equal(t, "requested of EDS on the second", w.second("web").requested(eds), "")
			f.update(t, cds, c.first == "*", "n=1")
			w.second("web").update(t, cds, c.then == "*", "n=1")

			// It closes once linger is over, and is opened again when needed.
			b.want()
			time.Sleep(10*time.Second - 1)
			w.asks(t, c.first, c.then)
			time.Sleep(time.Nanosecond)
			w.asks(t, c.first)
			equal(t, "told the first stream", f.said(), said)
			b.want(c.then)
			w.asks(t, c.first, c.then)
			equal(t, "streams, ever", w.opened(), 3)
			a.leave()
			b.leave()
		})
	}
}

// Parts do not move. A part on the second stream stays there once the other part ends. If the first
// stream carries nothing else, it closes.
func TestP50_PartsKeepTheirStream(t *testing.T) {
	for _, c := range []struct{ first, then string }{{"*", "n"}, {"n", "*"}} {
		for _, busy := range []bool{true, false} {
			bubble(t, nil, func(w *registryFixture) {
				a, b := w.join("web", cds).want(c.first), w.join("web", cds)
				synctest.Wait()
				b.want(c.then)
				f, second := w.feed("web"), w.second("web")
				connect(f, second)
				if busy {
					w.join("web", eds).want("e")
				}
				second.update(t, cds, c.then == "*", "n=1")
				said := second.said()
				a.leave()
				time.Sleep(time.Hour)
				if busy {
					w.asks(t, "", c.then)
					equal(t, "requested of EDS", f.requested(eds), "e")
				} else {
					w.asks(t, c.then)
					equal(t, "the stream that is left", w.feed("web"), second)
					equal(t, "the other is over", f.over(), true)
				}
				equal(t, "told the second stream", second.said(), said)
				equal(t, "n", b.sees(subscription(c.then), "n"), "1")
				st := w.status("web")
				equal(t, "a second stream is shown", len(st.Upstreams) == 2, busy)
				second.update(t, cds, c.then == "*", "n")
				equal(t, "n, removed", b.sees(subscription(c.then), "n"), "-")

				// The part that comes second uses the other stream.
				w.join("web", cds).want(c.first)
				if busy {
					w.asks(t, c.first, c.then)
				} else {
					w.asks(t, c.then, c.first)
				}
				equal(t, "told the second stream", second.said(), said)
			})
		}
	}
}

// Two streams are enough, whichever types have wildcard and names.
func TestP50_TwoStreamsForAllTypes(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		w.join("web", eds).want("*", "e")
		wild := w.join("web", cds).want("*")
		w.join("web", cds).want("n")
		synctest.Wait()
		f, second := w.feed("web"), w.second("web")
		connect(f, second)
		wild.leave()
		time.Sleep(time.Minute)
		w.asks(t, "", "n")
		equal(t, "EDS", f.requested(eds)+" "+second.requested(eds), "* e")
		w.join("web", cds).want("*")
		w.asks(t, "*", "n")
		equal(t, "streams, ever", w.opened(), 2)
	})
}

// One client that subscribes to both needs two streams.
func TestP50_OneClientWithBoth(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a := w.join("web", cds).want("*", "n")
		w.asks(t, "*", "n")
		f, second, sub := w.feed("web"), w.second("web"), subscription("*", "n")
		f.update(t, cds, true, "a=1")
		equal(t, "n, which the wildcard left out", a.sees(sub, "n"), "?") // P25
		second.update(t, cds, false, "n=1")
		equal(t, "a", a.sees(sub, "a"), "1")
		equal(t, "n", a.sees(sub, "n"), "1")
		second.update(t, cds, false, "n")
		equal(t, "n, removed", a.sees(sub, "n"), "-")
	})
}

// A client with the wildcard gets the wildcard's copy, a client with only the name gets the other.
// A removal on one stream leaves the other's copy.
func TestP50_BothHoldAName(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		wild, both, alone := w.join("web", cds).want("*"), w.join("web", cds).want("*", "n"), w.join("web", cds).want("n")
		all, two, one := subscription("*"), subscription("*", "n"), subscription("n")
		synctest.Wait()
		f, second := w.feed("web"), w.second("web")
		is := func(when, a, b, c string) {
			t.Helper()
			equal(t, when, wild.sees(all, "n")+both.sees(two, "n")+alone.sees(one, "n"), a+b+c)
		}
		is("before any answer", "?", "?", "?")
		f.update(t, cds, true, "n=w")
		is("the wildcard's answer", "w", "w", "w") // P51: it listed n
		second.update(t, cds, false, "n=n")
		is("both answers", "w", "w", "n")
		f.update(t, cds, true, "n")
		is("gone from the wildcard", "-", "n", "n")
		f.update(t, cds, true, "n=w")
		second.update(t, cds, false, "n")
		is("gone from the names", "w", "w", "w")
		f.update(t, cds, true, "n")
		is("gone from both", "-", "-", "-")
		f.update(t, cds, true, "n=w")
		is("back in the wildcard", "w", "w", "w")
	})
}

// A client that lists a name is served the wildcard's copy until the name is answered. If the
// wildcard deletes it before that, it does not exist.
func TestP25_WildcardCopyIsDeleted(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		w.join("web", cds).want("*")
		a := w.join("web", cds).want("n", "other")
		synctest.Wait()
		f, second, sub := w.feed("web"), w.second("web"), subscription("n", "other")
		f.update(t, cds, true, "n=w")
		equal(t, "the wildcard's copy", a.sees(sub, "n"), "w")
		f.update(t, cds, true, "n", "other")
		equal(t, "deleted", a.sees(sub, "n"), "-")
		equal(t, "never served", a.sees(sub, "other"), "?")
		second.update(t, cds, false, "n=n")
		equal(t, "the answer to the name", a.sees(sub, "n"), "n")
	})
}

// A client with the wildcard takes no name from other clients, whatever its wildcard leaves out
// (P51). They share the wildcard's copies until the name has its own resource. The wildcard stays
// subscribed until then.
func TestP16_WildcardTakesNoNames(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a := w.join("web", cds).want("kept", "absent", "late", "pending")
		f, sub := w.feed("web"), subscription("kept", "absent", "late", "pending")
		f.update(t, cds, false, "kept=1", "absent")
		says := func(kept, absent, late, pending string) {
			t.Helper()
			for name, want := range map[string]string{"kept": kept, "absent": absent, "late": late, "pending": pending} {
				equal(t, name, a.sees(sub, name), want)
			}
		}
		wild := w.join("web", cds).want("*")
		synctest.Wait()
		a.woken()
		second := w.second("web")
		second.update(t, cds, true)
		says("1", "-", "?", "?")
		equal(t, "the neighbour of an empty answer", a.woken(), 0)
		second.update(t, cds, true, "kept=2", "late=2", "absent=2", "other=2")
		says("1", "2", "2", "?")
		second.update(t, cds, true, "kept", "absent", "pending")
		says("1", "-", "2", "?")

		// The client with the wildcard leaves. Everything that was seen stays.
		second.update(t, cds, true, "absent=3", "pending=3")
		wild.leave()
		a.woken()
		time.Sleep(time.Minute)
		w.asks(t, "absent kept late pending", "*")
		says("1", "3", "2", "3")
		f.update(t, cds, false, "pending")
		second.update(t, cds, true, "late")
		says("1", "3", "-", "3")
		equal(t, "woken", a.woken(), 1)
		time.Sleep(time.Minute)
		w.asks(t, "absent kept late pending", "*")
		second.update(t, cds, true, "absent", "pending")
		says("1", "-", "-", "-")
		time.Sleep(10 * time.Second)
		w.asks(t, "absent kept late pending")
		f.update(t, cds, false, "late=4")
		says("1", "-", "4", "-")
	})
}

// A late update of a stream that no longer carries the part is dropped.
func TestP50_LateUpdatesOfAStream(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a, b := w.join("web", cds).want("n"), w.join("web", cds).want("*")
		synctest.Wait()
		f, second := w.feed("web"), w.second("web")
		f.update(t, cds, false, "n=1")
		second.update(t, cds, true, "n=1", "a=1")
		// Each stream carries its part alone.
		f.update(t, cds, true, "n=2", "b=2")
		second.update(t, cds, false, "n=2")
		equal(t, "n", a.sees(subscription("n"), "n"), "1")
		equal(t, "b", b.sees(subscription("*"), "b"), "-")
		if got := scrape(w); !strings.Contains(got, `xdsrelay_upstream_unasked_total{type="CDS"} 3`) {
			t.Errorf("3 resources are not counted as not requested:\n%s", got)
		}

		b.want()
		time.Sleep(10 * time.Second)
		w.asks(t, "n")
		if err := second.late(snapshot.Update{Type: cds, Wildcard: true, Changed: []*xds.Resource{resource(t, cds, "n", "3")}}); err != nil {
			t.Fatal(err)
		}
		equal(t, "n", a.sees(subscription("n"), "n"), "1")
		equal(t, "held", f.sink.Newest(cds).Len(), 1)
	})
}

// The origin is reachable if either stream reaches it (P53). If one of the two streams is open, the
// key does not count the origin as away (P52).
func TestP53_EitherStreamReachesTheOrigin(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a, b := w.join("web", cds).want("*"), w.join("web", cds).want("n")
		synctest.Wait()
		f, second := w.feed("web"), w.second("web")
		failed := upstream.Status{Failed: true, Err: errors.New("no more streams")}
		connect(f)
		second.sink.Status(failed)
		time.Sleep(time.Hour)
		if a.refusal() != nil || b.refusal() != nil {
			t.Error("ended, though the first stream is open")
		}
		connect(second)
		f.sink.Status(failed)
		for range 2 {
			synctest.Wait()
			if a.refusal() != nil || b.refusal() != nil {
				t.Fatal("ended, though the second stream is open")
			}
			time.Sleep(time.Hour)
		}
		second.sink.Status(upstream.Status{Err: errors.New("EOF")})
		if r := a.refusal(); r == nil || r.Reason != telemetry.OriginUnreachable || !strings.Contains(r.Error(), "no more streams") {
			t.Errorf("refusal %v, with neither stream open", r)
		}
		refused := func() bool {
			synctest.Wait()
			return w.join("web", eds).want("unknown").refusal() != nil
		}
		second.sink.Status(failed)
		equal(t, "refused while neither is open", refused(), true)
		connect(second)
		equal(t, "refused once the second is open", refused(), false)
		st := w.status("web")
		equal(t, "first", fmt.Sprint(st.Upstreams[0].Failed, st.Upstreams[0].Err), "true no more streams")
		equal(t, "second", fmt.Sprint(st.Upstreams[1].Connected, " ", st.Upstreams[1].Origin), "true origin")
	})
}

func TestP53_NeitherStreamWithinFirstAnswerTimeout(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a := w.join("web", cds).want("*", "n")
		time.Sleep(15*time.Second - 1)
		if a.refusal() != nil {
			t.Error("ended too early")
		}
		connect(w.second("web"))
		time.Sleep(time.Hour)
		if a.refusal() != nil {
			t.Error("ended, though a stream is open")
		}
	})
}

// A key without clients keeps both its streams, and ends both when it is dropped.
func TestP52_IdleKeyWithTwoStreams(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a := w.join("web", cds).want("*", "n")
		synctest.Wait()
		f, second := w.feed("web"), w.second("web")
		connect(f, second)
		f.update(t, cds, true, "a=1")
		second.update(t, cds, false, "n=1")
		a.leave()
		f.sink.Status(upstream.Status{Failed: true})
		time.Sleep(10*time.Minute - 1)
		w.asks(t, "*", "n")
		b := w.join("web", cds).want("n") // the wildcard lingers
		equal(t, "n", b.sees(subscription("n"), "n"), "1")
		time.Sleep(10 * time.Second)
		w.asks(t, "n")
		b.leave()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		equal(t, "keys", len(w.reg.Groups()), 0)
		if f.alive() || second.alive() {
			t.Error("a stream still runs")
		}
	})
}

// The key is not kept because its origin is away, as long as one stream is open.
func TestP52_IdleKeyWithOneOfTwoStreamsOpen(t *testing.T) {
	for _, open := range []int{0, 1} {
		bubble(t, nil, func(w *registryFixture) {
			a := w.join("web", cds).want("*", "n")
			synctest.Wait()
			two := []*feed{w.feed("web"), w.second("web")}
			connect(two...)
			two[0].update(t, cds, true, "a=1")
			two[1].update(t, cds, false, "n=1")
			a.leave()
			two[1-open].sink.Status(upstream.Status{Failed: true})
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			equal(t, "keys", len(w.reg.Groups()), 0)
		})
	}
}
