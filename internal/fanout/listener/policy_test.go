package listener

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"xdsrelay/config"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/tokens"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

func TestExpiry(t *testing.T) {
	for _, end := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := &Policy{Key: "downstream", EndExpired: end}
			c := p.Caller("10.0.0.1:1", nil).With(&tokens.Token{Expires: time.Now().Add(time.Hour)})
			var ended atomic.Int32
			defer c.AtExpiry(func(*refusal.Refusal) { ended.Add(1) })()
			c.AtExpiry(func(*refusal.Refusal) { t.Error("called after stop") })()
			time.Sleep(59 * time.Minute)
			synctest.Wait()
			if ended.Load() != 0 {
				t.Error("ended before the token expired")
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if (ended.Load() == 1) != end {
				t.Errorf("on_expiry: end %v: ended %d times", end, ended.Load())
			}
		})
	}
}

// Other type URLs of the same message are Secrets as well.
func TestP6_SecretsByOtherTypeURLs(t *testing.T) {
	c := new(Policy).Caller("10.0.0.1:1", nil)
	for url, secret := range map[xds.TypeURL]bool{
		xds.SecretType: true,
		"other.test/envoy.extensions.transport_sockets.tls.v3.Secret":                        true,
		"envoy.extensions.transport_sockets.tls.v3.Secret":                                   true,
		"type.googleapis.com/envoy.api.v2.auth.Secret":                                       true,
		"type.googleapis.com/acme.envoy.extensions.transport_sockets.tls.v3.Secret":          false,
		"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext": false,
	} {
		if got := c.MayHave(xds.TypeOf(url)) != nil; got != secret {
			t.Errorf("%s: refused %v", url, got)
		}
	}
}

// Only verified certificates decide what rules see of a peer, and its PeerID for limits.
func TestP6_Caller(t *testing.T) {
	c := tlstest.NewAuthority(t)
	leaf := func(says ...tlstest.Option) *x509.Certificate {
		return c.Pair(t, says...).TLS(t).Leaf
	}
	all := []tlstest.Option{tlstest.CN("cn"), tlstest.DNS("d1"), tlstest.DNS("d2"), tlstest.URI("spiffe://a/b"), tlstest.URI("spiffe://c")}
	for _, tc := range []struct {
		says     []tlstest.Option
		claimed  bool // and not verified
		uri, dns []string
		subject  string
		peerID   string
	}{
		{all, false, []string{"spiffe://a/b", "spiffe://c"}, []string{"d1", "d2"}, "CN=cn", "uri:spiffe://a/b"},
		{all[:3], false, nil, []string{"d1", "d2"}, "CN=cn", "dns:d1"},
		{all[:1], false, nil, nil, "CN=cn", "subject:CN=cn"},
		{nil, false, nil, nil, "", "10.1.2.3"},
		{all, true, nil, nil, "", "10.1.2.3"},
		{[]tlstest.Option{tlstest.URI("SPIFFE://a/b"), tlstest.URI("spiffe://a/b#"), tlstest.URI("spiffe://a/%62"), tlstest.URI("spiffe://a/b?")}, false,
			[]string{"SPIFFE://a/b", "spiffe://a/b#", "spiffe://a/%62", "spiffe://a/b?"}, nil, "", "uri:SPIFFE://a/b"},
		{[]tlstest.Option{tlstest.URI("10.1.2.4")}, false, []string{"10.1.2.4"}, nil, "", "uri:10.1.2.4"},
	} {
		state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf(tc.says...)}}
		if !tc.claimed {
			state.VerifiedChains = [][]*x509.Certificate{state.PeerCertificates}
		}
		got := new(Policy).Caller("10.1.2.3:5000", state)
		p := got.Peer
		if p.Address != "10.1.2.3" || !slices.Equal(p.URISANs, tc.uri) || !slices.Equal(p.DNSSANs, tc.dns) || p.Subject != tc.subject || got.PeerID != tc.peerID {
			t.Errorf("%+v, %q; want %+v", p, got.PeerID, tc)
		}
	}
	if got := new(Policy).Caller("[::1]:5000", nil); got.PeerID != "::/64" || got.Peer.Address != "::1" {
		t.Errorf("%+v", got)
	}
	if got := new(Policy).Caller("@", nil); got.PeerID != "@" { // a unix socket
		t.Errorf("%+v", got)
	}
}

// May is what all of a client's requests together would be told.
func TestP6_May(t *testing.T) {
	n := xdstest.Must(new(xds.NodeTable).Intern([]byte("\x0a\x01n")))(t)
	identity := xdstest.Must(expr.NewIdentity(`node.id == "n" && peer.address == "10.0.0.1"`))(t)
	policy := &Policy{Key: "downstream", Identity: identity, Secrets: config.SecretsMTLS}
	for _, tc := range []struct {
		from string
		url  xds.TypeURL
		want telemetry.Reason
	}{
		{"10.0.0.2:1", xds.ClusterType, telemetry.Identity},
		{"10.0.0.2:1", xds.SecretType, telemetry.Identity},
		{"10.0.0.1:1", xds.SecretType, telemetry.Secrets},
	} {
		if got := policy.Caller(tc.from, nil).May(n, tc.url); got == nil || got.Reason != tc.want || got.Code != codes.PermissionDenied {
			t.Errorf("%s, %s: %v", tc.from, tc.url, got)
		}
	}
	if got := policy.Caller("10.0.0.1:1", nil).May(n, xds.ClusterType); got != nil {
		t.Error(got)
	}
}

// Above requests_per_second, and a burst of ten seconds' worth, the next request of a stream is read
// later. A limit that is changed holds for streams that are open.
func TestRequestsAreThrottled(t *testing.T) {
	metrics := xdstest.Must(telemetry.New(telemetry.Options{Prefix: "xdsrelay"}))(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var throttle Throttle
		limits := &config.Limits{RequestsPerSecond: 100}
		took := func(n int) time.Duration {
			began := time.Now()
			for range n {
				throttle.Wait(ctx, 0, Limiting{Limits: limits, Metrics: metrics, Log: slog.New(slog.DiscardHandler)})
			}
			return time.Since(began).Round(10 * time.Millisecond)
		}
		if took(unlimited); throttle.requests.rate != nil {
			t.Error("a stream with few requests has a limiter")
		}
		if d := took(100 * burstSeconds); d != 0 {
			t.Errorf("the burst took %v", d)
		}
		if d := took(200); d != 2*time.Second {
			t.Errorf("200 requests took %v", d)
		}
		limits.RequestsPerSecond = 1000
		took(1) // from what the old limit left
		if d := took(1000); d != time.Second {
			t.Errorf("1000 requests took %v under the new limit", d)
		}
		cancel()
		if d := took(1000); d != 0 {
			t.Errorf("a stream that has ended was held for %v", d)
		}
		limits.RequestsPerSecond = 0
		if d := took(100_000); d != 0 {
			t.Errorf("without a limit it took %v", d)
		}
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
