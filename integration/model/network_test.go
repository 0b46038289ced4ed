package model

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"xdsrelay/internal/cluster/clustertest"
)

// gossipPort and memberPort are the same on each host.
const (
	gossipPort = ":7946"
	memberPort = ":15020"
)

// originHost is the host of the origin.
const originHost = "origin"

// network connects hosts in memory: relays, and the origin. Each direction between two hosts may be
// cut, for gossip, for connections, or for both.
type network struct {
	gossip clustertest.Network

	mu        sync.Mutex
	listeners map[string]*bufconn.Listener // by host:port
	cut       map[[2]string]bool           // sender and receiver, of connections
	restored  map[[2]string]time.Time      // when that was cut no more
	changed   chan struct{}                // closed at the next change of cut
	conns     map[*conn]struct{}
	refusing  map[string]bool   // hosts to which no connection can be made
	received  map[[2]string]int // bytes by sender and receiver, on connections that the receiver made
}

func newNetwork() *network {
	return &network{listeners: make(map[string]*bufconn.Listener), cut: make(map[[2]string]bool), restored: make(map[[2]string]time.Time), changed: make(chan struct{}), conns: make(map[*conn]struct{}), refusing: make(map[string]bool), received: make(map[[2]string]int)}
}

// listen makes a listener at an address. It replaces an earlier one.
func (n *network) listen(address string) *bufconn.Listener {
	l := bufconn.Listen(1 << 16)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[address] = l
	return l
}

// linkGossip sets whether gossip that one host sends reaches another.
func (n *network) linkGossip(from, to string, up bool) {
	n.gossip.Link(from+gossipPort, to+gossipPort, up)
}

// link sets whether what one host sends on connections reaches another. What was sent meanwhile
// arrives later, as with TCP.
func (n *network) link(from, to string, up bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := [2]string{from, to}; n.cut[l] == up {
		n.cut[l], n.restored[l] = !up, time.Now()
	}
	close(n.changed)
	n.changed = make(chan struct{})
	for c := range n.conns {
		if c.closed() && !n.cut[[2]string{c.from, c.to}] { // its end arrives now
			delete(n.conns, c)
			_ = c.Conn.Close()
		}
	}
}

// isCut reports whether a direction is cut, and when that may have changed.
func (n *network) isCut(from, to string) (bool, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut[[2]string{from, to}], n.changed
}

// isLate reports whether a direction is cut, or was until just now: what was sent meanwhile is being read.
func (n *network) isLate(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := [2]string{from, to}
	return n.cut[l] || time.Since(n.restored[l]) < time.Second
}

// await waits until a direction is not cut, or until done. It reports whether it is not cut.
func (n *network) await(from, to string, done <-chan struct{}) bool {
	for {
		cut, changed := n.isCut(from, to)
		if !cut {
			return true
		}
		select {
		case <-changed:
		case <-done:
			return false
		}
	}
}

// dialer makes connections from a host. Over a cut link an attempt lasts until ctx ends.
func (n *network) dialer(from string) dialer {
	return func(ctx context.Context, address string) (net.Conn, error) {
		to := address
		if host, _, err := net.SplitHostPort(address); err == nil {
			to = host
		}
		if !n.await(from, to, ctx.Done()) || !n.await(to, from, ctx.Done()) {
			return nil, fmt.Errorf("dial tcp %s: i/o timeout", address)
		}
		if to == originHost { // one listener for each host: see listenFor
			address = originHost + "/" + from
		}
		n.mu.Lock()
		l, refused := n.listeners[address], n.refusing[to]
		n.mu.Unlock()
		if l == nil || refused {
			return nil, fmt.Errorf("dial tcp %s: connection refused", address)
		}
		nc, err := l.DialContext(ctx)
		if err != nil {
			return nil, fmt.Errorf("dial tcp %s: connection refused", address)
		}
		c := &conn{Conn: nc, network: n, from: from, to: to, end: make(chan struct{})}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.conns[c] = struct{}{}
		return c, nil
	}
}

// refuse makes a host refuse connections, after it ended those that it has, or accept them again.
func (n *network) refuse(host string, refuse bool) {
	n.mu.Lock()
	n.refusing[host] = refuse
	var all []*conn
	for c := range n.conns {
		if c.to == host && refuse {
			all = append(all, c)
		}
	}
	n.mu.Unlock()
	for _, c := range all {
		_ = c.Conn.Close() // its reader finds out
	}
}

// remove ends a host: its listeners, and all connections from and to it.
func (n *network) remove(host string) {
	n.mu.Lock()
	l := n.listeners[host+memberPort]
	delete(n.listeners, host+memberPort)
	var all []*conn
	for c := range n.conns {
		if c.from == host || c.to == host {
			all = append(all, c)
		}
	}
	n.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
	for _, c := range all {
		if c.from == host {
			_ = c.Close()
		} else {
			_ = c.Conn.Close() // its reader finds out, once that arrives
		}
	}
}

// conn is the end of a connection at the host that made it.
type conn struct {
	net.Conn
	network  *network
	from, to string
	once     sync.Once
	end      chan struct{} // closed by Close
}

func (c *conn) closed() bool {
	select {
	case <-c.end:
		return true
	default:
		return false
	}
}

// Read returns what arrived.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.network.mu.Lock()
	c.network.received[[2]string{c.to, c.from}] += n
	c.network.mu.Unlock()
	if !c.network.await(c.to, c.from, c.end) {
		return 0, net.ErrClosed
	}
	return n, err
}

// Write waits while the link is cut. That the other end is gone is known once its answer arrives.
func (c *conn) Write(b []byte) (int, error) {
	if !c.network.await(c.from, c.to, c.end) {
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Write(b)
	if err != nil && !c.network.await(c.to, c.from, c.end) {
		return 0, net.ErrClosed
	}
	return n, err
}

// Close ends the connection. The other end learns of it once the link is not cut.
func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.end)
		c.network.mu.Lock()
		cut := c.network.cut[[2]string{c.from, c.to}]
		if !cut {
			delete(c.network.conns, c)
		}
		c.network.mu.Unlock()
		if !cut {
			_ = c.Conn.Close()
		} else {
			_ = c.Conn.SetReadDeadline(time.Now()) // ends Read
		}
	})
	return nil
}

// hostListener is the origin's listener for one host. Its connections name the host.
type hostListener struct {
	*bufconn.Listener
	host string
}

// Accept implements net.Listener.
func (l hostListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return hostConn{c, l.host}, nil
}

type hostConn struct {
	net.Conn
	host string
}

func (c hostConn) RemoteAddr() net.Addr { return hostAddr(c.host) }

// hostAddr is a host as an address.
type hostAddr string

// Network implements net.Addr.
func (hostAddr) Network() string { return "memory" }

func (a hostAddr) String() string { return string(a) }
