package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/uber-go/tally/v4"
)

// Counter counts up. The zero Counter does nothing.
type Counter struct {
	to tally.CachedCount
}

// Inc adds one.
func (c Counter) Inc() { c.Add(1) }

// Add adds n; it ignores an n that is not positive.
func (c Counter) Add(n int) {
	if c.to != nil && n > 0 {
		c.to.ReportCount(int64(n))
	}
}

// summed returns a Counter that also adds to sum.
func (c Counter) summed(sum *atomic.Int64) Counter { return Counter{to: summedCount{c.to, sum}} }

// summedCount is a count that also adds to a sum.
type summedCount struct {
	tally.CachedCount
	sum *atomic.Int64
}

func (c summedCount) ReportCount(n int64) {
	c.sum.Add(n)
	c.CachedCount.ReportCount(n)
}

// Gauge is an integer that goes up and down. The zero Gauge is not reported. Do not copy a Gauge.
type Gauge struct {
	n  atomic.Int64
	to tally.CachedGauge
}

// Add adds n, which may be negative.
func (g *Gauge) Add(n int) {
	g.n.Add(int64(n))
	g.settle()
}

// Set sets it to n.
func (g *Gauge) Set(n int) {
	g.n.Store(int64(n))
	g.settle()
}

// Value returns the number.
func (g *Gauge) Value() int { return int(g.n.Load()) }

// settle reports the number. A reporter takes values, not differences, so two callers could report
// in the wrong order. Each therefore reads the number again after its report: the last report has
// the last number.
func (g *Gauge) settle() {
	for g.to != nil {
		n := g.n.Load()
		g.to.ReportGauge(float64(n))
		if g.n.Load() == n {
			return
		}
	}
}

// Histogram counts durations. The zero Histogram does nothing.
type Histogram struct {
	to prometheus.Observer
}

func (h Histogram) Observe(d time.Duration) {
	if h.to != nil {
		h.to.Observe(d.Seconds())
	}
}
