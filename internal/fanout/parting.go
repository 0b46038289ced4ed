package fanout

import (
	"math"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"

	"xdsrelay/internal/telemetry"
)

// A connection parts when its client is to come back on another one: it is older
// than max_connection_age, or what its client showed in the handshake counts no more.
// To end its streams would not do: a client opens the next one where it had the last.
//
// It is told by GOAWAY, before the status of the stream that ends for it. Streams
// that are open stay open, each until its own time, and those that were on their way
// are served; a client that knows HTTP/2 opens no more, and closes the connection
// after the last. One that does not has its next streams refused, and is closed.
//
// grpc sends GOAWAY to one connection by itself alone, at an age for which the
// server was made (MaxConnectionAge): by another jitter than that of the streams, never
// by another age, and not because a certificate expired. So the relay
// puts the frame between grpc's, where it writes them: HTTP/2 has it at any place.

// parting is how long a client may take from GOAWAY until it opens no more streams,
// and from its last stream until it closes the connection.
const parting = 5 * time.Second

// departsFor are the endings after which a client is to come back on another
// connection.
var departsFor = map[telemetry.Reason]bool{telemetry.Aged: true, telemetry.Certificate: true}

// goAway is the frame, without a last stream: of those that are on their way grpc
// says later, if it shuts down, which it takes.
var goAway = []byte{0, 0, 8, byte(http2.FrameGoAway), 0, 0, 0, 0, 0, math.MaxInt32 >> 24, 0xff, 0xff, 0xff, 0, 0, 0, byte(http2.ErrCodeNo)}

// depart has the connection part.
func (c *conn) depart() {
	if srv := c.in.srv; srv != nil && !c.departs.Swap(true) {
		srv.partings.set(time.Now().Add(srv.parting), &c.parting, c) // if it has no stream then
	}
}

// refuses says why a stream that is opened now is not taken; nil: it is.
func (c *conn) refuses(now time.Time) *Refusal {
	if told := c.told.Load(); told == 0 || now.Sub(time.Unix(0, told)) < c.in.srv.parting {
		return nil
	}
	return Refuse(codes.Unavailable, telemetry.Aged, "stream: its connection was told to come to its end (GOAWAY), as older than max_connection_age")
}

// ring closes a connection that parts and has no stream of xDS any more.
func (c *conn) ring() {
	if c.in.srv.door.empty(c) {
		_ = c.Close() // its reader sees it
	}
}

// gone is told of each stream of xDS that is over.
func (s *Server) gone(st *stream) {
	s.door.leave(st)
	if c := st.conn; c.departs.Load() && s.door.empty(c) {
		s.partings.set(time.Now().Add(s.parting), &c.parting, c)
	}
}

// ages has a connection part that is older than it may be, at a stream that is
// opened: no stream of it may ever be as old.
func (c *conn) ages(now time.Time) {
	if age := c.in.srv.settings().MaxConnectionAge; age > 0 && now.Sub(c.opened) > jitter(age, uint64(c.opened.UnixNano())) {
		c.depart()
	}
}

// Write implements net.Conn. Only grpc writes, and one at a time; where it has told
// a frame to its end GOAWAY can go between.
func (t *toll) Write(b []byte) (int, error) {
	if t.sent.seen == nil {
		return t.Conn.Write(b)
	}
	if !t.conn.departs.Load() || t.conn.told.Load() != 0 {
		return t.pass(b)
	}
	at := t.gap(b)
	if at < 0 {
		return t.pass(b)
	}
	n := 0
	if at > 0 {
		var err error
		if n, err = t.pass(b[:at]); err != nil {
			return n, err
		}
	}
	if _, err := t.Conn.Write(goAway); err != nil {
		return n, err
	}
	t.conn.told.Store(time.Now().UnixNano())
	if at == len(b) {
		return n, nil
	}
	more, err := t.pass(b[at:])
	return n + more, err
}

// pass writes what grpc does.
func (t *toll) pass(b []byte) (int, error) {
	n, err := t.Conn.Write(b)
	t.sent.take(b[:n])
	return n, err
}

// gap is after how many bytes of what is to be written a frame may go between; -1:
// nowhere that is seen from here. The first frame is the settings, and what
// continues headers follows them.
func (t *toll) gap(b []byte) int {
	f := &t.sent
	if f.have > 0 || f.skip > len(b) || !t.settled || t.headers {
		return -1
	}
	return f.skip
}

// wrote is told of each frame's header that grpc writes.
func (t *toll) wrote(h http2.FrameHeader) {
	t.settled = true
	switch h.Type {
	case http2.FrameHeaders, http2.FramePushPromise, http2.FrameContinuation:
		t.headers = !h.Flags.Has(http2.FlagHeadersEndHeaders)
	}
}
