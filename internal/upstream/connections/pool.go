package connections

import (
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/balancer/roundrobin"
)

// Pool has the connections to one origin. A connection is leased to at most limit streams. When all
// are full, another is opened. A new lease goes to the fullest connection with room, so that surplus
// connections become idle and can be closed. The first connection is kept. The others dial only when
// they are leased, and are closed without streams while the first one is not ready (P54).
//
// Safe for concurrent use.
type Pool struct {
	options Options

	mu     sync.Mutex
	conns  []*Connection
	closed bool
}

// New makes a pool. It fails if the target is invalid. It starts nothing.
func New(o Options) (*Pool, error) {
	c, err := o.connection(o.Balance)
	if err != nil {
		return nil, err
	}
	return &Pool{options: o}, c.CC.Close()
}

// usage is how a connection is used. The pool's lock protects it.
type usage struct {
	leases int
	// open counts the streams that the origin has accepted on it.
	open int
	// limit is the pool's limit, or the lower one that the origin was found to enforce.
	limit     int
	ready     bool      // known to be ready without a stream: see SetReady
	idleSince time.Time // valid while leases is 0
}

// up reports whether the connection is known to be connected.
func (c *usage) up() bool { return c.ready || c.open > 0 }

// IdleFor is how long a surplus connection is kept without any stream.
const IdleFor = 30 * time.Second

var errPoolClosed = errors.New("client is closing")

// Lease takes a place on a connection.
func (p *Pool) Lease() (*Connection, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errPoolClosed
	}
	var best *Connection
	for i, c := range p.conns {
		if c.leases < c.limit && (i == 0 || !c.failing()) && (best == nil || c.leases > best.leases) {
			best = c
		}
	}
	if best == nil {
		var err error
		if best, err = p.add(); err != nil {
			return nil, err
		}
	}
	best.leases++
	return best, nil
}

// add makes a connection. The lock is held.
func (p *Pool) add() (*Connection, error) {
	balance := p.options.Balance
	if len(p.conns) > 0 && balance == roundrobin.Name {
		balance = onDemand{}.Name()
	}
	c, err := p.options.connection(balance)
	if err != nil {
		return nil, err
	}
	c.limit = p.options.Limit
	p.conns = append(p.conns, c)
	return c, nil
}

// First returns the connection that is kept without streams too. It makes it if there is none.
func (p *Pool) First() (*Connection, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, errPoolClosed
	case len(p.conns) > 0:
		return p.conns[0], nil
	}
	return p.add()
}

func (p *Pool) Release(c *Connection) {
	p.mu.Lock()
	c.leases--
	last := c.leases == 0 && p.closed
	if c.leases == 0 {
		c.idleSince = time.Now()
	}
	p.mu.Unlock()
	if last {
		_ = c.CC.Close() // fails only if it is closed already
	}
	p.Trim(time.Now())
}

// Opened and Ended count the streams on a connection. SetReady records whether the connection is
// ready. Each reports whether the connection is up now and was not, or the reverse.
func (p *Pool) Opened(c *Connection) bool { return p.change(c, func() { c.open++ }) }
func (p *Pool) Ended(c *Connection) bool  { return p.change(c, func() { c.open-- }) }
func (p *Pool) SetReady(c *Connection, ready bool) bool {
	return p.change(c, func() { c.ready = ready })
}

func (p *Pool) change(c *Connection, by func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := c.up()
	by()
	return c.up() != was
}

// Full records that the origin accepts no more streams on c than are open. It returns their number,
// and whether they are fewer than was known.
func (p *Pool) Full(c *Connection) (n int, fewer bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, was := c.open, c.limit
	c.limit = max(1, n)
	return n, c.limit < was
}

// Trim closes connections that were idle for long enough, except the first one. If the first one is
// not ready, it closes all others that are idle. It also closes an idle one that cannot connect.
func (p *Pool) Trim(now time.Time) {
	p.mu.Lock()
	var surplus []*Connection
	p.conns = slices.DeleteFunc(p.conns, func(c *Connection) bool {
		if c.leases > 0 || c == p.conns[0] || p.conns[0].ready && now.Sub(c.idleSince) < IdleFor && !c.failing() {
			return false
		}
		surplus = append(surplus, c)
		return true
	})
	p.mu.Unlock()
	for _, c := range surplus {
		_ = c.CC.Close()
	}
}

// Close closes all connections, and streams on them end. Connections leased after that are closed
// on release.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	conns := p.conns
	p.conns = nil
	p.mu.Unlock()
	for _, c := range conns {
		_ = c.CC.Close()
	}
}
