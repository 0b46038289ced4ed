package xdstest

import (
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP proxy with faults. It can stop forwarding while it keeps its
// connections open and accepts new ones.
type Proxy struct {
	Address string

	listener net.Listener
	touched  func(client string) // may be nil
	wait     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	target string // of new connections; empty: they are closed
	fault  Fault
	behind int    // faults of the target that are in force
	pause  *pause // of new connections
	conns  map[*proxied]struct{}
	slowly int // bytes that were forwarded to clients since the fault was set
	ever   int // connections that were accepted
}

// Fault is what a Proxy does to its connections. The zero value does nothing.
type Fault struct {
	Reject bool          // close new connections
	Delay  time.Duration // of each piece of data
	Rate   int           // bytes per second in each direction of a connection; 0: no limit
}

// pause says whether the connections that share it hang.
type pause struct {
	resumed chan struct{} // closed while they do not hang
	hung    bool
}

func noPause() *pause {
	s := &pause{resumed: make(chan struct{})}
	close(s.resumed)
	return s
}

// proxied is a connection through a proxy.
type proxied struct {
	in, out net.Conn
	pause   *pause
	gone    chan struct{} // closed by close
	once    sync.Once
}

func (c *proxied) client() string { return c.in.RemoteAddr().String() }

func (c *proxied) close() {
	c.once.Do(func() {
		close(c.gone)
		_ = c.in.Close() // data may be lost
		if c.out != nil {
			_ = c.out.Close()
		}
	})
}

// StartProxy starts a proxy in front of an address. It runs until the end of
// the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := NewProxy(target, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// NewProxy starts a proxy that runs until Close. It calls touched, at least once, with the client's
// address of each connection that a fault affects.
func NewProxy(target string, touched func(client string)) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{Address: l.Addr().String(), listener: l, touched: touched, target: target,
		pause: noPause(), conns: make(map[*proxied]struct{})}
	p.wait.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return // closed
			}
			p.wait.Go(func() { p.serve(&proxied{in: in, gone: make(chan struct{})}) })
		}
	})
	return p, nil
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close() // nothing to flush
	p.Cut()
	p.wait.Wait()
}

// change changes the state of the proxy. If a fault is in force afterwards, it reports the open
// connections.
func (p *Proxy) change(f func()) {
	p.mu.Lock()
	f()
	rough := p.rough()
	p.mu.Unlock()
	if rough {
		p.touchOpen()
	}
}

// rough returns true if a fault affects new connections. The caller holds mu.
func (p *Proxy) rough() bool { return p.fault != (Fault{}) || p.behind > 0 || p.pause.hung }

func (p *Proxy) touch(c *proxied) {
	if p.touched != nil {
		p.touched(c.client())
	}
}

// touchOpen reports the open connections and returns them.
func (p *Proxy) touchOpen() []*proxied {
	p.mu.Lock()
	open := slices.Collect(maps.Keys(p.conns))
	p.mu.Unlock()
	for _, c := range open {
		p.touch(c)
	}
	return open
}

// SetFault sets the fault of all connections; the zero value ends it.
func (p *Proxy) SetFault(f Fault) { p.change(func() { p.fault, p.slowly = f, 0 }) }

// FaultBehind says that a fault of the target begins or ends that affects all connections.
func (p *Proxy) FaultBehind(begins bool) {
	p.change(func() {
		if begins {
			p.behind++
		} else {
			p.behind--
		}
	})
}

// Hang stops forwarding in both directions.
func (p *Proxy) Hang() {
	p.change(func() {
		if !p.pause.hung {
			p.pause.hung, p.pause.resumed = true, make(chan struct{})
		}
	})
}

// Resume forwards again, also what came meanwhile.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pause.hung {
		p.pause.hung = false
		close(p.pause.resumed)
	}
}

// HangOpen makes the open connections hang for ever. New ones are forwarded.
func (p *Proxy) HangOpen() {
	p.Hang()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pause = noPause()
}

// SetTarget changes where new connections lead. If it is empty, they are closed.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Counts returns how many connections were accepted, and how many bytes were forwarded to clients
// since the fault was set.
func (p *Proxy) Counts() (accepted, slowly int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ever, p.slowly
}

// Cut closes all connections with a reset. New ones are accepted.
func (p *Proxy) Cut() {
	for _, c := range p.touchOpen() {
		_ = c.in.(*net.TCPConn).SetLinger(0) // an error ends it without a reset
		c.close()
	}
}

func (p *Proxy) serve(c *proxied) {
	defer c.close()
	p.mu.Lock()
	p.ever++
	target, reject := p.target, p.fault.Reject || p.target == ""
	p.mu.Unlock()
	if !reject {
		var err error
		c.out, err = net.Dial("tcp", target)
		reject = err != nil
	}
	if reject {
		p.touch(c)
		return
	}
	p.mu.Lock()
	closed, rough := p.closed || p.target != target, p.rough()
	if !closed {
		p.conns[c], c.pause = struct{}{}, p.pause
	}
	p.mu.Unlock()
	if closed {
		return
	}
	if rough {
		p.touch(c)
	}
	var wait sync.WaitGroup
	wait.Go(func() { p.forward(c, c.in, c.out) })
	p.forward(c, c.out, c.in)
	wait.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// forward copies until either side ends. What it has read while the proxy
// hangs it writes when it resumes, and an end waits likewise.
func (p *Proxy) forward(c *proxied, from, to net.Conn) {
	defer c.close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if !p.unhung(c) || err != nil {
			return
		}
		for sent := 0; sent < n; {
			piece, after := p.piece(n-sent, to == c.in)
			if !c.sleep(after) || !p.unhung(c) {
				return
			}
			if _, err := to.Write(buf[sent : sent+piece]); err != nil {
				return
			}
			sent += piece
		}
	}
}

// piece returns how many of n bytes go on next, and after which time.
func (p *Proxy) piece(n int, down bool) (piece int, after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	after = p.fault.Delay
	if rate := p.fault.Rate; rate > 0 {
		n = min(n, max(1, rate/10))
		after += time.Duration(n) * time.Second / time.Duration(rate)
	}
	if down {
		p.slowly += n
	}
	return n, after
}

// sleep returns false if the connection ended.
func (c *proxied) sleep(d time.Duration) bool {
	if d == 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.gone:
		return false
	}
}

// unhung returns true as soon as the connection does not hang, or false if it
// ended.
func (p *Proxy) unhung(c *proxied) bool {
	p.mu.Lock()
	over := c.pause.resumed
	p.mu.Unlock()
	select {
	case <-over:
		return true
	case <-c.gone:
		return false
	}
}
