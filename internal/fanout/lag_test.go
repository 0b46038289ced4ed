package fanout

import (
	"testing"
	"time"

	"google.golang.org/grpc/connectivity"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// A session that nothing concerns falls behind, since its group does not wake
// it, and keeps an old state alive. It is woken for that alone, but not while it
// waits for an answer: it would learn nothing.
func TestP16_WhoIsBehindIsWoken(t *testing.T) {
	r := newRig(t, nil)
	g := r.house.group("edge")
	g.publish(update(t, xds.ClusterType, "a"))
	st, slots := still(t, r, xds.ClusterType)
	sl := slots[0]
	start := time.Now()
	plan := sl.Next(sl.snapshot(), Moment{Now: start, AckTimeout: time.Minute})
	frame := framesOf(plan.to).frame(st, &plan, "id")
	sl.Sent(&plan, frame.manifest, 1, start)
	woken := func(after time.Duration) bool {
		st.run.dirty.Store(0)
		st.lag(start.Add(after), map[any]pin{})
		return st.run.dirty.Load()&sl.bit != 0
	}
	if woken(0) {
		t.Error("woken though it is not behind")
	}
	g.publish(update(t, xds.ClusterType, "b"), update(t, xds.ClusterType, "-b"))
	if woken(time.Minute - 1) {
		t.Error("woken while it waits for an answer")
	}
	if !woken(time.Minute) {
		t.Error("not woken after ack_timeout: a client that never answers would keep the state alive for ever")
	}
	sl.flights = nil
	if !woken(0) {
		t.Error("not woken once it was answered")
	}
}

// What is held back counts among what a slow client keeps alive.
func TestP36_HeldBackCounts(t *testing.T) {
	inADS(t, "", holds, func(a *ads) {
		envoy(a)
		a.origin("CDS -x")
		var pinned int64
		for _, st := range a.srv.all() {
			a.withhold("CDS")
			a.origin("CDS z=2", "CDS z")
			pins := map[any]pin{}
			st.lag(time.Now(), pins)
			for _, p := range pins {
				pinned += p.bytes
			}
		}
		x, z := update(a.t, xds.ClusterType, "x").Changed[0].Size(), update(a.t, xds.ClusterType, "z=2").Changed[0].Size()
		if pinned != x+z {
			t.Errorf("%d bytes are kept alive, want %d", pinned, x+z)
		}
	}, xds.Delta)
}

// The connection of a client that takes nothing is closed, since the status
// that ends its stream would wait behind what it does not take; but not one that
// carries another stream.
func TestP16_HangUp(t *testing.T) {
	r := newRig(t, func(o *Options) { o.SendTimeout = 40 * time.Millisecond })
	r.house.group("edge").publish(update(t, xds.ClusterType, "a"))
	shared := r.dial()
	other := r.delta(shared)
	other.ask(xds.ClusterType)
	other.want("a ")
	stalledOn(r, shared)
	// The other stream goes on.
	r.house.group("edge").publish(update(t, xds.ClusterType, "b"))
	other.want("b ")

	alone := r.dial()
	stalledOn(r, alone)
	for state := alone.GetState(); state == connectivity.Ready; state = alone.GetState() {
		if !alone.WaitForStateChange(testContext(t), state) {
			t.Fatal("the connection of a client that takes nothing is still open")
		}
	}
	r.counted(telemetry.SendTimeout, 2)
}
