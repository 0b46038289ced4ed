package fanout

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/rest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// watcher looks at all streams now and then, for what no event tells: clients
// that take nothing, and old states that are kept alive. It has one user.
type watcher struct {
	srv     *Server
	sweep   sweep
	waiting map[*stream]bool // what they keep is looked at each time
	paces   map[*stream]pace // of those with a message in flight
	streams []*stream        // room to list all in; empty between two looks
}

func (s *Server) newWatcher() *watcher {
	return &watcher{srv: s, waiting: make(map[*stream]bool), paces: make(map[*stream]pace)}
}

// run looks until ctx ends.
func (w *watcher) run(ctx context.Context) {
	tick := time.NewTicker(w.srv.watchEvery())
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.look(time.Now())
			tick.Reset(w.srv.watchEvery()) // long_poll may be another
		case <-ctx.Done():
			return
		}
	}
}

// watchEvery is how often: often enough for the shortest timeout, and at most
// once in a second.
func (s *Server) watchEvery() time.Duration {
	every := time.Second
	for _, d := range []time.Duration{s.opts.SendTimeout, s.settings().LongPoll} {
		if d > 0 {
			every = min(every, d/4)
		}
	}
	return max(every, 5*time.Millisecond)
}

// look is one round.
func (w *watcher) look(now time.Time) {
	s, pins := w.srv, make(map[any]pin)
	all := w.sweep.due(now, xds.Spent(), s.settings().Limits.PinnedBytes)
	w.streams = s.appendAll(w.streams)
	waited, paced := w.waiting, w.paces
	w.waiting, w.paces = make(map[*stream]bool), make(map[*stream]pace)
	for _, st := range w.streams {
		if f := st.flying.Load(); f != nil {
			p := st.pace(paced[st], now)
			w.paces[st] = p
			if r := s.stalled(st, f, p, now); r != nil {
				st.End(r)
				continue
			}
			if now.Sub(time.Unix(0, st.since.Load())) > slow {
				pins[cmp.Or(f.first, f)] = pin{st, int64(len(f.body))}
			}
		}
		if (all || waited[st]) && st.lag(now, pins) {
			w.waiting[st] = true
		}
	}
	clear(w.streams)
	w.streams = w.streams[:0]
	s.rest.Pinned(now, slow, func(what any, by *rest.Poll, bytes int64) { pins[what] = pin{by, bytes} })
	s.unpin(pins)
	s.rest.Expire(now)
}

// sweep says when all sessions are looked at for old states. It follows how much
// may be old: who wants nothing of what changes is left alone meanwhile, however
// often it does.
type sweep struct {
	at    time.Time // the last one
	bytes int64     // xds.Spent then
}

// At the latest all sessions are looked at when so much may be old, and after so
// long.
const (
	sweepBytes = 16 << 20
	sweepEvery = time.Minute
)

// due reports whether all are to be looked at; bytes is xds.Spent.
func (w *sweep) due(now time.Time, bytes, pinned int64) bool {
	most := int64(sweepBytes)
	if pinned > 0 {
		most = min(most, pinned/16)
	}
	if bytes-w.bytes < most && now.Sub(w.at) < sweepEvery {
		return false
	}
	*w = sweep{now, bytes}
	return true
}

// slow is a message that is in flight for longer than anyone who reads would
// take; only then what it keeps alive counts.
const slow = time.Second

// pace is how a message in flight gets on.
type pace struct {
	since int64     // when it was handed over: another has another
	bytes int64     // that the connection had taken at
	at    time.Time // when it took something last
}

// takes is how much a connection has to take to count as taking something, in
// bytes: more than pings and the ends of messages, and less than one write.
const takes = 64 << 10

// pace is how the message in flight gets on, which was at p in the last round.
func (st *stream) pace(p pace, now time.Time) pace {
	since, written := st.since.Load(), st.conn.Written()
	switch {
	case p.since != since:
		return pace{since, written, time.Unix(0, since)}
	case written-p.bytes >= takes:
		p.bytes, p.at = written, now
	}
	return p
}

// stalled says why a stream is to end whose message f gets on at this pace: its
// client took nothing for send_timeout. What others take on the same connection
// says nothing of it, so of one that is shared all has to be taken in time.
func (s *Server) stalled(st *stream, f *Frame, p pace, now time.Time) *Refusal {
	limit, began := s.opts.SendTimeout, time.Unix(0, p.since)
	if limit == 0 || now.Sub(began) <= limit {
		return nil
	}
	if s.admission.Alone(st.conn) {
		if now.Sub(p.at) <= limit {
			return nil
		}
		return Refuse(codes.Unavailable, telemetry.SendTimeout, "stream: took nothing for send_timeout (%s)", limit)
	}
	if limit = listener.SendTime(s.opts.SendTimeout, len(f.body)); now.Sub(began) <= limit {
		return nil
	}
	return Refuse(codes.Unavailable, telemetry.SendTimeout, "stream: did not take %d bytes in %s: send_timeout, and a second for each MiB", len(f.body), limit)
}

// pin is something old that is kept alive: who does so, and what it costs in bytes.
type pin struct {
	by    ender
	bytes int64
}

// ender is a stream, or what else keeps something alive and can be ended. It is
// comparable.
type ender interface{ End(r *Refusal) }

// lag notes what the stream's sessions keep alive: for each lineage the most
// that any keeps of what was replaced since. A session that is behind for lack
// of anything to say, and waits for no answer, is woken, so that it lets go. It
// reports whether any waits, for an answer or for a message to leave, and so keeps
// what it has.
func (st *stream) lag(now time.Time, pins map[any]pin) (waits bool) {
	idle := uint64(0)
	st.mu.Lock()
	for _, sl := range st.slots {
		cur, old := sl.snapshot(), sl.SentSnapshot()
		if cur == nil || old == nil || cur == old {
			continue
		}
		old.Release() // its frames: nobody comes to it any more
		if cur.Lineage != old.Lineage {
			continue
		}
		if _, out := sl.Outstanding(now, st.srv.settings().AckTimeout); out {
			waits = true
		} else {
			idle |= sl.bit
			waits = waits || st.flying.Load() != nil // nothing comes of being woken
		}
		if bytes := cur.Retired - old.Retired; bytes > pins[cur.Lineage].bytes {
			pins[cur.Lineage] = pin{st, bytes}
		}
	}
	st.mu.Unlock()
	if idle != 0 {
		st.wake(idle)
	}
	return waits
}

// unpin ends the streams that keep most alive, with all that each does, until the
// rest is within pinned_bytes. What one lineage's slowest stream keeps alive, the
// others of it do as well, and a frame that many wait for is one: each counts once.
func (s *Server) unpin(pins map[any]pin) {
	limit, total := s.settings().Limits.PinnedBytes, int64(0)
	for _, p := range pins {
		total += p.bytes
	}
	defer func() { s.meters.PinnedBytes.Set(int(total)) }()
	if limit <= 0 || total <= limit {
		return
	}
	keeps := make(map[ender]int64)
	for _, p := range pins {
		keeps[p.by] += p.bytes
	}
	for _, by := range slices.SortedFunc(maps.Keys(keeps), func(a, b ender) int { return cmp.Compare(keeps[b], keeps[a]) }) {
		if total <= limit {
			return
		}
		total -= keeps[by]
		by.End(Refuse(codes.ResourceExhausted, telemetry.LimitPinnedBytes, "stream: keeps %d bytes alive that nobody else needs, more than downstream.limits.pinned_bytes allows (%d)", keeps[by], limit))
	}
}
