package rest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// bodies has the sizes of the bodies that are being read or decoded, in bytes. rest_bytes bounds
// their sum. It is safe for concurrent use.
type bodies struct {
	mu    sync.Mutex
	sizes map[*Poll]int64
	sum   int64
}

// grow counts n more bytes of the body of p. If the sum is above limit then, grow returns the poll
// with the largest body, and counts that no more. The caller has to end it. So small polls are
// answered beside large ones that never end.
func (b *bodies) grow(p *Poll, n, limit int64) (largest *Poll) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sizes[p] += n
	if b.sum += n; b.sum <= limit {
		return nil
	}
	largest = p
	for o, size := range b.sizes {
		if size > b.sizes[largest] {
			largest = o
		}
	}
	b.sum -= b.sizes[largest]
	delete(b.sizes, largest)
	return largest
}

func (b *bodies) forget(p *Poll) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sum -= b.sizes[p]
	delete(b.sizes, p)
}

// Pieces in which a body is read, in bytes. A body takes no more memory than what it has so far,
// and one piece.
const (
	firstPiece = 4 << 10
	maxPiece   = 64 << 10
)

// largePieces has free pieces of maxPiece bytes. Bodies that are refused would otherwise leave as
// much garbage again as rest_bytes allows.
var largePieces = sync.Pool{New: func() any { return new([maxPiece]byte) }}

func newPiece(size int64) []byte {
	if size == maxPiece {
		return largePieces.Get().(*[maxPiece]byte)[:]
	}
	return make([]byte, size)
}

func free(pieces [][]byte) {
	for _, piece := range pieces {
		if cap(piece) == maxPiece {
			largePieces.Put((*[maxPiece]byte)(piece[:maxPiece]))
		}
	}
}

// readPieces reads a body. Each piece is counted before it is allocated. It ends early if the poll
// was ended. The caller frees the pieces, also of a body that could not be read.
func (s *Server) readPieces(p *Poll, from io.Reader, length int64) (pieces [][]byte, err error) {
	size := int64(firstPiece)
	if length >= 0 {
		size = min(length+1, maxPiece) // one more, to find the end of the body
	}
	for ; p.refusal.Load() == nil; size = maxPiece {
		limit := s.opts.RESTBytes()
		if largest := s.bodies.grow(p, size, limit); largest != nil {
			largest.End(refusal.New(codes.Unavailable, telemetry.LimitRESTBytes, "request: the bodies of all polls have more bytes than downstream.rest_bytes allows (%d), and this one is the largest", limit))
			if largest == p {
				break
			}
		}
		piece := newPiece(size)
		n := 0
		for n < len(piece) && err == nil {
			var more int
			more, err = from.Read(piece[n:])
			n += more
		}
		pieces = append(pieces, piece[:n])
		switch {
		case errors.Is(err, io.EOF):
			return pieces, nil
		case err != nil: // also io.ErrUnexpectedEOF: the client sent only a part
			return pieces, err
		}
	}
	return pieces, errCut
}

// read reads and parses a poll. status is that of a refusal.
func (s *Server) read(p *Poll, r *http.Request, t xds.Type) (q *request, status int, refused *refusal.Refusal) {
	pieces, status, refused := s.body(p, r)
	if refused == nil {
		q, refused = s.decode(p, t, pieces)
	}
	free(pieces)
	s.bodies.forget(p)
	if ended := p.refusal.Load(); ended != nil { // its body was the largest
		p.w.Header().Set("Connection", "close")
		return nil, 0, ended
	}
	return q, status, refused
}

// body reads a request's body. status is that of a refusal. The caller frees the pieces.
func (s *Server) body(p *Poll, r *http.Request) (pieces [][]byte, status int, refused *refusal.Refusal) {
	limit := s.opts.Limits().RequestBytes
	if limit <= 0 {
		limit = listener.MaxMessage
	}
	control := http.NewResponseController(p.w)
	p.reads(func() { _ = control.SetReadDeadline(time.Unix(1, 0)) })
	pieces, err := s.readPieces(p, http.MaxBytesReader(p.w, r.Body, int64(limit)), r.ContentLength)
	p.reads(nil)
	large := (*http.MaxBytesError)(nil)
	switch {
	case err == nil:
		// net/http keeps reading, to notice that the client closes the connection.
		_ = control.SetReadDeadline(time.Time{})
		return pieces, 0, nil
	case errors.As(err, &large):
		return pieces, 0, refusal.New(codes.ResourceExhausted, telemetry.LimitRequestBytes, "request: more bytes than downstream.limits.request_bytes allows (%d)", limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return pieces, http.StatusRequestTimeout, refusal.New(codes.DeadlineExceeded, telemetry.HTTPRequest, "request: the body did not arrive within %s", s.times.body)
	}
	return pieces, 0, refusal.New(codes.InvalidArgument, telemetry.RequestInvalid, "request: cannot read the body: %w", err)
}

// largePolls has a slot for each body of several pieces that is being decoded. A decoded body can
// be a hundred times as large.
var largePolls = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// joinedBodies has buffers for a body of several pieces that is being decoded. Otherwise each would
// leave as much garbage as it has bytes.
var joinedBodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// decode parses a poll. If the poll is ended while it waits for a slot, decode returns nothing at
// once, so that the body is freed.
func (s *Server) decode(p *Poll, t xds.Type, pieces [][]byte) (*request, *refusal.Refusal) {
	if len(pieces) == 1 {
		return s.parse(t, pieces[0])
	}
	select {
	case largePolls <- struct{}{}:
	case <-p.cut:
		return nil, nil
	}
	defer func() { <-largePolls }()
	body := joinedBodies.Get().(*bytes.Buffer)
	defer joinedBodies.Put(body)
	body.Reset()
	body.Grow(len(pieces) * maxPiece)
	for _, piece := range pieces {
		body.Write(piece)
	}
	return s.parse(t, body.Bytes())
}
