package upstream

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"xdsrelay/internal/telemetry/tlsfiles"
)

// pool has the connections to one origin. A connection is leased to at most limit streams. When all
// are full, another is opened. A new lease goes to the fullest connection with room, so that surplus
// connections become idle and can be closed. The first connection is kept. Only the first one is
// dialed while it is not ready: the others are closed then, once they have no streams (P54).
type pool struct {
	dial  func() (*dialed, error) // performs no I/O
	limit int

	mu     sync.Mutex
	conns  []*conn
	closed bool
}

// conn is one connection. The pool's lock protects it, except dialed.
type conn struct {
	*dialed
	leases int
	// open counts the streams that the origin has accepted on it.
	open int
	// limit is the pool's limit, or the lower one that the origin was found to enforce.
	limit     int
	ready     bool      // known to be ready without a stream: see keepConnected
	idleSince time.Time // valid while leases is 0
}

// up reports whether the connection is known to be connected.
func (c *conn) up() bool { return c.ready || c.open > 0 }

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
		var err error
		if best, err = p.add(); err != nil {
			return nil, err
		}
	}
	best.leases++
	return best, nil
}

// add makes a connection. The lock is held.
func (p *pool) add() (*conn, error) {
	d, err := p.dial()
	if err != nil {
		return nil, err
	}
	c := &conn{dialed: d, limit: p.limit}
	p.conns = append(p.conns, c)
	return c, nil
}

// first returns the connection that is kept without streams too. It makes it if there is none.
func (p *pool) first() (*conn, error) {
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
		_ = c.cc.Close() // fails only if it is closed already
	}
	p.trim(time.Now())
}

// opened and ended count the streams on a connection. setReady records whether the connection is
// ready. Each reports whether the connection is up now and was not, or the reverse.
func (p *pool) opened(c *conn) bool { return p.change(c, func() { c.open++ }) }
func (p *pool) ended(c *conn) bool  { return p.change(c, func() { c.open-- }) }
func (p *pool) setReady(c *conn, ready bool) bool {
	return p.change(c, func() { c.ready = ready })
}

func (p *pool) change(c *conn, by func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := c.up()
	by()
	return c.up() != was
}

// full records that the origin accepts no more streams on c than are open. It returns their number,
// and whether they are fewer than was known.
func (p *pool) full(c *conn) (n int, fewer bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, was := c.open, c.limit
	c.limit = max(1, n)
	return n, c.limit < was
}

// trim closes connections that were idle for long enough, except the first one. If the first one is
// not ready, it closes all others that are idle.
func (p *pool) trim(now time.Time) {
	p.mu.Lock()
	var surplus []*conn
	p.conns = slices.DeleteFunc(p.conns, func(c *conn) bool {
		if c.leases > 0 || c == p.conns[0] || p.conns[0].ready && now.Sub(c.idleSince) < idleFor {
			return false
		}
		surplus = append(surplus, c)
		return true
	})
	p.mu.Unlock()
	for _, c := range surplus {
		_ = c.cc.Close()
	}
}

// close closes all connections, and streams on them end. Connections leased after that are closed
// on release.
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

// TLSFiles secure a connection to an origin. Without any of them it is plaintext. Renewed files
// apply from the next connection on.
type TLSFiles struct {
	CAFile     string // empty: the system's CAs
	CertFile   string // with KeyFile: the relay's own certificate
	KeyFile    string
	ServerName string // empty: the target's host
}

// credentials returns the credentials of connections and the source of their files,
// nil for plaintext. It fails if the files are invalid now.
func (f TLSFiles) credentials(origin string, opts *Options) (credentials.TransportCredentials, *tlsfiles.Source, error) {
	if f == (TLSFiles{}) {
		return insecure.NewCredentials(), nil, nil
	}
	src, err := tlsfiles.Open(tlsfiles.Files{CertFile: f.CertFile, KeyFile: f.KeyFile, CAFile: f.CAFile},
		tlsfiles.Options{Name: "origin " + origin, Metrics: opts.Metrics, Log: opts.Log})
	if err != nil {
		return nil, nil, err
	}
	return &fileCredentials{TransportCredentials: credentials.NewTLS(src.Client(f.ServerName)), src: src, serverName: f.ServerName}, src, nil
}

// fileCredentials use the content of the files at the time of each handshake. The
// embedded credentials serve the methods that do not depend on the files.
type fileCredentials struct {
	credentials.TransportCredentials
	src        *tlsfiles.Source
	serverName string
}

func (c *fileCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(c.src.Client(c.serverName)).ClientHandshake(ctx, authority, conn)
}

func (c *fileCredentials) Clone() credentials.TransportCredentials {
	return &fileCredentials{TransportCredentials: c.TransportCredentials.Clone(), src: c.src, serverName: c.serverName}
}

// tcpKeepalive finds dead paths to origins, which may not permit HTTP/2 pings so
// often. gRPC sets TCP_USER_TIMEOUT to upstream.keepalive.timeout, 10 s. The kernel
// then closes a connection whose data is not acknowledged for so long. With that
// option Linux does not use Count: it closes an idle connection at the second probe,
// 40 s after the last packet, or after the timeout if that is longer. Other systems
// may wait for all probes, 60 s.
var tcpKeepalive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

// dialedCredentials turn TCP keepalive on before each handshake, and count the bytes that the
// connection receives. A custom dialer could do the same, but gRPC then ignores the proxy environment
// variables.
type dialedCredentials struct {
	credentials.TransportCredentials
	dialed *dialed
}

func (c dialedCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if tcp, ok := raw.(*net.TCPConn); ok {
		if err := tcp.SetKeepAliveConfig(tcpKeepalive); err != nil {
			return nil, nil, err
		}
	}
	return c.TransportCredentials.ClientHandshake(ctx, authority, countedConn{raw, c.dialed})
}

func (c dialedCredentials) Clone() credentials.TransportCredentials {
	return dialedCredentials{c.TransportCredentials.Clone(), c.dialed}
}

// countedConn counts what it receives.
type countedConn struct {
	net.Conn
	dialed *dialed
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.dialed.received.Add(uint64(n))
	return n, err
}
