package session

import (
	"testing"

	"xdsrelay/internal/xds"
)

// P62: what a client has no more, since its TTL is over, it waits for, though it had it when
// it was last looked at.
func TestP31_WhoHasWhatLapsedWaits(t *testing.T) {
	for _, v := range variants {
		w := newSessionFixture(t, xds.EndpointType, v)
		w.timely()
		w.Living(false, ttl, "x")
		w.sub("x", "y")
		w.want("x")
		w.ack("x", "y")
		w.named("-y")
		waits := func(when string, want bool) {
			t.Helper()
			look := NewSurvey()
			if is := look.Awaiting(w.s, w.Cur); is != want {
				t.Errorf("%s, %s: waits %v, want %v", v, when, is, want)
			}
		}
		w.next()
		waits("it has x", false)
		w.Pass(ttl)
		w.lapse()
		w.next()
		waits("x has lapsed", true)
		w.Living(false, ttl, "x")
		waits("x is back", false)
	}
}
