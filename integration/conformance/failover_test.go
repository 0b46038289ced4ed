package conformance

import (
	"testing"
)

// After two failures the key uses the next origin, and probes the first. A probe's answers are
// acknowledged and kept back. Once each type was answered, the probe's stream becomes the key's.
// Clients stay on their streams and only receive differences.
func TestP56_NextOriginAndBack(t *testing.T) {
	eachOwn(t, anywhere, func(t *testing.T, at place) {
		first, second := newTestControl(t), newTestControl(t)
		c := on(t, at, own(t, at.up, nil, first.addr, second.addr), first)
		next := second.site(c.key)
		c.site.put(c, lds, "a=1", "b=1")
		c.site.put(c, eds, "e=1", "same=1")
		next.put(c, lds, "a=1", "c=1")
		next.put(c, eds, "e=2", "same=1")
		cl := c.servedAll("one", lds, "a=1 b=1")
		cl.gets(eds, "e=1 same=1")
		if ever, _ := next.opened(); ever != 0 {
			t.Errorf("the second origin had a stream while the first served")
		}

		c.site.leave()
		cl.takeFull(lds, "a=1 c=1", "c=1 -b")
		cl.take(eds, "e=2")
		if ever, _ := c.site.opened(); ever < 3 { // one that served, two that failed
			t.Errorf("the first origin was left after %d streams", ever)
		}

		// One attempt may have begun before, and does not use the state of the second origin. The
		// next one begins when that has failed.
		ever, _ := c.site.opened()
		c.site.waitFor(c, "attempts since", func() bool { return len(c.site.streams) >= ever+2 })
		c.site.manual(eds, lds)
		c.site.back()
		// Under the site's lock: a stream that leave has closed is not a probe.
		asked := c.site.await(c, eds, "a probe", func(r request) bool { return !c.site.streams[r.stream-1].closed })
		next.put(c, eds, "e=3")
		cl.take(eds, "e=3") // the second is still in use
		cl.nothing(lds, "the first origin has answered each type")
		probe := c.site.stream(c, asked.stream)
		probe.reply(c, lds, "probed", "a=1", "b=1", "-c")
		probe.reply(c, eds, "probed", "e=1", "same=1")
		cl.takeFull(lds, "a=1 b=1", "b=1 -c")
		cl.take(eds, "e=1")
		next.waitFor(c, "the end of its stream", func() bool { return next.streams[len(next.streams)-1].closed })
		if ever, _ := c.site.opened(); ever > asked.stream+1 {
			t.Errorf("%d streams at the first origin after the probe", ever-asked.stream-1)
		}
		for _, k := range []kind{lds, eds} {
			if n := cl.state(k).answers; n != map[kind]int{lds: 3, eds: 4}[k] {
				t.Errorf("%d responses of %s", n, k.short())
			}
		}
	})
}
