package upstream

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/xds"
)

// A key whose stream ended five times within a minute says so, with the origin, the number and the
// last error, until a minute after the last of five such ends.
func TestP54_FrequentEnds(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		r := n.relay(v, "one")
		key, _ := r.stream(named(eds, "a"))
		s := f.opens()
		end := func(i int) {
			s.request()
			s.send(resp{Type: eds, Version: "1", Resources: clusters("a")})
			s.request()
			s.done <- status.Errorf(codes.Unavailable, "end %d", i)
			s = f.opens()
		}
		for i := range 4 {
			end(i)
		}
		if got := key.FrequentEnds(); got != nil {
			t.Errorf("after 4 ends: %+v", got)
		}
		for i := range 8 {
			end(4 + i)
		}
		got := key.FrequentEnds()
		if got == nil || got.Origin != addressOf("one") || got.Count != 12 || time.Since(got.Since) > 15*time.Second || !strings.Contains(got.Err.Error(), "end 11") {
			t.Fatalf("after 12 ends: %+v", got)
		}
		time.Sleep(30 * time.Second)
		end(12)
		if got := key.FrequentEnds(); got == nil || got.Count != 13 {
			t.Errorf("after 13 ends: %+v", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := key.FrequentEnds(); got != nil {
			t.Errorf("after a minute: %+v", got)
		}
	})
}

// The ends of streams at an origin that is away are the origin's problem.
func TestP54_NoFrequentEndsWhileTheOriginIsAway(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		r := n.relay(v, "one")
		key, _ := r.stream(named(eds, "a"))
		for range 10 {
			s := f.opens()
			s.request()
			s.done <- status.Error(codes.Unavailable, "no upstream")
		}
		synctest.Wait()
		if got := key.FrequentEnds(); got != nil || !r.client.origins[0].isAway() {
			t.Errorf("%+v", got)
		}
	})
}
