package upstream

import (
	"testing"
	"time"

	"xdsrelay/internal/xds"
)

// A stream on which nothing comes is opened anew once there is something known from
// elsewhere, and then asks by what is held; that is no failure. What it gave by
// then is asked for as of any other origin (P55), and nothing is taken for absent before.
func TestP53_P57_ASilentStreamIsOpenedAnewForWhatIsKnown(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		f := startFake(t)
		r := startRelay(t, Options{Variant: v, AbsentAfter: 50 * time.Millisecond}, f.address)
		sink := newTestSink()
		sink.elsewhere = func() { sink.recall(t, rds, false, "a") }
		r.run(sink, named(rds, "a", "never"))
		first := f.next()
		first.got(ask(v, "RDS", "a", "never"))
		second := f.next()
		want := ask(v, "RDS", "a", "never")
		if v == xds.Delta {
			want += " a=" // with no version that this origin gave (P55)
		}
		second.got(want)
		sink.until(t, "a guess", func() bool { return sink.presence(rds, "never") == xds.Absent })
		if !sink.stale(rds) || sink.Held(rds).Held("a") == nil {
			t.Error("what is known from elsewhere is not held")
		}
		sink.mu.Lock()
		for _, u := range sink.updates {
			if len(u.Removed) != 1 || u.Removed[0] != "never" {
				t.Errorf("%+v", u)
			}
		}
		for _, s := range sink.statuses {
			if s.Failed || s.Attempts > 0 || s.Err != nil {
				t.Errorf("%+v", s)
			}
		}
		sink.mu.Unlock()
		second.send(resp{typ: rds, res: clusters("a")})
		sink.until(t, "the origin's word", func() bool { return !sink.held[rds].Stale })
		if n := len(f.streams); n > 0 {
			t.Errorf("%d more streams", n)
		}
	})
}

// Where something has come, silence is none; and where nothing is known there is
// nothing to end a stream for.
func TestP53_SilenceAloneEndsNoStream(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		f := startFake(t)
		r := startRelay(t, Options{Variant: v, AbsentAfter: 20 * time.Millisecond}, f.address)
		stream, sink := r.stream(named(rds, "a"))
		s := f.next()
		sink.until(t, "a guess", func() bool { return sink.presence(rds, "a") == xds.Absent })
		s.send(resp{typ: rds, res: clusters("a")})
		sink.until(t, "an answer", func() bool { return sink.presence(rds, "a") == xds.Present })
		sink.mu.Lock()
		sink.elsewhere = func() { t.Error("ended after an answer") }
		sink.mu.Unlock()
		stream.SetInterest(sink.want(named(rds, "a", "b")))
		sink.until(t, "another guess", func() bool { return sink.presence(rds, "b") == xds.Absent })
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
		sink.until(t, "a guess", func() bool { return sink.presence(rds, "a") == xds.Absent })
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
