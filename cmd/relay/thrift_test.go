package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// After a burst, and not during one; not for little; and not again for what
// could not be given back.
func TestThriftIsDueAfterABurst(t *testing.T) {
	const mb = 1 << 20
	type look struct {
		usage
		due bool
	}
	for what, looks := range map[string][]look{
		"a burst is over": {
			{usage{allocated: 500 * mb, objects: 100 * mb, live: 90 * mb, free: 400 * mb}, false},
			{usage{allocated: 501 * mb, objects: 100 * mb, live: 90 * mb, free: 400 * mb}, true},
			{usage{allocated: 501 * mb, objects: 90 * mb, live: 90 * mb, free: 400 * mb}, false},
			{usage{allocated: 502 * mb, objects: 90 * mb, live: 90 * mb, free: 400 * mb}, false},
		},
		"nothing was collected since": {
			{usage{allocated: 500 * mb, objects: 300 * mb, live: 90 * mb}, false},
			{usage{allocated: 500 * mb, objects: 300 * mb, live: 90 * mb}, true},
		},
		"as much as is live, again": {
			{usage{allocated: 500 * mb, live: 300 * mb, free: 400 * mb}, false},
			{usage{allocated: 500 * mb, live: 300 * mb, free: 400 * mb}, true},
			{usage{allocated: 799 * mb, live: 300 * mb, free: 400 * mb}, false},
			{usage{allocated: 799 * mb, live: 300 * mb, free: 400 * mb}, false},
			{usage{allocated: 800 * mb, live: 300 * mb, free: 400 * mb}, true},
		},
		"it goes on": {
			{usage{allocated: 500 * mb, free: 400 * mb}, false},
			{usage{allocated: 600 * mb, free: 400 * mb}, false},
		},
		"a crowd leaves": {
			{usage{allocated: 50 * mb, objects: 100 * mb, live: 99 * mb, goroutines: 8000}, false},
			{usage{allocated: 51 * mb, objects: 100 * mb, live: 99 * mb, goroutines: 7500}, false},
			{usage{allocated: 52 * mb, objects: 100 * mb, live: 99 * mb, goroutines: 7000}, true},
			{usage{allocated: 52 * mb, objects: 90 * mb, live: 90 * mb, goroutines: 7000}, false},
			{usage{allocated: 52 * mb, objects: 90 * mb, live: 90 * mb, goroutines: 6001}, false},
			{usage{allocated: 60 * mb, objects: 90 * mb, live: 90 * mb, goroutines: 6000}, false}, // but others come
			{usage{allocated: 61 * mb, objects: 90 * mb, live: 90 * mb, goroutines: 6000}, true},
		},
		"a crowd leaves a busy relay": func() (looks []look) {
			for _, l := range append(slices.Repeat([]look{{usage{goroutines: 8000}, false}}, pause), []look{
				{usage{goroutines: 7000}, false}, // and more do
				{usage{goroutines: 6950}, true},
				{usage{goroutines: 5000}, false},
				{usage{goroutines: 5000}, false}, // not again so soon
			}...) {
				l.allocated, l.objects, l.live = uint64(500+20*len(looks))*mb, 1000*mb, 999*mb
				l.allocated *= 8 // more than is calm for so much
				looks = append(looks, l)
			}
			return looks
		}(),
		"a handful that kept many pages leaves": {
			{usage{allocated: 50 * mb, objects: 40 * mb, live: 40 * mb, unused: 15 * mb, goroutines: 1500}, false},
			{usage{allocated: 51 * mb, objects: 40 * mb, live: 40 * mb, unused: 15 * mb, goroutines: 1200}, false},
			{usage{allocated: 52 * mb, objects: 40 * mb, live: 40 * mb, unused: 16 * mb, goroutines: 1200}, true},
			{usage{allocated: 53 * mb, objects: 40 * mb, live: 40 * mb, unused: 16 * mb, goroutines: 1001}, false},
			{usage{allocated: 54 * mb, objects: 40 * mb, live: 40 * mb, unused: 16 * mb, goroutines: 1000}, true},
		},
		"much is live": {
			{usage{allocated: 900 * mb, objects: 900 * mb, live: 640 * mb, free: 400 * mb}, false},
			{usage{allocated: 919 * mb, objects: 900 * mb, live: 640 * mb, free: 400 * mb}, true},
		},
		"what was live may not be any more": {
			{usage{allocated: 500 * mb, objects: 300 * mb, live: 300 * mb}, false},
			{usage{allocated: 500 * mb, objects: 300 * mb, live: 300 * mb}, false},
			{usage{allocated: 501 * mb, objects: 300 * mb, live: 300 * mb}, false},
			{usage{allocated: 501 * mb, objects: 300 * mb, live: 300 * mb}, true},
			{usage{allocated: 502 * mb, objects: 300 * mb, live: 300 * mb}, false},
			{usage{allocated: 502 * mb, objects: 300 * mb, live: 300 * mb}, false},
		},
		"so it may while others go on": {
			{usage{allocated: 700 * mb, objects: 700 * mb, live: 670 * mb}, false},
			{usage{allocated: 727 * mb, objects: 727 * mb, live: 670 * mb}, false},
			{usage{allocated: 754 * mb, objects: 754 * mb, live: 670 * mb}, false},
			{usage{allocated: 781 * mb, objects: 781 * mb, live: 670 * mb}, true},
			{usage{allocated: 808 * mb, objects: 150 * mb, live: 123 * mb}, false},
			{usage{allocated: 835 * mb, objects: 177 * mb, live: 123 * mb}, false},
			{usage{allocated: 862 * mb, objects: 204 * mb, live: 123 * mb}, false},
			{usage{allocated: 889 * mb, objects: 231 * mb, live: 123 * mb}, false},
		},
		"more comes free later": {
			{usage{allocated: 500 * mb, objects: 100 * mb, live: 60 * mb, free: 400 * mb}, false},
			{usage{allocated: 501 * mb, objects: 100 * mb, live: 60 * mb, free: 400 * mb}, true},
			{usage{allocated: 501 * mb, objects: 60 * mb, live: 60 * mb, free: 5 * mb}, false},
			{usage{allocated: 502 * mb, objects: 50 * mb, live: 50 * mb, free: 36 * mb}, false},
			{usage{allocated: 503 * mb, objects: 40 * mb, live: 40 * mb, free: 37 * mb}, true},
			{usage{allocated: 504 * mb, objects: 40 * mb, live: 40 * mb, free: 37 * mb}, false},
		},
		"little is free": {
			{usage{allocated: 2500 * mb, objects: 910 * mb, live: 900 * mb, free: 90 * mb}, false},
			{usage{allocated: 2500 * mb, objects: 910 * mb, live: 900 * mb, free: 90 * mb}, false},
		},
		"a small relay": {
			{usage{allocated: 60 * mb, objects: 10 * mb, live: 5 * mb, free: 10 * mb}, false},
			{usage{allocated: 60 * mb, objects: 10 * mb, live: 5 * mb, free: 10 * mb}, false},
		},
	} {
		th := newThrift()
		for i, l := range looks {
			if due := th.due(l.usage); due != l.due {
				t.Errorf("%s: look %d: due %v", what, i, due)
			}
		}
	}
}

var kept []byte

// What takes long is done less often while the relay is busy.
func TestThriftTakesAShareOfTheTime(t *testing.T) {
	th := newThrift()
	th.took = 2 * th.every
	th.due(usage{goroutines: 8000})
	n := 1
	for ; !th.due(usage{allocated: uint64(n) << 30, goroutines: 5000}); n++ {
		if n > 1000 {
			break
		}
	}
	if n < 2*share-2 || n > 2*share+2 {
		t.Errorf("due after %d looks", n)
	}
	const mb = 1 << 20
	th = newThrift()
	th.took = 2 * th.every
	th.due(usage{allocated: 500 * mb, objects: 300 * mb, live: 300 * mb})
	for n = 1; !th.due(usage{allocated: uint64(500+20*n) * mb, objects: 300 * mb, live: 300 * mb}); n++ {
		if n > 1000 {
			break
		}
	}
	if n < 2*share-2 || n > 2*share+2 {
		t.Errorf("what was live is collected after %d looks", n)
	}
}

// What was free goes back to the system.
func TestThriftGivesMemoryBack(t *testing.T) {
	released := func() uint64 {
		s := []metrics.Sample{{Name: "/memory/classes/heap/released:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	// As if the runtime kept everything, which it does while nothing is collected.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.GC()                              // one that goes on from before would take the burst for live
	burst := max(200<<20, 2*readUsage().live) // of the tests before, too
	synctest.Test(t, func(t *testing.T) {
		th := newThrift()
		go th.run(t.Context())
		// What was there before; and not just as it looks: what is allocated while garbage
		// is collected counts as live.
		time.Sleep(2*th.every + th.every/2)
		kept = make([]byte, burst)
		for i := uint64(0); i < burst; i += 4 << 10 {
			kept[i] = 1
		}
		kept = nil
		before := released()
		time.Sleep(3 * th.every)
		synctest.Wait()
		if now := released(); now < before+burst/2 {
			t.Errorf("%d bytes given back, then %d", before, now)
		}
	})
}
