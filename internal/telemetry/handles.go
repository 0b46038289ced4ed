package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/uber-go/tally/v4"
)

// Counter counts up. The zero Counter counts nothing.
type Counter struct {
	to tally.CachedCount
}

// Inc adds one.
func (c Counter) Inc() { c.Add(1) }

// Add adds n; what is not positive adds nothing.
func (c Counter) Add(n int) {
	if c.to != nil && n > 0 {
		c.to.ReportCount(int64(n))
	}
}

// Gauge is a whole number that goes up and down. The zero Gauge shows nowhere.
// A Gauge is not to be copied.
type Gauge struct {
	n  atomic.Int64
	to tally.CachedGauge
}

// Add adds n, which may be negative.
func (g *Gauge) Add(n int) {
	g.n.Add(int64(n))
	g.settle()
}

// Set makes it n.
func (g *Gauge) Set(n int) {
	g.n.Store(int64(n))
	g.settle()
}

// Value returns the number.
func (g *Gauge) Value() int { return int(g.n.Load()) }

// settle reports the number. A reporter takes values and not differences, so
// two callers could report in the wrong order: each looks again after its
// report, and so whoever reports last has reported the last number.
func (g *Gauge) settle() {
	for g.to != nil {
		n := g.n.Load()
		g.to.ReportGauge(float64(n))
		if g.n.Load() == n {
			return
		}
	}
}

// Histogram counts durations. The zero Histogram counts nothing.
type Histogram struct {
	to prometheus.Observer
}

// Observe counts d.
func (h Histogram) Observe(d time.Duration) {
	if h.to != nil {
		h.to.Observe(d.Seconds())
	}
}
