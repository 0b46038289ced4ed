package upstream

import (
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/xds"
)

// What came in time is an answer, though the relay is busy with what came before it.
func TestP57_AnAnswerThatWaitsIsNoSilence(t *testing.T) {
	for range 20 {
		bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
			f := n.origin("one")
			r := n.relay(v, "one")
			sink := newTestSink()
			sink.gate = make(chan struct{})
			r.run(sink, named(rds, "a"), named(eds, "b"))
			s := f.next()
			time.Sleep(14 * time.Second)
			s.send(resp{typ: rds, res: clusters("a")})
			s.send(resp{typ: eds, res: clusters("b")})
			time.Sleep(2 * time.Second)
			close(sink.gate)
			synctest.Wait()
			sink.mu.Lock()
			defer sink.mu.Unlock()
			for _, u := range sink.updates {
				if u.Guess {
					t.Errorf("taken for absent: %v %v", u.Type, u.Removed)
				}
			}
		})
	}
}
