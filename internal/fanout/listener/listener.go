package listener

import (
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
)

// notSent is how many unsent bytes the kernel holds for a client that does not read. It may hold
// as much again for the write that exceeds it; without the limit it holds megabytes. In-flight
// bytes are excluded, so clients that read lose nothing. Such a client also holds grpc's write
// buffer. A smaller one would hold less, but is slower for clients that read.
const notSent = 64 << 10

// RequestWindow is how many bytes of requests a client may send before the relay has read them, per
// stream and per connection. ACKs are small. A large request takes a round trip for each part of
// this size.
const RequestWindow = 256 << 10

// MaxMessage is how large a response may be, and a request if limits.request_bytes has no bound
// (P59), in bytes.
const MaxMessage = 256 << 20

// leastRate is how many bytes per second a client has to read at least. For a large response it has
// that much more time than send_timeout.
const leastRate = 1 << 20

// SendTime is how long a message of so many bytes may be in flight, if it is not known how much of
// it the client has read; 0: for ever. timeout is send_timeout.
func SendTime(timeout time.Duration, bytes int) time.Duration {
	if timeout == 0 {
		return 0
	}
	return timeout + time.Duration(bytes)*time.Second/leastRate
}

// New wraps a listener. Credentials secure its connections as the policy says. They use little of
// the kernel's memory. At most p.Connections are open at a time; others wait unaccepted.
func New(l net.Listener, p *Policy) net.Listener {
	out := &listener{Listener: Bounded(l, p.Connections), policy: p}
	if p.TLS != nil {
		out.creds = credentials.NewTLS(p.TLS)
	}
	return out
}

// Bounded returns a listener whose connections use little of the kernel's memory. At most so many
// are open at a time; 0: no limit.
func Bounded(l net.Listener, connections int) net.Listener {
	l = tuned{l}
	if connections > 0 {
		l = netutil.LimitListener(l, connections)
	}
	return l
}

// tuned sets the socket options of the connections that it accepts.
type tuned struct{ net.Listener }

func (t tuned) Accept() (net.Conn, error) {
	c, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	limitUnsent(c)
	limitUnread(c)
	return c, nil
}

// KeepAlive is for net.ListenConfig. gRPC has a keepalive of its own, and the kernel's user timeout
// closes idle connections when there are many.
const KeepAlive = -1

// listener accepts the connections of clients.
type listener struct {
	net.Listener
	policy *Policy
	creds  credentials.TransportCredentials // nil: plaintext
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: c, in: l}, nil
}

// limitUnread limits how many bytes the kernel buffers that the relay has not read: no more than
// HTTP/2's windows let a correct client send. Without it, megabytes of small frames could wait on a
// connection that grpc reads slowly.
func limitUnread(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(RequestWindow) // best effort
	}
}

// limitUnsent limits how many unsent bytes the kernel buffers.
func limitUnsent(c net.Conn) {
	raw, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	if rc, err := raw.SyscallConn(); err == nil {
		// Best effort: without it, a client that does not read costs more.
		_ = rc.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, notSent)
		})
	}
}

// Conn is an accepted connection, below TLS.
type Conn struct {
	net.Conn
	in      *listener
	written atomic.Int64 // bytes that the kernel has taken
	heard   atomic.Bool  // the client has sent something
}

// Written is how many bytes the kernel has taken. A write that blocks counts when it has ended.
func (c *Conn) Written() int64 { return c.written.Load() }

// Delivered is how many bytes the client's host has received. If the system does not say it,
// Delivered is Written.
func (c *Conn) Delivered() int64 {
	if n, ok := acknowledged(c.Conn); ok {
		return n
	}
	return c.Written()
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.heard.Load() {
		c.heard.Store(true)
	}
	return n, err
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}
