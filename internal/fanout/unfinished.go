package fanout

import (
	"context"
	"encoding/binary"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"xdsrelay/internal/telemetry"
)

// requestTime is how long a request may take to come, from its first byte to its
// last, and a second more for each so many bytes.
const (
	requestTime = 30 * time.Second
	requestRate = 256 << 10
)

// parts are the messages of a connection that have not come to their end. What
// grpc holds of them, no handler sees. One that comes in a frame costs nothing
// here. Only those of open streams are kept: what comes for others, grpc drops.
type parts struct {
	// The reader's.
	stream uint32 // of the frame that is being read
	now    part
	frame  int  // bytes left of it
	pad    bool // it says how much of it is padding, first
	tail   int  // so much
	ended  bool
	newest uint32 // the stream that was opened last

	some atomic.Bool // there are any

	mu    sync.Mutex
	open  map[uint32]owner // at most as many as grpc lets be
	parts map[uint32]part  // by stream, of the open ones
}

// owner is whose an open stream is.
type owner struct {
	st  *stream            // nil: not yet, or none of xDS
	end context.CancelFunc // of one that is none of xDS; nil: of xDS
}

// part is a message of which something came.
type part struct {
	prefix [5]byte
	have   int   // of prefix
	need   int64 // bytes that are to come
	held   int64 // bytes that came
	began  time.Time
}

func (p *part) begun() bool { return p.have > 0 }

// begin is told of each frame.
func (p *parts) begin(h http2.FrameHeader) {
	switch h.Type {
	case http2.FrameHeaders:
		p.newest = h.StreamID
	case http2.FrameRSTStream:
		p.forget(h.StreamID)
	case http2.FrameData:
		p.stream, p.frame, p.tail, p.now = h.StreamID, int(h.Length), 0, part{}
		p.pad, p.ended = h.Flags.Has(http2.FlagDataPadded), h.Flags.Has(http2.FlagDataEndStream)
		if p.some.Load() {
			p.mu.Lock()
			p.now = p.parts[h.StreamID]
			p.mu.Unlock()
		}
		if p.frame == 0 {
			p.end()
		}
	}
}

// body is told of each piece of a frame of DATA.
func (p *parts) body(b []byte) {
	p.frame -= len(b)
	if p.pad {
		p.pad, p.tail, b = false, int(b[0]), b[1:]
	}
	// The padding comes last.
	b = b[:max(0, len(b)-max(0, p.tail-p.frame))]
	for m := &p.now; len(b) > 0; {
		if m.have < len(m.prefix) {
			n := copy(m.prefix[m.have:], b)
			m.have += n
			b = b[n:]
			if m.have < len(m.prefix) {
				break
			}
			m.need = int64(binary.BigEndian.Uint32(m.prefix[1:]))
		}
		n := min(m.need, int64(len(b)))
		m.need -= n
		m.held += n
		b = b[n:]
		if m.need == 0 {
			*m = part{}
		}
	}
	if p.frame == 0 {
		p.end()
	}
}

// end is the end of a frame of DATA.
func (p *parts) end() {
	begun := p.now.begun() && !p.ended
	if !begun && !p.some.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, open := p.open[p.stream]; begun && open {
		if p.parts == nil {
			p.parts = make(map[uint32]part)
		}
		if p.now.began.IsZero() {
			p.now.began = time.Now() // of the frame's end: a frame may begin thousands
		}
		p.parts[p.stream] = p.now
	} else {
		delete(p.parts, p.stream)
	}
	p.some.Store(len(p.parts) > 0)
}

// forget is told of each stream that is over.
func (p *parts) forget(stream uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, stream)
	delete(p.parts, stream)
	p.some.Store(len(p.parts) > 0)
}

// opens is told of each stream that grpc takes, and what ends it if it is none of xDS.
func (p *parts) opens(number uint32, end context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = make(map[uint32]owner)
	}
	p.open[number] = owner{end: end}
}

// belongs says whose an open stream is.
func (p *parts) belongs(number uint32, st *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, open := p.open[number]; open {
		p.open[number] = owner{st: st}
	}
}

// of returns whose the stream of that number is; false: it is over.
func (p *parts) of(number uint32) (owner, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o, open := p.open[number]
	return o, open
}

// began reports whether something has come of a request of a stream.
func (p *parts) began(stream uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, begun := p.parts[stream]
	return begun
}

// late returns the streams whose request takes too long, and the others, with
// how much is held of these.
func (p *parts) late(now time.Time, within time.Duration) (late, others []uint32, held int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for stream, m := range p.parts {
		if now.Sub(m.began) > within+time.Duration(m.held)*time.Second/requestRate {
			late = append(late, stream)
			continue
		}
		others = append(others, stream)
		held += m.held
	}
	return late, others, held
}

// streamNumber is the key under which a stream's context has its number on the
// connection.
type streamNumber struct{}

// xdsMethods is what the methods of all xDS services begin with (P4).
const xdsMethods = "/envoy.service."

// tapped is called for each stream that is opened, by its connection's reader.
func tapped(ctx context.Context, info *tap.Info) (context.Context, error) {
	if p, _ := peer.FromContext(ctx); p != nil {
		if auth, ok := p.AuthInfo.(authInfo); ok {
			auth.conn.ages(time.Now())
		}
	}
	return opened(ctx, strings.HasPrefix(info.FullMethodName, xdsMethods)), nil
}

// opened notes a stream that grpc takes, and returns its context.
func opened(ctx context.Context, xds bool) context.Context {
	if p, _ := peer.FromContext(ctx); p != nil {
		if auth, ok := p.AuthInfo.(authInfo); ok {
			if t := auth.conn.toll.Load(); t != nil {
				number := t.parts.newest
				var end context.CancelFunc
				if !xds {
					ctx, end = context.WithCancel(ctx) // the stream's own ends it as well
				}
				t.parts.opens(number, end)
				context.AfterFunc(ctx, func() { t.parts.forget(number) }) // however it ends
				return context.WithValue(ctx, streamNumber{}, number)
			}
		}
	}
	return ctx
}

// unfinished are the open connections, to be looked at for requests that do not
// come to their end.
type unfinished struct {
	mu    sync.Mutex
	conns map[*toll]struct{}
}

func (u *unfinished) add(t *toll) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.conns[t] = struct{}{}
}

func (u *unfinished) remove(t *toll) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.conns, t)
}

// some are those that have such a request.
func (u *unfinished) some() (out []*toll) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for t := range u.conns {
		if t.parts.some.Load() {
			out = append(out, t)
		}
	}
	return out
}

// hurry ends the streams whose request takes too long, and notes what is held
// of the others.
func (s *Server) hurry(now time.Time, pins map[any]pin) {
	for _, t := range s.unfinished.some() {
		late, others, held := t.parts.late(now, s.requestTime)
		if len(late) > 0 {
			s.interrupt(t, late, Refuse(codes.DeadlineExceeded, telemetry.RequestTime,
				"stream: a request did not come to its end within %s, and a second for each %d bytes", s.requestTime, requestRate))
		}
		if held > 0 {
			pins[t] = pin{&begun{s, t, others}, held}
		}
	}
}

// begun are the streams of a connection that have a request which came in part.
type begun struct {
	srv     *Server
	toll    *toll
	streams []uint32
}

func (b *begun) end(r *Refusal) { b.srv.interrupt(b.toll, b.streams, r) }

// interrupt ends streams of a connection, and no others on it: behind a proxy they
// may be other clients' (P16). Those that are none of xDS, such as a question for the
// health, have no stream of ours that would be ended: grpc gives up on their request
// when their context, which is ours, is over. They end as CANCELLED.
func (s *Server) interrupt(t *toll, streams []uint32, r *Refusal) {
	for _, number := range streams {
		o, open := t.parts.of(number)
		switch {
		case !open, o.end == nil && o.st == nil: // over by itself, or about to be known
			continue
		case o.end == nil:
			o.st.end(r)
		default:
			s.meters.Refuse(r.Reason)
			s.sparing.line(s.log, slog.LevelInfo, "ended a call", "peer", t.RemoteAddr().String(), "reason", r.Reason.String(), "error", r.Err)
			o.end()
		}
		t.parts.forget(number)
	}
}
