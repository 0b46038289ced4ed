package upstream

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// muted waits until a stream is reported as silent.
func (s *testSink) muted(t *testing.T) {
	t.Helper()
	s.Until(t, "silence", func() bool { return len(s.statuses) > 0 && !s.lastStatus().SilentSince.IsZero() })
}

// A name without an answer stays pending. The relay does not close the stream of an origin that
// never answers.
func TestP57_SilenceMeansNothing(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		r := n.relay(v, "one")
		_, mute := r.stream(named(rds, "n"))
		f.next()
		stream, sink := r.stream(named(rds, "a", "never"))
		s := f.next()
		s.send(resp{Type: rds, Resources: clusters("a")})
		sink.UntilNames(t, rds, "a")
		time.Sleep(24 * time.Hour)
		stream.SetInterest(sink.Want(named(rds, "a", "b", "never")))
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		for name, want := range map[string]snapshot.Presence{"a": snapshot.Present, "b": snapshot.Pending, "never": snapshot.Pending} {
			if is := sink.is(rds, name); is != want {
				t.Errorf("%s is %d, want %d", name, is, want)
			}
		}
		if is := mute.is(rds, "n"); is != snapshot.Pending {
			t.Errorf("n is %d", is)
		}
		if at := r.client.Origins()[0]; at.Reconnects > 0 || at.Away || len(f.streams) > 0 {
			t.Errorf("%+v, %d more streams", at, len(f.streams))
		}
	})
}

// A stream without a response within first_answer_timeout is counted and shown as
// silent, until its first response.
func TestP57_SilentStreamsAreShown(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		var log xdstest.Log
		r := startRelay(t, v, Options{Origins: []OriginOptions{{Address: addressOf("one")}}, Dialer: n.dial, Log: log.Logger()})
		_, sink := r.stream(named(rds, "a"))
		s := f.next()
		silent := func(want int) {
			t.Helper()
			synctest.Wait()
			at := r.client.Origins()[0]
			if got := r.counted(`upstream_silent_streams{origin="` + addressOf("one") + `"}`); got != want || at.Silent != want || at.SilentSince.IsZero() != (want == 0) {
				t.Fatalf("%d silent streams by the metric, and %+v; want %d", got, at, want)
			}
		}
		time.Sleep(9 * time.Second)
		silent(0)
		time.Sleep(2 * time.Second)
		silent(1)
		if log.Count(`msg="origin is silent: `) != 1 || log.Count(" key=key for=") != 1 {
			t.Errorf("the log does not name the key:\n%s", &log)
		}
		sink.muted(t)
		s.send(resp{Type: rds, Resources: clusters("a")})
		sink.UntilNames(t, rds, "a")
		silent(0)
		time.Sleep(time.Hour)
		silent(0)
	})
}

// A stream is not silent while its answer arrives slowly. The status says how much has arrived.
// Whole responses to other streams of the connection are no sign of its answer.
func TestP57_ArrivingAnswerIsNoSilence(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		n.slow("one", 10_000)
		r := n.relay(v, "one")
		_, sink := r.stream(named(cds, "a"))
		s := f.next()
		r.stream(named(cds, "b"))
		other := f.next()
		other.request()
		for i := range 15 {
			time.Sleep(time.Second)
			other.send(resp{Type: cds, Version: strconv.Itoa(i), Resources: []res{{Name: "b", Content: strings.Repeat("x", 6000+i)}}})
			other.request()
		}
		sink.muted(t)
		go s.send(resp{Type: cds, Resources: []res{{Name: "a", Content: strings.Repeat("x", 400_000)}}})
		for i := range 3 {
			time.Sleep(10 * time.Second)
			synctest.Wait()
			at := r.client.Origins()[0]
			sink.Mu.Lock()
			got := sink.lastStatus()
			sink.Mu.Unlock()
			if got.Arriving < int64(i)*90_000+40_000 || got.Arriving > 400_000 || !got.SilentSince.IsZero() || at.Silent > 0 {
				t.Errorf("%+v, %d silent streams", got, at.Silent)
			}
		}
		sink.UntilNames(t, cds, "a")
		sink.Until(t, "the answer", func() bool { return sink.lastStatus().Responded && sink.lastStatus().Arriving == 0 })
	})
}

// A silent stream that ends without a response and the next silent stream belong to the same
// silence.
func TestSilenceEndsWithTheFirstResponse(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		r := n.relay(v, "one")
		_, sink := r.stream(named(rds, "a"))
		s := f.next()
		sink.muted(t)
		since := r.client.Origins()[0].SilentSince
		s.done <- nil
		s = f.next()
		synctest.Wait()
		if at := r.client.Origins()[0]; at.Silent != 0 || !at.SilentSince.Equal(since) {
			t.Errorf("%+v, want silent since %v", at, since)
		}
		s.send(resp{Type: rds, Resources: clusters("a")})
		sink.UntilNames(t, rds, "a")
		if at := r.client.Origins()[0]; !at.SilentSince.IsZero() {
			t.Errorf("%+v", at)
		}
	})
}

// A stream on which nothing is requested any more is not silent. It is again once something is.
func TestP57_IdleStreamsAreNotSilent(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		n.origin("one")
		r := n.relay(v, "one")
		stream, sink := r.stream(named(rds, "a"))
		is := func(want int) {
			t.Helper()
			time.Sleep(time.Hour)
			synctest.Wait()
			if got := r.counted(`upstream_silent_streams{origin="` + addressOf("one") + `"}`); got != want || sink.lastStatus().SilentSince.IsZero() != (want == 0) {
				t.Errorf("%d silent streams, and %+v; want %d", got, sink.lastStatus(), want)
			}
		}
		is(1)
		stream.SetInterest(sink.Want())
		is(0)
		stream.SetInterest(sink.Want(named(rds, "a")))
		is(1)
	})
}

// A first response that is rejected, or is of a type that was not requested, ends the silence.
func TestP53_BadFirstResponseEndsTheSilence(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		for _, bad := range []resp{
			{Type: cds, Resources: clusters("c")},
			{Type: rds, Resources: clusters("a", "a")},
		} {
			f := startFake(t)
			r := startRelay(t, v, Options{}, f.address)
			_, sink := r.stream(named(rds, "a"))
			s := f.next()
			sink.Until(t, "a stream", func() bool { return sink.lastStatus().Connected })
			if sink.lastStatus().Responded {
				t.Error("it has not spoken")
			}
			s.send(bad)
			sink.Until(t, "a word", func() bool { return sink.lastStatus().Connected && sink.lastStatus().Responded })
		}
	})
}

// A response for a type that is no longer wanted brings no Update, but ends the silence.
func TestP53_UnwantedFirstResponseEndsTheSilence(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		stream, sink := n.relay(v, "one").stream(named(rds, "a"), named(eds, "b"))
		s := f.next()
		time.Sleep(time.Second)
		stream.SetInterest(sink.Want(named(rds, "a")))
		time.Sleep(time.Second)
		s.send(resp{Type: eds, Resources: clusters("b")})
		synctest.Wait()
		sink.Mu.Lock()
		defer sink.Mu.Unlock()
		if !sink.lastStatus().Responded {
			t.Errorf("%+v", sink.statuses)
		}
	})
}

// is locks the sink and returns the presence of a name.
func (s *testSink) is(typ xds.TypeURL, name string) snapshot.Presence {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.Presence(typ, name)
}
