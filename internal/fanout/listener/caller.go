package listener

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"net"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/tokens"
	"xdsrelay/internal/telemetry"
)

// Caller is what a connection says about its client, before the first request. With a token, it is
// what the token of one stream says too.
type Caller struct {
	policy *Policy
	// Peer is what rules see. Its names are those of a verified certificate.
	Peer expr.Peer
	// PeerID is the name by which limits per peer count the client: the identity that its
	// certificate proves, else that of its token, else its address; for IPv6 its /64.
	PeerID string
	// Token is the client's verified token; nil: the listener needs none.
	Token *tokens.Token

	secured, verified bool // by TLS; by a certificate of the client
	certs             []*x509.Certificate
}

// Caller makes the caller of a connection from its remote address and the state of its TLS; nil:
// it has none.
func (p *Policy) Caller(address string, state *tls.ConnectionState) *Caller {
	from := Host(address)
	c := &Caller{policy: p, Peer: expr.Peer{Address: from}, PeerID: addressPeerID(address), secured: state != nil}
	if state == nil || len(state.VerifiedChains) == 0 {
		return c
	}
	leaf := state.PeerCertificates[0]
	c.verified, c.certs = true, state.PeerCertificates
	c.Peer.URISANs = uriSANs(leaf)
	c.Peer.DNSSANs = leaf.DNSNames
	c.Peer.Subject = leaf.Subject.String()
	// The kind comes first, so that no certificate has the PeerID of an address.
	switch p := &c.Peer; {
	case len(p.URISANs) > 0:
		c.PeerID = "uri:" + p.URISANs[0]
	case len(p.DNSSANs) > 0:
		c.PeerID = "dns:" + p.DNSSANs[0]
	case p.Subject != "":
		c.PeerID = "subject:" + p.Subject
	}
	return c
}

// uriSANs returns the URIs of the certificate's extension subjectAltName, byte for byte.
// leaf.URIs[i].String() would be normalized: SPIFFE://d/n and spiffe://d/n# would be spiffe://d/n.
func uriSANs(leaf *x509.Certificate) (out []string) {
	const uri = 6 // the tag of uniformResourceIdentifier in a GeneralName (RFC 5280)
	for _, e := range leaf.Extensions {
		var names []asn1.RawValue
		if !e.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 17}) {
			continue
		}
		_, _ = asn1.Unmarshal(e.Value, &names) // x509 has parsed it already
		for _, n := range names {
			if n.Class == asn1.ClassContextSpecific && n.Tag == uri {
				out = append(out, string(n.Bytes))
			}
		}
	}
	return out
}

// Authenticate returns the caller of a stream or a poll, whose header authorization has these values.
// It is c itself if the listener needs no token. It may wait for the issuer's keys.
func (c *Caller) Authenticate(ctx context.Context, authorization []string) (*Caller, *refusal.Refusal) {
	if c.policy.Tokens == nil {
		return c, nil
	}
	token, refused := c.policy.Tokens.Verify(ctx, authorization)
	if refused != nil {
		return c, refused
	}
	return c.With(token), nil
}

// With returns the caller with a token; nil: without one.
func (c *Caller) With(token *tokens.Token) *Caller {
	if token == nil {
		return c
	}
	with := *c
	with.Token, with.Peer.Token = token, token.Claims
	if !c.verified {
		with.PeerID = "token:" + token.Issuer + " " + token.Subject
	}
	return &with
}

// Identity is the identity that the client's certificate or token proves; empty without one.
func (c *Caller) Identity() string {
	switch {
	case c.verified:
		return c.PeerID
	case c.Token != nil:
		return "sub:" + c.Token.Subject
	}
	return ""
}

// AtExpiry calls end once the client's token expires, if the policy ends streams then. The caller
// calls stop when the stream has ended.
func (c *Caller) AtExpiry(end func(*refusal.Refusal)) (stop func()) {
	if c.Token == nil || !c.policy.EndExpired {
		return func() {}
	}
	t := time.AfterFunc(time.Until(c.Token.Expires), func() {
		end(refusal.New(codes.Unauthenticated, telemetry.TokenRenewal, "%s.tokens: the client's token: it expired", c.policy.Key))
	})
	return func() { t.Stop() }
}

// Host is a remote address without its port.
func Host(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// addressPeerID is the PeerID of a client without a certificate: its address, or for IPv6 the
// /64, since a host can use every address of that.
func addressPeerID(address string) string {
	h := Host(address)
	ip, err := netip.ParseAddr(h)
	if err != nil || ip.Is4() || ip.Is4In6() {
		return h
	}
	return netip.PrefixFrom(ip.WithZone(""), 64).Masked().String()
}
