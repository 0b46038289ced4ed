package xdstest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP proxy that can stop forwarding while it keeps its connections
// open and accepts new ones, and that can forward slowly.
type Proxy struct {
	Address string

	done chan struct{} // closed at the end of the test

	mu     sync.Mutex
	target string // of new connections
	pause  *pause // of new connections
	conns  map[net.Conn]struct{}
	rate   int // bytes per second in each direction of a connection; 0: no limit
	slowly int // bytes that were forwarded to clients under the limit
	ever   int // connections that were accepted
}

// pause says whether the connections that share it hang.
type pause struct {
	over chan struct{} // closed while they do not hang
	hung bool
}

func noPause() *pause {
	s := &pause{over: make(chan struct{})}
	close(s.over)
	return s
}

// StartProxy starts a proxy in front of an address. It runs until the end of
// the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l := Listen(t)
	p := &Proxy{Address: l.Addr().String(), target: target, done: make(chan struct{}),
		pause: noPause(), conns: make(map[net.Conn]struct{})}
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
	if !p.pause.hung {
		p.pause.hung = true
		p.pause.over = make(chan struct{})
	}
}

// Resume forwards again, also what came meanwhile.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pause.hung {
		p.pause.hung = false
		close(p.pause.over)
	}
}

// SetTarget changes where new connections lead.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Limit limits each direction of a connection to so many bytes per second; 0: no limit.
func (p *Proxy) Limit(rate int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate, p.slowly = rate, 0
}

// Counts returns how many connections were accepted, and how many bytes were forwarded to clients
// since the limit was set.
func (p *Proxy) Counts() (accepted, slowly int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ever, p.slowly
}

// HangOpen makes the open connections hang for ever. New ones are forwarded.
func (p *Proxy) HangOpen() {
	p.Hang()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pause = noPause()
}

// Cut closes all connections. New ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close() // data may be lost; that is the purpose
	}
}

// add remembers a connection for Cut and returns its pause, or nil after the end
// of the test.
func (p *Proxy) add(c net.Conn) *pause {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		_ = c.Close() // nothing was written
		return nil
	default:
	}
	p.conns[c] = struct{}{}
	return p.pause
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close() // the other side is closed as well
}

func (p *Proxy) serve(in net.Conn) {
	s := p.add(in)
	if s == nil {
		return
	}
	defer p.drop(in)
	p.mu.Lock()
	target := p.target
	p.ever++
	p.mu.Unlock()
	out, err := net.Dial("tcp", target)
	if err != nil || p.add(out) == nil {
		return
	}
	defer p.drop(out)
	gone := make(chan struct{}) // closed when either direction ended
	var once sync.Once
	var wait sync.WaitGroup
	for _, d := range [][2]net.Conn{{in, out}, {out, in}} {
		wait.Go(func() {
			p.forward(s, d[0], d[1], d[0] == out, gone)
			once.Do(func() { close(gone) })
			_, _ = in.Close(), out.Close() // ends the other direction
		})
	}
	wait.Wait()
}

// forward copies until either side ends. What it has read while the proxy
// hangs it writes when it resumes, and an end waits likewise.
func (p *Proxy) forward(s *pause, from, to net.Conn, down bool, gone <-chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if !p.wait(s, gone) || err != nil {
			return
		}
		for sent := 0; sent < n; {
			piece := p.take(n-sent, down, gone)
			if piece == 0 {
				return
			}
			if _, err := to.Write(buf[sent : sent+piece]); err != nil {
				return
			}
			sent += piece
		}
	}
}

// take waits until some of n bytes may be forwarded, and returns how many; 0: the connection ended.
func (p *Proxy) take(n int, down bool, gone <-chan struct{}) int {
	p.mu.Lock()
	rate := p.rate
	if rate > 0 {
		n = min(n, 8)
		if down {
			p.slowly += n
		}
	}
	p.mu.Unlock()
	if rate == 0 {
		return n
	}
	timer := time.NewTimer(time.Duration(n) * time.Second / time.Duration(rate))
	defer timer.Stop()
	select {
	case <-timer.C:
		return n
	case <-gone:
	case <-p.done:
	}
	return 0
}

// wait returns true as soon as the pause is over, or false if the connection
// ended.
func (p *Proxy) wait(s *pause, gone <-chan struct{}) bool {
	p.mu.Lock()
	over := s.over
	p.mu.Unlock()
	select {
	case <-over:
		return true
	case <-gone:
	case <-p.done:
	}
	return false
}

// StartDeaf accepts connections and never writes to them. It returns its address.
func StartDeaf(t testing.TB) string {
	t.Helper()
	l := Listen(t)
	var wait sync.WaitGroup
	var open []net.Conn
	wait.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			open = append(open, c)
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // nothing to flush
		wait.Wait()
		for _, c := range open {
			_ = c.Close()
		}
	})
	return l.Addr().String()
}
