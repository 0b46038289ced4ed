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
