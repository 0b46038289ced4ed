package fanout

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
)

// RefuseStreams makes the server refuse further streams, as Drain does. It ends none.
func (s *Server) RefuseStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
}

// Drain accepts no more streams and polls. It answers the held polls at once, because each is a
// request of its own: its client would learn of no change until the poll's turn came. It ends the
// open streams evenly over the time, with UNAVAILABLE, so that clients do not all go to the next
// replica at once. The first one ends after a tick, so that the caller's GOAWAY reaches clients before
// any stream ends. It returns when it has told every client to end, or when ctx ends. told counts the
// clients that it told, left the others.
func (s *Server) Drain(ctx context.Context, period time.Duration) (told, left int) {
	s.RefuseStreams()
	polls := s.rest.Drain()
	p := drainPace{began: time.Now(), period: period}
	tick := time.Tick(drainTick)
	for len(s.drainers()) > 0 {
		select {
		case <-tick:
		case <-ctx.Done():
			return polls + p.told, len(s.drainers())
		}
		untold := s.drainers() // some may have ended by themselves
		for _, tell := range untold[:p.due(time.Now(), len(untold))] {
			tell()
		}
	}
	return polls + p.told, 0
}

// drainers returns, for each stream that was not told to end, the function that tells it.
func (s *Server) drainers() (out []func()) {
	for _, st := range s.all() {
		if st.refusal.Load() == nil {
			out = append(out, func() {
				st.End(refusal.New(codes.Unavailable, telemetry.Draining, "stream: the relay is shutting down"))
			})
		}
	}
	return out
}

// drainTick is the interval at which Drain ends the clients that are due.
const drainTick = 50 * time.Millisecond

// drainPace spreads the ends of clients evenly over a time, when the relay drains or keys change.
// So they do not all come back, or go to the next replica, at once.
type drainPace struct {
	began  time.Time
	period time.Duration
	told   int // clients that were told to end
}

// due returns how many of the clients that are left to tell to end now, and counts them as told.
// With n clients, one is due at once and one after each n-th of the time. So a single client does
// not wait.
func (p *drainPace) due(now time.Time, left int) int {
	n := left
	if past := now.Sub(p.began); past < p.period {
		all := float64(p.told + left)
		n = min(n, max(0, 1+int(all*past.Seconds()/p.period.Seconds())-p.told))
	}
	p.told += n
	return n
}
