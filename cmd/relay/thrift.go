package main

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// thrift gives memory back to the system that a burst has left free. Thousands
// of clients that arrive at once, or a large change to all of them, take buffers
// for a moment; Go's runtime keeps what is free for as long as nothing is
// collected, and gives it back slowly, so that a relay that does nothing would look
// as large as it once was. A goroutine of its own; see run.
type thrift struct {
	every time.Duration // between two looks
	quiet uint64        // bytes allocated between two looks: so few are no burst, as is a 32nd of what is live; after one, an 8th
	least uint64        // bytes: less is not worth a collection

	last  usage
	given uint64        // bytes allocated, in all, when memory was last given back
	most  uint64        // goroutines at once since then
	loud  uint64        // bytes allocated since then, but while it was calm
	rest  uint64        // bytes that were free at the least since then
	still int           // looks at which it was calm, in a row
	since int           // looks since memory was last given back
	took  time.Duration // which took so long
}

func newThrift() *thrift {
	return &thrift{every: 5 * time.Second, quiet: 4 << 20, least: 16 << 20}
}

// run looks after the memory until ctx ends.
func (t *thrift) run(ctx context.Context) {
	tick := time.NewTicker(t.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if t.due(readUsage()) {
				began := time.Now()
				runtime.GC() // what pools have, they keep over one collection
				debug.FreeOSMemory()
				t.took = time.Since(began)
			}
		}
	}
}

// settled is how many calm looks after a burst it is collected once in any case: what was live
// at the last collection, in the midst of the burst, may not be any more, and until as
// much is allocated there is no other. Calm is less than quiet: others go on.
const settled = 3

// crowd is how many goroutines fewer there are when a crowd has left whose memory is
// worth giving back: four are a client's, with 30 KB and more.
const crowd = 1000

// handful is how many fewer are worth it if many pages are kept by few objects: those of
// connections to an origin that a crowd needed lie among the crowd's, and go last.
const handful = 200

// pause is how many looks at the least are between two times that memory is given back
// though it is not quiet, and share how much of the time it may take: of a large heap it is
// seconds of two collections.
const (
	pause = 12
	share = 100
)

// due reports whether memory is to be given back: the last burst is over, and what
// it left free, or uncollected, is worth it; or clients have left since, whose
// memory still counts as live until something is collected, also while others keep
// the relay busy. It costs two collections: once at the most for half as many bytes allocated as
// are live, where Go's runtime has another for as many, and so not again for what
// could not be given back; or one for each crowd that leaves; and while others keep the relay
// busy, a share of the time at the most.
func (t *thrift) due(u usage) bool {
	fresh := u.allocated - t.last.allocated
	quiet := fresh < max(t.quiet, u.live/32)
	if t.still++; fresh >= max(t.quiet, u.live/8) {
		t.still, t.loud = 0, t.loud+fresh
	}
	leaving := u.goroutines < t.last.goroutines && t.last.goroutines-u.goroutines >= crowd/10
	t.last = u
	t.since++
	t.most = max(t.most, u.goroutines)
	least := uint64(crowd)
	if u.unused >= max(t.least, u.live/4) {
		least = handful
	}
	left := t.most-u.goroutines >= max(least, t.most/8) && (quiet || !leaving && t.since >= max(pause, int(share*t.took/t.every)))
	burst := u.allocated-t.given >= max(t.least, u.live) && u.spare() >= max(t.least, u.live/8)
	late := t.still >= settled && t.loud >= max(t.least, u.live/2) && (quiet || t.since >= int(share*t.took/t.every))
	// What came free only after something was given back, as what the last of a crowd
	// had; what could not be given back then does not count.
	t.rest = min(t.rest, u.free)
	slack := u.free-t.rest >= max(2*t.least, u.live/2)
	if !left && !late && (!quiet || !burst && !slack) {
		return false
	}
	t.given, t.most, t.loud, t.rest, t.since = u.allocated, u.goroutines, 0, math.MaxUint64, 0
	return true
}

// usage is what Go's runtime says of its heap, in bytes.
type usage struct {
	allocated uint64 // in all, ever
	objects   uint64 // that occupy memory, reachable or not
	live      uint64 // of them, when garbage was collected last
	free      uint64 // that could be given back
	unused    uint64 // in pages that have objects too

	goroutines uint64
}

// spare is what a collection would free at the most, and what is free.
func (u usage) spare() uint64 { return u.free + u.objects - min(u.live, u.objects) }

func readUsage() usage {
	s := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/sched/goroutines:goroutines"},
		{Name: "/memory/classes/heap/unused:bytes"},
	}
	metrics.Read(s)
	return usage{
		allocated: s[0].Value.Uint64(), objects: s[1].Value.Uint64(), live: s[2].Value.Uint64(), free: s[3].Value.Uint64(),
		goroutines: s[4].Value.Uint64(), unused: s[5].Value.Uint64(),
	}
}
