package admin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// endpoint is what one method of a path does.
type endpoint struct {
	// answer returns a status and what to write.
	answer func(*http.Request) (int, any)
	// raw writes by itself, in a format of its own; instead of answer.
	raw http.Handler
	// query has what is known besides format. Not looked at for raw.
	query []string
	// reads: it waits for its turn, since it costs by what the relay holds.
	reads bool
	// json: the body is JSON, and has to say so.
	json bool
	// unlinked: a link on somebody else's page does not lead here, since it costs much or
	// goes on for long.
	unlinked bool
}

// route is a path with its methods.
type route struct {
	path string // as http.ServeMux has it
	says string
	open bool // needs no token
	get  *endpoint
	post *endpoint
}

// allow are the methods of a path, for people and for the header Allow.
func (r *route) allow() []string {
	var out []string
	if r.get != nil {
		out = append(out, http.MethodGet, http.MethodHead)
	}
	if r.post != nil {
		out = append(out, http.MethodPost)
	}
	return out
}

// method returns what r does by this method; nil: nothing.
func (r *route) method(name string) *endpoint {
	switch name {
	case http.MethodGet, http.MethodHead:
		return r.get
	case http.MethodPost:
		return r.post
	}
	return nil
}

var crossOrigin = http.NewCrossOriginProtection()

// foreign refuses what browsers send for pages of another origin, also if it only reads:
// such a page sees nothing of the answer, but could hold what few may hold at a time, or
// have profiles made. What is left to it is a link that somebody follows.
func (e *endpoint) foreign(r *http.Request) error {
	h := r.Header
	followed := r.Method == http.MethodGet && h.Get("Sec-Fetch-Mode") == "navigate" && h.Get("Sec-Fetch-Dest") == "document" && h.Get("Sec-Purpose") == ""
	if followed && !e.unlinked {
		return nil
	}
	// Of what it takes for reading it would refuse nothing.
	return crossOrigin.Check(&http.Request{Method: http.MethodPost, Header: h, Host: r.Host, URL: r.URL})
}

// guard lets to a route's endpoints who may, with what they take.
func (s *Server) guard(r *route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		if req.ContentLength != 0 {
			req.Body = http.MaxBytesReader(w, req.Body, MaxBody)
			// Of a server that has no deadlines there is none to set.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		query, err := url.ParseQuery(req.URL.RawQuery)
		f, known := formats[query.Get("format")]
		refuse := func(status int, message string) { s.write(w, f, status, failure{message}) }
		if !r.open {
			if !s.Named(req.Host) {
				refuse(http.StatusForbidden, "without a token this is served as localhost or an IP address only, not as "+req.Host)
				return
			}
			if !s.Authorized(req.Header.Get("Authorization")) {
				h.Set("WWW-Authenticate", `Bearer realm="relay"`)
				refuse(http.StatusUnauthorized, "wants Authorization: Bearer and the token of admin.token_file")
				return
			}
		}
		e := r.method(req.Method)
		if e == nil {
			h.Set("Allow", strings.Join(r.allow(), ", "))
			refuse(http.StatusMethodNotAllowed, req.URL.Path+": wants "+strings.Join(r.allow(), ", ")+", not "+req.Method)
			return
		}
		if err := e.foreign(req); err != nil {
			refuse(http.StatusForbidden, err.Error())
			return
		}
		if e.raw != nil {
			e.raw.ServeHTTP(w, req)
			return
		}
		if err == nil && !known {
			err = errors.New("format: wants json or yaml")
		}
		if err == nil {
			if err = understood(query, e.query); err != nil && e == r.get && r.post != nil && understood(query, r.post.query) == nil {
				h.Set("Allow", http.MethodPost) // to change it, as one that only changes says of itself
				refuse(http.StatusMethodNotAllowed, req.URL.Path+": what is asked for is a change, and wants POST, not "+req.Method)
				return
			}
		}
		if err != nil {
			refuse(http.StatusBadRequest, err.Error())
			return
		}
		if t, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type")); e.json && t != "application/json" {
			refuse(http.StatusUnsupportedMediaType, "wants Content-Type: application/json")
			return
		}
		leave := func() {}
		if e.json {
			if !enter(req.Context(), s.bodies) {
				return // it hung up
			}
			leave = sync.OnceFunc(func() { <-s.bodies })
			defer leave()
			if status, err := readBody(req); err != nil {
				refuse(status, err.Error())
				return
			}
		}
		if e.reads {
			if !enter(req.Context(), s.held) {
				refuse(http.StatusServiceUnavailable, "other requests took too long")
				return
			}
			defer func() { <-s.held }()
		}
		leave() // what is held of bodies is bounded by the turns from now on
		s.send(w, s.turn(e, req, f))
	})
}

// readBody reads a body before its request waits for its turn: who sends it slowly
// holds up those who send one as well, and nobody else.
func readBody(req *http.Request) (int, error) {
	b, err := io.ReadAll(req.Body)
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return http.StatusRequestEntityTooLarge, fmt.Errorf("body: over %d bytes", large.Limit)
	}
	if err != nil {
		return http.StatusBadRequest, fmt.Errorf("body: %w", err)
	}
	req.Body = io.NopCloser(bytes.NewReader(b))
	return 0, nil
}

// turn answers, if need be when others have been answered. To write it down is a
// part of that: it takes about as long as to read it.
func (s *Server) turn(e *endpoint, req *http.Request, f *format) answer {
	if e.reads {
		give, ok := s.Turn(req.Context())
		if !ok {
			return s.encode(f, http.StatusServiceUnavailable, failure{"other requests took too long"})
		}
		defer give()
	}
	status, body := e.answer(req)
	return s.encode(f, status, body)
}

// Turn waits until no other request reads what the relay holds, by HTTP or gRPC. It reports
// false if ctx ends first.
func (s *Server) Turn(ctx context.Context) (give func(), ok bool) {
	if !enter(ctx, s.reads) {
		return nil, false
	}
	return func() { <-s.reads }, true
}

// enter waits until there is room, and reports false if ctx ends before.
func enter(ctx context.Context, room chan struct{}) bool {
	select {
	case room <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// understood reports what of a query is not known, or there twice.
func understood(query url.Values, known []string) error {
	for name, values := range query {
		if name != "format" && !slices.Contains(known, name) {
			return fmt.Errorf("query: %q is not known here", name)
		}
		if len(values) > 1 {
			return fmt.Errorf("query: %q is there twice", name)
		}
	}
	return nil
}

// Authorized reports whether what a request has as Authorization is the token, if
// one is needed. Hashes are compared, so that the time taken tells nothing of the
// token, nor of its length.
func (s *Server) Authorized(authorization string) bool {
	want := s.token.Load()
	if want == nil {
		return true
	}
	scheme, token, _ := strings.Cut(authorization, " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(sum[:], want[:]) == 1
}

// Named reports whether the relay may be called so. Where no token is needed,
// a name that someone else can point here is not enough.
func (s *Server) Named(host string) bool {
	if s.token.Load() != nil {
		return true
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	_, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return err == nil || host == "" || strings.EqualFold(host, "localhost")
}
