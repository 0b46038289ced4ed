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

	"xdsrelay/internal/admin/memberread"
)

// endpoint handles one method of a path.
type endpoint struct {
	// answer returns a status and a body to encode.
	answer func(*http.Request) (int, any)
	// raw writes the whole response itself; it replaces answer.
	raw http.Handler
	// query has the allowed parameters besides format. It does not apply to raw.
	query []string
	// reads: it waits for its turn, because its cost depends on what the relay holds.
	reads bool
	// json: the body must be declared as JSON; with yaml set, or as YAML.
	json, yaml bool
	// unlinked: a link from another site is refused, because the answer costs much or goes on for
	// long.
	unlinked bool
}

// route is a path with its methods.
type route struct {
	path string // as http.ServeMux has it
	help string
	open bool // needs no token
	get  *endpoint
	post *endpoint
}

// allow returns the methods of a path.
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

// method returns the endpoint for a method; nil: there is none.
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

// checkOrigin rejects requests that browsers send for another site's page, also reading ones. Such
// a page cannot see the answer, but it could occupy the few turns or start profiles. Only a link
// that a user follows is allowed.
func (e *endpoint) checkOrigin(r *http.Request) error {
	h := r.Header
	followed := r.Method == http.MethodGet && h.Get("Sec-Fetch-Mode") == "navigate" && h.Get("Sec-Fetch-Dest") == "document" && h.Get("Sec-Purpose") == ""
	if followed && !e.unlinked {
		return nil
	}
	// Check allows every GET, so it is asked about a POST.
	return crossOrigin.Check(&http.Request{Method: http.MethodPost, Header: h, Host: r.Host, URL: r.URL})
}

// guard wraps a route's endpoints with the checks of access, method, query and body.
func (s *Server) guard(r *route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		if req.ContentLength != 0 {
			req.Body = http.MaxBytesReader(w, req.Body, MaxBody)
			// fails only on a server without deadlines
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		query, err := url.ParseQuery(req.URL.RawQuery)
		f, known := formats[query.Get("format")]
		refuse := func(status int, message string) { s.write(w, f, status, failure{message}) }
		member := memberread.ForMember(req.Context())
		if !r.open && !member {
			if !s.AllowsHost(req.Host) {
				refuse(http.StatusForbidden, "host: without admin.token_file it must be localhost or an IP address, but is "+req.Host)
				return
			}
			if !s.Authorized(req.Header.Get("Authorization"), req.RemoteAddr) {
				h.Set("WWW-Authenticate", `Bearer realm="relay"`)
				refuse(http.StatusUnauthorized, "authorization: must be Bearer and the token of admin.token_file")
				return
			}
		}
		e := r.method(req.Method)
		if e == nil {
			h.Set("Allow", strings.Join(r.allow(), ", "))
			refuse(http.StatusMethodNotAllowed, req.URL.Path+": the method must be "+strings.Join(r.allow(), " or ")+", but is "+req.Method)
			return
		}
		if err := e.checkOrigin(req); err != nil {
			refuse(http.StatusForbidden, err.Error())
			return
		}
		if e.raw != nil {
			if member {
				refuse(http.StatusNotFound, req.URL.Path+": members do not read this of each other")
				return
			}
			e.raw.ServeHTTP(w, req)
			return
		}
		if err == nil && !known {
			err = errors.New("format: must be json or yaml")
		}
		if err == nil {
			if err = checkQuery(query, e.query); err != nil && e == r.get && r.post != nil && checkQuery(query, r.post.query) == nil {
				h.Set("Allow", http.MethodPost) // a GET of a path that only takes POST gets the same answer
				refuse(http.StatusMethodNotAllowed, req.URL.Path+": the method must be POST, because the request changes the relay, but is "+req.Method)
				return
			}
		}
		if err != nil {
			refuse(http.StatusBadRequest, err.Error())
			return
		}
		if t := mediaType(req); e.json && t != jsonType && !(e.yaml && t == yamlType) {
			must := jsonType
			if e.yaml {
				must += " or " + yamlType
			}
			refuse(http.StatusUnsupportedMediaType, "content-type: must be "+must)
			return
		}
		leave := func() {}
		if e.json {
			if !enter(req.Context(), s.bodies) {
				return // the client has gone
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
				refuse(http.StatusServiceUnavailable, errBusy.Error())
				return
			}
			defer func() { <-s.held }()
		}
		leave() // from here on, held bounds the memory for bodies
		s.send(w, s.answerInTurn(e, req, f))
	})
}

const (
	jsonType = "application/json"
	yamlType = "application/yaml"
)

// mediaType returns the media type of the body without its parameters; empty: none is declared.
func mediaType(req *http.Request) string {
	t, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return t
}

// readBody reads the body before the request waits for its turn, so that a slow client delays only
// other requests with a body.
func readBody(req *http.Request) (int, error) {
	b, err := io.ReadAll(req.Body)
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return http.StatusRequestEntityTooLarge, fmt.Errorf("body: must have at most %d bytes", large.Limit)
	}
	if err != nil {
		return http.StatusBadRequest, fmt.Errorf("body: %w", err)
	}
	req.Body = io.NopCloser(bytes.NewReader(b))
	return 0, nil
}

// answerInTurn answers when it is the request's turn. Encoding is a part of the turn, since it
// takes about as long as reading.
func (s *Server) answerInTurn(e *endpoint, req *http.Request, f *format) answer {
	if e.reads {
		release, ok := s.AcquireRead(req.Context())
		if !ok {
			return s.encode(f, http.StatusServiceUnavailable, failure{errBusy.Error()})
		}
		defer release()
	}
	status, body := e.answer(req)
	return s.encode(f, status, body)
}

// AcquireRead waits until no other request reads what the relay holds, over HTTP or gRPC. It
// reports false if ctx ends first. The caller has to call release.
func (s *Server) AcquireRead(ctx context.Context) (release func(), ok bool) {
	if !enter(ctx, s.reads) {
		return nil, false
	}
	return func() { <-s.reads }, true
}

// enter waits for room, and reports false if ctx ends first.
func enter(ctx context.Context, room chan struct{}) bool {
	select {
	case room <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// checkQuery returns an error for an unknown or repeated parameter.
func checkQuery(query url.Values, known []string) error {
	for name, values := range query {
		if name != "format" && !slices.Contains(known, name) {
			return fmt.Errorf("query: unknown parameter %q", name)
		}
		if len(values) > 1 {
			return fmt.Errorf("query: repeated parameter %q", name)
		}
	}
	return nil
}

// Authorized reports whether an Authorization header has the token, if one is needed. It compares
// hashes, so that the time reveals neither the token nor its length. A wrong token is counted, and
// logged with the peer's address.
func (s *Server) Authorized(authorization, peer string) bool {
	want := s.token.Load()
	if want == nil {
		return true
	}
	scheme, token, _ := strings.Cut(authorization, " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	if strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(sum[:], want[:]) == 1 {
		return true
	}
	if authorization != "" {
		s.opts.Metrics.AdminWrongTokens.Add(1)
		s.opts.Log.Warn("admin: a request has a wrong token", "peer", peer)
	}
	return false
}

// AllowsHost reports whether a request may use this host name. Without a token only localhost and
// IP addresses are allowed, because any other name can be made to resolve to this host.
func (s *Server) AllowsHost(host string) bool {
	if s.token.Load() != nil {
		return true
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	_, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return err == nil || host == "" || strings.EqualFold(host, "localhost")
}
