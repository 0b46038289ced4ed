//go:build linux

package loadtest

import (
	"time"

	"xdsrelay/internal/xdstest"
)

// measureStore measures what the last known good on disk costs while one of many resources changes
// again and again, beside a relay without it.
func measureStore(b *bench) {
	without, with := b.start(nameRelay, nil), b.start(nameRelay, xdstest.Config{"store.path": b.TempDir()})
	all := []*contender{without, with}
	for _, c := range all {
		c.connect()
	}
	xdstest.Eventually(b, "the first write", xdstest.Holds(func() bool { return with.metric("xdsrelay_store_files") > 0 }))
	writes := with.metric("xdsrelay_store_writes_total")
	used := make(map[*contender]time.Duration)
	for _, c := range all {
		used[c] -= c.settle()
	}
	for range b.load.Changes {
		for _, c := range all {
			c.change()
		}
		xdstest.Pause(b, b.load.Every)
	}
	for _, c := range all {
		used[c] += c.settle()
	}
	writes = with.metric("xdsrelay_store_writes_total") - writes
	b.print("none", value{float64(used[without]) / float64(b.load.Changes), "cpu-ns/change"})
	b.print(nameRelay, value{float64(used[with]) / float64(b.load.Changes), "cpu-ns/change"},
		value{writes * with.metric("xdsrelay_store_bytes"), "written-B"},
		value{float64(used[with]) / float64(used[without]), "cpu/none"})
}
