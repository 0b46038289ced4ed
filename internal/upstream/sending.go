package upstream

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/mem"
)

// A request is written once it has left for the transport, and then the clock of its
// names runs (P57). gRPC takes one of any size, and returns while it is yet to go: of a
// large one it is followed when the transport lets go of it, which an origin that is slow to
// read, or does not, can delay.

const (
	// largeRequest is how large a request is, in bytes, that is followed. As much goes into
	// the least window of HTTP/2, read or not.
	largeRequest = 32 << 10
	// unreadPer bytes of a request its time to be written is longer by absent_after: the way
	// may be slow.
	unreadPer = 256 << 10
)

// errUnread ends a stream that would wait for ever, and nobody would hear of it: no clock runs
// for what was not written. The next one is silent, or answers.
var errUnread = errors.New("origin reads no requests any more")

func (r *request) len() int { return len(r.head) + len(r.tail) }

// sending is the request that is being written, if there is one. The loop's.
type sending struct {
	since   time.Time // zero: there is none
	size    int
	listens time.Time // the relay's process did not run, and does not listen until then
}

// unread is until when it may take; zero: for ever. spoke is when the origin first did, on this
// stream; zero: it is silent, which is shown. One that takes its time until then may read
// the rest after that.
func (s *sending) unread(spoke time.Time, absentAfter time.Duration) time.Time {
	if s.since.IsZero() || spoke.IsZero() {
		return time.Time{}
	}
	return later(later(s.since, spoke).Add(time.Duration(4+s.size/unreadPer)*absentAfter), s.listens)
}

// begin has a request written, which the loop is told.
func (e *exchange) begin(ctx context.Context, r *request, cancel context.CancelCauseFunc) sending {
	e.note(r)
	if r.len() >= largeRequest {
		r.left = make(chan struct{})
		e.ofTransport() // gRPC keeps no copy any more, to send again
	}
	e.wg.Go(func() { e.send(ctx, r, cancel) })
	return sending{since: time.Now(), size: r.len()}
}

// send writes a request. The receiver learns why the transport ended.
func (e *exchange) send(ctx context.Context, r *request, cancel context.CancelCauseFunc) {
	switch err := e.cs.SendMsg(r); {
	case err == nil:
		if r.left != nil {
			select {
			case <-r.left:
			case <-ctx.Done():
				return
			}
		}
		e.written <- struct{}{}
	case !errors.Is(err, io.EOF):
		cancel(ended(err))
	}
}

// buffers are the request's parts, for gRPC.
func (r *request) buffers() mem.BufferSlice {
	out := mem.BufferSlice{mem.SliceBuffer(r.head)}
	if len(r.tail) > 0 {
		out = append(out, mem.SliceBuffer(r.tail))
	}
	if r.left == nil {
		return out
	}
	last := len(out) - 1
	if last > 0 && mem.IsBelowBufferPoolingThreshold(cap(r.tail)) {
		last = 0 // which nearly all is
	}
	whole := []byte(out[last].(mem.SliceBuffer))
	out[last] = mem.NewBuffer(&whole, leaves(r.left))
	return out
}

// leaves is told when gRPC has no use for a buffer any more.
type leaves chan struct{}

// Get is for mem.BufferPool. Nobody asks for it.
func (leaves) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put is for mem.BufferPool.
func (l leaves) Put(*[]byte) { close(l) }
