package fanout

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"

	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/session/sessiontest"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

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

// A client that cannot prove its identity gets no connection, and is counted.
func TestHandshakesThatFail(t *testing.T) {
	c := newCerts(t)
	r := newServerFixture(t, nil)
	addr := r.listen(&listener.Policy{Key: "downstream", TLS: c.server(true)})
	none := c.client()
	none.Certificates = nil
	for i, conf := range []*tls.Config{nil, none, c.client(tlstest.Expired()), {RootCAs: c.ca.Pool(), Certificates: newCerts(t).client().Certificates}} {
		p, err := r.dialTo(addr, conf).NewStream(xdstest.Context(t), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+aggregated+"/DeltaAggregatedResources")
		if err == nil {
			t.Errorf("%d: a stream: %v", i, p)
		}
	}
	r.eventually(func() bool { return r.count(telemetry.Handshake) >= 4 })
	// A client that does not speak HTTP/2.
	raw, err := tls.Dial("tcp", addr, c.client())
	if err == nil {
		_, err = raw.Read(make([]byte, 1))
		_ = raw.Close()
	}
	if err == nil {
		t.Error("a connection without ALPN")
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

// Connections to two listeners may come from one address and port; they are two.
func TestOneAddressAtTwoListeners(t *testing.T) {
	r := newServerFixture(t, func(o *Options) { o.Limits.StreamsPerConnection = 1 })
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	free := xdstest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	xdstest.NoError(t, free.Close())
	from := &net.Dialer{LocalAddr: free.Addr(), Control: func(_, _ string, rc syscall.RawConn) error {
		return rc.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
	}}
	for _, addr := range []string{r.addr, r.listen(&listener.Policy{Key: "downstream.listeners[1]"})} {
		conn := r.dialTo(addr, nil, grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return from.DialContext(ctx, "tcp", to) }))
		p := r.ads(conn, xds.Delta)
		p.ask(node("n"), xds.ClusterType)
		p.gets(xds.ClusterType)
	}
	peers := map[string]bool{}
	for _, c := range r.srv.Clients() {
		peers[c.Peer] = true
	}
	if len(peers) != 1 {
		t.Fatalf("the clients come from %v: not what was to be tried", peers)
	}
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

// A failed TLS handshake is logged.
func TestFailedHandshakesAreLogged(t *testing.T) {
	c := newCerts(t)
	var log xdstest.Log
	r := newServerFixture(t, func(o *Options) { o.Log = log.Logger() })
	addr := r.listen(&listener.Policy{Key: "downstream", TLS: c.server(true)})
	for range 5 {
		conn := xdstest.Must(net.Dial("tcp", addr))(t)
		_, _ = conn.Write([]byte("no TLS"))
		_, _ = conn.Read(make([]byte, 1)) // so it was read
		_ = conn.Close()
	}
	r.counted(telemetry.Handshake, 5)
	r.eventually(func() bool {
		return log.Count(`level=WARN msg="client TLS handshake failed" peer=127.0.0.1:`) == 5
	})
}
