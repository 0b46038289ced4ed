package fanout

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/telemetry"

	"xdsrelay/internal/xds"
)

// poll is one that is being answered.
type poll struct {
	w       http.ResponseWriter
	ctx     context.Context
	caller  *listener.Caller
	from    string          // remote address, for people
	node    string          // its id, once that was read
	brought string          // version that it came with, once that was seen to be current
	era     uint64          // in which the gates last let it in: see mover
	admit   func() *Refusal // asks the gates
	leaving chan struct{}   // closed when the relay drains
	cut     chan struct{}   // closed when it has to go

	// Any goroutine's.
	told    atomic.Bool
	refusal atomic.Pointer[Refusal] // why it is cut
	mu      sync.Mutex
	stop    func()                   // ends the reading of its body; nil: it is not read
	held    atomic.Int64             // bytes of its body, until that was read
	flying  atomic.Pointer[document] // what is being written
	since   atomic.Int64             // when that began, UnixNano
}

// tell has it end, if it is held.
func (p *poll) tell() {
	if p.told.CompareAndSwap(false, true) {
		close(p.leaving)
	}
}

// end cuts it: it takes nothing.
func (p *poll) end(r *Refusal) {
	if !p.refusal.CompareAndSwap(nil, r) {
		return
	}
	close(p.cut)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		p.stop()
	}
}

// reads has what stops the reading of its body called when it is cut; nil: it reads no
// more.
func (p *poll) reads(stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop = stop; stop != nil && p.refusal.Load() != nil {
		stop()
	}
}

// polls are all that are being answered.
type polls struct {
	mu       sync.Mutex
	open     map[*poll]struct{}
	draining bool
	handlers sync.WaitGroup // of those that are open
}

func newPolls() *polls { return &polls{open: make(map[*poll]struct{})} }

// begin takes a request in, which end ends. One that is refused is not taken in.
func (ps *polls) begin(w http.ResponseWriter, r *http.Request, c *listener.Caller) (*poll, *Refusal) {
	p := &poll{w: w, ctx: r.Context(), caller: c, from: r.RemoteAddr, leaving: make(chan struct{}), cut: make(chan struct{})}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.draining {
		return p, Refuse(codes.Unavailable, telemetry.Draining, "poll: the relay is shutting down")
	}
	ps.open[p] = struct{}{}
	ps.handlers.Add(1)
	return p, nil
}

func (ps *polls) end(p *poll) {
	ps.mu.Lock()
	delete(ps.open, p)
	ps.mu.Unlock()
	ps.handlers.Done()
}

// drain takes no more from now on.
func (ps *polls) drain() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.draining = true
}

// all returns those that are open.
func (ps *polls) all() []*poll {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	out := make([]*poll, 0, len(ps.open))
	for p := range ps.open {
		out = append(out, p)
	}
	return out
}

// tell ends what is held, and takes no more.
func (ps *polls) tell() {
	ps.drain()
	for _, p := range ps.all() {
		p.tell()
	}
}

// wait waits until none is open. No more are taken by then.
func (ps *polls) wait() { ps.handlers.Wait() }

// answer answers a poll: at once, if the client does not have what there is;
// else once that changes, or with 304 after long_poll (P71).
func (s *Server) answer(p *poll, q *question) {
	c := p.caller
	if refusal := s.admission.EnterPoll(c.Account); refusal != nil {
		s.refuse(p, 0, refusal)
		return
	}
	defer s.admission.LeavePoll(c.Account)
	of, refusal := s.pollers.enter(q, c)
	if refusal != nil {
		s.refuse(p, 0, refusal)
		return
	}
	defer func() { s.pollers.leave(of, time.Now()) }()
	s.pollers.hear(of, q)
	sub := s.pollers.asked(of, q)
	var names <-chan time.Time // when names that are pending are not waited for any longer (P67)
	if sub.HasState && q.typ.FullState {
		names = time.After(session.NamesWait)
	}
	patience := time.NewTimer(s.settings().LongPoll)
	defer patience.Stop()
	for {
		news := *of.news.Load() // before the State is read
		if refusal := s.admitAgain(p); refusal != nil {
			s.refuse(p, 0, refusal)
			return
		}
		done, current := s.try(p, q, of, sub, names != nil)
		if done {
			return
		}
		select {
		case <-news:
			continue
		case <-names:
			names = nil
			continue
		case <-patience.C:
		case <-p.leaving:
			p.w.Header().Set("Connection", "close")
			if !current { // it has nothing yet, and is to ask another
				s.refuse(p, 0, Refuse(codes.Unavailable, telemetry.Draining, "poll: the relay is shutting down"))
				return
			}
		case <-p.ctx.Done():
			// Whoever has only half gone is not to take this for an answer.
			panic(http.ErrAbortHandler)
		}
		of.meters.NotModified.Inc()
		s.unchanged(p)
		return
	}
}

// admitAgain asks the gates again if they, or the rules, changed since the poll was let in.
// Only a poll that is held until then gets its answer after the change.
func (s *Server) admitAgain(p *poll) *Refusal {
	era := s.mover.era.Load() // before the gates are looked at
	if era == p.era {
		return nil
	}
	p.era = era
	return p.admit()
}

// try answers a poll, if there is anything to answer now. current: there is
// nothing, since the client has it already. Nothing of what it looked at is kept
// alive by a poll that waits. all: an answer has to have all names that the client asks for.
func (s *Server) try(p *poll, q *question, of *poller, sub *xds.Subscription, all bool) (done, current bool) {
	if refusal := of.refusal.Load(); refusal != nil {
		s.refuse(p, 0, refusal)
		return true, false
	}
	snap, a := of.document(sub)
	switch {
	case a == nil, all && a.awaits:
		return false, false
	case q.knows(a.version):
		if q.version == a.version {
			if p.brought != a.version && !(q.refused && q.nonce == a.version) {
				p.brought = a.version // once, however often it looks again
				s.pollers.brought(of, a.version, snap)
			}
			of.member.Acked(snap.Gen, snap)
		}
		return false, true
	}
	body, err := s.encoded(p.ctx, snap, sub, a, of.meters)
	switch {
	case err == nil:
		s.give(p, of, a, snap, body)
	case p.ctx.Err() != nil:
		panic(http.ErrAbortHandler)
	default:
		s.refuse(p, 0, Refuse(codes.Unimplemented, telemetry.NotJSON, "%w", err))
	}
	return true, false
}

// unchanged says that there is no news.
func (s *Server) unchanged(p *poll) {
	s.setDeadline(p.w, 0)
	p.w.WriteHeader(http.StatusNotModified)
}

// setDeadline gives a client the time to take so many bytes. Of a connection
// that is gone there is none to set.
func (s *Server) setDeadline(w http.ResponseWriter, bytes int) {
	var at time.Time
	if limit := s.patience(bytes); limit > 0 {
		at = time.Now().Add(limit)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(at)
}

// give gives an answer, which the snapshot says.
func (s *Server) give(p *poll, of *poller, a *document, at *xds.Snapshot, body []byte) {
	h := p.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	s.pollers.said(of, a.version, at)
	s.setDeadline(p.w, len(body))
	p.since.Store(time.Now().UnixNano())
	p.flying.Store(a)
	err := p.write(body)
	p.flying.Store(nil)
	if err == nil {
		of.meters.Responses[telemetry.REST].Inc()
		of.meters.Bytes[telemetry.REST].Add(len(body))
		return
	}
	r := p.refusal.Load()
	if r == nil && errors.Is(err, os.ErrDeadlineExceeded) {
		r = Refuse(codes.Unavailable, telemetry.SendTimeout, "poll: took nothing for send_timeout (%s)", s.patience(len(body)))
	}
	if r != nil {
		s.meters.Refuse(r.Reason)
		s.refusals.Note("cut a poll", r, refusal.Client{Node: of.node.ID, Peer: p.from, Account: of.account})
	}
	panic(http.ErrAbortHandler) // what it was told of it is no answer
}

// write writes a body until the poll is cut. Only who writes may set a deadline:
// a writer is no more once its handler has returned.
func (p *poll) write(body []byte) error {
	done := make(chan error, 1)
	go func() {
		_, err := p.w.Write(body)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-p.cut:
		_ = http.NewResponseController(p.w).SetWriteDeadline(time.Unix(1, 0))
		return errors.Join(<-done, errCut)
	}
}

var errCut = errors.New("cut")
