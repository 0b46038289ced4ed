package upstream

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/xds"
)

// muted waits until a stream is told to be silent.
func (s *testSink) muted(t *testing.T) {
	t.Helper()
	s.until(t, "silence", func() bool { return len(s.statuses) > 0 && !s.lastStatus().SilentSince.IsZero() })
}

// A stream to an origin from which nothing comes is opened anew once there is something
// known from elsewhere, and then asks by what is held (P55); that is no failure. Nothing
// is taken for absent before the origin speaks, and then what it leaves unanswered is.
func TestP53_P57_ASilentStreamIsOpenedAnewForWhatIsKnown(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		f := startFake(t)
		r := startRelay(t, Options{Variant: v, AbsentAfter: 50 * time.Millisecond}, f.address)
		sink := newTestSink()
		sink.elsewhere = func() { sink.recall(t, rds, false, "a") }
		r.run(sink, named(rds, "a", "never"))
		f.next().got(ask(v, "RDS", "a", "never"))
		second := f.next()
		want := ask(v, "RDS", "a", "never")
		if v == xds.Delta {
			want += " a=" // with no version that this origin gave (P55)
		}
		second.got(want)
		sink.muted(t)
		sink.mu.Lock()
		if len(sink.updates) > 0 {
			t.Errorf("taken for absent: %+v", sink.updates)
		}
		for _, s := range sink.statuses {
			if s.Failed || s.Attempts > 0 || s.Err != nil {
				t.Errorf("%+v", s)
			}
		}
		sink.mu.Unlock()
		if !sink.stale(rds) || sink.Held(rds).Held("a") == nil {
			t.Error("what is known from elsewhere is not held")
		}
		second.send(resp{typ: rds, res: clusters("a")})
		sink.until(t, "the origin's word", func() bool { return !sink.held[rds].Stale })
		sink.until(t, "a guess", func() bool { return sink.presence(rds, "never") == xds.Absent })
		if n := len(f.streams); n > 0 {
			t.Errorf("%d more streams", n)
		}
	})
}

// Where nothing is known there is nothing to end a stream for; and once something has
// come, silence is none.
func TestP53_SilenceAloneEndsNoStream(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		f := startFake(t)
		r := startRelay(t, Options{Variant: v, AbsentAfter: 20 * time.Millisecond}, f.address)
		stream, sink := r.stream(named(rds, "a"))
		s := f.next()
		sink.muted(t)
		s.send(resp{typ: rds, res: clusters("a")})
		sink.until(t, "an answer", func() bool { return sink.presence(rds, "a") == xds.Present })
		sink.mu.Lock()
		sink.elsewhere = func() { t.Error("ended after an answer") }
		sink.mu.Unlock()
		stream.SetInterest(sink.want(named(rds, "a", "b")))
		sink.until(t, "a guess", func() bool { return sink.presence(rds, "b") == xds.Absent })
		if n := len(f.streams); n > 0 {
			t.Errorf("%d more streams", n)
		}
	})
}

// What is asked for later on a stream on which nothing has come yet is looked for too.
func TestP53_ASilentStreamIsAskedForMore(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		f := startFake(t)
		r := startRelay(t, Options{Variant: v, AbsentAfter: 20 * time.Millisecond}, f.address)
		stream, sink := r.stream(named(rds, "a"))
		f.next()
		sink.muted(t)
		sink.mu.Lock()
		sink.elsewhere = func() { sink.recall(t, cds, true, "c") }
		sink.mu.Unlock()
		stream.SetInterest(sink.want(named(rds, "a"), all(cds)))
		f.next()
		if !sink.stale(cds) || sink.Held(cds).Held("c") == nil {
			t.Error("what is known from elsewhere is not held")
		}
	})
}

// An origin that hangs is no witness: while nothing has come on any stream to it, no name is
// taken for absent. If it speaks to others, its silence says something.
func TestP57_AMuteOriginIsNoWitness(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		const patience = 20 * time.Millisecond
		f := startFake(t)
		r := startRelay(t, Options{Variant: v, AbsentAfter: patience}, f.address)
		_, sink := r.stream(named(rds, "a"))
		f.next()
		sink.muted(t)
		<-time.After(3 * patience)
		sink.mu.Lock()
		if len(sink.updates) > 0 {
			t.Errorf("taken for absent: %+v", sink.updates)
		}
		sink.mu.Unlock()
		r.stream(named(rds, "b"))
		f.next().send(resp{typ: rds, res: clusters("b")})
		sink.until(t, "a guess", func() bool { return sink.presence(rds, "a") == xds.Absent })
	})
}

// How soon a silent stream may end again: soon at first, ever later then.
func TestP53_SilentStreamsEndEverLessOften(t *testing.T) {
	var got []time.Duration
	for ends := range 10 {
		got = append(got, quiet{ends: ends}.soon(16*time.Second))
	}
	for i, want := range []time.Duration{2, 2, 4, 8, 16, 32, 64, 128, 128, 128} {
		if got[i] != want*time.Second {
			t.Errorf("after %d: %v", i, got[i])
		}
	}
}

// What waited while the origin was mute waits on from its first word: be that on this
// stream or on another, before this one is opened anew.
func TestP57_NothingIsAbsentJustAsAnOriginBeginsToSpeak(t *testing.T) {
	const patience = 300 * time.Millisecond
	absent := func(t *testing.T, sink *testSink, name string, word time.Time) {
		t.Helper()
		sink.until(t, "a guess", func() bool { return sink.presence(rds, name) == xds.Absent })
		if d := time.Since(word); d < patience {
			t.Errorf("taken for absent %v after the first word", d)
		}
	}
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		f := startFake(t)
		r := startRelay(t, Options{Variant: v, AbsentAfter: patience}, f.address)
		_, sink := r.stream(named(rds, "a"), all(cds))
		s := f.next()
		<-time.After(2*patience - patience/4)
		word := time.Now()
		s.send(resp{typ: cds, res: clusters("c")})
		absent(t, sink, "a", word)

		var spoken *fakeStream
		f = startFake(t)
		r = startRelay(t, Options{Variant: v, AbsentAfter: patience}, f.address)
		_, other := r.stream(named(rds, "b"))
		spoken = f.next()
		sink = newTestSink()
		sink.elsewhere = func() { // between the two streams
			sink.recall(t, rds, false, "a")
			word = time.Now()
			spoken.send(resp{typ: rds, res: clusters("b")})
			other.untilNames(t, rds, "b")
		}
		r.run(sink, named(rds, "a", "never"))
		f.next()
		f.next()
		absent(t, sink, "never", word)
	})
}

// A silent stream is asked about in its time, however often what it asks for changes.
func TestP53_ASilentStreamWhoseInterestChanges(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		const patience = 100 * time.Millisecond
		f := startFake(t)
		r := startRelay(t, Options{Variant: v, AbsentAfter: patience}, f.address)
		sink := newTestSink()
		recalled := make(chan struct{})
		sink.elsewhere = func() { close(recalled) }
		stream := r.run(sink, named(rds, "a"))
		names := []string{"a"}
		for deadline := time.After(20 * time.Second); ; {
			select {
			case <-recalled:
				return
			case <-deadline:
				t.Fatal("it is not asked about")
			case <-time.After(patience / 3):
				names = append(names, fmt.Sprint("n", len(names)))
				stream.SetInterest(sink.want(named(rds, names...)))
			}
		}
	})
}

// An outage of silence is over with the first word, also on a stream that was opened anew.
func TestAnOutageOfSilenceEnds(t *testing.T) {
	f := startFake(t)
	r := startRelay(t, Options{Variant: xds.Delta, AbsentAfter: 50 * time.Millisecond}, f.address)
	sink := newTestSink()
	sink.elsewhere = func() { sink.recall(t, rds, false, "a") }
	r.run(sink, named(rds, "a"))
	f.next()
	f.next().send(resp{typ: rds, res: clusters("a")})
	sink.until(t, "the origin's word", func() bool { return !sink.held[rds].Stale })
	if s := r.client.Origins()[0]; !s.SilentSince.IsZero() || s.Silent != 0 {
		t.Errorf("%d silent streams, since %v", s.Silent, s.SilentSince)
	}
}

// What comes while it is asked whether a silence is to end the stream is no silence.
func TestP53_WhatHasComeIsNoSilence(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		f := startFake(t)
		r := startRelay(t, Options{Variant: v, AbsentAfter: 20 * time.Millisecond}, f.address)
		sink := newTestSink()
		var stream *Stream
		ready := make(chan struct{})
		sink.asked = func() {
			<-ready
			f.next().send(resp{typ: rds, res: clusters("a")})
			for !stream.serving.arrived.Load() {
				<-time.After(time.Millisecond)
			}
		}
		sink.elsewhere = func() { t.Error("ended for what is known from elsewhere") }
		stream = r.run(sink, named(rds, "a"))
		close(ready)
		sink.untilNames(t, rds, "a")
		if n := len(f.streams); n > 0 {
			t.Errorf("%d more streams", n)
		}
	})
}

// An origin whose first response is refused, or of what nobody asked for, has spoken.
func TestP53_ABadFirstResponseIsAWord(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		for _, bad := range []resp{
			{typ: cds, res: clusters("c")},
			{typ: rds, res: clusters("a", "a")},
		} {
			f := startFake(t)
			r := startRelay(t, Options{Variant: v}, f.address)
			_, sink := r.stream(named(rds, "a"))
			s := f.next()
			sink.until(t, "a stream", func() bool { return sink.lastStatus().Connected })
			if sink.lastStatus().Spoken {
				t.Error("it has not spoken")
			}
			s.send(bad)
			sink.until(t, "a word", func() bool { return sink.lastStatus().Connected && sink.lastStatus().Spoken })
		}
	})
}

// Nor is one that is turned to for another, however much that said: it was told of no
// version that it gave (P55), so that it has to speak of all that it has.
func TestP56_P57_AMuteOriginThatIsTurnedToIsNoWitness(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		const patience = 30 * time.Millisecond
		first, second := startFake(t), startFake(t)
		r := startRelay(t, Options{Variant: v, AbsentAfter: patience}, first.address, second.address)
		stream, sink := r.stream(named(rds, "a"))
		s := first.serve(1)
		s.send(resp{typ: rds, res: clusters("a")})
		sink.untilNames(t, rds, "a")
		s.request()
		s.done <- nil
		first.refuse(2)
		mute := second.next()
		mute.request()
		stream.SetInterest(sink.want(named(rds, "a", "b")))
		sink.muted(t)
		<-time.After(4 * patience)
		sink.mu.Lock()
		if is := sink.presence(rds, "b"); is != xds.Pending {
			t.Errorf("b is %v", is)
		}
		sink.mu.Unlock()
		mute.send(resp{typ: rds, res: clusters("a")})
		sink.until(t, "a guess", func() bool { return sink.presence(rds, "b") == xds.Absent })
	})
}

// What is taken of a type that nobody wants any more brings no Update, and is a word all
// the same.
func TestP53_AFirstResponseThatNobodyWantsIsAWord(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		stream, sink := n.relay(v, "one").stream(named(rds, "a"), named(eds, "b"))
		s := f.next()
		time.Sleep(time.Second)
		stream.SetInterest(sink.want(named(rds, "a")))
		time.Sleep(time.Second)
		s.send(resp{typ: eds, res: clusters("b")})
		synctest.Wait()
		sink.mu.Lock()
		defer sink.mu.Unlock()
		if !sink.lastStatus().Spoken {
			t.Errorf("%+v", sink.statuses)
		}
	})
}
