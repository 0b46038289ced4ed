package rest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/config"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/rest/resttest"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// Each refusal has its status, a reason, which is counted, and a message in JSON. A client that may
// try again is told when.
func TestP72_Refusals(t *testing.T) {
	identity := xdstest.Must(expr.NewIdentity(`node.id == "known" || node.metadata.x == 1`))(t)
	const who = `"node": {"id": "n", "cluster": "edge"}`
	big := strings.Repeat("x", 3000)
	for name, tc := range map[string]struct {
		path   string // else that of clusters
		body   string
		change func(*options)
		policy *listener.Policy
		refuse func(subscribertest.Join) *refusal.Refusal
		status int
		reason telemetry.Reason
		again  bool // Retry-After
	}{
		"no JSON":          {body: `{"node": `, status: 400, reason: telemetry.RequestInvalid},
		"not an object":    {body: `[]`, status: 400, reason: telemetry.RequestInvalid},
		"empty":            {body: ``, status: 400, reason: telemetry.RequestInvalid},
		"a field twice":    {body: `{"type_url": "a", "typeUrl": "b", ` + who + `}`, status: 400, reason: telemetry.RequestInvalid},
		"another kind":     {body: `{"resource_names": "a", ` + who + `}`, status: 400, reason: telemetry.RequestInvalid},
		"no UTF-8":         {body: "{\"resource_names\": [\"\xff\"], " + who + "}", status: 400, reason: telemetry.RequestInvalid},
		"half a surrogate": {body: `{"resource_names": ["\ud800"], ` + who + `}`, status: 400, reason: telemetry.RequestInvalid},
		"too deep":         {body: `{"node": {"metadata": {"x": ` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}}}`, status: 400, reason: telemetry.RequestInvalid},
		"no node":          {body: `{}`, status: 400, reason: telemetry.NodeMissing},
		"another type":     {body: `{"type_url": "` + string(xds.RouteType) + `", ` + who + `}`, status: 400, reason: telemetry.TypeMismatch},
		"a long name":      {body: `{"resource_names": ["` + big + `"], ` + who + `}`, status: 400, reason: telemetry.NameBytes},
		"locators":         {body: `{"resource_locators": [{"name": "x"}], ` + who + `}`, status: 501, reason: telemetry.ResourceLocators},
		"unmapped":         {body: `{` + who + `}`, refuse: refuse(codes.PermissionDenied, telemetry.Unmapped), status: 403, reason: telemetry.Unmapped},
		"nothing held":     {body: `{` + who + `}`, refuse: refuse(codes.Unavailable, telemetry.OriginUnreachable), status: 503, reason: telemetry.OriginUnreachable, again: true},
		"keys":             {body: `{` + who + `}`, refuse: refuse(codes.Unavailable, telemetry.LimitKeys), status: 503, reason: telemetry.LimitKeys, again: true},
		"keys_per_peer":    {body: `{` + who + `}`, refuse: refuse(codes.ResourceExhausted, telemetry.LimitKeysPerPeer), status: 429, reason: telemetry.LimitKeysPerPeer, again: true},
		"Secrets, mtls":    {path: "/v3/discovery:secrets", body: `{` + who + `}`, status: 403, reason: telemetry.Secrets},
		"Secrets, deny":    {path: "/v3/discovery:secrets", body: `{` + who + `}`, policy: &listener.Policy{Secrets: config.SecretsDeny}, status: 403, reason: telemetry.Secrets},
		"Secrets, with a rule": {path: "/v3/discovery:secrets", body: `{"node": {"id": "known"}}`,
			policy: &listener.Policy{Identity: identity, Secrets: config.SecretsMTLS}, status: 403, reason: telemetry.Secrets},
		"identity, false":    {body: `{"node": {"id": "n", "metadata": {"x": 2}}}`, policy: &listener.Policy{Identity: identity}, status: 403, reason: telemetry.Identity},
		"identity, error":    {body: `{` + who + `}`, policy: &listener.Policy{Identity: identity}, status: 403, reason: telemetry.Identity},
		"request_bytes":      {body: `{"x": "` + big + `"}`, change: func(o *options) { o.Limits.RequestBytes = 2000 }, status: 413, reason: telemetry.LimitRequestBytes},
		"node_bytes":         {body: `{"node": {"id": "` + big + `"}}`, change: func(o *options) { o.Limits.NodeBytes = 2000 }, status: 413, reason: telemetry.LimitNodeBytes},
		"names_per_stream":   {body: `{"resource_names": ["a", "b", "c"], ` + who + `}`, change: func(o *options) { o.Limits.NamesPerStream = 2 }, status: 413, reason: telemetry.LimitNamesPerStream},
		"values":             {body: `{"node": {"metadata": {"x": [` + strings.Repeat("{},", 200) + `{}]}}}`, change: func(o *options) { o.Limits.NamesPerStream, o.Limits.NodeBytes = 10, 300 }, status: 413, reason: telemetry.LimitRequestBytes},
		"values, in strings": {body: `{"node": {"id": "` + strings.Repeat(`,[{\"`, 100) + `"}}`, change: func(o *options) { o.Limits.NamesPerStream, o.Limits.NodeBytes = 10, 300 }, status: 413, reason: telemetry.LimitNodeBytes},
	} {
		t.Run(name, func(t *testing.T) {
			policies := []*listener.Policy{}
			if tc.policy != nil {
				// Of several listeners, the strictest counts.
				policies = append(policies, &listener.Policy{Secrets: config.SecretsAllow}, tc.policy)
			}
			r := newREST(t, tc.change, policies...)
			r.groups.Refuse = tc.refuse
			path := tc.path
			if path == "" {
				path = "/v3/discovery:clusters"
			}
			got := xdstest.Must(r.Post(xdstest.Context(t), r.HTTP("http1"), path, []byte(tc.body)))(t)
			if f := r.Refused(got, tc.status); f.Reason != string(tc.reason) {
				t.Errorf("%+v, want %s", f, tc.reason)
			}
			if again := got.Header.Get("Retry-After") != ""; again != tc.again || got.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%v", got.Header)
			}
			r.counted(tc.reason, 1)
			r.waiting(0)
			if n := r.subscribers("edge"); n != 0 {
				t.Errorf("%d subscribers", n)
			}
		})
	}
}

func refuse(code codes.Code, reason telemetry.Reason) func(subscribertest.Join) *refusal.Refusal {
	return func(subscribertest.Join) *refusal.Refusal { return refusal.New(code, reason, "because") }
}

// A client that may have Secrets, and that the identity rules of all listeners admit, is not
// refused.
func TestP72_NotRefused(t *testing.T) {
	identity := xdstest.Must(expr.NewIdentity(`node.id == "n" && peer.address == "127.0.0.1" && peer.uri_sans.size() == 0`))(t)
	r := newREST(t, nil, &listener.Policy{Secrets: config.SecretsAllow}, &listener.Policy{Secrets: config.SecretsAllow, Identity: identity})
	r.groups.Group("edge").Publish(update(t, xds.SecretType, "s"))
	if held := r.Holds(r.Ask(r.HTTP("http1"), xds.SecretType, "", "s")); held != "s " {
		t.Errorf("holds %q", held)
	}
}

// Other methods, types of content and encodings, and requests of web pages, are refused before anything
// is read of them.
func TestP72_RequestsThatAreNoPolls(t *testing.T) {
	r := newREST(t, nil)
	for name, tc := range map[string]struct {
		method, content, encoding string
		status                    int
	}{
		"GET":           {http.MethodGet, "application/json", "", http.StatusMethodNotAllowed},
		"PUT":           {http.MethodPut, "application/json", "", http.StatusMethodNotAllowed},
		"a form":        {http.MethodPost, "application/x-www-form-urlencoded", "", http.StatusUnsupportedMediaType},
		"text":          {http.MethodPost, "text/plain", "", http.StatusUnsupportedMediaType},
		"nothing said":  {http.MethodPost, "", "", http.StatusUnsupportedMediaType},
		"compressed":    {http.MethodPost, "application/json", "gzip", http.StatusUnsupportedMediaType},
		"with a coding": {http.MethodPost, "application/json; charset=utf-8", "", http.StatusBadRequest}, // as for its body
	} {
		t.Run(name, func(t *testing.T) {
			req := xdstest.Must(http.NewRequestWithContext(xdstest.Context(t), tc.method, r.Base+"/v3/discovery:clusters", strings.NewReader("{}")))(t)
			req.Header.Set("Content-Type", tc.content)
			if tc.encoding != "" {
				req.Header.Set("Content-Encoding", tc.encoding)
			}
			got := xdstest.Must(r.Do(r.HTTP("h2c"), req))(t)
			r.Refused(got, tc.status)
			if tc.status == http.StatusMethodNotAllowed && got.Header.Get("Allow") != "POST" {
				t.Errorf("%v", got.Header)
			}
		})
	}
	req := xdstest.Must(http.NewRequestWithContext(xdstest.Context(t), http.MethodPost, r.Base+"/v3/discovery:clusters", strings.NewReader("{}")))(t)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", r.Base) // of the same site, as after DNS rebinding
	got := xdstest.Must(r.Do(r.HTTP("h2c"), req))(t)
	r.Refused(got, http.StatusForbidden)
	r.counted(telemetry.HTTPRequest, 7)
}

// A group that ends its subscribers answers the polls that are held with the reason,
// and the next poll asks anew.
func TestP72_EndedByTheGroup(t *testing.T) {
	r := newREST(t, nil)
	g := r.groups.Group("edge")
	c := r.HTTP("http1")
	held := r.Begin(xdstest.Context(t), c, xds.ClusterType, "")
	r.eventually(func() bool { return r.subscribers("edge") == 1 })
	end := func() {
		g.Mu.Lock()
		var clients []subscribertest.Join
		for m := range g.Subscribers {
			clients = append(clients, m.Join)
		}
		g.Mu.Unlock()
		for _, c := range clients {
			c.End(refusal.New(codes.Unavailable, telemetry.OriginUnreachable, "nothing is held"))
		}
	}
	end()
	if f := r.Refused(<-held, http.StatusServiceUnavailable); f.Error != "nothing is held" {
		t.Errorf("%+v", f)
	}
	r.eventually(func() bool { return r.subscribers("edge") == 0 })
	g.Publish(update(t, xds.ClusterType, "a"))
	if text := r.Holds(r.Ask(c, xds.ClusterType, "")); text != "a " {
		t.Errorf("holds %q", text)
	}
	// One that is only kept is passed over by the next poll as well.
	end()
	if text := r.Holds(r.Ask(c, xds.ClusterType, "")); text != "a " {
		t.Errorf("holds %q", text)
	}
}

// A client that sends its headers or its body slowly, or sends nothing, is disconnected in time.
// Others are not disturbed.
func TestP72_SlowSenders(t *testing.T) {
	srv, groups := newServer(t, func(o *options) { o.LongPoll = time.Hour })
	srv.times = times{header: 100 * time.Millisecond, body: 100 * time.Millisecond, idle: 100 * time.Millisecond, grace: time.Second}
	web := serve(t, srv, groups)
	groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	for name, sends := range map[string]string{
		"nothing":      "",
		"headers":      "POST /v3/discovery:clusters HTTP/1.1\r\nHost: x\r\nContent-Type: appli",
		"half of h2":   "PRI * HTTP/2.0\r\n\r\nSM",
		"h2, no more":  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"large header": "POST /v3/discovery:clusters HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 2*maxHeader),
	} {
		t.Run(name, func(t *testing.T) {
			c := web.Dial()
			// The server may have had enough before all is sent.
			_, _ = io.WriteString(c, sends)
			got, err := io.ReadAll(c)
			if err != nil && !strings.Contains(err.Error(), "reset") {
				t.Fatalf("not let go: %v", err)
			}
			if name == "large header" && !strings.Contains(string(got), " 431 ") {
				t.Errorf("%s", got)
			}
		})
	}
	t.Run("body", func(t *testing.T) {
		c := web.Dial()
		xdstest.Must(io.WriteString(c, "POST /v3/discovery:clusters HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{"))(t)
		resp := xdstest.Must(http.ReadResponse(bufio.NewReader(c), nil))(t)
		if resp.StatusCode != http.StatusRequestTimeout || !resp.Close {
			t.Errorf("%v", resp)
		}
	})
	// A poll that is held longer than all this is not slow.
	c := web.HTTP("http1")
	m := web.Response(web.Ask(c, xds.ClusterType, ""))
	held := web.Begin(xdstest.Context(t), c, xds.ClusterType, m.VersionInfo)
	web.waiting(1)
	timer := time.NewTimer(300 * time.Millisecond)
	defer timer.Stop()
	select {
	case got := <-held:
		t.Fatalf("%+v", got)
	case <-timer.C:
	}
	groups.Group("edge").Publish(update(t, xds.ClusterType, "b"))
	if text := web.Holds(<-held); text != "a b " {
		t.Errorf("holds %q", text)
	}
}

// A poll whose body is being read when a drain begins is answered, and its connection is closed.
func TestP71_DrainWhileABodyIsRead(t *testing.T) {
	r := newREST(t, nil)
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	c := r.Dial()
	body := string(resttest.Body(t, resttest.Request(resttest.Node("n"), xds.ClusterType, "")))
	xdstest.Must(fmt.Fprintf(c, "POST /v3/discovery:clusters HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:10]))(t)
	r.eventually(func() bool { return len(r.srv.polls.all()) == 1 })
	if told := r.srv.Drain(); told != 1 {
		t.Errorf("%d polls were told to end", told)
	}
	xdstest.Must(io.WriteString(c, body[10:]))(t)
	got, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || got.StatusCode != http.StatusOK || !got.Close {
		t.Errorf("%v, %v", got, err)
	}
}

// Half-sent bodies take no more memory than rest_bytes. Beside them small polls are answered, and
// nothing of them stays when they end.
func TestP72_HalfSentBodiesAreBounded(t *testing.T) {
	const n, each, limit = 40, 512 << 10, 4 << 20
	resttest.EachProtocol(t, func(t *testing.T, protocol string) {
		r := newREST(t, func(o *options) { o.RESTBytes = limit })
		r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
		ctx, cancel := context.WithCancel(xdstest.Context(t))
		defer cancel()
		c := r.HTTP(protocol)
		var senders sync.WaitGroup
		var refused atomic.Int64
		for range n {
			senders.Go(func() {
				half, end := io.Pipe()
				defer end.Close()
				stop := context.AfterFunc(ctx, func() { _ = end.Close() })
				defer stop()
				body := io.MultiReader(strings.NewReader(strings.Repeat(" ", each)), half)
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.Base+"/v3/discovery:clusters", body)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Content-Type", "application/json")
				if got, err := r.Do(c, req); err == nil && got.Status == http.StatusServiceUnavailable {
					refused.Add(1)
				}
			})
		}
		size := func() (sum int64, open int) {
			b := &r.srv.bodies
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.sum, len(b.sizes)
		}
		r.eventually(func() bool {
			sum, open := size()
			return sum > limit/2 && sum <= limit && open < limit/each && refused.Load() > 0
		})
		if text := r.Holds(r.Ask(r.HTTP(protocol), xds.ClusterType, "")); text != "a " {
			t.Errorf("holds %q", text)
		}
		cancel()
		senders.Wait()
		r.eventually(func() bool { sum, open := size(); return sum == 0 && open == 0 })
	})
}

// A body that ends too early is no body, even if what came of it is a whole poll.
func TestP72_TruncatedBody(t *testing.T) {
	r := newREST(t, nil)
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	body := string(resttest.Body(t, resttest.Request(resttest.Node("n"), xds.ClusterType, "")))
	c := r.Dial().(*net.TCPConn)
	xdstest.Must(fmt.Fprintf(c, "POST /v3/discovery:clusters HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body)+1, body))(t)
	xdstest.NoError(t, c.CloseWrite())
	got, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || got.StatusCode != http.StatusBadRequest {
		t.Errorf("%v, %v", got, err)
	}
}

// A whole body that waits to be decoded counts against rest_bytes, and is freed when its poll is
// ended: others may be decoded for a long time.
func TestP72_WaitingBodiesAreBounded(t *testing.T) {
	r := newREST(t, func(o *options) { o.RESTBytes = 8 * maxPiece })
	for range cap(largePolls) {
		largePolls <- struct{}{} // these are decoded
	}
	defer func() {
		for range cap(largePolls) {
			<-largePolls
		}
	}()
	poll := func(pieces int) chan *http.Response {
		answer := make(chan *http.Response, 1)
		c, body := r.Dial(), strings.Repeat(" ", pieces*maxPiece)
		go func() {
			defer close(answer)
			if _, err := fmt.Fprintf(c, "POST /v3/discovery:clusters HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
				return
			}
			if got, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
				answer <- got
			}
		}()
		return answer
	}
	large := poll(5)
	r.eventually(func() bool {
		r.srv.bodies.mu.Lock()
		defer r.srv.bodies.mu.Unlock()
		return r.srv.bodies.sum >= 5*maxPiece
	})
	poll(4)
	if got := <-large; got == nil || got.StatusCode != http.StatusServiceUnavailable || !got.Close || got.Header.Get("Retry-After") == "" {
		t.Errorf("%v", got)
	}
	r.counted(telemetry.LimitRESTBytes, 1)
}

// Large bodies that are decoded one after the other take the same memory.
func TestP72_DecodingReusesMemory(t *testing.T) {
	const n, size = 200, 8 * maxPiece
	srv, _ := newServer(t, nil)
	p := &Poll{cut: make(chan struct{})}
	pieces := slices.Collect(slices.Chunk([]byte("x"+strings.Repeat(" ", size)), maxPiece))
	// A collection empties a pool, and a pool has a value of its own for each processor.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		if _, refused := srv.decode(p, xds.TypeOf(xds.ClusterType), pieces); refused == nil {
			t.Fatal("not refused")
		}
	}
	runtime.ReadMemStats(&after)
	// The race detector makes a pool drop one value of four.
	if got := after.TotalAlloc - before.TotalAlloc; got >= n*size {
		t.Errorf("%d bytes for %d bodies of %d bytes", got, n, size)
	}
}

// The listener failing is an error of ServeREST, and ends what it had.
func TestP72_ListenerFails(t *testing.T) {
	s, _ := newServer(t, nil)
	l := xdstest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	xdstest.NoError(t, l.Close())
	if err := s.Serve(context.Background(), l, nil, Ping{}); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("%v", err)
	}
}
