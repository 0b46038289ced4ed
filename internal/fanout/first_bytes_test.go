package fanout

import (
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

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
			var log xdstest.Log
			r := newServerFixture(t, func(o *Options) { o.Log = log.Logger() })
			c := xdstest.Must(net.Dial("tcp", r.listen(&listener.Policy{Key: "downstream", TLS: tc.tls})))(t)
			defer func() { _ = c.Close() }()
			tc.client(c)
			r.counted(tc.reason, 1)
			r.recently(tc.reason, c.LocalAddr().String(), tc.text)
			r.eventually(func() bool { // the line is written after the counts
				return log.Count(" peer="+c.LocalAddr().String()+" listener=downstream reason="+string(tc.reason)) == 1 && log.Count(tc.text) == 1
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
	var log xdstest.Log
	r := newServerFixture(t, func(o *Options) { o.Log, o.Limits.RequestBytes = log.Logger(), 1000 })
	c := r.delta(nil)
	c.ask(xds.ClusterType, strings.Repeat("x", 2000))
	if got := c.ends(); got.Code() != codes.ResourceExhausted {
		t.Errorf("ended with %v", got)
	}
	r.recently(telemetry.LimitRequestBytes, "downstream.limits.request_bytes")
	r.counted(telemetry.LimitRequestBytes, 1)
	r.eventually(func() bool { return log.Count(" peer=127.0.0.1:") == 1 && log.Count(" reason=request_bytes") == 1 })
}
