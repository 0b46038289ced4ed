package integration

import (
	"net"
	"sync"
	"testing"
	"time"
)

// proxy is a TCP proxy, whose connections can go dead without anybody being told,
// and slow.
type proxy struct {
	addr string
	wait sync.WaitGroup

	mu     sync.Mutex
	target string // where new connections lead
	open   map[*pair]struct{}
	ever   int
	rate   int // bytes in a second, each way of each connection; 0: any
	passed int // bytes of clients' servers that went through while there was a rate
	over   bool
}

// pair is a connection through it.
type pair struct {
	in, out net.Conn
	gone    chan struct{} // closed with it
	once    sync.Once
	dead    chan struct{} // closed when nothing goes through any more, either way
	cut     sync.Once
}

// proxyTo proxies a port of its own to an address, until the test ends.
func proxyTo(t testing.TB, target string) *proxy {
	t.Helper()
	l := listen(t)
	w := &proxy{addr: l.Addr().String(), target: target, open: make(map[*pair]struct{})}
	w.wait.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed below
			}
			w.wait.Go(func() { w.serve(c) })
		}
	})
	t.Cleanup(func() {
		w.mu.Lock()
		w.over = true
		w.mu.Unlock()
		_ = l.Close() // it is only listened on
		w.cut()
		w.wait.Wait()
	})
	return w
}

func (w *proxy) serve(in net.Conn) {
	w.mu.Lock()
	target := w.target
	w.ever++
	w.mu.Unlock()
	out, err := net.Dial("tcp", target)
	if err != nil {
		_ = in.Close() // nobody is there
		return
	}
	c := &pair{in: in, out: out, gone: make(chan struct{}), dead: make(chan struct{})}
	w.mu.Lock()
	w.open[c] = struct{}{}
	over := w.over
	w.mu.Unlock()
	if over {
		c.close()
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		w.pump(c, in, out, true)
	}()
	w.pump(c, out, in, false)
	<-back
	w.mu.Lock()
	delete(w.open, c)
	w.mu.Unlock()
}

func (c *pair) close() {
	c.once.Do(func() {
		close(c.gone)
		_ = c.in.Close()
		_ = c.out.Close()
	})
}

func (w *proxy) pump(c *pair, to, from net.Conn, down bool) {
	defer c.close()
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			select {
			case <-c.dead: // nobody is told
				<-c.gone
			default:
			}
			return
		}
		for sent := 0; sent < n; {
			piece := w.pass(c, n-sent, down)
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

// pass waits until some of n bytes may go on, and returns how many; 0: the
// connection is over.
func (w *proxy) pass(c *pair, n int, down bool) int {
	w.mu.Lock()
	rate := w.rate
	if rate > 0 {
		n = min(n, 8)
		if down {
			w.passed += n
		}
	}
	w.mu.Unlock()
	if rate > 0 {
		timer := time.NewTimer(time.Duration(n) * time.Second / time.Duration(rate))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.gone:
			return 0
		}
	}
	select {
	case <-c.dead:
		<-c.gone
		return 0
	default:
		return n
	}
}

// lead makes connections from now on lead elsewhere.
func (w *proxy) lead(target string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.target = target
}

// slow has only so many bytes a second go through; 0: any.
func (w *proxy) slow(rate int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rate, w.passed = rate, 0
}

// counts are the connections ever made, and the bytes that came slowly.
func (w *proxy) counts() (ever, slowly int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ever, w.passed
}

func (w *proxy) all() (out []*pair) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		out = append(out, c)
	}
	return out
}

// cut ends all connections.
func (w *proxy) cut() {
	for _, c := range w.all() {
		c.close()
	}
}

// kill has all connections go dead, half open: nothing goes through, and neither
// side is told of anything, also not that the other has closed.
func (w *proxy) kill() {
	for _, c := range w.all() {
		c.cut.Do(func() { close(c.dead) })
	}
}

// deaf accepts connections and never says anything on them, until the test ends.
func deaf(t testing.TB) string {
	t.Helper()
	l := listen(t)
	var wait sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wait.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed below
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // it is only listened on
		wait.Wait()
		for _, c := range open {
			_ = c.Close()
		}
	})
	return l.Addr().String()
}
