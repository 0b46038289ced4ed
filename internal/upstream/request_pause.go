package upstream

import "time"

// Bounds of the time between two requests that change what a stream subscribes to (P52).
const (
	mergeFor  = 5 * time.Millisecond   // the first change waits for further ones
	minPause  = 20 * time.Millisecond  // between the first two requests
	maxPause  = 200 * time.Millisecond // while changes keep coming
	pauseOver = time.Second            // without a request, the pause is minPause again
)

// requestPause spaces the requests that change what a stream subscribes to. Each request costs the
// origin in proportion to the names on the stream. So while changes keep coming, the pause doubles
// up to maxPause, and a client that changes its names all the time slows no other client of the key
// (P16, P52). The zero value is ready to use.
type requestPause struct {
	last  time.Time     // when the last request was due
	pause time.Duration // until the next one
}

// next returns how long a change at now waits. Call it again only after that time.
func (p *requestPause) next(now time.Time) time.Duration {
	if now.Sub(p.last) >= pauseOver {
		p.pause = 0
	}
	wait := max(mergeFor, p.last.Add(p.pause).Sub(now))
	p.last = now.Add(wait)
	p.pause = min(max(2*p.pause, minPause), maxPause)
	return wait
}
