package fanout

import (
	"context"
	"crypto/tls"
	"net/http"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/rest/resttest"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/fanout/tokens"
	"xdsrelay/internal/fanout/tokens/tokenstest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

func verifierOf(i *tokenstest.Issuer) *tokens.Verifier {
	return tokens.New(tokens.Options{Key: "downstream.tokens", Issuer: tokenstest.URL, Audiences: []string{tokenstest.Audience}, Source: tokens.Source{File: i.File}})
}

// dialWith returns a connection whose streams have a header authorization; empty: none.
func (r *serverFixture) dialWith(addr, authorization string, secured *tls.Config) *grpc.ClientConn {
	r.t.Helper()
	return r.dialTo(addr, secured, grpc.WithStreamInterceptor(
		func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if authorization != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "authorization", authorization)
			}
			return open(ctx, d, cc, method, opts...)
		}))
}

// Without a valid token nothing of a stream is read. With one, rules see its claims, and the limits
// count its subject.
func TestTokensOfStreams(t *testing.T) {
	issuer := tokenstest.New(t)
	r := newServerFixture(t, nil)
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	joined := make(chan subscribertest.Join, 8)
	r.groups.Refuse = func(j subscribertest.Join) *refusal.Refusal { joined <- j; return nil }
	addr := r.listen(&listener.Policy{Key: "downstream", Tokens: verifierOf(issuer), Identity: mustIdentity(t, `peer.token.sub == node.id`)})
	n := &corev3.Node{Id: "pod", Cluster: "edge"}
	expired := tokenstest.Claims("pod")
	expired["exp"] = time.Now().Add(-time.Hour).Unix()
	for _, v := range variants {
		for name, c := range map[string]struct {
			authorization string
			code          codes.Code
			reason        telemetry.Reason
		}{
			"missing":          {"", codes.Unauthenticated, telemetry.TokenMissing},
			"garbage":          {"Bearer x", codes.Unauthenticated, telemetry.TokenInvalid},
			"expired":          {"Bearer " + issuer.Token(expired), codes.Unauthenticated, telemetry.TokenExpired},
			"another identity": {"Bearer " + issuer.Token(tokenstest.Claims("other")), codes.PermissionDenied, telemetry.Identity},
			"valid":            {"Bearer " + issuer.Token(tokenstest.Claims("pod")), codes.OK, telemetry.NodeMissing},
		} {
			t.Run(v.String()+"/"+name, func(t *testing.T) {
				before := r.count(c.reason)
				ads := r.ads(r.dialWith(addr, c.authorization, nil), v)
				ads.ask(n, xds.ClusterType)
				if c.code == codes.OK {
					ads.gets(xds.ClusterType)
					j := <-joined
					if j.Peer.Token["sub"] != "pod" || j.PeerID != "token:"+tokenstest.URL+" pod" || j.Token == nil {
						t.Errorf("joined as %+v", j.Info)
					}
					return
				}
				if said := ads.ended(c.code); strings.Contains(said, "Bearer x") {
					t.Error(said)
				}
				r.counted(c.reason, before+1)
				if len(joined) > 0 {
					t.Error("joined")
				}
			})
		}
	}
}

// secrets: identity gives Secrets for a token over TLS, with an identity rule. secrets: mtls does not.
func TestP6_SecretsForTokens(t *testing.T) {
	issuer, c := tokenstest.New(t), newCerts(t)
	r := newServerFixture(t, nil)
	r.groups.Group("edge").Publish(update(t, xds.SecretType, "s"))
	n := &corev3.Node{Id: "pod", Cluster: "edge"}
	authorization := "Bearer " + issuer.Token(tokenstest.Claims("pod"))
	for name, l := range map[string]struct {
		tls      *tls.Config
		mode     string
		identity bool
		lacks    string
	}{
		"identity":              {c.server(false), config.SecretsIdentity, true, ""},
		"identity, plaintext":   {nil, config.SecretsIdentity, true, "no TLS"},
		"identity without rule": {c.server(false), config.SecretsIdentity, false, "without downstream.identity"},
		"mtls":                  {c.server(false), config.SecretsMTLS, true, "secrets: identity"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &listener.Policy{Key: "downstream", TLS: l.tls, Secrets: l.mode, Tokens: verifierOf(issuer)}
			if l.identity {
				p.Identity = mustIdentity(t, `peer.token.sub == node.id`)
			}
			var dial *tls.Config
			if l.tls != nil {
				dial = c.client()
			}
			r := r.with(t)
			sds := r.sds(r.dialWith(r.listen(p), authorization, dial), xds.Delta)
			sds.ask(n, xds.SecretType, "s")
			if l.lacks == "" {
				sds.gets(xds.SecretType)
			} else if said := sds.ended(codes.PermissionDenied); !strings.Contains(said, l.lacks) {
				t.Errorf("%q does not say %q", said, l.lacks)
			}
		})
	}
}

// With on_expiry: end a stream ends when its token expires, if not before it was read.
func TestExpiryOfATokenOnAnOpenStream(t *testing.T) {
	issuer := tokenstest.New(t)
	r := newServerFixture(t, nil)
	claims := tokenstest.Claims("pod")
	claims["exp"] = time.Now().Add(2 * time.Second).Unix()
	ads := r.ads(r.dialWith(r.listen(&listener.Policy{Key: "downstream", Tokens: verifierOf(issuer), EndExpired: true}), "Bearer "+issuer.Token(claims), nil), xds.Delta)
	ads.ask(&corev3.Node{Id: "pod", Cluster: "edge"}, xds.ClusterType)
	if said := ads.ended(codes.Unauthenticated); !strings.Contains(said, "expired") {
		t.Error(said)
	}
}

// REST needs a token as streams do.
func TestP72_PollsNeedATokenToo(t *testing.T) {
	issuer := tokenstest.New(t)
	r := newREST(t, nil, &listener.Policy{Key: "downstream", Tokens: verifierOf(issuer), EndExpired: true, Identity: mustIdentity(t, `peer.token.sub == node.id`)})
	publishAll(r.serverFixture, "a", "edge")
	c := r.HTTP("http1")
	version := ""
	post := func(authorization string) *resttest.Reply {
		body := resttest.Body(t, resttest.Request(&corev3.Node{Id: "pod", Cluster: "edge"}, xds.ClusterType, version))
		req := xdstest.Must(http.NewRequestWithContext(xdstest.Context(t), http.MethodPost, r.Base+"/v3/discovery:clusters", strings.NewReader(string(body))))(t)
		req.Header.Set("Content-Type", "application/json")
		if authorization != "" {
			req.Header.Set("Authorization", authorization)
		}
		got := xdstest.Must(r.Do(c, req))(t)
		return got
	}
	if f := r.Refused(post(""), http.StatusUnauthorized); f.Reason != string(telemetry.TokenMissing) {
		t.Errorf("%+v", f)
	}
	r.Refused(post("Bearer "+issuer.Token(tokenstest.Claims("other"))), http.StatusForbidden)
	joined := make(chan subscribertest.Join, 8)
	r.groups.Refuse = func(j subscribertest.Join) *refusal.Refusal { joined <- j; return nil }
	claims := tokenstest.Claims("pod")
	next := ""
	for _, exp := range []int64{time.Now().Add(time.Hour).Unix(), time.Now().Add(2 * time.Hour).Unix()} {
		claims["exp"] = exp
		got := post("Bearer " + issuer.Token(claims))
		if held := r.Holds(got); held != "a " {
			t.Errorf("holds %q", held)
		}
		next = r.Response(got).VersionInfo
		if len(joined) != 1 {
			t.Fatalf("%d joined with a new token", len(joined))
		}
		if j := <-joined; j.Token.Expires.Unix() != exp {
			t.Errorf("joined with the token that expires at %s", j.Token.Expires)
		}
	}
	version, claims["exp"] = next, time.Now().Add(2*time.Second).Unix()
	if f := r.Refused(post("Bearer "+issuer.Token(claims)), http.StatusUnauthorized); !strings.Contains(f.Error, "expired") { // not after long_poll
		t.Errorf("%+v", f)
	}
}
