package fanout

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// watch looks at all streams now and then, for what no event tells: clients
// that take nothing, streams that are old, and old states that are kept alive.
func (s *Server) watch(ctx context.Context) {
	tick := time.NewTicker(s.watchEvery())
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.look(time.Now())
		case <-ctx.Done():
			return
		}
	}
}

// watchEvery is how often: often enough for the shortest timeout, and at most
// once in a second.
func (s *Server) watchEvery() time.Duration {
	every := time.Second
	for _, d := range []time.Duration{s.opts.SendTimeout, s.opts.MaxConnectionAge} {
		if d > 0 {
			every = min(every, d/4)
		}
	}
	return max(every, 5*time.Millisecond)
}

// look is one round of watch.
func (s *Server) look(now time.Time) {
	pins := make(map[uint64]pin) // by lineage: the oldest snapshot kept alive
	for _, st := range s.all() {
		if since := st.since.Load(); since != 0 && s.opts.SendTimeout > 0 && now.Sub(time.Unix(0, since)) > s.opts.SendTimeout {
			st.end(Refuse(codes.Unavailable, telemetry.SendTimeout, "stream: took nothing for send_timeout (%s)", s.opts.SendTimeout))
			continue
		}
		if age := s.opts.MaxConnectionAge; age > 0 && now.Sub(st.opened) > jitter(age, st.id) {
			st.end(Refuse(codes.Unavailable, telemetry.Aged, "stream: older than max_connection_age"))
			continue
		}
		st.lag(pins)
	}
	s.unpin(pins)
}

// jitter is d, give or take a tenth, by the stream's number.
func jitter(d time.Duration, id uint64) time.Duration {
	part := time.Duration(id * 0x9e3779b97f4a7c15 >> 44) // of 2^20
	return d - d/10 + d/5*part>>20
}

// pin is the oldest snapshot of a lineage that a stream keeps alive, and what
// that costs: everything that was replaced since.
type pin struct {
	st    *stream
	bytes int64
}

// lag notes what the stream's sessions keep alive. A session that is behind
// for lack of anything to say is woken, so that it lets go.
func (st *stream) lag(pins map[uint64]pin) {
	idle := uint64(0)
	st.mu.Lock()
	for _, sl := range st.slots {
		cur, old := sl.snapshot(), sl.Oldest()
		if cur == nil || old == nil || cur == old || cur.Lineage != old.Lineage {
			continue
		}
		if len(sl.flights) == 0 {
			idle |= sl.bit
		}
		if bytes := cur.Retired - old.Retired; bytes > pins[cur.Lineage].bytes {
			pins[cur.Lineage] = pin{st, bytes}
		}
	}
	st.mu.Unlock()
	if idle != 0 && !st.run.sending() {
		st.wake(idle)
	}
}

// unpin ends the streams that keep most alive, until the rest is within
// pinned_bytes. What one lineage's slowest stream keeps alive, the others of it
// do as well, so each lineage counts once.
func (s *Server) unpin(pins map[uint64]pin) {
	limit := s.limits.PinnedBytes
	if limit <= 0 {
		return
	}
	total := int64(0)
	for _, p := range pins {
		total += p.bytes
	}
	for total > limit {
		var worst uint64
		for lineage, p := range pins {
			if p.bytes > pins[worst].bytes {
				worst = lineage
			}
		}
		p := pins[worst]
		delete(pins, worst)
		total -= p.bytes
		p.st.end(Refuse(codes.ResourceExhausted, telemetry.LimitPinnedBytes, "stream: keeps %d bytes of old states alive, more than pinned_bytes (%d) allow", p.bytes, limit))
	}
}

// Oldest is the oldest snapshot that the session keeps alive; nil if none.
func (s *Session) Oldest() *xds.Snapshot {
	oldest := s.sent
	older := func(o *xds.Snapshot) {
		if o != nil && (oldest == nil || o.Lineage == oldest.Lineage && o.Gen < oldest.Gen) {
			oldest = o
		}
	}
	older(s.acked)
	for _, f := range s.flights {
		older(f.snap)
	}
	return oldest
}
