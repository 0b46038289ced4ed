//go:build linux

package loadtest

import (
	"strconv"
	"time"

	"xdsrelay/internal/xdstest"
)

// slowReceive is the socket buffer of a slow reader: the size before the kernel lets it grow. Grown
// buffers of a thousand clients would exceed the kernel's limit for TCP on one machine. The kernel
// would then drop packets, and only its retransmission timers would be measured.
const slowReceive = 128 << 10

// side is one of the two compared relays: with slow readers, or without.
type side struct {
	*contender
	slow *crowd // nil: without

	before memory // while all still read
	kernel float64
	after  memory
}

// measureSlow measures clients that stop reading: their cost for other clients and for the relay,
// and what they receive when they read again.
func measureSlow(b *bench) {
	sides := []*side{b.side(0), b.side(b.load.Slow)}
	begin := time.Now()
	for r := range b.load.Changes {
		var p99 [2]float64
		for k := range sides {
			i := (k + r) % len(sides)
			at, got := sides[i].change()
			p99[i] = float64(got.p99 - at)
		}
		b.print("relay/slow=0", value{p99[0], "p99-ns"})
		b.print("relay/slow="+strconv.Itoa(b.load.Slow), value{p99[1], "p99-ns"}, value{p99[1] / p99[0], "p99/without"})
		if ahead := time.Until(begin.Add(time.Duration(r+1) * b.load.Every)); ahead > 0 {
			xdstest.Pause(b, ahead)
		}
	}
	for _, p := range sides {
		p.settle()
		kernel, err := kernelBytes(p.addr)
		if err != nil {
			b.Fatal(err)
		}
		p.kernel, p.after = float64(kernel), b.atRest(p.contender)
	}
	without, with := sides[0], sides[1]
	grown := func(of func(memory) float64) float64 {
		return (of(with.after) - of(with.before) - of(without.after) + of(without.before)) / float64(b.load.Slow)
	}
	kernel := (with.kernel - without.kernel) / float64(b.load.Slow)
	private := grown(func(m memory) float64 { return m.resident })
	begin = time.Now()
	with.slow.pause(false)
	responses := with.slow.awaitNewest(b, strconv.Itoa(with.gen))
	// Before they stopped they had the first response and the warm-ups.
	responses -= 1 + warmups
	b.print("relay/slow="+strconv.Itoa(b.load.Slow), value{kernel + private, "B/slow"}, value{kernel, "kernel-B/slow"},
		value{private, "private-B/slow"}, value{grown(func(m memory) float64 { return m.used }), "live-B/slow"},
		value{float64(time.Since(begin)), "newest-ns"}, value{float64(responses), "responses/slow"})
	if responses >= b.load.Changes && b.load.Changes > 8 {
		b.Errorf("a slow reader received %d responses of %d changes", responses, b.load.Changes)
	}
}

// side starts a relay with clients that read, and this many that have stopped.
func (b *bench) side(slow int) *side {
	// The slow readers do not answer pings either, and must not be disconnected yet. With a short
	// ack_timeout their sockets are soon full, which is the worst case.
	p := &side{contender: b.start(nameRelay, xdstest.Config{
		"downstream.ack_timeout": "500ms", "downstream.send_timeout": "1h", "downstream.keepalive": map[string]any{"time": "1h"},
	})}
	if slow > 0 {
		l := p.load
		l.Clients = slow
		p.slow = p.join(crowdSettings{load: l, receive: slowReceive})
	}
	p.connect()
	for range warmups {
		p.change()
	}
	if p.slow != nil {
		p.slow.await(b, warmups)
	}
	p.before = b.atRest(p.contender)
	if p.slow != nil {
		p.slow.pause(true)
	}
	return p
}
