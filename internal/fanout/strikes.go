package fanout

import (
	"net/netip"
	"sync"
	"time"
)

// Connections that come to nothing: over at once, or soon and before a stream was
// admitted on them. Not those that had to wait: the wait is a part of the TLS
// handshake, for which clients have a second (Envoy's connect_timeout), and whoever
// gave up for it would have the others of its address wait as well. Each is a strike of its address, and so is each
// strikeOwed that a connection had spent and not paid when it ended (toll.go): else
// who comes again had all of it free once more. So many in a second are free, and
// so many at once. The next connection of who is over it waits until its
// handshake, and so does an honest one of that address, by strikeWait at the most; and
// of the tollBurst, each gets the share that its address has left. It
// is not refused: behind an address may be many.
const (
	strikeRate  = 50 // a second
	strikeBurst = 500
	strikeOwed  = 100 // frames, or what costs as much
	strikeWait  = 200 * time.Millisecond
	brief       = time.Second // a connection that is over at once
	soon        = time.Minute // or soon; idle ones are closed later
	maxStruck   = 10_000      // addresses; what is more has one account
)

// neighbours is the address by which a connection is counted: of IPv6 a host has
// as many as it likes, so their /64.
func neighbours(address string) string {
	h := host(address)
	ip, err := netip.ParseAddr(h)
	if err != nil || ip.Is4() || ip.Is4In6() {
		return h
	}
	return netip.PrefixFrom(ip.WithZone(""), 64).Masked().String()
}

// cost is how many strikes a connection is that is closed now.
func (c *conn) cost(now time.Time) float64 {
	var n float64
	if t := c.toll.Load(); t != nil {
		n = float64(t.owed(now)) / strikeOwed
	}
	if c.nothing(now) {
		n++
	}
	return n
}

// nothing reports whether a connection that is closed now came to nothing.
func (c *conn) nothing(now time.Time) bool {
	lived := now.Sub(c.opened)
	return !c.delayed.Load() && (lived < brief || !c.used.Load() && lived < soon)
}

// strikes are those of all addresses.
type strikes struct {
	mu    sync.Mutex
	hosts map[string]*struck
}

// struck is what an address has left.
type struck struct {
	left float64
	at   time.Time // when it was counted last
}

func (h *struck) count(now time.Time) {
	h.left = min(strikeBurst, h.left+now.Sub(h.at).Seconds()*strikeRate)
	h.at = now
}

// add is told of a connection that was n strikes.
func (s *strikes) add(host string, n float64, now time.Time) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hosts[host]
	if h == nil {
		if len(s.hosts) >= maxStruck {
			s.tidy(now)
		}
		if len(s.hosts) >= maxStruck {
			host = ""
		}
		if h = s.hosts[host]; h == nil {
			h = &struck{left: strikeBurst, at: now}
			s.hosts[host] = h
		}
	}
	h.count(now)
	h.left = max(h.left-n, -strikeRate*strikeWait.Seconds())
}

// tidy forgets those that have all again.
func (s *strikes) tidy(now time.Time) {
	for host, h := range s.hosts {
		if h.count(now); h.left == strikeBurst {
			delete(s.hosts, host)
		}
	}
}

// standing is how long a new connection of an address has to wait, and what it may
// say at once then.
func (s *strikes) standing(host string, now time.Time) (wait time.Duration, burst int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hosts[host]
	if h == nil && len(s.hosts) >= maxStruck {
		h = s.hosts[""]
	}
	if h == nil {
		return 0, tollBurst
	}
	h.count(now)
	burst = max(tollStruck, int64(h.left/strikeBurst*tollBurst))
	return time.Duration(max(0, -h.left) / strikeRate * float64(time.Second)), burst
}
