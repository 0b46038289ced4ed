package upstream

import (
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/xds"
)

// A name that the origin answered on a stream, and does not answer again after it was unsubscribed,
// is requested on a new stream after 5 s, at most once a minute. That is no failure of the origin
// (go-control-plane#431). A name that was never answered opens no stream.
func TestP64_UnansweredAgainReplacesTheStream(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		r := n.relay(v, "one")
		stream, sink := r.stream(named(rds, "a", "b"))
		s := f.opens()
		answer := func() {
			t.Helper()
			s.send(resp{Type: rds, Version: "1", Resources: clusters("a", "b")})
			sink.UntilNames(t, rds, "a", "b")
		}
		want := func(names ...string) {
			t.Helper()
			stream.SetInterest(sink.Want(named(rds, names...)))
			time.Sleep(time.Second)
		}
		replacedAfter := func(want time.Duration) {
			t.Helper()
			began := time.Now()
			old := s
			s = f.opens()
			synctest.Wait()
			if got := time.Since(began).Round(time.Second); got != want || old.Context().Err() == nil {
				t.Fatalf("a new stream after %v, want %v; the old one: %v", got, want, old.Context().Err())
			}
		}
		answer()
		want("a")
		want("a", "b", "never")
		replacedAfter(4 * time.Second)
		answer()
		want("a", "never")
		want("a", "b", "never")
		replacedAfter(58 * time.Second)
		answer()
		want("a")
		want("a", "b", "never")
		s.send(resp{Type: rds, Version: "1", Resources: clusters("b")})
		time.Sleep(time.Hour)
		if at := r.client.Origins()[0]; at.Reconnects > 0 || at.Away || len(f.streams) > 0 {
			t.Errorf("%+v, %d more streams", at, len(f.streams))
		}
	})
}
