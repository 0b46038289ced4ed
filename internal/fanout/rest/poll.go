package rest

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
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds/snapshot"
)

// Poll is a request that is being answered.
type Poll struct {
	w            http.ResponseWriter
	ctx          context.Context
	caller       *listener.Caller
	from         string                  // remote address, for messages
	node         string                  // its id, once that was read
	notedVersion string                  // version that the client already had, if it is current and was recorded
	rulesVersion uint64                  // of the rules under which the policies admitted it last
	admit        func() *refusal.Refusal // asks the policies
	drain        chan struct{}           // closed when the relay drains
	cut          chan struct{}           // closed when it has to end at once

	// Any goroutine's.
	told    atomic.Bool                     // to end
	refusal atomic.Pointer[refusal.Refusal] // why it is cut
	mu      sync.Mutex
	stop    func()                   // ends the reading of its body; nil: it is not read
	writing atomic.Pointer[document] // what is being written
	since   atomic.Int64             // when that began, UnixNano
}

// tell ends the poll if it waits. It reports whether this is the first call.
func (p *Poll) tell() bool {
	first := p.told.CompareAndSwap(false, true)
	if first {
		close(p.drain)
	}
	return first
}

// End cuts the poll off, because its client does not read or uses too much memory.
func (p *Poll) End(r *refusal.Refusal) {
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

// reads sets the function that is called if the poll ends while its body is read. nil means that
// the body was read.
func (p *Poll) reads(stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop = stop; stop != nil && p.refusal.Load() != nil {
		stop()
	}
}

type polls struct {
	mu       sync.Mutex
	open     map[*Poll]struct{}
	draining bool
	handlers sync.WaitGroup // of those that are open
}

func newPolls() *polls { return &polls{open: make(map[*Poll]struct{})} }

// begin adds a poll, and end removes it. A poll that is refused is not added.
func (ps *polls) begin(w http.ResponseWriter, r *http.Request, c *listener.Caller) (*Poll, *refusal.Refusal) {
	p := &Poll{w: w, ctx: r.Context(), caller: c, from: r.RemoteAddr, drain: make(chan struct{}), cut: make(chan struct{})}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.draining {
		return p, refusal.New(codes.Unavailable, telemetry.Draining, "poll: the relay is shutting down")
	}
	ps.open[p] = struct{}{}
	ps.handlers.Add(1)
	return p, nil
}

func (ps *polls) end(p *Poll) {
	ps.mu.Lock()
	delete(ps.open, p)
	ps.mu.Unlock()
	ps.handlers.Done()
}

func (ps *polls) all() []*Poll {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	out := make([]*Poll, 0, len(ps.open))
	for p := range ps.open {
		out = append(out, p)
	}
	return out
}

// tell accepts no more polls from now on, and ends those that wait. It returns how many it told.
func (ps *polls) tell() (told int) {
	ps.mu.Lock()
	ps.draining = true
	ps.mu.Unlock()
	for _, p := range ps.all() {
		if p.tell() {
			told++
		}
	}
	return told
}

// wait waits until no poll is open. tell was called before.
func (ps *polls) wait() { ps.handlers.Wait() }

// answer answers a poll, at once if there is something that the client does not have. Otherwise it
// waits for a change, and answers with 304 after long_poll (P71).
func (s *Server) answer(p *Poll, q *request) {
	c := p.caller
	if refused := s.opts.Admission.EnterPoll(c.PeerID); refused != nil {
		s.refuse(p, 0, refused)
		return
	}
	defer s.opts.Admission.LeavePoll(c.PeerID)
	of, refused := s.pollers.enter(q, c)
	if refused != nil {
		s.refuse(p, 0, refused)
		return
	}
	defer func() { s.pollers.leave(of, time.Now()) }()
	defer c.AtExpiry(of.End)() // all polls of the poller have the same token
	s.pollers.noteAnswer(of, q)
	var names <-chan time.Time // fires when the poll waits no longer for pending names (P67)
	if s.pollers.waitsForNames(of) {
		names = time.After(snapshot.NamesWait)
	}
	timeout := time.NewTimer(s.opts.LongPoll())
	defer timeout.Stop()
	for {
		news := *of.news.Load() // loaded before the State is read
		if refused := s.admitAgain(p); refused != nil {
			s.refuse(p, 0, refused)
			return
		}
		var done, current bool
		var clusters <-chan time.Time // fires when the poll waits no longer for clusters (P67)
		if wait := of.clustersWait(time.Now()); wait > 0 && of.refusal.Load() == nil {
			clusters = time.After(wait)
		} else if done, current = s.try(p, q, of, names != nil); done {
			return
		}
		select {
		case <-news:
			continue
		case <-clusters:
			continue
		case <-names:
			names = nil
			continue
		case <-timeout.C:
		case <-p.drain:
			p.w.Header().Set("Connection", "close")
			if !current { // it has nothing yet, and should ask another replica
				s.refuse(p, 0, refusal.New(codes.Unavailable, telemetry.Draining, "poll: the relay is shutting down"))
				return
			}
		case <-p.ctx.Done():
			// A client that closed only one direction must not take this for an answer.
			panic(http.ErrAbortHandler)
		}
		of.metrics.NotModified.Inc()
		s.unchanged(p)
		return
	}
}

// admitAgain asks the policies again if they, or the rules, changed since the poll was admitted.
// Only a poll that waits gets its answer after the change.
func (s *Server) admitAgain(p *Poll) *refusal.Refusal {
	rulesVersion := s.opts.RulesVersion() // before the policies are read
	if rulesVersion == p.rulesVersion {
		return nil
	}
	p.rulesVersion = rulesVersion
	return p.admit()
}

// try answers a poll if there is an answer now. current: there is none, because the client already
// has it. all: the answer must have all requested names. While the poll waits, it keeps no snapshot
// and no document alive.
func (s *Server) try(p *Poll, q *request, of *Poller, all bool) (done, current bool) {
	if refused := of.refusal.Load(); refused != nil {
		s.refuse(p, 0, refused)
		return true, false
	}
	snap, a := of.document()
	waits := a == nil || all && a.unanswered
	of.setRoutesWait(waits, a)
	switch {
	case waits:
		return false, false
	case q.knows(a.version):
		if q.version == a.version {
			if p.notedVersion != a.version && !(q.isNACK && q.nonce == a.version) {
				p.notedVersion = a.version // recorded once, however often the poll tries
				s.pollers.noteCurrentVersion(of, a.version, snap)
			}
			of.subscriber.Acked(snap.Gen, snap)
		}
		return false, true
	}
	body, err := s.encoded(p.ctx, snap, of.sub, a, of.metrics)
	switch {
	case err == nil:
		s.give(p, of, a, snap, body)
	case p.ctx.Err() != nil:
		panic(http.ErrAbortHandler)
	default:
		s.refuse(p, 0, refusal.New(codes.Unimplemented, telemetry.NotJSON, "%w", err))
	}
	return true, false
}

// unchanged answers with 304.
func (s *Server) unchanged(p *Poll) {
	s.setDeadline(p.w, 0)
	p.w.WriteHeader(http.StatusNotModified)
}

// setDeadline gives a client the time to take so many bytes. It fails if the connection is gone.
func (s *Server) setDeadline(w http.ResponseWriter, bytes int) {
	var at time.Time
	if limit := listener.SendTime(s.opts.SendTimeout, bytes); limit > 0 {
		at = time.Now().Add(limit)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(at)
}

// give sends an answer that was made from the snapshot at.
func (s *Server) give(p *Poll, of *Poller, a *document, at *snapshot.Snapshot, body []byte) {
	h := p.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if p.told.Load() {
		h.Set("Connection", "close") // the next poll would be refused
	}
	s.pollers.noteGiven(of, a.version, at)
	s.setDeadline(p.w, len(body))
	p.since.Store(time.Now().UnixNano())
	p.writing.Store(a)
	sent, err := p.write(body)
	p.writing.Store(nil)
	if err == nil {
		of.metrics.Responses[telemetry.REST].Inc()
		of.metrics.Bytes[telemetry.REST].Add(len(body))
		return
	}
	r := p.refusal.Load()
	if r == nil && errors.Is(err, os.ErrDeadlineExceeded) {
		r = refusal.New(codes.Unavailable, telemetry.SendTimeout, "poll: only %d of the response's %d bytes could be sent to the client within %s (downstream.send_timeout and a second per MiB)",
			sent, len(body), listener.SendTime(s.opts.SendTimeout, len(body)))
	}
	if r != nil {
		s.opts.Metrics.Refuse(r.Reason)
		s.opts.Refusals.Note("client poll ended", r, refusal.Client{Node: of.node.ID, Peer: p.from, Identity: p.caller.Identity()})
	}
	panic(http.ErrAbortHandler) // a partial answer is useless
}

// write writes a body until the poll is cut off, and returns how many of its bytes were sent. Only
// the handler may set a deadline, since the writer is invalid once the handler has returned.
func (p *Poll) write(body []byte) (sent int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sent < len(body) && err == nil {
			var n int
			n, err = p.w.Write(body[sent:min(sent+pieceBytes, len(body))])
			sent += n
		}
	}()
	select {
	case <-done:
		return sent, err
	case <-p.cut:
		_ = http.NewResponseController(p.w).SetWriteDeadline(time.Unix(1, 0))
		<-done
		return sent, errors.Join(err, errCut)
	}
}

// pieceBytes is how many bytes of an answer are written at a time: a frame of HTTP/2. A write of
// HTTP/2 that fails does not say how much of it was sent.
const pieceBytes = 16 << 10

var errCut = errors.New("cut")
