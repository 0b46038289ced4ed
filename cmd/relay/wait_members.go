package main

import (
	"time"

	"xdsrelay/internal/admin/keystatus"
)

// members is how many clients were there while somebody waits for a version. It has one
// user.
type members struct {
	counts []headcount // of the last answers, as far as no later one is as high
	peak   int         // since the wait began; before the version came, lately
	known  bool        // it came
	until  time.Time   // that the peak is what was there lately; zero: see known
}

// headcount is how many there were at a time.
type headcount struct {
	n  int
	at time.Time
}

// hear takes an answer. Those who were there before a time without answers are expected
// anew; after a restart they may have gone to another relay, which is nobody's fault.
func (c *members) hear(p *keystatus.Progress, anew, restarted bool, settle time.Duration, now time.Time) {
	if restarted {
		c.known, c.until = false, now.Add(settle)
	}
	if was := c.lately(); anew && was > 0 {
		c.counts = []headcount{{was, now}}
	}
	for len(c.counts) > 0 && now.Sub(c.counts[0].at) >= settle {
		c.counts = c.counts[1:]
	}
	for len(c.counts) > 0 && c.counts[len(c.counts)-1].n <= p.Clients {
		c.counts = c.counts[:len(c.counts)-1]
	}
	c.counts = append(c.counts, headcount{p.Clients, now})
	// A key that no client has any more is not in use: it tells nothing else of the
	// version.
	c.known = p.Known || c.known && !p.InUse
	if !c.known || !c.until.IsZero() || c.lately() > c.peak {
		c.peak = c.lately()
	}
	if !now.Before(c.until) {
		c.until = time.Time{}
	}
}

// lately is the most there were within the time that clients take to come back.
func (c *members) lately() int {
	if len(c.counts) == 0 {
		return 0
	}
	return c.counts[0].n
}

// gone is how many did not come back in that time, since the version came.
func (c *members) gone() int { return c.peak - c.lately() }
