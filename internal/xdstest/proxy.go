package xdstest

import (
	"net"
	"sync"
	"testing"
)

// Proxy is a TCP proxy that can stop forwarding while it keeps its connections
// open and accepts new ones.
type Proxy struct {
	Address string

	target string
	done   chan struct{} // closed at the end of the test

	mu    sync.Mutex
	flows chan struct{} // closed while the proxy forwards
	hung  bool
	conns map[net.Conn]struct{}
}

// StartProxy starts a proxy in front of an address. It runs until the end of
// the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l := Listen(t)
	p := &Proxy{Address: l.Addr().String(), target: target, done: make(chan struct{}),
		flows: make(chan struct{}), conns: make(map[net.Conn]struct{})}
	close(p.flows)
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return // closed
			}
			wait.Go(func() { p.serve(in) })
		}
	})
	t.Cleanup(func() {
		close(p.done)
		_ = l.Close() // nothing to flush
		p.Cut()
		wait.Wait()
	})
	return p
}

// Hang stops forwarding in both directions.
func (p *Proxy) Hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.hung {
		p.hung = true
		p.flows = make(chan struct{})
	}
}

// Resume forwards again, also what came meanwhile.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hung {
		p.hung = false
		close(p.flows)
	}
}

// Cut closes all connections. New ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close() // data may be lost; that is the purpose
	}
}

// add remembers a connection for Cut. It returns false after the end of the
// test.
func (p *Proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		_ = c.Close() // nothing was written
		return false
	default:
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close() // the other side is closed as well
}

func (p *Proxy) serve(in net.Conn) {
	if !p.add(in) {
		return
	}
	defer p.drop(in)
	out, err := net.Dial("tcp", p.target)
	if err != nil || !p.add(out) {
		return
	}
	defer p.drop(out)
	gone := make(chan struct{}) // closed when either direction ended
	var once sync.Once
	var wait sync.WaitGroup
	for _, d := range [][2]net.Conn{{in, out}, {out, in}} {
		wait.Go(func() {
			p.forward(d[0], d[1], gone)
			once.Do(func() { close(gone) })
			_, _ = in.Close(), out.Close() // ends the other direction
		})
	}
	wait.Wait()
}

// forward copies until either side ends. What it has read while the proxy
// hangs it writes when it resumes.
func (p *Proxy) forward(from, to net.Conn, gone <-chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if !p.wait(gone) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// wait returns true as soon as the proxy forwards, or false if the connection
// ended.
func (p *Proxy) wait(gone <-chan struct{}) bool {
	p.mu.Lock()
	flows := p.flows
	p.mu.Unlock()
	select {
	case <-flows:
		return true
	case <-gone:
	case <-p.done:
	}
	return false
}
