package fanout

import (
	"strconv"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"xdsrelay/config"
	"xdsrelay/internal/xds"
)

// Who is ended lets go of all that it keeps alive, and whoever need not be is not.
func TestP16_NoMoreAreEndedThanNeedBe(t *testing.T) {
	s := NewServer(Options{Source: &house{}, Metrics: newMeters(t), Settings: Settings{Limits: config.Limits{PinnedBytes: 150 << 20}}})
	pins, all := make(map[any]pin), []*poll{}
	for who := range 3 {
		p := &poll{cut: make(chan struct{})}
		all = append(all, p)
		for what := range 60 {
			pins[who*60+what] = pin{p, 1 << 20}
		}
	}
	ended := func() (n int) {
		for _, p := range all {
			if p.refusal.Load() != nil {
				n++
			}
		}
		return n
	}
	if s.unpin(pins); ended() != 1 {
		t.Errorf("%d of 3 are ended, where one would do", ended())
	}
	// The one that keeps most, not that which keeps the largest.
	most := &poll{cut: make(chan struct{})}
	pins = map[any]pin{"large": {&poll{cut: make(chan struct{})}, 100 << 20}, 1: {most, 60 << 20}, 2: {most, 60 << 20}}
	if s.unpin(pins); most.refusal.Load() == nil {
		t.Error("who keeps most is not ended")
	}
}

// What a client brought counts until it is answered, though one name of it is not.
func TestP27_WhatWasAnsweredCountsNoMore(t *testing.T) {
	r := newRig(t, nil)
	all := names(2 * fairMemory / xds.NameUnit)
	brought := map[string]string{}
	for _, n := range all {
		brought[n] = "v"
	}
	c := r.delta(nil)
	c.must(&discoveryv3.DeltaDiscoveryRequest{Node: node("n"), TypeUrl: string(xds.RouteType), ResourceNamesSubscribe: all, InitialResourceVersions: brought})
	r.eventually(func() bool { return len(r.srv.Clients()) == 1 && len(r.srv.Clients()[0].Types) == 1 })
	st := r.srv.all()[0]
	pinned := func() (n int64) {
		pins := make(map[any]pin)
		st.remembered(pins)
		for _, p := range pins {
			n += p.bytes
		}
		return n
	}
	r.eventually(func() bool { return pinned() >= 2*fairMemory })
	r.house.group("edge").publish(update(t, xds.RouteType, all[1:]...))
	c.recv()
	st.mu.Lock()
	left := len(st.slots[0].initial())
	st.mu.Unlock()
	if n := pinned(); left != 1 || n != 0 {
		t.Errorf("%d bytes count for the %d names that are left", n, left)
	}
}

// And what it gave up.
func TestP24_WhatWasAnsweredCountsNoMore(t *testing.T) {
	w := newWorld(t, xds.ClusterType, xds.Delta)
	w.sub("*")
	for i := range 100 {
		w.s.parting("n" + strconv.Itoa(i))
	}
	for i := range 99 {
		delete(w.s.fresh, "n"+strconv.Itoa(i)) // answered
	}
	if w.s.recount(); w.s.remembers() != xds.NameUnit {
		t.Errorf("%d bytes count for %d names", w.s.remembers(), len(w.s.fresh))
	}
}
