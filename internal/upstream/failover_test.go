package upstream

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"xdsrelay/internal/upstream/timing"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// refuse ends the next n streams at an origin before any response.
func (f *fakeOrigin) refuse(n int) {
	f.t.Helper()
	for range n {
		f.next().done <- nil
	}
}

// serve returns the next stream, once it has requested this many types.
func (f *fakeOrigin) serve(types int) *fakeStream {
	f.t.Helper()
	s := f.next()
	for range types {
		s.request()
	}
	return s
}

// failures lists the origins of failed attempts and ended streams, except probes. The caller holds
// the lock.
func (s *testSink) failures() (origins []string) {
	for _, st := range s.statuses {
		if st.Err != nil {
			origins = append(origins, st.Origin)
		}
	}
	return origins
}

// Failures count only in a row: after a response the next failure is the first.
func TestP56_FailuresAreCountedInARow(t *testing.T) {
	log := new(xdstest.Log)
	first, second := startFake(t), startFake(t)
	r := startRelay(t, xds.Delta, Options{Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))},
		first.address, second.address)
	_, sink := r.stream(named(rds, "a"))
	failed := 0
	fails := func(s *fakeStream) { // the failure is reported before the next attempt begins
		t.Helper()
		s.done <- nil
		failed++
		sink.Until(t, "the end of the stream", func() bool { return len(sink.failures()) >= failed })
		if n := log.Count("key uses another origin"); n > 0 {
			t.Fatal("the second origin is to be tried")
		}
	}
	for range 3 {
		fails(first.serve(1)) // one failure
		s := first.serve(1)
		s.send(resp{Type: rds, Resources: clusters("a")})
		s.request()
		fails(s) // none
	}
	fails(first.serve(1))
	first.serve(1).done <- nil // the second in a row
	second.serve(1)
	sink.Until(t, "the second origin", func() bool { return sink.lastStatus().Origin == second.address })
}

// A stream that the relay itself reopens does not reset the count of failures. A response on the
// previous stream does.
func TestP56_ResponsesBeforeTheRelayOpensAnotherStream(t *testing.T) {
	for _, answered := range []bool{true, false} {
		t.Run(fmt.Sprint(answered), func(t *testing.T) {
			eachVariant(t, func(t *testing.T, v xds.Variant) {
				log := new(xdstest.Log)
				first, second := startFake(t), startFake(t)
				r := startRelay(t, v, Options{Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))},
					first.address, second.address)
				stream, sink := r.stream(all(cds))
				first.serve(1).done <- nil // one failure
				s := first.serve(1)
				if answered {
					s.send(resp{Type: cds, Resources: clusters("a")})
					sink.UntilNames(t, cds, "a")
				}
				stream.SetInterest(sink.Want(named(cds, "a"))) // takes another stream
				first.serve(1).done <- nil
				sink.Until(t, "its end", func() bool { return len(sink.failures()) == 2 })
				if answered {
					first.serve(1) // it is tried again
				} else {
					second.serve(1)
				}
				if n := log.Count("key uses another origin"); (n == 0) != answered {
					t.Errorf("the second origin is to be tried %d times", n)
				}
			})
		})
	}
}

// gone returns the names that delta lists as removed, and that SotW leaves out.
func gone(v xds.Variant, names ...string) []string {
	if v == xds.Delta {
		return names
	}
	return nil
}

const lds = xds.ListenerType

// failOver starts a stream whose first origin refuses it and whose second one serves it.
func (r *relay) failOver(first, second *fakeOrigin, types ...snapshot.TypeInterest) (*Source, *testSink, *fakeStream) {
	stream, sink := r.stream(types...)
	first.refuse(2)
	return stream, sink, second.serve(len(types))
}

// The key uses the most preferred origin that answers. It probes only the origins that it prefers
// to that one.
func TestP56_ThreeOrigins(t *testing.T) {
	first, second, third := startFake(t), startFake(t), startFake(t)
	r := startRelay(t, xds.Delta, Options{}, first.address, second.address, third.address)
	_, sink := r.stream(named(rds, "a"))
	answer := resp{Type: rds, Resources: clusters("a")}
	first.refuse(2)
	probe := first.serve(1) // while the second is used
	second.refuse(2)
	probe.ends()
	third.serve(1).send(answer)
	sink.from(t, rds, third.address)
	probe = first.serve(1)
	b := second.returns(1, answer)
	probe.ends()
	b.send(answer)
	sink.from(t, rds, second.address)
	a := first.returns(1, answer)
	a.send(answer)
	sink.from(t, rds, first.address)
	r.until("one stream", func() bool {
		at := r.client.origins
		return at[0].streams.Load() == 1 && at[1].streams.Load() == 0 && at[2].streams.Load() == 0
	})
	// The search starts over, and the second origin, which is not away, is next.
	a.done <- nil
	first.refuse(2)
	second.serve(1).send(answer)
	sink.from(t, rds, second.address)
}

// A new key starts at an origin that is not away.
func TestP56_NewKeysBeginAtAnOriginThatIsNotAway(t *testing.T) {
	first, second := startFake(t), startFake(t)
	r := startRelay(t, xds.Delta, Options{Backoff: timing.Backoff{Base: time.Hour, Max: time.Hour}}, first.address, second.address)
	r.fail(r.client.origins[0])
	_, sink := r.stream(named(rds, "a"))
	second.serve(1).send(resp{Type: rds, Resources: clusters("a")})
	sink.UntilNames(t, rds, "a")
	sink.Until(t, "no failure", func() bool {
		return !slices.ContainsFunc(sink.statuses, func(s Status) bool { return s.Err != nil })
	})
}

// P53: one failed origin does not close client streams while another one was not tried.
func TestP53_FailedOnceEachOriginWasTried(t *testing.T) {
	first, second := startFake(t), startFake(t)
	r := startRelay(t, xds.Delta, Options{}, first.address, second.address)
	_, sink := r.stream(named(rds, "a"))
	failures := func() (out []bool) {
		for _, s := range sink.statuses {
			if s.Err != nil {
				out = append(out, s.Failed)
			}
		}
		return out
	}
	first.refuse(2)
	second.refuse(1)
	sink.Until(t, "three failures", func() bool { return len(failures()) >= 3 })
	sink.Mu.Lock()
	if got := failures(); !slices.Equal(got[:3], []bool{false, false, true}) {
		t.Errorf("failed: %v", got)
	}
	sink.Mu.Unlock()
	// A response from any origin starts the search over.
	s := second.serve(1)
	s.send(resp{Type: rds, Resources: clusters("a")})
	sink.UntilNames(t, rds, "a")
	s.done <- nil
	sink.Mu.Lock()
	n := len(failures())
	sink.Mu.Unlock()
	sink.Until(t, "the stream's end", func() bool { return len(failures()) > n && !failures()[n] })
}

// One key at a time probes an origin, however many prefer it, until a probe succeeds. Then
// timing.MaxProbes keys at a time do. The outage and its end are logged once each.
func TestP56_KeysReturnPaced(t *testing.T) {
	log := new(xdstest.Log)
	first, second := startFake(t), startFake(t)
	const keys = 100
	r := startRelay(t, xds.Delta, Options{Log: log.Logger()}, first.address, second.address)
	at := r.client.origins[0]
	r.fail(at)
	answer := resp{Type: rds, Resources: clusters("a")}
	for range keys {
		r.keyed(second, "a")
	}
	for range 3 { // away
		s := first.next()
		select {
		case <-first.streams:
			t.Error("two keys at a time probe an origin that is away")
		default:
		}
		s.done <- nil
	}
	open := []*fakeStream{first.serve(1)}
	open[0].send(answer)
	for range timing.MaxProbes {
		open = append(open, first.serve(1))
	}
	if n := at.probes.Running(); n != timing.MaxProbes {
		t.Errorf("%d keys probe", n)
	}
	for _, s := range open[1:] {
		s.send(answer)
	}
	for range keys - len(open) {
		first.serve(1).send(answer)
	}
	r.until("every stream at the first origin", func() bool {
		return r.client.origins[1].streams.Load() == 0 && at.streams.Load() == keys
	})
	if len(first.streams) > 0 {
		t.Error("a key opened a stream beside its probe")
	}
	for text, n := range map[string]int{"level=WARN": 1, "origin is away": 1, "origin is back": 1} {
		if got := log.Count(text); got != n {
			t.Errorf("%q is told %d times", text, got)
		}
	}
}

// until polls for a condition that no event announces.
func (r *relay) until(what string, ok func() bool) {
	r.t.Helper()
	xdstest.Eventually(r.t, what, xdstest.Holds(ok))
}
