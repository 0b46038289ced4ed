package fanout

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// Only a part of a long node ID is logged and answered.
func TestRefusalsOfLongNames(t *testing.T) {
	r := newServerFixture(t, nil)
	r.addr = r.listen(&listener.Policy{Key: "downstream", Identity: mustIdentity(t, "false"), Secrets: config.SecretsMTLS})
	c := r.delta(nil)
	c.must(&discoveryv3.DeltaDiscoveryRequest{Node: node(strings.Repeat("n", 100_000)), TypeUrl: string(xds.ClusterType)})
	s := c.ends()
	if s.Code() != codes.PermissionDenied || len(s.Message()) > 1000 {
		t.Errorf("ended with %v and %d bytes: %.200s", s.Code(), len(s.Message()), s.Message())
	}
	r.eventually(func() bool { return r.log.Count("client stream ended") > 0 })
	if n := r.log.Count("n"); n > 1000 {
		t.Errorf("%d letters of the id are logged", n)
	}
}

// The log names the node of a client whose first request is refused, in at most refusal.MaxNode
// bytes.
func TestRefusalsOfFirstRequestsNameTheNode(t *testing.T) {
	long := strings.Repeat("n", 1000)
	for name, of := range map[string]struct {
		names  []string
		node   string
		reason telemetry.Reason
		status int // of a poll
	}{
		"many":  {[]string{"a", "b", "c"}, "envoy-1", telemetry.LimitNamesPerStream, http.StatusRequestEntityTooLarge},
		"long":  {[]string{strings.Repeat("x", 3000)}, "envoy-2", telemetry.NameBytes, http.StatusBadRequest},
		"large": {nil, long, telemetry.LimitNodeBytes, http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			r := newREST(t, func(o *Options) {
				o.Limits.NamesPerStream, o.Limits.NodeBytes = 2, 500
			})
			if of.reason == telemetry.NameBytes {
				s := *r.srv.settings()
				s.Limits.NamesPerStream = 0
				r.srv.Reconfigure(s)
			}
			c := r.delta(nil)
			c.must(&discoveryv3.DeltaDiscoveryRequest{Node: node(of.node), TypeUrl: string(xds.EndpointType), ResourceNamesSubscribe: of.names})
			_ = c.ends()
			is := of.node[:min(len(of.node), refusal.MaxNode)]
			r.eventually(func() bool { return r.log.Count(`msg="client stream ended" node=`+is+" ") == 1 })
			away := func() bool {
				return slices.ContainsFunc(r.srv.RecentRefusals(), func(a refusal.Recent) bool { return a.Reason == string(of.reason) && a.Node == is })
			}
			if !away() {
				t.Errorf("%+v", r.srv.RecentRefusals())
			}
			r.Refused(<-r.BeginAs(xdstest.Context(t), r.HTTP("http1"), node(of.node), xds.EndpointType, "", of.names...), of.status)
			if r.log.Count(`msg="client poll refused" node=`+is+" ") != 1 {
				t.Error(r.log)
			}
		})
	}
}

// A connection is closed after a refusal with a code after which another replica may serve the
// client. It stays open if it has other streams, and if the client is to come back.
func TestRefusalsCloseConnections(t *testing.T) {
	r := newServerFixture(t, nil)
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	refuse := func(code codes.Code, reason telemetry.Reason, beside bool) *grpc.ClientConn {
		conn := r.dial()
		if beside {
			r.groups.Refuse = nil
			c := r.delta(conn)
			c.ask(xds.ClusterType)
			c.want("a ")
		}
		r.groups.Refuse = func(subscribertest.Join) *refusal.Refusal { return refusal.New(code, reason, "refused") }
		c := r.delta(conn)
		c.ask(xds.ClusterType)
		if s := c.ends(); s.Code() != code || s.Message() != "refused" {
			t.Errorf("ended with %v", s)
		}
		return conn
	}
	stay := []*grpc.ClientConn{
		refuse(codes.Unavailable, telemetry.OriginUnreachable, true),
		refuse(codes.Unavailable, telemetry.KeyChanged, false),
		refuse(codes.PermissionDenied, telemetry.Unmapped, false),
	}
	for _, conn := range []*grpc.ClientConn{
		refuse(codes.Unavailable, telemetry.OriginUnreachable, false),
		refuse(codes.ResourceExhausted, telemetry.LimitNodeBytes, false),
	} {
		if !conn.WaitForStateChange(xdstest.Context(t), connectivity.Ready) {
			t.Error("the connection of a refused client stays open")
		}
	}
	// Their streams were refused before those of the connections that are closed now.
	for i, conn := range stay {
		if conn.GetState() != connectivity.Ready {
			t.Errorf("connection %d was closed", i)
		}
	}
}

// Handshakes begin later after refusals that hold for the relay. A refusal that concerns one key or
// one client does not delay the others.
func TestRefusalsOfTheRelayDelayHandshakes(t *testing.T) {
	for reason, want := range map[telemetry.Reason]bool{
		telemetry.OriginUnreachable: true, telemetry.LimitStreams: true, telemetry.LimitStreamsPerSecond: true, telemetry.LimitKeys: true,
		telemetry.LimitNamesPerKey: false, telemetry.LimitTypesPerKey: false, telemetry.SendTimeout: false, telemetry.LimitPinnedBytes: false,
	} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			r := newServerFixture(t, nil)
			r.groups.Refuse = func(subscribertest.Join) *refusal.Refusal { return refusal.New(codes.Unavailable, reason, "refused") }
			conn := r.dial()
			c := r.delta(conn)
			c.ask(xds.ClusterType)
			c.ends()
			conn.WaitForStateChange(xdstest.Context(t), connectivity.Ready) // it is closed after the decision
			if got := r.srv.refusing(); got != want {
				t.Errorf("handshakes begin later: %v, want %v", got, want)
			}
		})
	}
}

// A call that the relay does not support is counted, logged with its peer, and remembered for the
// status.
func TestUnsupportedCallsAreNamed(t *testing.T) {
	const delta = "/" + aggregated + "/DeltaAggregatedResources"
	for name, tc := range map[string]struct {
		method string
		option []grpc.DialOption
		reason telemetry.Reason
		text   string
	}{
		"service": {"/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats", nil, telemetry.UnknownMethod, "no method /envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"},
		"method":  {"/" + aggregated + "/FetchAggregatedResources", nil, telemetry.UnknownMethod, "no method /" + aggregated + "/FetchAggregatedResources"},
		//nolint:staticcheck // A registered compressor would change the other tests.
		"gzip": {delta, []grpc.DialOption{grpc.WithCompressor(grpc.NewGZIPCompressor())}, telemetry.Compression, "the client compresses its requests with gzip"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newServerFixture(t, nil)
			s := xdstest.Must(xdstest.Dial(t, r.addr, nil, tc.option...).NewStream(xdstest.Context(t), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, tc.method))(t)
			if err := s.RecvMsg(nil); status.Code(err) != codes.Unimplemented {
				t.Errorf("ended with %v", err)
			}
			r.counted(tc.reason, 1)
			r.recently(tc.reason, tc.text)
			if r.log.Count(`msg="client stream refused" peer=127.0.0.1:`) != 1 || r.log.Count(tc.text) != 1 {
				t.Error(r.log)
			}
		})
	}
}

const proxyV2 = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c"

// A client that uses another protocol than its listener is counted, logged with its peer, and
// remembered for the status.
func TestOtherProtocolsAreNamed(t *testing.T) {
	hello := func(c net.Conn) { _ = tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake() }
	say := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = c.Write([]byte(text + strings.Repeat(" ", 30)))
			_, _ = c.Read(make([]byte, 100)) // until it is closed
		}
	}
	certs := newCerts(t)
	for name, tc := range map[string]struct {
		client func(net.Conn)
		tls    *tls.Config // of the listener
		reason telemetry.Reason
		text   string
	}{
		"TLS":             {hello, nil, telemetry.Protocol, "the client uses TLS, and downstream.tls is not set"},
		"PROXY 1":         {say("PROXY TCP4 10.0.0.1 10.0.0.2 5 6\r\n"), nil, telemetry.Protocol, "the client uses the PROXY protocol"},
		"PROXY 2":         {say(proxyV2), nil, telemetry.Protocol, "the client uses the PROXY protocol"},
		"HTTP/1":          {say("GET / HTTP/1.1\r\n\r\n"), nil, telemetry.Protocol, "the client uses HTTP/1, and gRPC needs HTTP/2"},
		"other":           {say("\x00\x01\x02\x03\x04"), nil, telemetry.Protocol, "the client uses an unknown protocol"},
		"PROXY 1 for TLS": {say("PROXY TCP4 10.0.0.1 10.0.0.2 5 6\r\n"), certs.server(false), telemetry.Handshake, "the client uses the PROXY protocol"},
		"PROXY 2 for TLS": {say(proxyV2), certs.server(false), telemetry.Handshake, "the client uses the PROXY protocol"},
		"HTTP/1 for TLS":  {say("GET / HTTP/1.1\r\n\r\n"), certs.server(false), telemetry.Handshake, "the client uses HTTP/1"},
		"gRPC for TLS":    {say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), certs.server(false), telemetry.Handshake, "the client uses HTTP/2 without TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newServerFixture(t, nil)
			c := xdstest.Must(net.Dial("tcp", r.listen(&listener.Policy{Key: "downstream", TLS: tc.tls})))(t)
			defer func() { _ = c.Close() }()
			tc.client(c)
			r.counted(tc.reason, 1)
			r.recently(tc.reason, c.LocalAddr().String(), tc.text)
			msg := map[telemetry.Reason]string{telemetry.Protocol: "client uses another protocol", telemetry.Handshake: "client TLS handshake failed"}[tc.reason]
			r.eventually(func() bool { // the line is written after the counts
				return r.log.Count(`level=WARN msg="`+msg+`" peer=`+c.LocalAddr().String()+" listener=downstream reason="+string(tc.reason)) == 1 && r.log.Count(tc.text) == 1
			})
		})
	}
	// A client that speaks HTTP/2 is none.
	r := newServerFixture(t, nil)
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	c := r.delta(nil)
	c.ask(xds.ClusterType)
	c.want("a ")
	if got := r.srv.RecentRefusals(); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}

// recently waits until the recent refusals have this reason, with all texts.
func (r *serverFixture) recently(reason telemetry.Reason, texts ...string) {
	r.t.Helper()
	r.eventually(func() bool {
		return slices.ContainsFunc(r.srv.RecentRefusals(), func(a refusal.Recent) bool {
			return a.Reason == string(reason) && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(a.Error, text) })
		})
	})
}

// A client that pings too often is named, since grpc closes its connection without a trace.
func TestPingsAreNamed(t *testing.T) {
	certs := newCerts(t)
	for name, secured := range map[string]*tls.Config{"plaintext": nil, "TLS": certs.server(false)} {
		t.Run(name, func(t *testing.T) {
			r := newServerFixture(t, nil)
			c := xdstest.Must(net.Dial("tcp", r.listen(&listener.Policy{Key: "downstream", TLS: secured})))(t)
			defer func() { _ = c.Close() }()
			peer := c.LocalAddr().String()
			if secured != nil {
				conf := certs.client()
				conf.ServerName, conf.NextProtos = "127.0.0.1", []string{http2.NextProtoTLS}
				c = tls.Client(c, conf)
			}
			_, _ = c.Write([]byte(http2.ClientPreface))
			f := http2.NewFramer(c, c)
			_ = f.WriteSettings()
			for range 5 {
				_ = f.WritePing(false, [8]byte{})
			}
			_, _ = io.Copy(io.Discard, c) // until it is closed
			r.counted(telemetry.Pings, 1)
			r.recently(telemetry.Pings, peer, "downstream.keepalive.min_time")
		})
	}
}

// The REST address takes HTTP/1, and names other protocols.
func TestP70_OtherProtocolsAreNamed(t *testing.T) {
	r := newREST(t, nil)
	for _, text := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", proxyV2} {
		c := r.Dial()
		_, _ = c.Write([]byte(text))
		if n, _ := c.Read(make([]byte, 100)); n == 0 {
			t.Errorf("%q has no answer", text)
		}
	}
	r.recently(telemetry.Protocol, "downstream.rest_address", "the client uses the PROXY protocol")
	r.counted(telemetry.Protocol, 1)
}

// A request that is too large to be read is logged with its peer, and remembered for the status.
func TestTooLargeRequestsAreNamed(t *testing.T) {
	r := newServerFixture(t, func(o *Options) { o.Limits.RequestBytes = 1000 })
	c := r.delta(nil)
	c.ask(xds.ClusterType, strings.Repeat("x", 2000))
	if got := c.ends(); got.Code() != codes.ResourceExhausted {
		t.Errorf("ended with %v", got)
	}
	r.recently(telemetry.LimitRequestBytes, "downstream.limits.request_bytes")
	r.counted(telemetry.LimitRequestBytes, 1)
	r.eventually(func() bool { return r.log.Count(" peer=127.0.0.1:") == 1 && r.log.Count(" reason=request_bytes") == 1 })
}
