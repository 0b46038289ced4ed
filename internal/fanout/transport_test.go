package fanout

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/protobuf/encoding/protowire"

	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/nonce"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/session/sessiontest"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// Above the limit, of all listeners together, a connection waits until another is closed. The log
// and the status name it.
func TestConnectionsWait(t *testing.T) {
	r := newServerFixture(t, func(o *Options) { o.Limits.Connections = 1 })
	first := xdstest.Must(net.Dial("tcp", r.addr))(t)
	defer func() { _ = first.Close() }()
	if _, err := io.ReadFull(first, make([]byte, 9)); err != nil { // the server's settings: it is accepted
		t.Fatal(err)
	}
	second := xdstest.Must(net.Dial("tcp", r.listen(&listener.Policy{Key: "downstream.listeners[1]"})))(t)
	defer func() { _ = second.Close() }()
	r.counted(telemetry.LimitConnections, 1)
	r.eventually(func() bool {
		return r.log.Count(`level=WARN msg="client connections wait" peer=`+second.LocalAddr().String()+` listener=downstream.listeners[1] reason=connections`) == 1
	})
	if got := r.srv.RecentRefusals(); len(got) != 1 || got[0].Reason != "connections" || !strings.Contains(got[0].Error, second.LocalAddr().String()) {
		t.Errorf("%+v", got)
	}
	_ = second.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := second.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Fatalf("served above the limit: %d %v", n, err)
	}
	_ = first.Close()
	_ = second.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := second.Read(make([]byte, 1)); err != nil {
		t.Errorf("not served once there is room: %v", err)
	}
}

// A stream is ended from outside with its status, and nothing else on its connection is.
// Without grpc's own method its connection is closed.
func TestStreamsEndFromOutside(t *testing.T) {
	for name, has := range map[string]bool{"with grpc's method": true, "by public means": false} {
		t.Run(name, func(t *testing.T) {
			r := newServerFixture(t, nil)
			if !has {
				r.srv.finisherOf = func(grpc.ServerStream) finisher { return nil }
			}
			publishAll(r, "a", "edge")
			conn := r.dial()
			c := r.delta(conn)
			c.ask(xds.ClusterType)
			c.want("a ")
			st := r.srv.all()[0]
			other := r.delta(conn)
			other.ask(xds.ClusterType)
			other.want("a ")
			apart := r.opened("edge")
			st.End(refusal.New(codes.PermissionDenied, telemetry.Identity, "why"))
			want := codes.PermissionDenied
			if !has {
				want = codes.Unavailable
			}
			if got := c.ends().Code(); got != want {
				t.Errorf("ended with %v, want %v", got, want)
			}
			r.eventually(func() bool { return r.srv.streamsOf("n") == map[bool]int{true: 2, false: 1}[has] })
			publishAll(r, "b", "edge")
			apart.want("b ")
		})
	}
}

// waiting is a grpc stream that does nothing.
type waiting struct {
	grpc.ServerStream
	ctx context.Context
}

func (w waiting) Context() context.Context { return w.ctx }

// Above names_per_second, and a burst of half of names_per_stream, the next request of a stream is
// read later. A name counts each time the stream newly subscribes to it (P16).
func TestP16_NewNamesAreThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, v := range variants {
			s, groups := bubble(t, func(o *Options) { o.Limits.NamesPerSecond, o.Limits.NamesPerStream = 100, 2000 })
			groups.Group("edge")
			node := xdstest.Must(s.nodes.Intern([]byte("\x0a\x01n\x12\x04edge")))(t)
			st := &stream{srv: s, grpc: waiting{ctx: t.Context()}, variant: v, conn: new(listener.Conn), node: node, nonces: nonce.New(instance, 1), caller: new(listener.Policy).Caller("10.0.0.1:1", nil), from: "10.0.0.1:1"}
			st.client = groups.Join(subscriber.Info{Node: node, End: st.End})
			st.run.word.Store(running) // nobody queues it
			st.req = new(xds.Request)
			var last []string
			took := func(names ...string) time.Duration {
				t.Helper()
				began := time.Now()
				msg := sessiontest.Request{Names: names, Unsubscribe: last}.Wire(v)
				url := protowire.Number(4)
				if last = names; v == xds.Delta {
					url = 2
				}
				msg = protowire.AppendString(protowire.AppendTag(msg, url, protowire.BytesType), string(xds.EndpointType))
				if refused := st.handle(msg, false); refused != nil {
					t.Fatal(refused)
				}
				return time.Since(began).Round(10 * time.Millisecond)
			}
			list := func(from, n int) (out []string) {
				for i := range n {
					out = append(out, fmt.Sprint(from+i))
				}
				return out
			}
			if d := took(list(0, 1000)...); d != 0 {
				t.Errorf("%s: the burst took %v", v, d)
			}
			if d := took(list(1000, 200)...); d != 2*time.Second {
				t.Errorf("%s: 200 new names in place of others took %v", v, d)
			}
			if v == xds.SotW {
				last = nil
				if d := took(list(1000, 200)...); d != 0 {
					t.Errorf("%s: the same names took %v", v, d)
				}
				if d := took(list(1000, 100)...); d != 0 {
					t.Errorf("%s: fewer names took %v", v, d)
				}
			}
			if d := took(list(5000, 1500)...); d != 15*time.Second {
				t.Errorf("%s: more than the burst at once took %v", v, d)
			}
		}
	})
}

// ACKs are never throttled. Requests that are no ACKs are, whatever their nonce.
func TestACKsAreNotThrottled(t *testing.T) {
	r := newServerFixture(t, func(o *Options) { o.Limits.RequestsPerSecond = 1 })
	publishAll(r, "a", "edge")
	c := r.opened("edge")
	const many = 120 // more than a stream may send without a limiter, and its burst
	for i := range many {
		name := fmt.Sprint("v", i+1)
		publishAll(r, name, "edge")
		c.want(name + " ")
	}
	if n := r.count(telemetry.LimitRequestsPerSecond); n != 0 {
		t.Errorf("%d ACKs were delayed", n)
	}
	for range many {
		c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(xds.ClusterType), ResponseNonce: "other", ErrorDetail: &statuspb.Status{Code: 3}})
	}
	r.eventually(func() bool { return r.count(telemetry.LimitRequestsPerSecond) > 0 })
}

// Limits per peer count by proven identity, whatever the address and the
// connection; by address without.
func TestLimitsCountIdentities(t *testing.T) {
	c := newCerts(t)
	r := newServerFixture(t, func(o *Options) { o.Limits.StreamsPerPeer = 1 })
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	var mu sync.Mutex
	var peerIDs []string
	r.groups.Refuse = func(j subscribertest.Join) *refusal.Refusal {
		mu.Lock()
		defer mu.Unlock()
		peerIDs = append(peerIDs, j.PeerID)
		return nil
	}
	addr := r.listen(&listener.Policy{Key: "downstream", TLS: c.server(true)})
	plain := r.dial()
	a, again, b := c.client(tlstest.URI("spiffe://test/a")), c.client(tlstest.URI("spiffe://test/a")), c.client(tlstest.URI("spiffe://test/b"))
	for _, s := range []struct {
		conn *grpc.ClientConn
		ok   bool
	}{
		{plain, true}, {r.dialTo(addr, a), true}, {r.dialTo(addr, b), true},
		{r.dialTo(addr, again), false}, {plain, false}, {r.dial(), false},
	} {
		p := r.ads(s.conn, xds.Delta)
		p.ask(node("n"), xds.ClusterType)
		if s.ok {
			p.gets(xds.ClusterType)
		} else {
			p.WantEnd(codes.ResourceExhausted)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"127.0.0.1", "uri:spiffe://test/a", "uri:spiffe://test/b"}; !slices.Equal(peerIDs, want) {
		t.Errorf("joined as %q, want %q", peerIDs, want)
	}
	var shown []string
	for _, c := range r.srv.Clients() {
		shown = append(shown, c.Identity)
	}
	slices.Sort(shown)
	if want := []string{"", "uri:spiffe://test/a", "uri:spiffe://test/b"}; !slices.Equal(shown, want) {
		t.Errorf("shown as %q, want %q", shown, want)
	}
}

// A client that takes nothing is cut under TLS as well: what is closed is what
// lies below it.
func TestSendTimeoutUnderTLS(t *testing.T) {
	c := newCerts(t)
	r := newServerFixture(t, func(o *Options) { o.SendTimeout = 40 * time.Millisecond })
	u := snapshot.Update{Type: "type.googleapis.com/acme.Blob", Wildcard: true}
	w := sessiontest.New(t, u.Type)
	for _, n := range names(100) {
		u.Changed = append(u.Changed, w.Resource(n+"="+strings.Repeat("x", 10000)))
	}
	r.groups.Group("edge").Publish(u)
	conn := r.dialTo(r.listen(&listener.Policy{Key: "downstream", TLS: c.server(true)}), c.client())
	p := r.ads(conn, xds.Delta)
	p.ask(node("slow"), u.Type)
	r.eventually(func() bool { return r.srv.streamsOf("slow") == 1 })
	r.eventually(func() bool { return r.srv.streamsOf("slow") == 0 })
	p.WantEnd(codes.Unavailable)
	r.counted(telemetry.SendTimeout, 1)
	r.eventually(func() bool { return conn.GetState() != connectivity.Ready })
}

// A connection that sends nothing is a probe of the port. It is not counted as a refusal, even if
// it is reset, as load balancers do.
func TestPortProbeIsNoFailedHandshake(t *testing.T) {
	c := newCerts(t)
	r := newServerFixture(t, nil)
	addr := r.listen(&listener.Policy{Key: "downstream", TLS: c.server(true)})
	for _, says := range []string{"", "", "no TLS"} {
		conn := xdstest.Must(net.Dial("tcp", addr))(t)
		if says != "" {
			_, _ = conn.Write([]byte(says))
			_, _ = conn.Read(make([]byte, 1)) // so it was read
		}
		xdstest.NoError(t, conn.(*net.TCPConn).SetLinger(0))
		xdstest.NoError(t, conn.Close())
	}
	r.counted(telemetry.Handshake, 1)
	if got := r.srv.RecentRefusals(); len(got) != 1 || got[0].Count != 1 {
		t.Errorf("%+v", got)
	}
}
