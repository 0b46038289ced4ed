package fanout

import "time"

// spreadEvery is how often who ends streams over a time looks how many are due.
const spreadEvery = 50 * time.Millisecond

// spread is the ending of streams evenly over a time, so that clients do not
// all come again, or turn to the next replica, at once.
type spread struct {
	began time.Time
	over  time.Duration
	told  int // to end
}

// due is how many of those that are left are to be told now, and counts them as
// told. The first goes at once and the last when its share of the time is left,
// so that a single one keeps nobody waiting.
func (p *spread) due(now time.Time, left int) int {
	n := left
	if past := now.Sub(p.began); past < p.over {
		all := float64(p.told + left)
		n = min(n, max(0, 1+int(all*past.Seconds()/p.over.Seconds())-p.told))
	}
	p.told += n
	return n
}
