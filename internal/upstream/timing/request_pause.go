package timing

import "time"

// Bounds of the time between two requests that change what a stream subscribes to (P52).
const (
	mergeFor  = 5 * time.Millisecond   // the first change waits for further ones
	minPause  = 20 * time.Millisecond  // between the first two requests
	MaxPause  = 200 * time.Millisecond // while changes keep coming
	pauseOver = time.Second            // without a request, the pause is minPause again
)

// RequestPause spaces the requests that change what a stream subscribes to. Each request costs the
// origin in proportion to the names on the stream. So while changes keep coming, the pause doubles
// up to MaxPause, and a client that changes its names all the time slows no other client of the key
// (P16, P52). The zero value is ready to use.
type RequestPause struct {
	last  time.Time     // when the last request was due
	pause time.Duration // until the next one
}

// Next returns how long a change at now waits. Call it again only after that time.
func (p *RequestPause) Next(now time.Time) time.Duration {
	if now.Sub(p.last) >= pauseOver {
		p.pause = 0
	}
	wait := max(mergeFor, p.last.Add(p.pause).Sub(now))
	p.last = now.Add(wait)
	p.pause = min(max(2*p.pause, minPause), MaxPause)
	return wait
}
