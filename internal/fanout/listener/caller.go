package listener

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"net"
	"net/netip"

	"xdsrelay/internal/expr"
)

// Caller is what a connection says about its client, before the first request.
type Caller struct {
	policy *Policy
	// Peer is what rules see. Its names are those of a verified certificate.
	Peer expr.Peer
	// PeerID is the name by which limits per peer count the client: the identity that its
	// certificate proves, else its address; for IPv6 its /64.
	PeerID string

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

// Identity is the identity that the client's certificate proves; empty without one.
func (c *Caller) Identity() string {
	if !c.verified {
		return ""
	}
	return c.PeerID
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
