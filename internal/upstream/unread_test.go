package upstream

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/xds"
)

// An origin that spoke and reads no more, though its connection lives, keeps nobody waiting for
// ever: the stream is opened anew. One that is only slow to read is let be.
func TestP54_AnOriginThatReadsNoMore(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		r := n.relay(v, "one")
		stream, sink := r.stream(named(rds, "a"))
		s := f.next()
		s.send(resp{typ: rds, res: clusters("a")})
		sink.untilNames(t, rds, "a")
		ask := func(n, many int) {
			var names []string
			for i := range many {
				names = append(names, fmt.Sprint(n, "-", i, strings.Repeat("x", 1000)))
			}
			stream.SetInterest(sink.want(named(rds, append(names, "a")...)))
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
		unread := func() (is bool) { // the fake reads so many, and then no more
			return len(s.in) == cap(s.in)
		}
		for i := 0; !unread(); i++ {
			ask(i, 1)
		}
		full := func() {
			for i := range 60 {
				ask(-i-1, 300)
			}
		}
		full()
		time.Sleep(55 * time.Second)
		s.request() // slow
		s.request()
		time.Sleep(10 * time.Second)
		full()
		time.Sleep(55 * time.Second)
		synctest.Wait()
		if at := r.client.Origins()[0]; at.Reconnects > 0 || len(f.streams) > 0 {
			t.Fatalf("%+v", at)
		}
		s = f.opens()
		s.send(resp{typ: rds, res: clusters("a")})
		synctest.Wait()
		if at := r.client.Origins()[0]; at.Reconnects != 1 || !errors.Is(at.LastError, errUnread) || at.Away {
			t.Errorf("%+v", at)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if is := sink.is(rds, "-60-0"+strings.Repeat("x", 1000)); is != xds.Absent {
			t.Errorf("it is %d", is)
		}
	})
}
