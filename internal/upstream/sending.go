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
	// unreadLeast is what counts instead of an absent_after that is less: how soon a name is
	// absent says nothing of the way.
	unreadLeast = 15 * time.Second
	// unreadMost is how long it may take, for all that comes meanwhile.
	unreadMost = 10 * time.Minute
)

// errUnread ends a stream that would wait for ever, and nobody would hear of it: no clock runs
// for what was not written. The next one is silent, or answers.
var errUnread = errors.New("origin reads no requests any more")

func (r *request) len() int { return len(r.head) + len(r.tail) }

// sending is the request that is being written, if there is one. The loop's.
type sending struct {
	since   time.Time // when it began, or the origin to speak; zero: there is none
	size    int
	came    int64     // bytes over the transport, when it was looked last
	listens time.Time // until then it may take in any case
}

// unread is until when it may take, of an origin that spoke. One that did not is silent, which is
// shown.
func (s *sending) unread(absentAfter time.Duration) time.Time {
	patience := time.Duration(4+s.size/unreadPer) * max(absentAfter, unreadLeast)
	return later(s.since.Add(patience), s.listens)
}

// goesOn reports whether so much has come over the transport, so many bytes by now, that it may be
// a response that takes long on its way, and before which the origin reads nothing. Then it waits on.
func (s *sending) goesOn(came int64, now time.Time) bool {
	if came-s.came < largeRequest || now.Sub(s.since) >= unreadMost {
		return false
	}
	s.came, s.listens = came, now.Add(unreadLeast)
	return true
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
