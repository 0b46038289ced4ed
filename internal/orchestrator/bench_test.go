package orchestrator

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// One resource changes among so many under the key. The cost from the update to the woken
// subscriber follows the change.
func BenchmarkChangeOneAmong(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := newRegistryFixture(b, options(b))
			g, all := w.filled(b, n)
			c, m := w.subscriber(g, cds)
			m.Request(m.Intern(subscription("*")))
			g.step(time.Now())
			c.wakes = 0
			changes := [2][]*xds.Resource{}
			for i := range 100 {
				name := all[i*len(all)/100]
				changes[0] = append(changes[0], resource(b, cds, name, "one"))
				changes[1] = append(changes[1], resource(b, cds, name, "two"))
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				one := changes[i/100%2][i%100:][:1]
				g.apply(update{snapshot.Update{Type: cds, Wildcard: true, Changed: one}, g.firstUpstream(), make(chan bool, 1), nil})
				g.step(time.Now())
			}
			equal(b, "woken", c.wakes, b.N)
		})
	}
}

// One name changes that 10 subscribers want. Many others want other names, each a set of its own.
// They cost nothing and are not woken.
func BenchmarkChangeUnwanted(b *testing.B) {
	const wanted = 10
	for _, others := range []int{0, 1000, 100_000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			w := newRegistryFixture(b, options(b))
			g, _ := w.filled(b, 1000)
			var want, rest []*testClient
			join := func(to *[]*testClient, names ...string) {
				c, m := w.subscriber(g, cds)
				*to = append(*to, c)
				m.Request(m.Intern(subscription(names...)))
			}
			for range wanted {
				join(&want, "n-000500", "n-000501")
			}
			for i := range others {
				join(&rest, fmt.Sprintf("n-%06d", i%500), fmt.Sprintf("n-%06d", 501+i/500%499), fmt.Sprintf("other-%06d", i))
			}
			g.step(time.Now())
			one := [2]*xds.Resource{resource(b, cds, "n-000500", "one"), resource(b, cds, "n-000500", "two")}
			for _, c := range slices.Concat(want, rest) {
				c.wakes = 0
			}
			runtime.GC() // garbage from before does not belong to the change
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				g.apply(update{snapshot.Update{Type: cds, Wildcard: true, Changed: one[i%2 : i%2+1]}, g.firstUpstream(), make(chan bool, 1), nil})
				g.step(time.Now())
				i++
			}
			for _, c := range want {
				equal(b, "woken", c.wakes, i)
			}
			for _, c := range rest {
				equal(b, "woken", c.wakes, 0)
			}
		})
	}
}

// A set that grows by one name at a time, from the subscription to the
// interest.
func BenchmarkGrowSet(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := newRegistryFixture(b, options(b))
			g, _ := w.manual(eds)
			_, m := w.subscriber(g, eds)
			set := xds.NewNameSet(names("n", n)...)
			m.Request(m.Intern(&snapshot.Subscription{Names: set}))
			g.step(time.Now())
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if i%1000 == 0 { // the size stays about the same
					set = xds.NewNameSet(names("n", n)...)
				}
				set = set.Add(fmt.Sprintf("n-new-%d", i))
				m.Request(m.Intern(&snapshot.Subscription{Names: set}))
				g.step(time.Now())
			}
		})
	}
}

// filled returns a group that holds n clusters by the wildcard, and their names.
func (w *registryFixture) filled(b *testing.B, n int) (*Group, []string) {
	g, _ := w.manual(cds)
	_, m := w.subscriber(g, cds)
	m.Request(m.Intern(subscription("*")))
	g.step(time.Now())
	all := names("n", n)
	u := snapshot.Update{Type: cds, Wildcard: true}
	for _, name := range all {
		u.Changed = append(u.Changed, resource(b, cds, name, "zero"))
	}
	g.apply(update{u, g.firstUpstream(), make(chan bool, 1), nil})
	g.step(time.Now())
	return g, all
}
