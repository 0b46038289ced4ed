package rest

import (
	"encoding/json"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/tokens"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// handler serves the polls that pass these policies.
type handler struct {
	*Server
	policies []*listener.Policy
}

// Handler returns the handler of polls. Serve serves it.
func (s *Server) Handler(policies ...*listener.Policy) http.Handler { return &handler{s, policies} }

// Bounds of the response to a refused client.
const (
	maxError   = 4 << 10         // bytes of the message
	retryAfter = 5 * time.Second // Retry-After
)

// byPath has the types that are polled (P70), by their paths.
var byPath = func() map[string]xds.Type {
	out := make(map[string]xds.Type)
	for _, t := range xds.Types() {
		if t.REST != "" {
			out[t.REST] = t
		}
	}
	return out
}()

// polled lists these paths, for messages.
var polled = strings.Join(slices.Sorted(maps.Keys(byPath)), " ")

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := h.Server
	// Also for a body that is refused: net/http reads it to its end.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(s.times.body)) // it fails if the connection is gone
	caller, unauthenticated := h.caller(r)
	p, refused := s.polls.begin(w, r, caller)
	if refused != nil {
		w.Header().Set("Connection", "close")
		s.refuse(p, 0, refused)
		return
	}
	defer s.polls.end(p)
	if unauthenticated != nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
		s.refuse(p, 0, unauthenticated)
		return
	}
	head := w.Header()
	head.Set("Cache-Control", "no-store")
	head.Set("X-Content-Type-Options", "nosniff")
	if until, _ := r.Context().Value(agesAt{}).(time.Time); !until.IsZero() && time.Now().After(until) {
		head.Set("Connection", "close") // with this answer; in HTTP/2, by GOAWAY
	}
	t, known := byPath[r.URL.Path]
	if !known {
		s.refuse(p, http.StatusNotFound, refusal.New(codes.NotFound, telemetry.HTTPRequest, "request: unknown path %.200q; must be one of %s", r.URL.Path, polled))
		return
	}
	if r.Method != http.MethodPost {
		head.Set("Allow", http.MethodPost)
		s.refuse(p, http.StatusMethodNotAllowed, refusal.New(codes.Unimplemented, telemetry.HTTPRequest, "request: %s: the method must be POST, but is %.20s", t.REST, r.Method))
		return
	}
	if r.Header.Get("Origin") != "" {
		s.refuse(p, http.StatusForbidden, refusal.New(codes.PermissionDenied, telemetry.HTTPRequest, "request: has the header Origin, as requests of web pages; the relay answers xDS clients only"))
		return
	}
	// Strictly, since a page in a browser may send other media types without a preflight request.
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if media != "application/json" || r.Header.Get("Content-Encoding") != "" {
		s.refuse(p, http.StatusUnsupportedMediaType, refusal.New(codes.InvalidArgument, telemetry.HTTPRequest, "request: must have Content-Type: application/json and no Content-Encoding"))
		return
	}
	q, status, refused := s.read(p, r, t)
	if refused == nil {
		p.node = q.node.ID
		p.admit = func() *refusal.Refusal { return h.admit(r, q, caller.Token) }
		p.rulesVersion = s.opts.RulesVersion() // before the policies are read
		refused = p.admit()
	}
	if refused != nil {
		s.refuse(p, status, refused)
		return
	}
	s.answer(p, q)
}

// caller is the client as all policies see it. It is refused without the token that a policy needs.
func (h *handler) caller(r *http.Request) (*listener.Caller, *refusal.Refusal) {
	all := new(listener.Policy)
	c := all.Caller(r.RemoteAddr, r.TLS)
	for _, g := range h.policies {
		with, refused := g.Caller(r.RemoteAddr, r.TLS).Authenticate(r.Context(), r.Header.Values("Authorization"))
		if refused != nil {
			return c, refused
		}
		if g.EndExpired {
			all.Key, all.EndExpired = g.Key, true
		}
		c = c.With(with.Token)
	}
	return c, nil
}

// admit asks all policies (P6).
func (h *handler) admit(r *http.Request, q *request, token *tokens.Token) *refusal.Refusal {
	for _, g := range h.policies {
		if refused := g.Caller(r.RemoteAddr, r.TLS).With(token).May(q.node, q.typ.URL); refused != nil {
			return refused
		}
	}
	return nil
}

// httpStatus of a refusal, by its code (P72).
var httpStatus = map[codes.Code]int{
	codes.InvalidArgument:   http.StatusBadRequest,
	codes.PermissionDenied:  http.StatusForbidden,
	codes.ResourceExhausted: http.StatusTooManyRequests,
	codes.Unavailable:       http.StatusServiceUnavailable,
	codes.Unimplemented:     http.StatusNotImplemented,
	codes.Unauthenticated:   http.StatusUnauthorized,
}

// tooLarge are the reasons for which the same request will always be refused.
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
func (s *Server) refuse(p *Poll, status int, r *refusal.Refusal) {
	s.opts.Metrics.Refuse(r.Reason)
	s.opts.Refusals.Note("client poll refused", r, refusal.Client{Node: p.node, Peer: p.from, Identity: p.caller.Identity()})
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
		w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter/time.Second)))
	}
	message := r.Error()
	message = strings.ToValidUTF8(message[:min(len(message), maxError)], "")
	body, err := json.Marshal(failure{string(r.Reason), message})
	if err != nil {
		body = nil // cannot happen with two strings
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	s.setDeadline(w, len(body))
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client has gone
}
