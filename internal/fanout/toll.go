package fanout

import (
	"encoding/binary"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"xdsrelay/internal/telemetry"
)

// What a connection may say. A frame costs one, or more if it costs the relay more;
// so many are free in a second, and so many at once. A client that is sent
// something may answer it: each response pays for its ACK, and what is sent pays
// for the window updates that make room for it. So only those come to the bound
// who make work that nobody asked them for: streams that are reset, pings,
// settings, requests without end.
//
// Bytes cost nothing: those of DATA have windows and request_bytes, and an ACK of
// the state of the world that repeats all names is long.
//
// Who is over it is read more slowly, and never cut: a client that only had a lot to
// say would be punished. What it does not get rid of waits in its own socket. Who goes
// by itself leaves what it owes with its address (strikes.go).
const (
	tollRate     = 4000        // a second
	tollBurst    = 10_000      // as many as a hundred streams need that come back at once
	tollStruck   = 500         // at once, of an address that has nothing left: one stream needs a tenth
	tollStream   = 10          // for HEADERS: a stream costs goroutines
	tollRequest  = 4           // for a request that changes a subscription, or answers nothing: no response paid for it
	tollResponse = 4           // a response pays
	tollBytes    = 1 << 10     // sent, that pay one
	tollMaxWait  = time.Second // at a time
)

// toll is a connection above TLS, whose frames are counted as they are read. All
// but credit, parts and what is under its lock is its reader's, or its writer's.
type toll struct {
	net.Conn
	srv  *Server
	conn *conn // below TLS

	framer
	told    time.Time // when it was last counted that the client is held back
	greeted bool      // it has said something

	mu      sync.Mutex // of what follows, which who closes the connection looks at
	burst   int64      // what it began with
	left    int64      // to spend
	at      time.Time  // when it was counted last
	written int64      // conn.written then

	// The writer's, which is grpc's.
	sent    framer
	settled bool // the settings have gone
	headers bool // some of a stream have not come to their end

	credit atomic.Int64 // for responses sent
	parts  parts
}

// newToll begins with so much to spend.
func newToll(s *Server, above net.Conn, below *conn, burst int64) *toll {
	t := &toll{Conn: above, srv: s, conn: below, burst: burst, left: burst, at: time.Now()}
	t.framer = framer{skip: len(http2.ClientPreface), seen: t.frame, body: t.parts.body}
	t.sent.seen = t.wrote
	below.toll.Store(t)
	s.unfinished.add(t)
	if below.closed.Load() { // before it could be found there
		s.unfinished.remove(t)
	}
	return t
}

// newRESTToll is that of a connection of REST, whose requests net/http bounds in
// size and time. One that does not begin as HTTP/2 does pays for each read.
func newRESTToll(s *Server, c net.Conn) *toll {
	below := &conn{Conn: c, in: &listener{gate: &Gate{Key: "downstream.rest_address"}}}
	t := &toll{Conn: below, srv: s, conn: below, burst: tollBurst, left: tollBurst, at: time.Now()}
	t.framer = framer{skip: len(http2.ClientPreface), seen: t.pays, either: true}
	return t
}

// Read implements net.Conn.
func (t *toll) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	if t.either && n > 0 {
		t.either, t.plain = false, b[0] != http2.ClientPreface[0]
	}
	if t.spend(b[:n]) && err == nil {
		t.hold()
	}
	return n, err
}

// spend counts what was read, and reports whether more was spent than there is.
func (t *toll) spend(b []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.plain {
		t.left--
	} else {
		t.take(b)
	}
	return t.left < 0 || t.credit.Load() < -tollBurst/4
}

// frame is told of each frame's header.
func (t *toll) frame(h http2.FrameHeader) {
	if !t.greeted {
		t.greeted = true
		t.srv.greetings.remove(t.conn)
	}
	t.pays(h)
	t.parts.begin(h)
}

// pays has a frame cost what it does.
func (t *toll) pays(h http2.FrameHeader) {
	switch h.Type {
	case http2.FrameHeaders:
		t.left -= tollStream
	default:
		t.left--
	}
}

// hold waits until the connection has paid.
func (t *toll) hold() {
	now := time.Now()
	wait := t.pay(now)
	if wait <= 0 {
		return
	}
	if now.Sub(t.told) >= tollMaxWait {
		t.told = now
		t.srv.meters.Refuse(telemetry.Flood)
		t.srv.sparing.line(t.srv.log, slog.LevelWarn, "a client says more than it may, and is read slowly", "peer", t.conn.RemoteAddr().String(), "listener", t.conn.in.gate.Key)
	}
	time.Sleep(min(wait, tollMaxWait))
	t.pay(time.Now())
}

// earn has a connection say so much more, or less. Any goroutine's.
func (c *conn) earn(n int64) {
	if t := c.toll.Load(); t != nil { // a stream's connection has one, but in tests
		t.credit.Add(n)
	}
}

// pay counts what the connection has got to spend since, and returns how long it
// takes until it has paid its debts.
func (t *toll) pay(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(now)
	return time.Duration(-t.left) * time.Second / tollRate
}

// owed is how much it has spent of what it began with and not got back. Any goroutine's.
func (t *toll) owed(now time.Time) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(now)
	return max(0, t.burst-t.left)
}

func (t *toll) count(now time.Time) {
	sent := t.conn.written.Load()
	t.left += int64(now.Sub(t.at).Seconds()*tollRate) + t.credit.Swap(0) + (sent-t.written)/tollBytes
	t.left = min(t.left, tollBurst)
	t.at, t.written = now, sent
}

// framer finds the frames in what a client sends, after the preface. It does not
// judge them: what is none, grpc refuses.
type framer struct {
	seen func(http2.FrameHeader)
	body func([]byte) // of a frame of DATA, in pieces; nil: nobody looks at it

	either bool // it is not known yet whether it is HTTP/2
	plain  bool // it is not

	head [9]byte
	have int // of head
	skip int // bytes until the next frame
	data bool
}

// take goes on by what was read.
func (f *framer) take(b []byte) {
	for len(b) > 0 {
		if n := min(f.skip, len(b)); n > 0 {
			if f.data {
				f.body(b[:n])
			}
			f.skip -= n
			b = b[n:]
			continue
		}
		n := copy(f.head[f.have:], b)
		f.have += n
		b = b[n:]
		if f.have < len(f.head) {
			return
		}
		h := http2.FrameHeader{
			Length: uint32(f.head[0])<<16 | uint32(f.head[1])<<8 | uint32(f.head[2]),
			Type:   http2.FrameType(f.head[3]), Flags: http2.Flags(f.head[4]),
			StreamID: binary.BigEndian.Uint32(f.head[5:]) & (1<<31 - 1),
		}
		f.have, f.skip, f.data = 0, int(h.Length), h.Type == http2.FrameData && f.body != nil
		f.seen(h)
	}
}
