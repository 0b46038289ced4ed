package fanout

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/rest/resttest"
	"xdsrelay/internal/fanout/session/sessiontest"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// restFixture is a serverFixture that is polled as well.
type restFixture struct {
	*serverFixture
	resttest.Client
}

// newREST is a serverFixture with a REST listener, of these policies; without any, one that
// admits every client.
func newREST(t *testing.T, change func(*Options), policies ...*listener.Policy) *restFixture {
	t.Helper()
	return newSecuredREST(t, nil, change, policies...)
}

// newSecuredREST is newREST with TLS; nil: without.
func newSecuredREST(t *testing.T, secured *tls.Config, change func(*Options), policies ...*listener.Policy) *restFixture {
	t.Helper()
	r := newServerFixture(t, func(o *Options) {
		o.LongPoll = time.Hour
		if change != nil {
			change(o)
		}
	})
	if len(policies) == 0 {
		policies = []*listener.Policy{{Key: "downstream", Secrets: config.SecretsMTLS}}
	}
	l := xdstest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- r.srv.ServeREST(ctx, l, secured, Keepalive{Time: time.Minute, Timeout: time.Minute}, policies...)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	scheme := "http://"
	if secured != nil {
		scheme = "https://"
	}
	return &restFixture{r, resttest.Client{T: t, Base: scheme + l.Addr().String()}}
}

// secured is an HTTP client with this TLS, which speaks HTTP/1.1 or HTTP/2.
func (r *restFixture) secured(major int, conf *tls.Config) *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: conf}
	tr.Protocols.SetHTTP1(major == 1)
	tr.Protocols.SetHTTP2(major == 2)
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// Polls have the TLS of downstream. A certificate proves the identity of a poll as it does for a
// stream: for identity rules, Secrets, limits per peer and keys.
func TestP6_PollsProveTheirIdentity(t *testing.T) {
	for _, major := range []int{1, 2} {
		t.Run(fmt.Sprint("http", major), func(t *testing.T) {
			c := newCerts(t)
			secured := c.server(true)
			secured.NextProtos = []string{"h2", "http/1.1"}
			policy := &listener.Policy{Key: "downstream", Identity: mustIdentity(t, `node.id in peer.uri_sans`), Secrets: config.SecretsMTLS}
			var mu sync.Mutex
			var joins []subscribertest.Join
			r := newSecuredREST(t, secured, func(o *Options) { o.LongPoll = time.Millisecond }, policy)
			r.groups.Refuse = func(j subscribertest.Join) *refusal.Refusal {
				mu.Lock()
				defer mu.Unlock()
				joins = append(joins, j)
				return nil
			}
			r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"), update(t, xds.SecretType, "s"))
			const uri = "spiffe://test/a"
			proven := r.secured(major, c.client(tlstest.URI(uri)))
			for _, typ := range []xds.TypeURL{xds.ClusterType, xds.SecretType} {
				got := <-r.BeginAs(xdstest.Context(t), proven, node(uri), typ, "", "a", "s")
				if got == nil || got.Status != http.StatusOK || got.Proto != major {
					t.Errorf("%s: %+v", typ, got)
				}
			}
			r.Refused(<-r.BeginAs(xdstest.Context(t), proven, node("another"), xds.ClusterType, ""), http.StatusForbidden)
			r.counted(telemetry.Identity, 1)
			// The same first name, and another one that rules may see: a poller of its own.
			more := r.secured(major, c.client(tlstest.URI(uri), tlstest.URI("spiffe://test/b")))
			if got := <-r.BeginAs(xdstest.Context(t), more, node(uri), xds.ClusterType, "", "a", "s"); got == nil || got.Status != http.StatusOK {
				t.Errorf("%+v", got)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(joins) != 3 || len(joins[2].Peer.URISANs) != 2 {
				t.Errorf("joined as %+v", joins)
			}
			for _, j := range joins {
				if j.PeerID != "uri:"+uri || j.Peer.URISANs[0] != uri {
					t.Errorf("joined as %q, peer %+v", j.PeerID, j.Peer)
				}
			}
			for _, shown := range r.srv.Clients() {
				if shown.Identity != "uri:"+uri {
					t.Errorf("shown as %q", shown.Identity)
				}
			}
			// Without a certificate, and without TLS.
			none := c.client()
			none.Certificates = nil
			if got := <-r.Begin(xdstest.Context(t), r.secured(major, none), xds.ClusterType, ""); got != nil {
				t.Errorf("without a certificate: %+v", got)
			}
			r.eventually(func() bool { return r.count(telemetry.Handshake) >= 1 })
			plain := resttest.Client{T: t, Base: strings.Replace(r.Base, "https", "http", 1)}
			if got := plain.Ask(plain.HTTP("http1"), xds.ClusterType, ""); got != nil && got.Status != http.StatusBadRequest {
				t.Errorf("without TLS: %+v", got)
			}
		})
	}
}

// waiting waits until so many polls were read and are not answered.
func (r *restFixture) waiting(n int) {
	r.t.Helper()
	r.eventually(func() bool { return r.srv.rest.OpenPolls() == n })
}

// poll is a poll of a node of the cluster edge that is answered with 304 after long_poll.
func (s *Server) poll(t *testing.T, id string, url xds.TypeURL) {
	t.Helper()
	req := httptest.NewRequest(http.MethodPost, xds.TypeOf(url).REST, bytes.NewReader(resttest.Body(t, resttest.Request(node(id), url, ""))))
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.rest.Handler(&listener.Policy{}).ServeHTTP(w, req)
	if w.Code != http.StatusNotModified {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
}

// forgetPollers ends all pollers without a poll.
func (s *Server) forgetPollers() { s.rest.Expire(time.Now().Add(3 * s.settings().LongPoll)) }

// subscribers counts those of a group.
func (r *restFixture) subscribers(cluster string) int { return r.groups.Group(cluster).Count() }

// A poll counts as a stream while it is answered: against the same limits, and
// together with those over gRPC. Clients within them are served.
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
		t.Run(string(tc.reason), func(t *testing.T) {
			r := newREST(t, tc.limit)
			g := r.groups.Group("edge")
			g.Publish(update(t, xds.ClusterType, "a"))
			stream := r.delta(nil)
			stream.ask(xds.ClusterType)
			stream.want("a ")
			c := r.HTTP("h2c")
			held := r.Begin(xdstest.Context(t), c, xds.RouteType, "", "r")
			r.eventually(func() bool { return r.subscribers("edge") == 2 })
			got := r.Ask(c, xds.ClusterType, "")
			if f := r.Refused(got, tc.status); f.Reason != string(tc.reason) || got.Header.Get("Retry-After") == "" {
				t.Errorf("%+v %v", f, got.Header)
			}
			r.counted(tc.reason, 1)
			g.Publish(update(t, xds.RouteType, "r"))
			if text := r.Holds(<-held); text != "r " {
				t.Errorf("holds %q", text)
			}
			if tc.reason != telemetry.LimitStreamsPerSecond { // its place is free again
				if text := r.Holds(r.Ask(c, xds.ClusterType, "")); text != "a " {
					t.Errorf("holds %q", text)
				}
			}
			g.Publish(update(t, xds.ClusterType, "b"))
			stream.want("b ")
		})
	}
}

// A resource that cannot be JSON is refused with a reason that names it: it has a type that is not
// linked, at any depth, or an invalid body. Other resources of the key are answered, and gRPC is
// not affected.
func TestP72_NotJSON(t *testing.T) {
	inner := &clusterv3.Cluster{Name: "b", TypedExtensionProtocolOptions: map[string]*anypb.Any{"x": {TypeUrl: "type.googleapis.com/acme.Secret", Value: []byte("hidden")}}}
	a := xdstest.Must(anypb.New(inner))(t)
	for name, bad := range map[string]*anypb.Any{
		"unknown type": a,
		"no cluster":   {TypeUrl: string(xds.ClusterType), Value: []byte("\x0a\x01b\x22\x09hid")},
	} {
		t.Run(name, func(t *testing.T) {
			r := newREST(t, nil)
			u := update(t, xds.ClusterType, "a")
			u.Changed = append(u.Changed, sessiontest.New(t, xds.ClusterType).Raw("b", bad))
			r.groups.Group("edge").Publish(u)
			c := r.HTTP("http1")
			for range 2 {
				f := r.Refused(r.Ask(c, xds.ClusterType, ""), http.StatusNotImplemented)
				if f.Reason != string(telemetry.NotJSON) || !strings.Contains(f.Error, `"b"`) || strings.Contains(f.Error, "hid") {
					t.Errorf("%+v", f)
				}
			}
			r.counted(telemetry.NotJSON, 2)
			if text := r.Holds(r.Ask(c, xds.ClusterType, "", "a")); text != "a " {
				t.Errorf("holds %q", text)
			}
			stream := r.delta(nil)
			stream.ask(xds.ClusterType)
			stream.want("a b ")
		})
	}
}

// A client that does not take its answer is cut after send_timeout, or sooner
// where it keeps more alive than pinned_bytes; meanwhile others are answered.
func TestP72_SlowReaders(t *testing.T) {
	for reason, change := range map[telemetry.Reason]func(*Options){
		telemetry.SendTimeout:      func(o *Options) { o.SendTimeout = 100 * time.Millisecond },
		telemetry.LimitPinnedBytes: func(o *Options) { o.SendTimeout, o.Limits.PinnedBytes = time.Hour, 1000 },
	} {
		for _, protocol := range resttest.Protocols {
			t.Run(string(reason)+"/"+protocol, func(t *testing.T) {
				r := newREST(t, change)
				g := r.groups.Group("edge")
				w := sessiontest.New(t, xds.ClusterType)
				u := snapshot.Update{Type: xds.ClusterType, Wildcard: true}
				for _, n := range names(100) {
					u.Changed = append(u.Changed, w.Resource(n+"="+strings.Repeat("x", 10000)))
				}
				g.Publish(u, update(t, xds.RouteType, "r"))
				resp := r.stall(protocol)
				c := r.HTTP(protocol)
				if text := r.Holds(r.Ask(c, xds.RouteType, "", "r")); text != "r " {
					t.Errorf("holds %q", text)
				}
				r.metric(fmt.Sprintf("xdsrelay_refused_total{reason=%q} 1", reason))
				r.waiting(0)
				if _, err := io.ReadAll(resp.Body); err == nil {
					t.Error("the answer was not cut")
				}
				if reason == telemetry.SendTimeout {
					sent, of := 0, 0
					got := r.srv.RecentRefusals()[0].Error
					if _, err := fmt.Sscanf(got, "poll: only %d of the response's %d bytes could be sent", &sent, &of); err != nil || sent == 0 || sent >= of {
						t.Errorf("the refusal is %q", got)
					}
				}
				if text := r.Holds(r.Ask(c, xds.RouteType, "", "r")); text != "r " {
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
	c := r.HTTP(protocol)
	c.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 16 << 10}
	c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(32 << 10)
		}
		return conn, err
	}
	req := xdstest.Must(http.NewRequestWithContext(xdstest.Context(r.t), http.MethodPost, r.Base+"/v3/discovery:clusters",
		strings.NewReader(string(resttest.Body(r.t, resttest.Request(node("slow"), xds.ClusterType, ""))))))(r.t)
	req.Header.Set("Content-Type", "application/json")
	resp := xdstest.Must(c.Do(req))(r.t)
	r.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// A drain ends the polls that are held at once, however long it takes: with 304 those that have
// what there is, with 503 those that have nothing. Then it takes no more. Connections are closed.
func TestP71_Drain(t *testing.T) {
	resttest.EachProtocol(t, func(t *testing.T, protocol string) {
		r := newREST(t, nil)
		r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
		c := r.HTTP(protocol)
		m := r.Response(r.Ask(c, xds.ClusterType, ""))
		current := r.Begin(xdstest.Context(t), c, xds.ClusterType, m.VersionInfo)
		nothing := r.Begin(xdstest.Context(t), r.HTTP(protocol), xds.RouteType, "", "a")
		r.waiting(2)
		r.srv.addSilent(10)
		ctx, abort := context.WithCancel(xdstest.Context(t))
		drained := make(chan int)
		go func() { told, _ := r.srv.Drain(ctx, time.Hour); drained <- told }()
		defer func() {
			abort()
			if told := <-drained; told != 2 && told != 3 {
				t.Errorf("%d clients were told to end, want 2 polls, and a stream after a tick", told)
			}
		}()
		if got := <-current; got == nil || got.Status != http.StatusNotModified || protocol == "http1" && !got.Closes {
			t.Errorf("%+v", got)
		}
		got := <-nothing
		if f := r.Refused(got, http.StatusServiceUnavailable); f.Reason != string(telemetry.Draining) || got.Header.Get("Retry-After") == "" {
			t.Errorf("%+v %v", f, got.Header)
		}
		late := xdstest.Must(r.Post(xdstest.Context(t), r.HTTP(protocol), "/v3/discovery:clusters", resttest.Body(t, &discoveryv3.DiscoveryRequest{})))(t)
		r.Refused(late, http.StatusServiceUnavailable)
		if protocol == "http1" && !(late.Closes && got.Closes) {
			t.Errorf("the connection stays: %v, %v", got.Header, late.Header)
		}
	})
}

// A poll that is held when the identity rule changes gets no answer that the new rule
// does not allow. Others get theirs.
func TestP6_HeldPollsAreAdmittedAgain(t *testing.T) {
	policy := &listener.Policy{Key: "downstream", Secrets: config.SecretsMTLS}
	r := newREST(t, nil, policy)
	publishAll(r.serverFixture, "a", "edge")
	c := r.HTTP("http1")
	ask := func(id, version string) <-chan *resttest.Reply {
		return r.BeginAs(xdstest.Context(t), c, node(id), xds.ClusterType, version)
	}
	has := r.Response(<-ask("n", "")).VersionInfo
	barred, stays := ask("n", has), ask("m", has)
	r.waiting(2)
	r.srv.Rekey(0) // nothing changed
	policy.Reconfigure(mustIdentity(t, `node.id != "n"`), config.SecretsMTLS)
	r.srv.Rekey(0)
	publishAll(r.serverFixture, "b", "edge")
	if f := r.Refused(<-barred, http.StatusForbidden); f.Reason != string(telemetry.Identity) {
		t.Errorf("%+v", f)
	}
	r.counted(telemetry.Identity, 1)
	if got := r.Holds(<-stays); got != "a b " {
		t.Errorf("who stays holds %q", got)
	}
}
