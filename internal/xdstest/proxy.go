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
	gate  *gate // of new connections
	conns map[net.Conn]struct{}
}

// gate is what connections wait at while they hang.
type gate struct {
	open chan struct{} // closed while they do not hang
	hung bool
}

func openGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

// StartProxy starts a proxy in front of an address. It runs until the end of
// the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l := Listen(t)
	p := &Proxy{Address: l.Addr().String(), target: target, done: make(chan struct{}),
		gate: openGate(), conns: make(map[net.Conn]struct{})}
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
	if !p.gate.hung {
		p.gate.hung = true
		p.gate.open = make(chan struct{})
	}
}

// Resume forwards again, also what came meanwhile.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate.hung {
		p.gate.hung = false
		close(p.gate.open)
	}
}

// Strand makes the connections that there are hang for ever. New ones are
// forwarded.
func (p *Proxy) Strand() {
	p.Hang()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate = openGate()
}

// Cut closes all connections. New ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close() // data may be lost; that is the purpose
	}
}

// add remembers a connection for Cut and returns its gate, or nil after the end
// of the test.
func (p *Proxy) add(c net.Conn) *gate {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		_ = c.Close() // nothing was written
		return nil
	default:
	}
	p.conns[c] = struct{}{}
	return p.gate
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close() // the other side is closed as well
}

func (p *Proxy) serve(in net.Conn) {
	g := p.add(in)
	if g == nil {
		return
	}
	defer p.drop(in)
	out, err := net.Dial("tcp", p.target)
	if err != nil || p.add(out) == nil {
		return
	}
	defer p.drop(out)
	gone := make(chan struct{}) // closed when either direction ended
	var once sync.Once
	var wait sync.WaitGroup
	for _, d := range [][2]net.Conn{{in, out}, {out, in}} {
		wait.Go(func() {
			p.forward(g, d[0], d[1], gone)
			once.Do(func() { close(gone) })
			_, _ = in.Close(), out.Close() // ends the other direction
		})
	}
	wait.Wait()
}

// forward copies until either side ends. What it has read while the proxy
// hangs it writes when it resumes.
func (p *Proxy) forward(g *gate, from, to net.Conn, gone <-chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if !p.wait(g, gone) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// wait returns true as soon as the gate is open, or false if the connection
// ended.
func (p *Proxy) wait(g *gate, gone <-chan struct{}) bool {
	p.mu.Lock()
	open := g.open
	p.mu.Unlock()
	select {
	case <-open:
		return true
	case <-gone:
	case <-p.done:
	}
	return false
}
