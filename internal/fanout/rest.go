package fanout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// What a client of REST may take, besides the limits, and what it is told.
const (
	restHeader  = 64 << 10        // bytes
	restMessage = 4 << 10         // bytes of an error
	restRetry   = 5 * time.Second // Retry-After
)

// restTimes are how long a client may take, and what is being answered when
// ServeREST ends.
type restTimes struct{ header, body, idle, grace time.Duration }

var defaultRESTTimes = restTimes{header: 10 * time.Second, body: 30 * time.Second, idle: 2 * time.Minute, grace: 2 * time.Second}

// ServeREST serves REST-JSON (P70) on l, in HTTP/1.1 and in HTTP/2 without TLS,
// until ctx ends; then it returns nil. It closes l. Its clients have to come in
// through all of the gates, as those who have proven nothing: one address more
// is no way around what the others ask for.
func (s *Server) ServeREST(ctx context.Context, l net.Listener, k Keepalive, gates ...*listener.Gate) error {
	var conns sync.WaitGroup
	srv := &http.Server{
		Handler:           &rest{srv: s, gates: gates},
		ReadHeaderTimeout: s.times.header,
		IdleTimeout:       s.times.idle,
		MaxHeaderBytes:    restHeader,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		Protocols:         new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			// As many as the limit says: who has more waits, as in HTTP/1.1.
			MaxConcurrentStreams:          s.settings().Limits.StreamsPerConnection,
			MaxReceiveBufferPerConnection: listener.RequestWindow,
			MaxReceiveBufferPerStream:     listener.RequestWindow,
			SendPingTimeout:               k.Time,
			PingTimeout:                   k.Timeout,
			WriteByteTimeout:              s.opts.SendTimeout,
		},
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			until := time.Time{}
			if age := s.opts.MaxConnectionAge; age > 0 {
				until = time.Now().Add(jitter(age, s.number()))
			}
			return context.WithValue(ctx, agesAt{}, until)
		},
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew: // in Serve, before the connection's goroutine
				conns.Add(1)
			case http.StateClosed: // the last that goroutine does
				conns.Done()
			}
		},
	}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(listener.Bounded(l, s.settings().Limits.Connections)) }()
	var err error
	select {
	case err = <-ended: // the listener failed
		err = fmt.Errorf("rest %s: %w", l.Addr(), err)
		_ = srv.Close() // closes the listener once more, at most
	case <-ctx.Done():
	}
	s.polls.tell()
	if err == nil {
		hurry, done := context.WithTimeout(context.WithoutCancel(ctx), s.times.grace)
		defer done()
		if srv.Shutdown(hurry) != nil {
			_ = srv.Close() // what did not end in time
		}
		<-ended
	}
	conns.Wait()
	s.polls.wait() // an HTTP/2 connection does not wait for its handlers
	s.pollers.close()
	return err
}

// agesAt is the key under which a connection's context has when it is as old as
// max_connection_age; zero: never.
type agesAt struct{}

// rest is the handler.
type rest struct {
	srv   *Server
	gates []*listener.Gate
}

// byPath has the types that are polled (P70).
var byPath = func() map[string]xds.Type {
	out := make(map[string]xds.Type)
	for _, t := range xds.Types() {
		if t.REST != "" {
			out[t.REST] = t
		}
	}
	return out
}()

// polled are these paths, for people.
var polled = strings.Join(slices.Sorted(maps.Keys(byPath)), " ")

// ServeHTTP implements http.Handler.
func (h *rest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := h.srv
	// Also of a body that nobody wants: net/http reads it to its end.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(s.times.body)) // of a connection that is gone there is none to set
	p, refusal := s.polls.begin(w, r, h.caller(r.RemoteAddr))
	if refusal != nil {
		w.Header().Set("Connection", "close")
		s.refuse(p, 0, refusal)
		return
	}
	defer s.polls.end(p)
	head := w.Header()
	head.Set("Cache-Control", "no-store")
	head.Set("X-Content-Type-Options", "nosniff")
	if until, _ := r.Context().Value(agesAt{}).(time.Time); !until.IsZero() && time.Now().After(until) {
		head.Set("Connection", "close") // with this answer; in HTTP/2, by GOAWAY
	}
	t, known := byPath[r.URL.Path]
	if !known {
		s.refuse(p, http.StatusNotFound, Refuse(codes.NotFound, telemetry.HTTPRequest, "no type is polled at %.200q; those that are: %s", r.URL.Path, polled))
		return
	}
	if r.Method != http.MethodPost {
		head.Set("Allow", http.MethodPost)
		s.refuse(p, http.StatusMethodNotAllowed, Refuse(codes.Unimplemented, telemetry.HTTPRequest, "%s: wants POST, not %.20s", t.REST, r.Method))
		return
	}
	// Strictly: what a page in a browser can send without asking is none.
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if media != "application/json" || r.Header.Get("Content-Encoding") != "" {
		s.refuse(p, http.StatusUnsupportedMediaType, Refuse(codes.InvalidArgument, telemetry.HTTPRequest, "request: wants Content-Type: application/json and no Content-Encoding"))
		return
	}
	body, status, refusal := s.body(p, r)
	if refusal != nil {
		s.refuse(p, status, refusal)
		return
	}
	// net/http reads on, to see the client go.
	_ = control.SetReadDeadline(time.Time{})
	q, refusal := s.read(p, t, body)
	if refusal == nil {
		p.node = q.node.ID
		p.admit = func() *Refusal { return h.admit(r.RemoteAddr, q) }
		p.era = s.mover.era.Load() // before the gates are looked at: see mover
		refusal = p.admit()
	}
	if refusal != nil {
		s.refuse(p, 0, refusal)
		return
	}
	s.answer(p, q)
}

// caller is the client as all gates see it: nothing of it is proven.
func (h *rest) caller(address string) *listener.Caller {
	return new(listener.Gate).Caller(address, nil)
}

// admit holds the client against all gates (P6).
func (h *rest) admit(address string, q *question) *Refusal {
	for _, g := range h.gates {
		if refusal := g.Caller(address, nil).May(q.node, q.typ.URL); refusal != nil {
			return refusal
		}
	}
	return nil
}

// body reads a request's body. status is that of a refusal. What is held of it counts
// as what is held of requests that have not come to their end.
func (s *Server) body(p *poll, r *http.Request) (body []byte, status int, refusal *Refusal) {
	limit := s.settings().Limits.RequestBytes
	if limit <= 0 {
		limit = maxResponse
	}
	p.reads(func() { _ = http.NewResponseController(p.w).SetReadDeadline(time.Unix(1, 0)) })
	body, err := io.ReadAll(&measured{http.MaxBytesReader(p.w, r.Body, int64(limit)), &p.held})
	p.reads(nil)
	if refusal := p.refusal.Load(); refusal != nil {
		p.held.Store(0)
		p.w.Header().Set("Connection", "close")
		return nil, 0, refusal
	}
	large := (*http.MaxBytesError)(nil)
	switch {
	case err == nil:
		return body, 0, nil
	case errors.As(err, &large):
		return nil, 0, Refuse(codes.ResourceExhausted, telemetry.LimitRequestBytes, "request: over request_bytes (%d)", limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, http.StatusRequestTimeout, Refuse(codes.DeadlineExceeded, telemetry.HTTPRequest, "request: its body took over %s", s.times.body)
	}
	return nil, 0, Refuse(codes.InvalidArgument, telemetry.RequestInvalid, "request: its body could not be read: %w", err)
}

// measured counts what is read of it.
type measured struct {
	io.Reader
	n *atomic.Int64
}

func (c *measured) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// largePoll is the size in bytes above which the number of bodies that are decoded at the
// same time is limited. Decoded from JSON, a body can be a hundred times as large.
const largePoll = 64 << 10

// largePolls has a slot for each large body that is being decoded.
var largePolls = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// read decodes a poll.
func (s *Server) read(p *poll, t xds.Type, body []byte) (*question, *Refusal) {
	defer p.held.Store(0)
	if len(body) > largePoll {
		largePolls <- struct{}{}
		defer func() { <-largePolls }()
	}
	return s.ask(t, body)
}

// httpStatus of a refusal, by its code (P72).
var httpStatus = map[codes.Code]int{
	codes.InvalidArgument:   http.StatusBadRequest,
	codes.PermissionDenied:  http.StatusForbidden,
	codes.ResourceExhausted: http.StatusTooManyRequests,
	codes.Unavailable:       http.StatusServiceUnavailable,
	codes.Unimplemented:     http.StatusNotImplemented,
}

// tooLarge are the reasons for which trying again is of no use.
var tooLarge = map[telemetry.Reason]bool{
	telemetry.LimitRequestBytes:   true,
	telemetry.LimitNodeBytes:      true,
	telemetry.LimitNamesPerStream: true,
}

// failure is the body of a refusal.
type failure struct {
	Reason string `json:"reason"` // as metrics have it
	Error  string `json:"error"`
}

// refuse answers a poll that is refused, and counts it. status 0: that of the
// refusal's code.
func (s *Server) refuse(p *poll, status int, r *Refusal) {
	s.meters.Refuse(r.Reason)
	s.refusals.Note("refused a poll", r, refusal.Client{Node: p.node, Peer: p.from, Account: p.caller.Account})
	w := p.w
	switch {
	case status != 0:
	case tooLarge[r.Reason]:
		status = http.StatusRequestEntityTooLarge
	default:
		if status = httpStatus[r.Code]; status == 0 {
			status = http.StatusInternalServerError
		}
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(int(restRetry/time.Second)))
	}
	message := r.Error()
	message = strings.ToValidUTF8(message[:min(len(message), restMessage)], "")
	body, err := json.Marshal(failure{r.Reason.String(), message})
	if err != nil {
		body = nil // of two strings it does not happen; the status says most
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	s.setDeadline(w, len(body))
	w.WriteHeader(status)
	_, _ = w.Write(body) // who has gone needs no answer
}
