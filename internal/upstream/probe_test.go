package upstream

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream/timing"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// from waits until the newest snapshot of a type is from this origin.
func (s *testSink) from(t *testing.T, typ xds.TypeURL, f string) {
	t.Helper()
	s.Until(t, "a response of "+f, func() bool { return s.Snapshots[typ] != nil && s.Snapshots[typ].Origin == f })
}

// returns answers a probe that requests this many types. The probe's stream becomes the key's.
func (f *fakeOrigin) returns(types int, answers ...resp) *fakeStream {
	f.t.Helper()
	probe := f.serve(types)
	for _, p := range answers {
		probe.send(p)
	}
	return probe
}

// ends waits until the relay closed the stream.
func (s *fakeStream) ends() {
	s.t.Helper()
	select {
	case <-s.Context().Done():
	case <-time.After(patience):
		s.t.Fatal("the stream stays open")
	}
}

// A probe sends the key's requests, acknowledges the answers and keeps them back. Once every type
// is answered, its stream becomes the key's. Clients see only differences.
func TestP56_ReturnOnceEachTypeIsAnswered(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		first, second := startFake(t), startFake(t)
		r := startRelay(t, v, Options{}, first.address, second.address)
		_, sink, b := r.failOver(first, second, all(cds), named(rds, "r"))
		b.send(resp{Type: cds, Version: "B1", Resources: []res{{Name: "a", Version: "b"}, {Name: "gone", Version: "b"}, {Name: "same", Version: "b"}}})
		b.send(resp{Type: rds, Version: "B1", Resources: clusters("r")})
		sink.Until(t, "what the second has", func() bool { return sink.Snapshots[rds].Len() == 1 && sink.Snapshots[cds].Len() == 3 })
		first.refuse(1) // this probe fails

		probe := first.next()
		if v == xds.Delta { // without versions, because the other origin sent all of them
			probe.got("CDS a= gone= same=")
			probe.got("RDS +[r] r=")
		} else {
			probe.got("CDS []")
			probe.got("RDS [r]")
		}
		probe.send(resp{Type: cds, Version: "A1", Resources: []res{{Name: "a", Content: "new", Version: "a"}, {Name: "same", Version: "a"}}, Removed: gone(v, "gone")})
		if v == xds.Delta {
			probe.got("CDS nonce 1")
		} else {
			probe.got("CDS [] version A1 nonce 1")
		}
		b.send(resp{Type: cds, Version: "B2", Resources: []res{{Name: "a", Content: "B2", Version: "b2"}, {Name: "gone", Version: "b"}, {Name: "same", Version: "b"}}})
		sink.Until(t, "the second's change", func() bool { return sink.Snapshots[cds].Version == "B2" }) // it is still in use
		sink.Mu.Lock()
		before := sink.Snapshots[cds]
		if got := sink.Names(cds); before.Origin != second.address || !slices.Equal(got, []string{"a", "gone", "same"}) {
			t.Errorf("%v of origin %s", got, before.Origin)
		}
		sink.Mu.Unlock()
		probe.send(resp{Type: cds, Version: "A1b", Resources: []res{{Name: "a", Content: "newer", Version: "a1b"}, {Name: "same", Version: "a"}}})
		probe.request()
		probe.send(resp{Type: rds, Version: "A1", Resources: clusters("r")})
		b.ends()
		sink.from(t, cds, first.address)
		sink.UntilNames(t, cds, "a", "same")
		sink.Mu.Lock()
		after := sink.Snapshots[cds]
		want := []string{"a", "gone"} // without the resources that both origins have
		if got := after.Changes(before, everything); !slices.Equal(got, want) {
			t.Errorf("clients see a difference in %v, want %v", got, want)
		}
		applied := 0
		for _, u := range sink.Updates {
			if u.Origin == first.address && slices.ContainsFunc(u.Changed, func(r *xds.Resource) bool { return r.Name == "a" }) {
				applied++
			}
		}
		if applied != 1 {
			t.Errorf("%d contents of a resource that changed during the probe were applied, want the newest", applied)
		}
		if after.Version != "A1b" || after.Origin != first.address {
			t.Errorf("version %s of %s", after.Version, after.Origin)
		}
		sink.Mu.Unlock()
		probe.send(resp{Type: cds, Version: "A2", Resources: []res{{Name: "a", Version: "a2"}, {Name: "same", Version: "a"}}})
		sink.Until(t, "its next change", func() bool { return sink.Snapshots[cds].Version == "A2" && sink.lastStatus().Connected })
		if len(first.streams) > 0 {
			t.Error("another stream was opened")
		}
	})
}

// What the other origin added to a wildcard during the probe is not listed by the probe. In delta
// the stream is opened again, so that the preferred origin can say that it does not have it.
func TestP56_AddedDuringTheProbe(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		first, second := startFake(t), startFake(t)
		r := startRelay(t, v, Options{}, first.address, second.address)
		_, sink, b := r.failOver(first, second, all(cds), named(rds, "r"))
		b.send(resp{Type: cds, Version: "B1", Resources: clusters("a")})
		b.send(resp{Type: rds, Version: "B1", Resources: clusters("r")})
		sink.Until(t, "what the second has", func() bool { return sink.Snapshots[rds].Len() == 1 && sink.Snapshots[cds].Len() == 1 })
		probe := first.serve(2)
		probe.send(resp{Type: cds, Version: "A1", Resources: []res{{Name: "a", Version: "A"}}})
		probe.request()
		b.send(resp{Type: cds, Version: "B2", Resources: clusters("a", "late")})
		sink.UntilNames(t, cds, "a", "late")
		probe.send(resp{Type: rds, Version: "A1", Resources: clusters("r")})
		if v == xds.Delta {
			s := first.next()
			if got := s.request(); !strings.Contains(got, "late=") {
				t.Errorf("request %s", got)
			}
			s.send(resp{Type: cds, Version: "A1", Removed: []string{"late"}})
		}
		sink.UntilNames(t, cds, "a")
	})
}

var everything = &snapshot.Subscription{Wildcard: true}

// If the preferred origin does not answer for a type with held resources, the key stays at the
// other origin. It does not wait for a type without held resources.
func TestP56_UnansweredTypesAreWaitedFor(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		first, second := n.origin("one"), n.origin("two")
		stream, sink, b := n.relay(v, "one", "two").failOver(first, second, all(cds), all(lds), named(eds, "never"))
		b.send(resp{Type: cds, Resources: clusters("a")})
		b.send(resp{Type: lds, Resources: clusters("l")})
		sink.UntilNames(t, lds, "l")
		probe := first.serve(2) // nothing is held of the third type
		probe.send(resp{Type: cds, Resources: clusters("a")})
		time.Sleep(probeTimeout - time.Second)
		if probe.Context().Err() != nil || b.Context().Err() != nil {
			t.Error("the key returned, and the first origin did not answer for listeners")
		}
		stream.SetInterest(sink.Want(all(cds), named(eds, "never")))
		sink.from(t, cds, addressOf("one"))
		for got := ""; !strings.Contains(got, "EDS"); {
			got = probe.request()
		}
	})
}

// A key does not return to an origin that accepts streams but sends no valid response.
func TestP56_SilenceAndGarbageAreNoAnswers(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		first, second := startFake(t), startFake(t)
		r := startRelay(t, v, Options{}, first.address, second.address)
		_, sink, _ := r.failOver(first, second, named(rds, "a"))
		probe := first.serve(1)
		probe.send(resp{Type: rds, Resources: clusters("a", "a")})
		if got := probe.request(); !strings.Contains(got, "NACK") {
			t.Errorf("request %s", got)
		}
		sink.Mu.Lock()
		if s := sink.lastStatus(); s.Origin != second.address {
			t.Errorf("status %+v", s)
		}
		sink.Mu.Unlock()
		probe.send(resp{Type: rds, Resources: clusters("a")})
		sink.UntilNames(t, rds, "a")
	})
}

// A probe without answers gives its place to other keys. That is logged once, and does not count as
// a failure of the origin.
func TestP56_SilenceKeepsNoOtherKeyFromReturning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &inMemory{t: t, at: make(map[string]*bufconn.Listener)}
		first, second := n.origin("one"), n.origin("two")
		log := new(xdstest.Log)
		r := startRelay(t, xds.Delta, Options{Dialer: n.dial, Backoff: quick, Log: log.Logger()},
			addressOf("one"), addressOf("two"))
		const silent = 5
		r.fail(r.client.origins[0])
		for i := range silent {
			r.keyed(second, fmt.Sprint("silent", i))
		}
		_, sink := r.keyed(second, "a")
		answers := resp{Type: rds, Resources: []res{{Name: "a", Version: "A"}}}
		for probes := 0; sink.heldAs(rds, "a").OriginVersion != "A"; synctest.Wait() {
			s := first.opens()
			if strings.Contains(s.request(), "[a]") {
				s.send(answers)
			} else if probes++; probes > silent {
				t.Fatal("others are probed again first")
			}
		}
		if got := log.Count("does not answer all types"); got == 0 || got > silent {
			t.Errorf("logged %d times for %d keys", got, silent)
		}
		if n := r.client.origins[0].status().Reconnects; n != 1 {
			t.Errorf("%d failures, want that of fail", n)
		}
	})
}

// keyed starts a key that the second origin serves.
func (r *relay) keyed(second *fakeOrigin, name string) (*Source, *testSink) {
	r.t.Helper()
	stream, sink := r.stream(named(rds, name))
	second.serve(1).send(resp{Type: rds, Resources: clusters(name)})
	sink.UntilNames(r.t, rds, name)
	return stream, sink
}

// heldAs returns the held resource of this name.
func (s *testSink) heldAs(typ xds.TypeURL, name string) *xds.Resource {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.Snapshots[typ].Resource(name)
}

// A key with an empty interest probes nothing. A running probe ends without counting as a failure.
// A probe requests the interest of the moment.
func TestP56_ProbesFollowTheInterest(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		first, second := startFake(t), startFake(t)
		r := startRelay(t, v, Options{}, first.address, second.address)
		r.fail(r.client.origins[0])
		stream, sink := r.stream(all(cds))
		b := second.serve(1)
		b.send(resp{Type: cds, Resources: clusters("a")})
		sink.UntilNames(t, cds, "a")
		probe := first.serve(1)
		stream.SetInterest(sink.Want())
		probe.ends()
		b.ends()
		r.until("the end of the probe", func() bool { return r.client.origins[0].probes.Running() == 0 })
		if len(first.streams) > 0 {
			t.Error("the first origin is probed though nothing is wanted")
		}
		if n := r.client.origins[0].status().Reconnects; n != 1 {
			t.Errorf("%d attempts failed, want that of fail", n)
		}
		stream.SetInterest(sink.Want(named(cds, "b")))
		second.serve(1).send(resp{Type: cds, Resources: clusters("b")})
		sink.UntilNames(t, cds, "b")
		probe = first.next()
		if got := probe.request(); !strings.HasPrefix(got, ask(v, "CDS", "b")) {
			t.Errorf("request %s", got)
		}
	})
}

// A key whose interest ends while it waits does not take a place from another key.
func TestP56_KeyThatWantsNothingTakesNoPlace(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		first, second := n.origin("one"), n.origin("two")
		r := n.relay(v, "one", "two")
		r.fail(r.client.origins[0])
		r.keyed(second, "k0")
		probe := first.serve(1) // it has the place
		idle, sink := r.keyed(second, "k1")
		synctest.Wait() // k1 waits for a place
		idle.SetInterest(sink.Want())
		_, sink = r.keyed(second, "k2")
		probe.done <- nil
		for sink.heldAs(rds, "k2").OriginVersion != "A" && sink.Snapshots[rds].OriginVersion() != "A" {
			s := first.opens()
			if strings.Contains(s.request(), "k1") {
				t.Error("the key without interest probes")
			}
			s.send(resp{Type: rds, Version: "A", Resources: []res{{Name: "k0", Version: "A"}, {Name: "k2", Version: "A"}}})
			synctest.Wait()
		}
	})
}

// do_not_cache resources are dropped with the stream that brought them, before the key subscribes
// at the preferred origin.
func TestP63_UncacheableResourcesEndWithTheReturn(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		first, second := startFake(t), startFake(t)
		r := startRelay(t, v, Options{}, first.address, second.address)
		_, sink, b := r.failOver(first, second, named(rds, "a", "b"))
		b.send(resp{Type: rds, Resources: []res{{Name: "a", Version: "B", Uncached: true}, {Name: "b", Version: "B"}}})
		sink.UntilNames(t, rds, "a", "b")
		answer := resp{Type: rds, Resources: []res{{Name: "a", Version: "A", Uncached: true}}}
		first.returns(1, answer)
		sink.from(t, rds, first.address)
		sink.UntilNames(t, rds, "a", "b")
		if n := r.counted(`dropped_resources_total{reason="stream_ended",type="RDS"}`); n != 1 {
			t.Errorf("%d were dropped", n)
		}
	})
}

// counted returns a counter's value, 0 if there is none.
func (r *relay) counted(series string) (n int) {
	rec := httptest.NewRecorder()
	r.client.opts.Metrics.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(rec.Body.String()) {
		if value, is := strings.CutPrefix(line, "xdsrelay_"+series+" "); is {
			n, _ = strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return n
}

// If an origin answers and fails soon after the return, later probes wait longer. A return that
// lasts resets that.
func TestP56_FleetingReturnsBackOff(t *testing.T) {
	b := timing.Backoff{Base: time.Second, Max: 30 * time.Second}
	s := (&Client{opts: Options{Backoff: b, Log: slog.Default()}}).NewSource(testKey, nil, newTestSink(), nil)
	m, err := telemetry.New(telemetry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := &Origin{metrics: m.Origin("one")}
	within := func(least, most time.Duration) {
		t.Helper()
		for range 100 {
			if d := s.probeDelay(at); d < least || d > most {
				t.Fatalf("waits for %v, want %v to %v", d, least, most)
			}
		}
	}
	s.left(at, at, telemetry.Switched) // the key started there, so it is no return
	within(0, 0)
	for _, d := range []time.Duration{8, 16, 32, 64, 128, 256, 512, 600, 600} {
		s.returned = time.Now().Add(-minReturn / 2)
		s.left(at, at, telemetry.Switched)
		within(d*time.Second/2, d*time.Second)
	}
	s.left(at, at, telemetry.Switched) // another was used, and failed as well
	within(300*time.Second, 600*time.Second)
	s.returned = time.Now().Add(-2 * minReturn)
	s.left(at, at, telemetry.Switched)
	within(0, 0)
}

// The relay switches between a directory and a server in both directions.
func TestP56_DirectoryAmongTheOrigins(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		dir := filepath.Join(t.TempDir(), "there-later")
		server := startFake(t)
		r := startRelay(t, v, Options{}, "file:"+dir, server.address)
		_, sink := r.stream(all(cds))
		s := server.serve(1)
		s.send(resp{Type: cds, Resources: clusters("a", "b")})
		sink.UntilNames(t, cds, "a", "b")
		made := filepath.Join(filepath.Dir(dir), "made")
		if err := os.Mkdir(made, 0o700); err != nil {
			t.Fatal(err)
		}
		text := `{"version_info": "7", "resources": [{"@type": "` + string(cds) + `", "name": "b", "alt_stat_name": "file"}, {"@type": "` + string(cds) + `", "name": "c"}]}`
		if err := os.WriteFile(filepath.Join(made, "clusters.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(made, dir); err != nil {
			t.Fatal(err)
		}
		sink.from(t, cds, "file:"+dir)
		sink.UntilNames(t, cds, "b", "c")
		<-s.Context().Done()
		if err := os.WriteFile(filepath.Join(dir, "clusters.json"), []byte(strings.Replace(text, `"c"`, `"d"`, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		sink.UntilNames(t, cds, "b", "d")
	})
}

// A key that returned leaves the origin again once that cannot be reached any more.
func TestP56_OriginThatIsLostAfterTheReturn(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		first, second := n.origin("one"), n.origin("two")
		_, sink, b := n.relay(v, "one", "two").failOver(first, second, named(rds, "a"))
		b.send(resp{Type: rds, Resources: []res{{Name: "a", Version: "B"}}})
		sink.from(t, rds, addressOf("two"))
		first.returns(1, resp{Type: rds, Resources: []res{{Name: "a", Version: "A"}}})
		sink.from(t, rds, addressOf("one"))
		n.remove("one")
		first.server.Stop()
		second.serve(1)
	})
}

// Twenty keys return over a slow link on which the answers of all take longer than two minutes. No
// answer is thrown away.
func TestP56_KeysReturnOverASlowLink(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		const keys, size, rate = 20, 200_000, 22_000
		first, second := n.origin("one"), n.origin("two")
		n.slow("one", rate)
		r := n.relay(v, "one", "two")
		r.fail(r.client.origins[0])
		var sinks []*testSink
		for range keys {
			_, sink := r.stream(named(cds, "a"))
			second.serve(1).send(resp{Type: cds, Resources: clusters("a")})
			sink.UntilNames(t, cds, "a")
			sinks = append(sinks, sink)
		}
		end := time.After(keys * size * 5 / 4 * time.Second / rate)
		for range keys {
			probe := first.opens()
			probe.request()
			go probe.send(resp{Type: cds, Resources: []res{{Name: "a", Content: strings.Repeat("x", size)}}})
		}
		<-end
		for _, sink := range sinks {
			sink.from(t, cds, addressOf("one"))
		}
		if n := len(first.streams); n > 0 {
			t.Errorf("%d keys asked again for what was arriving", n)
		}
	})
}

// A repeated answer does not prolong a probe. The probe still gives its place to other keys.
func TestP56_AnswersAgainDoNotKeepAProbe(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		first, second := n.origin("one"), n.origin("two")
		_, sink, b := n.relay(v, "one", "two").failOver(first, second, all(cds), all(lds))
		b.send(resp{Type: cds, Resources: clusters("a")})
		b.send(resp{Type: lds, Resources: clusters("l")})
		sink.UntilNames(t, lds, "l")
		probe := first.serve(2)
		for i := range 5 {
			if probe.Context().Err() != nil {
				return
			}
			probe.send(resp{Type: cds, Version: fmt.Sprint(i), Resources: clusters("a")})
			time.Sleep(probeTimeout/2 + time.Second)
		}
		if probe.Context().Err() == nil {
			t.Error("the probe stays open")
		}
	})
}

// A SotW origin says nothing of names that it does not have. A key whose other types it answered returns
// all the same.
func TestP56_NamesThatDoNotExistDoNotKeepAKeyAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &inMemory{t: t, at: make(map[string]*bufconn.Listener)}
		first, second := n.origin("one"), n.origin("two")
		_, sink, b := n.relay(xds.SotW, "one", "two").failOver(first, second, all(cds), named(eds, "a"))
		b.send(resp{Type: cds, Resources: clusters("a")})
		b.send(resp{Type: eds, Resources: clusters("a")})
		sink.UntilNames(t, eds, "a")
		first.serve(2).send(resp{Type: cds, Version: "A", Resources: clusters("b")})
		time.Sleep(2 * probeTimeout)
		sink.UntilNames(t, cds, "b")
		sink.UntilNames(t, eds, "a") // it says nothing of the name, which is thus kept
	})
}
