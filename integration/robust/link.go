//go:build linux

package main

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// link is a TCP proxy between two processes, and does to the connections through
// it what networks do.
type link struct {
	name     string
	addr     string
	listener net.Listener
	touched  func(conn string) // told of each connection that a fault touches, by its client's address

	mu sync.Mutex
	// Guarded by mu.
	target  string // where it leads; empty: nowhere
	conns   map[*pipe]struct{}
	closed  bool
	rough   int // faults in force that touch all connections, also those to come
	refuse  bool
	delay   time.Duration
	rate    int           // bytes in a second; 0: any
	stalled chan struct{} // closed when bytes flow again; nil: they do

	wait sync.WaitGroup
}

// pipe is a connection through a link.
type pipe struct {
	link     *link
	conn     string
	from, to net.Conn
	done     chan struct{}
	once     sync.Once
	told     bool // touched; of link.mu
}

// newLink listens. Its goroutines end with close.
func newLink(name string, touched func(conn string)) (*link, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &link{name: name, addr: l.Addr().String(), listener: l, touched: touched, conns: make(map[*pipe]struct{})}
	k.wait.Add(1)
	go k.accept()
	return k, nil
}

func (k *link) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	_ = k.listener.Close() // it is only listened on
	k.cut()
	k.wait.Wait()
}

// lead makes connections from now on lead to another address.
func (k *link) lead(to string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.target = to
}

func (k *link) accept() {
	defer k.wait.Done()
	for {
		c, err := k.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		} else if err != nil {
			continue // of that one connection
		}
		k.wait.Add(1)
		go k.serve(c)
	}
}

func (k *link) serve(c net.Conn) {
	defer k.wait.Done()
	p := &pipe{link: k, conn: c.RemoteAddr().String(), from: c, done: make(chan struct{})}
	k.mu.Lock()
	target, closed, refused := k.target, k.closed, k.refuse || k.target == ""
	tell := k.rough > 0 || refused
	p.told = tell
	k.mu.Unlock()
	if tell {
		k.touched(p.conn)
	}
	if closed || refused {
		_ = c.Close()
		return
	}
	to, err := net.Dial("tcp", target)
	if err != nil { // nobody is there: that is a fault as well
		k.touch(p)
		_ = c.Close()
		return
	}
	p.to = to
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		p.close()
		return
	}
	k.conns[p] = struct{}{}
	missed := k.rough > 0 && !p.told
	p.told = p.told || missed
	k.mu.Unlock()
	if missed {
		k.touched(p.conn)
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		p.pump(p.from, p.to)
	}()
	p.pump(p.to, p.from)
	<-back
	k.mu.Lock()
	delete(k.conns, p)
	k.mu.Unlock()
}

func (p *pipe) close() {
	p.once.Do(func() {
		close(p.done)
		_ = p.from.Close()
		_ = p.to.Close()
	})
}

// pump copies one direction, as the faults in force allow.
func (p *pipe) pump(to, from net.Conn) {
	defer p.close()
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !p.pass(n) {
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err == io.EOF || err != nil {
			return
		}
	}
}

// pass waits until n bytes may go on; false: the connection ended.
func (p *pipe) pass(n int) bool {
	for {
		k := p.link
		k.mu.Lock()
		wait, stalled := k.delay, k.stalled
		if k.rate > 0 {
			wait += time.Duration(n) * time.Second / time.Duration(k.rate)
		}
		k.mu.Unlock()
		if stalled != nil {
			select {
			case <-stalled:
				continue
			case <-p.done:
				return false
			}
		}
		if wait == 0 {
			return true
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			return true
		case <-p.done:
			timer.Stop()
			return false
		}
	}
}

func (k *link) touch(p *pipe) {
	k.mu.Lock()
	tell := !p.told
	p.told = true
	k.mu.Unlock()
	if tell {
		k.touched(p.conn)
	}
}

// all are the connections that are open.
func (k *link) all() []*pipe {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []*pipe
	for p := range k.conns {
		out = append(out, p)
	}
	return out
}

// begin puts a fault in force that touches all connections there are and that
// come until end.
func (k *link) begin(set func()) {
	k.mu.Lock()
	k.rough++
	k.mu.Unlock()
	for _, p := range k.all() {
		k.touch(p)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	set()
}

func (k *link) end(set func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rough--
	set()
}

// cut ends all connections.
func (k *link) cut() {
	for _, p := range k.all() {
		k.touch(p)
		if c, ok := p.from.(*net.TCPConn); ok {
			_ = c.SetLinger(0) // if not, it ends as politely as others
		}
		p.close()
	}
}

// stall stops all bytes; connections stay open.
func (k *link) stall() { k.stalled = make(chan struct{}) }

// flow ends it.
func (k *link) flow() {
	close(k.stalled)
	k.stalled = nil
}
