package upstream

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// pool keeps the connections to one origin. A connection is leased by at most
// limit streams; when all are full another is opened. New leases go to the
// fullest with room, so that surplus connections run empty and can be closed.
type pool struct {
	dial  func() (*dialed, error) // does no I/O
	limit int

	mu     sync.Mutex
	conns  []*conn
	closed bool
}

// conn is one connection; protected by its pool's lock, but for what was dialed.
type conn struct {
	*dialed
	leases int
	// open are the streams that the origin has accepted on it.
	open int
	// limit is the pool's, or less: what the origin was found to accept.
	limit     int
	idleSince time.Time // while leases is 0
}

// idleFor is how long a surplus connection is kept without any stream.
const idleFor = 30 * time.Second

var errPoolClosed = errors.New("client is closing")

// lease takes a place on a connection.
func (p *pool) lease() (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errPoolClosed
	}
	var best *conn
	for _, c := range p.conns {
		if c.leases < c.limit && (best == nil || c.leases > best.leases) {
			best = c
		}
	}
	if best == nil {
		d, err := p.dial()
		if err != nil {
			return nil, err
		}
		best = &conn{dialed: d, limit: p.limit}
		p.conns = append(p.conns, best)
	}
	best.leases++
	return best, nil
}

// release gives a lease back.
func (p *pool) release(c *conn) {
	p.mu.Lock()
	c.leases--
	last := c.leases == 0 && p.closed
	if c.leases == 0 {
		c.idleSince = time.Now()
	}
	p.mu.Unlock()
	if last {
		_ = c.cc.Close() // only says that it is closed already
	}
}

// opened and ended count the streams on a connection. They report whether it is
// the first, or was the last.
func (p *pool) opened(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.open++
	return c.open == 1
}

func (p *pool) ended(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.open--
	return c.open == 0
}

// full says that the origin accepts no more streams on c than are open, and
// returns their number, and whether they are fewer than was known.
func (p *pool) full(c *conn) (n int, fewer bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, was := c.open, c.limit
	c.limit = max(1, n)
	return n, c.limit < was
}

// trim closes connections that were idle for long enough, but not the last:
// it is there for the next stream.
func (p *pool) trim(now time.Time) {
	p.mu.Lock()
	var surplus []*conn
	left := len(p.conns)
	p.conns = slices.DeleteFunc(p.conns, func(c *conn) bool {
		if c.leases > 0 || now.Sub(c.idleSince) < idleFor || left == 1 {
			return false
		}
		left--
		surplus = append(surplus, c)
		return true
	})
	p.mu.Unlock()
	for _, c := range surplus {
		_ = c.cc.Close()
	}
}

// close closes all connections; streams on them end. What is leased later or
// still is closed when it is released.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	conns := p.conns
	p.conns = nil
	p.mu.Unlock()
	for _, c := range conns {
		_ = c.cc.Close()
	}
}

func (p *pool) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}
