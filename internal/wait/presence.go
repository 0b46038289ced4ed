package wait

import (
	"time"

	"xdsrelay/internal/admin/keystatus"
)

// presence tracks how many clients of the key were there during a wait. It is not safe for
// concurrent use.
type presence struct {
	counts []clientCount // of recent answers, strictly falling: a lower one before a higher one is dropped
	peak   int           // the highest count since the version came; before that, of the settle time
	known  bool          // the version came
	until  time.Time     // end of the time after a restart in which peak follows lately; zero: none
}

// clientCount is how many clients there were at a time.
type clientCount struct {
	n  int
	at time.Time
}

// record adds an answer. With anew, requests failed before it: clients of that time get the whole
// settle time to come back. With restarted, the peak starts anew, because clients may have moved to
// another relay.
func (c *presence) record(p *keystatus.Progress, anew, restarted bool, settle time.Duration, now time.Time) {
	if restarted {
		c.known, c.until = false, now.Add(settle)
	}
	if was := c.lately(); anew && was > 0 {
		c.counts = []clientCount{{was, now}}
	}
	for len(c.counts) > 0 && now.Sub(c.counts[0].at) >= settle {
		c.counts = c.counts[1:]
	}
	for len(c.counts) > 0 && c.counts[len(c.counts)-1].n <= p.Clients {
		c.counts = c.counts[:len(c.counts)-1]
	}
	c.counts = append(c.counts, clientCount{p.Clients, now})
	// A key without clients is not in use, and /progress knows nothing of its versions then.
	c.known = p.Known || c.known && !p.InUse
	if !c.known || !c.until.IsZero() || c.lately() > c.peak {
		c.peak = c.lately()
	}
	if !now.Before(c.until) {
		c.until = time.Time{}
	}
}

// lately is the highest count within the settle time.
func (c *presence) lately() int {
	if len(c.counts) == 0 {
		return 0
	}
	return c.counts[0].n
}

// gone is how many clients left since the version came and did not come back within the settle
// time.
func (c *presence) gone() int { return c.peak - c.lately() }
