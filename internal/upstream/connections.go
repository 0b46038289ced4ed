package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"xdsrelay/internal/telemetry/tlsfiles"
)

// pool keeps the connections to one origin. A connection is leased to at most
// limit streams; when all are full another is opened. A new lease goes to the
// fullest connection with room, so that surplus connections become idle and can be
// closed.
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
	idleSince time.Time // valid while leases is 0
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
		_ = c.cc.Close() // fails only if it is closed already
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

// full records that the origin accepts no more streams on c than are open. It returns their number,
// and whether they are fewer than was known.
func (p *pool) full(c *conn) (n int, fewer bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, was := c.open, c.limit
	c.limit = max(1, n)
	return n, c.limit < was
}

// trim closes connections that were idle for long enough. It keeps the last one for the next
// stream.
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

func (p *pool) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// dialed is a connection to an origin. Safe for concurrent use.
type dialed struct {
	cc      *grpc.ClientConn
	timeout time.Duration // of one attempt to connect
}

// unopened is the error of a stream that could not be opened in time.
func (d *dialed) unopened(in time.Duration) error {
	if d.cc.GetState() == connectivity.Ready {
		return fmt.Errorf("connected, but no stream was opened within %s", in)
	}
	return fmt.Errorf("not connected within %s", in)
}

// explain rewrites a connection error where gRPC's text is unclear: the origin does not speak
// HTTP/2, or did not within the timeout.
func (d *dialed) explain(err error) error {
	_, what, ok := strings.Cut(err.Error(), "error reading server preface: ")
	switch {
	case !ok:
		return err
	case strings.Contains(what, "use of closed network connection"):
		return fmt.Errorf("connected, but no HTTP/2 within %s", d.timeout)
	case strings.Contains(what, "http2: "):
		return errors.New("connected, but the server does not speak HTTP/2; if it needs TLS, set upstream.origins[].tls")
	}
	return err
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

// keepaliveCredentials turn TCP keepalive on before each handshake. A custom dialer could do the
// same, but gRPC then ignores the proxy environment variables.
type keepaliveCredentials struct {
	credentials.TransportCredentials
}

func (c keepaliveCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if tcp, ok := raw.(*net.TCPConn); ok {
		if err := tcp.SetKeepAliveConfig(tcpKeepalive); err != nil {
			return nil, nil, err
		}
	}
	return c.TransportCredentials.ClientHandshake(ctx, authority, raw)
}

func (c keepaliveCredentials) Clone() credentials.TransportCredentials {
	return keepaliveCredentials{c.TransportCredentials.Clone()}
}
