package listener

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
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
// the kernel's memory. Further connections than the Admission allows, of all its listeners, wait.
// sendTimeout is send_timeout.
func New(l net.Listener, p *Policy, a *Admission, r *refusal.Log, sendTimeout time.Duration) net.Listener {
	out := &listener{
		Listener: l, policy: p, admission: a, refusals: r, closed: make(chan struct{}),
		userTimeout: max(leastUserTimeout, 2*sendTimeout),
	}
	out.close = sync.OnceFunc(func() { close(out.closed) })
	if p.TLS != nil {
		out.creds = credentials.NewTLS(p.TLS)
	}
	return out
}

// leastUserTimeout is the TCP_USER_TIMEOUT of connections. It is longer than the time after which
// keepalive closes a connection, and so bounds how long the kernel sends the end of a closed
// connection again. With less, the end does not arrive after an outage of more than a minute. A gRPC
// client then waits for its own keepalive, which is 5 minutes. The time also counts while a client
// reads nothing, so it must be longer than send_timeout.
const leastUserTimeout = 4 * time.Minute

// KeepAlive is for net.ListenConfig. gRPC has a keepalive of its own, and the kernel's user timeout
// closes idle connections when there are many.
const KeepAlive = -1

type listener struct {
	net.Listener
	policy    *Policy
	admission *Admission
	refusals  *refusal.Log
	creds     credentials.TransportCredentials // nil: plaintext
	closed    chan struct{}
	close     func() // closes closed

	userTimeout time.Duration
}

func (l *listener) Close() error {
	l.close()
	return l.Listener.Close()
}

// Accept implements net.Listener. It returns a connection once there is room for it.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			l.refusals.NoteConnection("client connection not accepted", telemetry.OpenFiles, l.policy.Key, "", err)
		}
		return nil, err
	}
	if !l.waitForRoom(c.RemoteAddr().String()) {
		_ = c.Close() // it carried nothing
		return nil, net.ErrClosed
	}
	limitUnsent(c)
	limitUnread(c)
	setUserTimeout(c, l.userTimeout)
	return &Conn{Conn: c, in: l}, nil
}

// waitingAgain is the interval at which a waiting connection is noted again.
const waitingAgain = 20 * time.Second

// waitForRoom waits until the connection of a peer is within the limit; false: the listener was
// closed.
func (l *listener) waitForRoom(peer string) bool {
	room := l.admission.connections
	if room == nil {
		return true
	}
	select {
	case room <- struct{}{}:
		return true
	default:
	}
	again := time.Tick(waitingAgain)
	for {
		l.refusals.NoteConnection("client connections wait", telemetry.LimitConnections, l.policy.Key, peer,
			fmt.Errorf("as many connections are open as downstream.limits.connections allows (%d)", cap(room)))
		select {
		case room <- struct{}{}:
			return true
		case <-l.closed:
			return false
		case <-again:
		}
	}
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
	heardAt atomic.Int64 // when the client last sent something, UnixNano; 0: never
	closed  atomic.Bool
	node    atomic.Pointer[xds.Node] // of its first stream
	proxied atomic.Bool              // it had streams of different nodes, so its peer is a proxy
}

func (c *Conn) Close() error {
	err := c.Conn.Close()
	if room := c.in.admission.connections; room != nil && !c.closed.Swap(true) {
		<-room
	}
	return err
}

// Carries notes that a stream of this node is on the connection.
func (c *Conn) Carries(n *xds.Node) {
	if !c.node.CompareAndSwap(nil, n) && c.node.Load().ID != n.ID {
		c.proxied.Store(true)
	}
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

// HeardAt is when the client last sent something; it is not asked before it did.
func (c *Conn) HeardAt() time.Time { return time.Unix(0, c.heardAt.Load()) }

func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.heardAt.Swap(time.Now().UnixNano()) == 0 {
		c.checkProtocol(b[:n])
	}
	return n, err
}

func (c *Conn) Write(b []byte) (int, error) {
	c.checkGoAway(b) // not of TLS, which is encrypted here
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}
