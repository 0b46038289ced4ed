package fanout

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/config"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/session/sessiontest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// Each refusal has its status, its reason, which is counted, and a message in
// JSON; whoever may try again is told when.
func TestP72_Refusals(t *testing.T) {
	identity, err := expr.NewIdentity(`node.id == "known" || node.metadata.x == 1`)
	if err != nil {
		t.Fatal(err)
	}
	const who = `"node": {"id": "n", "cluster": "edge"}`
	big := strings.Repeat("x", 3000)
	for name, tc := range map[string]struct {
		path   string // else that of clusters
		body   string
		change func(*Options)
		gate   *listener.Gate
		refuse func(Join) *Refusal
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
		"Secrets, deny":    {path: "/v3/discovery:secrets", body: `{` + who + `}`, gate: &listener.Gate{Secrets: config.SecretsDeny}, status: 403, reason: telemetry.Secrets},
		"Secrets, with a rule": {path: "/v3/discovery:secrets", body: `{"node": {"id": "known"}}`,
			gate: &listener.Gate{Identity: identity, Secrets: config.SecretsMTLS}, status: 403, reason: telemetry.Secrets},
		"identity, false":    {body: `{"node": {"id": "n", "metadata": {"x": 2}}}`, gate: &listener.Gate{Identity: identity}, status: 403, reason: telemetry.Identity},
		"identity, error":    {body: `{` + who + `}`, gate: &listener.Gate{Identity: identity}, status: 403, reason: telemetry.Identity},
		"request_bytes":      {body: `{"x": "` + big + `"}`, change: func(o *Options) { o.Limits.RequestBytes = 2000 }, status: 413, reason: telemetry.LimitRequestBytes},
		"node_bytes":         {body: `{"node": {"id": "` + big + `"}}`, change: func(o *Options) { o.Limits.NodeBytes = 2000 }, status: 413, reason: telemetry.LimitNodeBytes},
		"names_per_stream":   {body: `{"resource_names": ["a", "b", "c"], ` + who + `}`, change: func(o *Options) { o.Limits.NamesPerStream = 2 }, status: 413, reason: telemetry.LimitNamesPerStream},
		"values":             {body: `{"node": {"metadata": {"x": [` + strings.Repeat("{},", 200) + `{}]}}}`, change: func(o *Options) { o.Limits.NamesPerStream, o.Limits.NodeBytes = 10, 300 }, status: 413, reason: telemetry.LimitRequestBytes},
		"values, in strings": {body: `{"node": {"id": "` + strings.Repeat(`,[{\"`, 100) + `"}}`, change: func(o *Options) { o.Limits.NamesPerStream, o.Limits.NodeBytes = 10, 300 }, status: 413, reason: telemetry.LimitNodeBytes},
	} {
		t.Run(name, func(t *testing.T) {
			gates := []*listener.Gate{}
			if tc.gate != nil {
				// Of several listeners, the strictest counts.
				gates = append(gates, &listener.Gate{Secrets: config.SecretsAllow}, tc.gate)
			}
			r := newREST(t, tc.change, gates...)
			r.house.Refuse = tc.refuse
			path := tc.path
			if path == "" {
				path = "/v3/discovery:clusters"
			}
			got, err := r.post(xdstest.Context(t), r.web("http1"), path, []byte(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			if f := r.refused(got, tc.status); f.Reason != tc.reason.String() {
				t.Errorf("%+v, want %s", f, tc.reason)
			}
			if again := got.header.Get("Retry-After") != ""; again != tc.again || got.header.Get("Content-Type") != "application/json" {
				t.Errorf("%v", got.header)
			}
			r.counted(tc.reason, 1)
			r.waiting(0)
			if n := r.members("edge"); n != 0 {
				t.Errorf("%d members", n)
			}
		})
	}
}

func refuse(code codes.Code, reason telemetry.Reason) func(Join) *Refusal {
	return func(Join) *Refusal { return Refuse(code, reason, "because") }
}

// Who may have Secrets, and whom the identity rules of all listeners let in, is
// not refused.
func TestP72_NotRefused(t *testing.T) {
	identity, err := expr.NewIdentity(`node.id == "n" && peer.address == "127.0.0.1" && peer.uri_sans.size() == 0`)
	if err != nil {
		t.Fatal(err)
	}
	r := newREST(t, nil, &listener.Gate{Secrets: config.SecretsAllow}, &listener.Gate{Secrets: config.SecretsAllow, Identity: identity})
	r.house.Group("edge").Publish(update(t, xds.SecretType, "s"))
	if held := r.holds(r.ask(r.web("http1"), xds.SecretType, "", "s")); held != "s " {
		t.Errorf("holds %q", held)
	}
}

// Other methods, types of content and encodings are refused before anything is
// read of them.
func TestP72_NoPoll(t *testing.T) {
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
			req, err := http.NewRequestWithContext(xdstest.Context(t), tc.method, r.base+"/v3/discovery:clusters", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", tc.content)
			if tc.encoding != "" {
				req.Header.Set("Content-Encoding", tc.encoding)
			}
			got, err := r.do(r.web("h2c"), req)
			if err != nil {
				t.Fatal(err)
			}
			r.refused(got, tc.status)
			if tc.status == http.StatusMethodNotAllowed && got.header.Get("Allow") != "POST" {
				t.Errorf("%v", got.header)
			}
		})
	}
	r.counted(telemetry.HTTPRequest, 6)
}

// A poll counts as a stream while it is answered: against the same limits, and
// together with those over gRPC. Who is within them goes on.
func TestP72_Limits(t *testing.T) {
	for _, tc := range []struct {
		reason telemetry.Reason
		status int
		limit  func(*Options)
	}{
		{telemetry.LimitStreams, http.StatusServiceUnavailable, func(o *Options) { o.Limits.Streams = 2 }},
		{telemetry.LimitStreamsPerPeer, http.StatusTooManyRequests, func(o *Options) { o.Limits.StreamsPerPeer = 2 }},
		{telemetry.LimitStreamsPerSecond, http.StatusServiceUnavailable, func(o *Options) { o.Limits.StreamsPerSecond = 2 }},
	} {
		t.Run(tc.reason.String(), func(t *testing.T) {
			r := newREST(t, tc.limit)
			g := r.house.Group("edge")
			g.Publish(update(t, xds.ClusterType, "a"))
			stream := r.delta(nil)
			stream.ask(xds.ClusterType)
			stream.want("a ")
			c := r.web("h2c")
			held := r.begin(xdstest.Context(t), c, xds.RouteType, "", "r")
			r.eventually(func() bool { return r.members("edge") == 2 })
			got := r.ask(c, xds.ClusterType, "")
			if f := r.refused(got, tc.status); f.Reason != tc.reason.String() || got.header.Get("Retry-After") == "" {
				t.Errorf("%+v %v", f, got.header)
			}
			r.counted(tc.reason, 1)
			g.Publish(update(t, xds.RouteType, "r"))
			if text := r.holds(<-held); text != "r " {
				t.Errorf("holds %q", text)
			}
			if tc.reason != telemetry.LimitStreamsPerSecond { // its place is free again
				if text := r.holds(r.ask(c, xds.ClusterType, "")); text != "a " {
					t.Errorf("holds %q", text)
				}
			}
			g.Publish(update(t, xds.ClusterType, "b"))
			stream.want("b ")
		})
	}
}

// A group that ends its members answers the polls that are held with the reason,
// and the next poll asks anew.
func TestP72_EndedByTheGroup(t *testing.T) {
	r := newREST(t, nil)
	g := r.house.Group("edge")
	c := r.web("http1")
	held := r.begin(xdstest.Context(t), c, xds.ClusterType, "")
	r.eventually(func() bool { return r.members("edge") == 1 })
	end := func() {
		g.Mu.Lock()
		var wakers []Waker
		for m := range g.Members {
			wakers = append(wakers, m.Join.Waker)
		}
		g.Mu.Unlock()
		for _, w := range wakers {
			w.End(Refuse(codes.Unavailable, telemetry.OriginUnreachable, "nothing is held"))
		}
	}
	end()
	if f := r.refused(<-held, http.StatusServiceUnavailable); f.Error != "nothing is held" {
		t.Errorf("%+v", f)
	}
	r.eventually(func() bool { return r.members("edge") == 0 })
	g.Publish(update(t, xds.ClusterType, "a"))
	if text := r.holds(r.ask(c, xds.ClusterType, "")); text != "a " {
		t.Errorf("holds %q", text)
	}
	// One that is only kept is passed over by the next poll as well.
	end()
	if text := r.holds(r.ask(c, xds.ClusterType, "")); text != "a " {
		t.Errorf("holds %q", text)
	}
}

// What cannot be given as JSON is refused with a reason that names it: a type
// that is not linked, at whatever depth, and a body that is none. Others of the
// same key are answered, and gRPC knows nothing of it.
func TestP72_NotJSON(t *testing.T) {
	inner := &clusterv3.Cluster{Name: "b", TypedExtensionProtocolOptions: map[string]*anypb.Any{"x": {TypeUrl: "type.googleapis.com/acme.Secret", Value: []byte("hidden")}}}
	a, err := anypb.New(inner)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]*anypb.Any{
		"unknown type": a,
		"no cluster":   {TypeUrl: string(xds.ClusterType), Value: []byte("\x0a\x01b\x22\x09hid")},
	} {
		t.Run(name, func(t *testing.T) {
			r := newREST(t, nil)
			u := update(t, xds.ClusterType, "a")
			u.Changed = append(u.Changed, sessiontest.New(t, xds.ClusterType).Raw("b", bad))
			r.house.Group("edge").Publish(u)
			c := r.web("http1")
			for range 2 {
				f := r.refused(r.ask(c, xds.ClusterType, ""), http.StatusNotImplemented)
				if f.Reason != telemetry.NotJSON.String() || !strings.Contains(f.Error, `"b"`) || strings.Contains(f.Error, "hid") {
					t.Errorf("%+v", f)
				}
			}
			r.counted(telemetry.NotJSON, 2)
			if text := r.holds(r.ask(c, xds.ClusterType, "", "a")); text != "a " {
				t.Errorf("holds %q", text)
			}
			stream := r.delta(nil)
			stream.ask(xds.ClusterType)
			stream.want("a b ")
		})
	}
}

// dial opens a plain connection to the listener.
func (r *restFixture) conn() net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.base, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() }) // closed by the server, as a rule
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// A client that sends its headers, its body, or nothing, slowly, is let go in
// time, and disturbs nobody.
func TestP72_SlowSenders(t *testing.T) {
	r := newServerFixture(t, func(o *Options) { o.LongPoll = time.Hour })
	r.srv.times = restTimes{header: 100 * time.Millisecond, body: 100 * time.Millisecond, idle: 100 * time.Millisecond, grace: time.Second}
	web := restOf(t, r)
	r.house.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	for name, sends := range map[string]string{
		"nothing":      "",
		"headers":      "POST /v3/discovery:clusters HTTP/1.1\r\nHost: x\r\nContent-Type: appli",
		"half of h2":   "PRI * HTTP/2.0\r\n\r\nSM",
		"h2, no more":  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"large header": "POST /v3/discovery:clusters HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 2*restHeader),
	} {
		t.Run(name, func(t *testing.T) {
			c := web.conn()
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
		c := web.conn()
		if _, err := io.WriteString(c, "POST /v3/discovery:clusters HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusRequestTimeout || !resp.Close {
			t.Errorf("%v", resp)
		}
	})
	// A poll that is held longer than all this is not slow.
	c := web.web("http1")
	m := web.response(web.ask(c, xds.ClusterType, ""))
	held := web.begin(xdstest.Context(t), c, xds.ClusterType, m.VersionInfo)
	web.waiting(1)
	timer := time.NewTimer(300 * time.Millisecond)
	defer timer.Stop()
	select {
	case got := <-held:
		t.Fatalf("%+v", got)
	case <-timer.C:
	}
	r.house.Group("edge").Publish(update(t, xds.ClusterType, "b"))
	if text := web.holds(<-held); text != "a b " {
		t.Errorf("holds %q", text)
	}
}

// What is held of bodies that do not come to their end counts: of two, the one that is
// larger has to go, and the other is read to its end.
func TestP72_HalfBodies(t *testing.T) {
	r := newREST(t, func(o *Options) { o.Limits.PinnedBytes = 60_000 })
	r.house.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	ask := string(asEnvoy(t, envoyPoll(node("slow"), xds.ClusterType, "")))
	begin := func(spaces int) (c net.Conn, rest string) {
		c = r.conn()
		body := strings.Repeat(" ", spaces) + ask
		head := fmt.Sprintf("POST /v3/discovery:clusters HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body))
		if _, err := io.WriteString(c, head+body[:spaces]); err != nil {
			t.Fatal(err)
		}
		return c, body[spaces:]
	}
	answer := func(c net.Conn) *http.Response {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	small, rest := begin(10_000)
	large, _ := begin(80_000)
	if got := answer(large); got.StatusCode != http.StatusTooManyRequests || !got.Close {
		t.Errorf("%v", got)
	}
	r.counted(telemetry.LimitPinnedBytes, 1)
	if _, err := io.WriteString(small, rest); err != nil {
		t.Fatal(err)
	}
	if got := answer(small); got.StatusCode != http.StatusOK {
		t.Errorf("%v", got)
	}
}

// A client that does not take its answer is cut after send_timeout, or sooner
// where it keeps more alive than pinned_bytes; meanwhile others are answered.
func TestP72_SlowReaders(t *testing.T) {
	for reason, change := range map[telemetry.Reason]func(*Options){
		telemetry.SendTimeout:      func(o *Options) { o.SendTimeout = 100 * time.Millisecond },
		telemetry.LimitPinnedBytes: func(o *Options) { o.SendTimeout, o.Limits.PinnedBytes = time.Hour, 1000 },
	} {
		for _, protocol := range protocols {
			t.Run(reason.String()+"/"+protocol, func(t *testing.T) {
				r := newREST(t, change)
				g := r.house.Group("edge")
				w := sessiontest.New(t, xds.ClusterType)
				u := xds.Update{Type: xds.ClusterType, Wildcard: true}
				for _, n := range names(100) {
					u.Changed = append(u.Changed, w.Resource(n+"="+strings.Repeat("x", 10000)))
				}
				g.Publish(u, update(t, xds.RouteType, "r"))
				resp := r.stall(protocol)
				c := r.web(protocol)
				if text := r.holds(r.ask(c, xds.RouteType, "", "r")); text != "r " {
					t.Errorf("holds %q", text)
				}
				r.metric(fmt.Sprintf("xdsrelay_refused_total{reason=%q} 1", reason))
				r.waiting(0)
				if _, err := io.ReadAll(resp.Body); err == nil {
					t.Error("the answer was not cut")
				}
				if text := r.holds(r.ask(c, xds.RouteType, "", "r")); text != "r " {
					t.Errorf("holds %q", text)
				}
			})
		}
	}
}

// stall polls for clusters, and reads nothing of the answer but its head. Its
// connection takes little.
func (r *restFixture) stall(protocol string) *http.Response {
	r.t.Helper()
	c := r.web(protocol)
	c.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 16 << 10}
	c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(32 << 10)
		}
		return conn, err
	}
	req, err := http.NewRequestWithContext(xdstest.Context(r.t), http.MethodPost, r.base+"/v3/discovery:clusters",
		strings.NewReader(string(asEnvoy(r.t, envoyPoll(node("slow"), xds.ClusterType, "")))))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// The listener failing is an error of ServeREST, and ends what it had.
func TestP72_ListenerFails(t *testing.T) {
	s, _ := bubble(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.ServeREST(context.Background(), l, Keepalive{}); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("%v", err)
	}
}
