package orchestrator

import (
	"sync/atomic"

	"golang.org/x/time/rate"
)

// That a key comes or goes is a line of log, and clients may have keys come and go at
// will. So many are written at once, as a restart of a fleet needs, and then so many a
// second; the others are told to who debugs.
const (
	linesBurst = 500
	linesRate  = 20 // a second
)

// lines bounds them. Safe for concurrent use.
type lines struct {
	rate *rate.Limiter
	left atomic.Int64 // that were not written since one was
}

// tell writes a line about a key, with how many were left out before it.
func (l *lines) tell(g *Group, what string, args ...any) {
	if !l.rate.Allow() {
		l.left.Add(1)
		g.log.Debug(what, args...)
		return
	}
	if left := l.left.Swap(0); left > 0 {
		args = append(args, "left_out", left)
	}
	g.log.Info(what, args...)
}

func newLines() *lines { return &lines{rate: rate.NewLimiter(linesRate, linesBurst)} }
