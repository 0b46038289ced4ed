package fanout

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"

	"xdsrelay/config"
	"xdsrelay/internal/telemetry"
)

// door admits streams within the limits. Whom it counts as a peer,
// Caller.Account says. A connection is counted as itself: two clients on two
// listeners may have one remote address.
type door struct {
	mu      sync.Mutex
	limits  config.Limits
	rate    *rate.Limiter // nil: no limit
	total   int
	perPeer map[string]int
	perConn map[*conn]int
}

func newDoor(l config.Limits) *door {
	d := &door{perPeer: make(map[string]int), perConn: make(map[*conn]int)}
	d.reconfigure(l)
	return d
}

// reconfigure has other limits hold for who comes from now on. A rate that stays
// goes on from where it is: a new one begins with a second's worth of streams.
func (d *door) reconfigure(l config.Limits) {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.limits
	d.limits = l
	switch {
	case l.StreamsPerSecond <= 0:
		d.rate = nil
	case d.rate == nil || l.StreamsPerSecond != was.StreamsPerSecond:
		d.rate = rate.NewLimiter(rate.Limit(l.StreamsPerSecond), l.StreamsPerSecond)
	}
}

// enter admits a stream or says why not. What a client or peer exceeds is
// RESOURCE_EXHAUSTED; what the relay has not got is UNAVAILABLE, so that the
// client goes elsewhere.
func (d *door) enter(st *stream) *Refusal {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, who := &d.limits, st.caller.Account
	switch {
	case l.StreamsPerConnection > 0 && d.perConn[st.conn] >= l.StreamsPerConnection:
		return Refuse(codes.ResourceExhausted, telemetry.LimitStreamsPerConnection, "stream: more than downstream.limits.streams_per_connection allows (%d)", l.StreamsPerConnection)
	case l.StreamsPerPeer > 0 && d.perPeer[who] >= l.StreamsPerPeer:
		return Refuse(codes.ResourceExhausted, telemetry.LimitStreamsPerPeer, "stream: peer %s: more than downstream.limits.streams_per_peer allows (%d)", who, l.StreamsPerPeer)
	case l.Streams > 0 && d.total >= l.Streams:
		return Refuse(codes.Unavailable, telemetry.LimitStreams, "stream: more than downstream.limits.streams allows (%d)", l.Streams)
	case d.rate != nil && !d.rate.Allow():
		return Refuse(codes.Unavailable, telemetry.LimitStreamsPerSecond, "stream: more than downstream.limits.streams_per_second allows (%d)", l.StreamsPerSecond)
	}
	d.total++
	d.perPeer[who]++
	d.perConn[st.conn]++
	return nil
}

func (d *door) leave(st *stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total--
	down(d.perPeer, st.caller.Account)
	down(d.perConn, st.conn)
}

// seat admits a poll, which counts as a stream while it is answered. HTTP bounds how many
// are on a connection.
func (d *door) seat(who string) *Refusal {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := &d.limits
	switch {
	case l.StreamsPerPeer > 0 && d.perPeer[who] >= l.StreamsPerPeer:
		return Refuse(codes.ResourceExhausted, telemetry.LimitStreamsPerPeer, "poll: peer %s: more than downstream.limits.streams_per_peer allows (%d)", who, l.StreamsPerPeer)
	case l.Streams > 0 && d.total >= l.Streams:
		return Refuse(codes.Unavailable, telemetry.LimitStreams, "poll: more than downstream.limits.streams allows (%d)", l.Streams)
	}
	d.total++
	d.perPeer[who]++
	return nil
}

func (d *door) unseat(who string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total--
	down(d.perPeer, who)
}

// hurry admits a client's first poll, as it does a stream, at the rate there is.
func (d *door) hurry() *Refusal {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rate == nil || d.rate.Allow() {
		return nil
	}
	return Refuse(codes.Unavailable, telemetry.LimitStreamsPerSecond, "poll: more new ones than streams_per_second (%d)", d.limits.StreamsPerSecond)
}

func down[K comparable](counts map[K]int, k K) {
	if counts[k]--; counts[k] == 0 {
		delete(counts, k)
	}
}

// alone reports whether no other stream is on the stream's connection.
func (d *door) alone(st *stream) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.perConn[st.conn] <= 1
}

// notSent is how much the kernel holds unsent for a client that does not read,
// in bytes, with as much again for the piece that goes over it; without it, it
// is megabytes. What is on its way counts not, so clients that read lose nothing.
// With a writeBuffer, which is held as well, it is the most that such a client
// pins; a smaller writeBuffer would pin less, and costs those who read.
const notSent = 64 << 10

// Listener wraps a listener for the server. Its connections are secured as the gate says,
// can be closed by their streams, and pin little of the kernel's memory. At most
// g.Connections are open at a time; others wait unaccepted.
func (s *Server) Listener(l net.Listener, g *Gate) net.Listener {
	out := &listener{Listener: bounded(l, g.Connections), gate: g}
	if g.TLS != nil {
		out.creds = credentials.NewTLS(g.TLS)
	}
	return out
}

// bounded returns a listener whose connections pin little of the kernel's memory, and of
// which at most so many are open at a time; 0: no limit.
func bounded(l net.Listener, connections int) net.Listener {
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

// KeepAlive is for net.ListenConfig: gRPC's own keepalive does it; the
// kernel's user timeout cuts idle connections in a large crowd.
const KeepAlive = -1

// listener is where clients come in.
type listener struct {
	net.Listener
	gate  *Gate
	creds credentials.TransportCredentials // nil: plaintext
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, in: l}, nil
}

// limitUnread has the kernel take little of what the relay has not read: no more
// than HTTP/2's windows let an honest client send. Without it megabytes of small
// frames would wait for a connection that grpc reads slowly.
func limitUnread(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(requestWindow) // best effort
	}
}

// limitUnsent has the kernel hold little that is not sent yet.
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

// conn is an accepted connection, below TLS.
type conn struct {
	net.Conn
	in      *listener
	written atomic.Int64 // bytes that the kernel has taken
	heard   atomic.Bool  // the client has sent something
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.heard.Load() {
		c.heard.Store(true)
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}
