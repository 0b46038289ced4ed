package fanout

import (
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"

	"xdsrelay/config"
	"xdsrelay/internal/telemetry"
)

// door admits streams within the limits, and knows the connections that they
// are on. Whom it counts as a peer, Caller.Account says.
type door struct {
	limits config.Limits
	rate   *rate.Limiter // nil: no limit

	mu      sync.Mutex
	total   int
	perPeer map[string]int
	perConn map[string]int      // by remote address
	conns   map[string]net.Conn // by remote address
}

func newDoor(l config.Limits) *door {
	d := &door{limits: l, perPeer: make(map[string]int), perConn: make(map[string]int), conns: make(map[string]net.Conn)}
	if l.StreamsPerSecond > 0 {
		d.rate = rate.NewLimiter(rate.Limit(l.StreamsPerSecond), l.StreamsPerSecond)
	}
	return d
}

// enter admits a stream or says why not. What a client or peer exceeds is
// RESOURCE_EXHAUSTED; what the relay has not got is UNAVAILABLE, so that the
// client goes elsewhere.
func (d *door) enter(st *stream) *Refusal {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, who := &d.limits, st.caller.Account
	switch {
	case l.StreamsPerConnection > 0 && d.perConn[st.from] >= l.StreamsPerConnection:
		return Refuse(codes.ResourceExhausted, telemetry.LimitStreamsPerConnection, "stream: more than streams_per_connection (%d)", l.StreamsPerConnection)
	case l.StreamsPerPeer > 0 && d.perPeer[who] >= l.StreamsPerPeer:
		return Refuse(codes.ResourceExhausted, telemetry.LimitStreamsPerPeer, "stream: peer %s: more than streams_per_peer (%d)", who, l.StreamsPerPeer)
	case l.Streams > 0 && d.total >= l.Streams:
		return Refuse(codes.Unavailable, telemetry.LimitStreams, "stream: more than streams (%d)", l.Streams)
	case d.rate != nil && !d.rate.Allow():
		return Refuse(codes.Unavailable, telemetry.LimitStreamsPerSecond, "stream: more than streams_per_second (%d)", l.StreamsPerSecond)
	}
	d.total++
	d.perPeer[who]++
	d.perConn[st.from]++
	return nil
}

func (d *door) leave(st *stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total--
	down(d.perPeer, st.caller.Account)
	down(d.perConn, st.from)
}

// seat admits a poll, which counts as a stream while it is answered; how many
// are on a connection, HTTP bounds by itself.
func (d *door) seat(who string) *Refusal {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := &d.limits
	switch {
	case l.StreamsPerPeer > 0 && d.perPeer[who] >= l.StreamsPerPeer:
		return Refuse(codes.ResourceExhausted, telemetry.LimitStreamsPerPeer, "poll: peer %s: more than streams_per_peer (%d)", who, l.StreamsPerPeer)
	case l.Streams > 0 && d.total >= l.Streams:
		return Refuse(codes.Unavailable, telemetry.LimitStreams, "poll: more than streams (%d)", l.Streams)
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
	if d.rate == nil || d.rate.Allow() {
		return nil
	}
	return Refuse(codes.Unavailable, telemetry.LimitStreamsPerSecond, "poll: more new ones than streams_per_second (%d)", d.limits.StreamsPerSecond)
}

func down(counts map[string]int, k string) {
	if counts[k]--; counts[k] == 0 {
		delete(counts, k)
	}
}

// alone reports whether no other stream is on the stream's connection.
func (d *door) alone(st *stream) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.perConn[st.from] <= 1
}

// hangUp closes a connection.
func (d *door) hangUp(addr string) {
	d.mu.Lock()
	c := d.conns[addr]
	d.mu.Unlock()
	if c != nil {
		_ = c.Close() // its streams see it; there is nobody else to tell
	}
}

// notSent is how much the kernel holds unsent for a client that does not read,
// in bytes; without it, it is megabytes.
const notSent = 128 << 10

// Listener wraps a listener for the server: its connections are secured as the
// gate says, can be closed by their streams, and pin little of the kernel's
// memory. TLS stands above all that.
func (s *Server) Listener(l net.Listener, g *Gate) net.Listener {
	out := &listener{Listener: l, door: s.door, gate: g}
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
	door  *door
	gate  *Gate
	creds credentials.TransportCredentials // nil: plaintext
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	limitUnsent(c)
	l.door.mu.Lock()
	l.door.conns[c.RemoteAddr().String()] = c
	l.door.mu.Unlock()
	return &conn{Conn: c, in: l}, nil
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

type conn struct {
	net.Conn
	in   *listener
	once sync.Once
}

func (c *conn) Close() error {
	c.once.Do(func() {
		addr := c.RemoteAddr().String()
		c.in.door.mu.Lock()
		if c.in.door.conns[addr] == c.Conn {
			delete(c.in.door.conns, addr)
		}
		c.in.door.mu.Unlock()
	})
	return c.Conn.Close()
}
