package upstream

import (
	"context"
	"time"
)

// Bounds on opening streams at an origin (P54).
const (
	dialEvery      = time.Second // dials while it is away, and keys that try it while it does not respond
	opensPerSecond = 200         // of keys of which something is held
)

// enter waits until a key may open a stream at the origin (P54). Keys do not dial: they wait until
// the kept connection is ready. One key each second tries an origin that is away although the
// connection is ready. paced: something of the key is held, so it can wait for its turn among other
// keys. Then it also waits while no stream has a response, because the origin may be behind a proxy
// that ends all streams. A silent stream ends this wait.
//
// enter returns an error if the origin is away and failed again since the number of failures in
// seen, which it updates. That counts as a failed attempt of the key. If the last failure was long ago,
// no key has tried the origin since, and this one does. If seen is nil, enter goes on waiting.
func (s *Origin) enter(ctx context.Context, seen *uint64, paced bool) error {
	if s.opens == nil {
		return nil
	}
	for {
		s.mu.Lock()
		blocked := s.away || !s.ready
		old := s.ready && time.Since(s.failedAt) > 10*s.tryEvery
		if blocked && !old && seen != nil && s.failures > max(*seen, s.counted) {
			defer s.mu.Unlock()
			*seen = s.failures
			return s.lastErr
		}
		open := !blocked && !(paced && s.responding == 0 && s.silent == 0)
		wait := time.Until(s.nextTry)
		if !open && s.ready && wait <= 0 {
			open, s.nextTry = true, time.Now().Add(s.tryEvery)
		}
		ready, changed := s.ready, s.changed
		s.mu.Unlock()
		switch {
		case open && paced:
			return s.opens.Wait(ctx)
		case open:
			return ctx.Err()
		}
		var try <-chan time.Time
		if ready {
			try = time.After(wait)
		}
		select {
		case <-changed:
		case <-try:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
