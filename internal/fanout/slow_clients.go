package fanout

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/rest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds/snapshot"
)

// watcher checks all streams at intervals, and ends clients that are too slow: those that receive
// too little in send_timeout, and those that keep too much old memory alive (pinned_bytes). One
// goroutine uses it.
type watcher struct {
	srv      *Server
	sweep    sweep
	waiting  map[*stream]bool     // streams whose sessions are checked in each round
	progress map[*stream]progress // of those with a message in flight
	streams  []*stream            // a buffer to list all streams; empty between rounds
}

func (s *Server) newWatcher() *watcher {
	return &watcher{srv: s, waiting: make(map[*stream]bool), progress: make(map[*stream]progress)}
}

// run does rounds until ctx ends.
func (w *watcher) run(ctx context.Context) {
	tick := time.NewTicker(w.srv.watchInterval())
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.look(time.Now())
			tick.Reset(w.srv.watchInterval()) // long_poll may have changed
		case <-ctx.Done():
			return
		}
	}
}

// watchInterval is short enough for the shortest timeout, and at most a second.
func (s *Server) watchInterval() time.Duration {
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
	all := w.sweep.due(now, snapshot.SupersededBytes(), s.settings().Limits.PinnedBytes)
	w.streams = s.appendAll(w.streams)
	if s.admission.Full() {
		s.endLost(w.streams, now)
	}
	waited, before := w.waiting, w.progress
	w.waiting, w.progress = make(map[*stream]bool), make(map[*stream]progress)
	for _, st := range w.streams {
		if f := st.inFlight.Load(); f != nil {
			p := st.progress(before[st], now)
			w.progress[st] = p
			if r := s.tooSlow(st, p, now); r != nil {
				st.End(r)
				continue
			}
			if now.Sub(time.Unix(0, st.since.Load())) > slow { // all parts of a response stay until the last has left
				pins[cmp.Or(f.first, f)] = pin{st, int64(f.size())}
			}
		}
		if (all || waited[st]) && st.pinned(now, pins) {
			w.waiting[st] = true
		}
	}
	clear(w.streams)
	w.streams = w.streams[:0]
	s.rest.Pinned(now, slow, func(what any, by *rest.Poll, bytes int64) { pins[what] = pin{by, bytes} })
	s.unpin(pins)
	s.rest.Expire(now)
}

// pingTime is how long a client has to answer a ping before another client may have its place.
const pingTime = 5 * time.Second

// endLost ends streams whose clients have not answered a ping, because the relay has as many
// streams as it may have. Their clients may have lost the connections, and be refused on new ones.
// grpc would wait longer for the answer.
func (s *Server) endLost(all []*stream, now time.Time) {
	after := time.Duration(s.pingAfter.Load())
	if after == 0 {
		return
	}
	for _, st := range all {
		if silent := now.Sub(st.conn.HeardAt()); silent > after+pingTime {
			st.End(refusal.New(codes.Unavailable, telemetry.LimitStreams, "stream: the relay heard nothing of the client for %s, and has as many streams as downstream.limits.streams allows", silent.Round(time.Second)))
			_ = st.conn.Close() // the status would not arrive
		}
	}
}

// slow is how long a message is in flight before the memory that it keeps alive counts. A client
// that reads receives the message sooner.
const slow = time.Second

// progress is how far a message in flight is.
type progress struct {
	since int64     // when it was handed over, which identifies the message
	bytes int64     // that the client's host had received at the time at
	at    time.Time // when the host had last received minProgress more, or the first measurement
	more  int64     // bytes that the host received after at
	all   int64     // bytes of the message that the host received
}

// minProgress is how many bytes a client's host has to receive in send_timeout. It is more than
// pings and the ends of messages, and less than one write.
const minProgress = 64 << 10

// progress is the progress of the message in flight; p is its progress at the last round. Measuring
// costs a system call. So a message is measured from the second round on: most are over by then.
func (st *stream) progress(p progress, now time.Time) progress {
	if since := st.since.Load(); p.since != since {
		return progress{since: since}
	}
	bytes := st.conn.Delivered()
	if p.at.IsZero() || bytes-p.bytes >= minProgress {
		p.bytes, p.at = bytes, now
	}
	p.more, p.all = bytes-p.bytes, max(bytes-st.before.Load(), 0)
	return p
}

// tooSlow returns why the stream with a message in flight has to end; nil: it stays. Its client's
// host received less than minProgress in send_timeout. Or the host received so much of the
// connection's other streams that the client does not read this one: grpc sends them by turns.
func (s *Server) tooSlow(st *stream, p progress, now time.Time) *refusal.Refusal {
	limit, size := s.opts.SendTimeout, st.size.Load()
	if limit == 0 || p.at.IsZero() || now.Sub(time.Unix(0, p.since)) <= limit {
		return nil
	}
	if waited := now.Sub(p.at); waited > limit {
		return refusal.New(codes.Unavailable, telemetry.SendTimeout, "stream: the client received %d bytes in %s, and %d of the response's %d bytes in all; the relay requires %d bytes within downstream.send_timeout (%s)",
			p.more, waited.Round(time.Millisecond), min(p.all, size), size, minProgress, limit)
	}
	streams := s.admission.Streams(st.conn)
	if streams > 1 && p.all > 2*int64(streams)*(size+writeBuffer) {
		return refusal.New(codes.Unavailable, telemetry.SendTimeout, "stream: the client did not receive the response's %d bytes within downstream.send_timeout (%s), while its connection with %d streams received %d bytes",
			size, limit, streams, p.all)
	}
	return nil
}

// sweep decides when the watcher checks all sessions for old snapshots. That depends on how many
// bytes may be old. So clients that do not request what changes are not checked at each change.
type sweep struct {
	at    time.Time // of the last one
	bytes int64     // snapshot.SupersededBytes then
}

// All sessions are checked when this many bytes may be old, and at least this often.
const (
	sweepBytes = 16 << 20
	sweepEvery = time.Minute
)

// due reports whether all sessions are to be checked; bytes is snapshot.SupersededBytes.
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

// pin is old memory that a client keeps alive, and its size.
type pin struct {
	client ender
	bytes  int64
}

// ender is a stream or a poll. It is comparable.
type ender interface{ End(r *refusal.Refusal) }

// pinned adds to pins what the stream's sessions keep alive. For each lineage it is the most that
// any session keeps of what was replaced since. A session may have an old snapshot only because it
// had nothing to send. If it waits for no ACK, pinned wakes it, so that it releases the snapshot.
// pinned reports whether a session waits, for an ACK or for a message to leave, and so keeps its
// snapshot.
func (st *stream) pinned(now time.Time, pins map[any]pin) (waits bool) {
	idle := uint64(0)
	st.mu.Lock()
	for _, ty := range st.types {
		cur, old := ty.snapshot(), ty.SentSnapshot()
		if cur == nil || old == nil || cur == old {
			continue
		}
		old.Release() // its frames: no other stream will need them
		if cur.Lineage != old.Lineage {
			continue
		}
		if _, out := ty.WaitsForACK(now, st.srv.settings().AckTimeout); out {
			waits = true
		} else {
			idle |= ty.bit
			waits = waits || st.inFlight.Load() != nil // then waking it has no effect
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

// unpin ends the clients that keep most alive until the rest is within pinned_bytes. Each pin
// counts once: what the slowest stream of a lineage keeps, the others of the lineage keep as well,
// and many may wait for one frame.
func (s *Server) unpin(pins map[any]pin) {
	limit, total := s.settings().Limits.PinnedBytes, int64(0)
	for _, p := range pins {
		total += p.bytes
	}
	defer func() { s.metrics.PinnedBytes.Set(int(total)) }()
	if limit <= 0 || total <= limit {
		return
	}
	keeps := make(map[ender]int64)
	for _, p := range pins {
		keeps[p.client] += p.bytes
	}
	for _, by := range slices.SortedFunc(maps.Keys(keeps), func(a, b ender) int { return cmp.Compare(keeps[b], keeps[a]) }) {
		if total <= limit {
			return
		}
		total -= keeps[by]
		by.End(refusal.New(codes.ResourceExhausted, telemetry.LimitPinnedBytes, "client: it keeps %d bytes of memory in use; all clients together keep more than downstream.limits.pinned_bytes allows (%d)", keeps[by], limit))
	}
}
