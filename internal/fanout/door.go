package fanout

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

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

// seat admits a poll, which counts as a stream while it is answered; how many
// are on a connection, HTTP bounds by itself.
func (d *door) seat(who string) *Refusal { return d.admit("poll", who) }

// admit is seat of what else counts as a stream.
func (d *door) admit(what, who string) *Refusal {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := &d.limits
	switch {
	case l.StreamsPerPeer > 0 && d.perPeer[who] >= l.StreamsPerPeer:
		return Refuse(codes.ResourceExhausted, telemetry.LimitStreamsPerPeer, "%s: peer %s: more than downstream.limits.streams_per_peer allows (%d)", what, who, l.StreamsPerPeer)
	case l.Streams > 0 && d.total >= l.Streams:
		return Refuse(codes.Unavailable, telemetry.LimitStreams, "%s: more than downstream.limits.streams allows (%d)", what, l.Streams)
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

// full reports whether there are as many streams as there may be.
func (d *door) full() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.limits.Streams > 0 && d.total >= d.limits.Streams
}

// empty reports whether no stream is on the connection.
func (d *door) empty(c *conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.perConn[c] == 0
}

// notSent is how much the kernel holds unsent for a client that does not read,
// in bytes, with as much again for the piece that goes over it; without it, it
// is megabytes. What is on its way counts not, so clients that read lose nothing.
// With a writeBuffer, which is held as well, it is the most that such a client
// pins; a smaller writeBuffer would pin less, and costs those who read.
const notSent = 64 << 10

// Listener wraps a listener for the server: its connections are secured as the
// gate says, can be closed by their streams, and pin little of the kernel's
// memory. TLS stands above all that.
func (s *Server) Listener(l net.Listener, g *Gate) net.Listener {
	out := &listener{Listener: l, srv: s, gate: g}
	if g.TLS != nil {
		out.creds = credentials.NewTLS(g.TLS)
	}
	return out
}

// KeepAlive is for net.ListenConfig: gRPC's own keepalive does it; the
// kernel's user timeout cuts idle connections in a large crowd.
const KeepAlive = -1

type listener struct {
	net.Listener
	srv   *Server
	gate  *Gate
	creds credentials.TransportCredentials // nil: plaintext
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	limitUnsent(c)
	limitUnread(c)
	out := &conn{Conn: c, in: l, opened: time.Now()}
	l.srv.greetings.add(out)
	return out, nil
}

// limitUnread has the kernel take little of what the relay has not read: no more
// than HTTP/2's windows let an honest client send. Without it megabytes of small
// frames would wait for a connection that is read slowly, also once its client
// has gone.
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
	opened  time.Time            // when it was accepted
	written atomic.Int64         // bytes that the kernel has taken
	heard   atomic.Bool          // it has said anything
	toll    atomic.Pointer[toll] // above TLS; nil before the handshake
	used    atomic.Bool          // a stream was admitted on it
	delayed atomic.Bool          // it had to wait (strikes.go)
	closed  atomic.Bool
	departs atomic.Bool  // its client is to come back on another (parting.go)
	told    atomic.Int64 // when it was told so, UnixNano; 0: it was not
	parting alarm[*conn] // under the lock of the server's partings
}

// Close implements net.Conn. Whoever closes a connection, above TLS or below,
// comes by here.
func (c *conn) Close() error {
	if srv := c.in.srv; srv != nil && !c.closed.Swap(true) {
		srv.greetings.remove(c)
		srv.partings.drop(&c.parting)
		if t := c.toll.Load(); t != nil {
			srv.unfinished.remove(t)
		}
		now := time.Now()
		srv.strikes.add(neighbours(c.RemoteAddr().String()), c.cost(now), now)
	}
	return c.Conn.Close()
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
