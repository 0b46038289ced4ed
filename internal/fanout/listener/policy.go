package listener

import (
	"crypto/tls"
	"net"
	"net/netip"
	"sync/atomic"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"

	"xdsrelay/config"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// Gate is a listener's: how its connections are secured, who comes in through
// it, and who is given Secrets. Once it is in use its fields are not changed:
// Reconfigure changes what holds.
type Gate struct {
	// Key of the listener in the configuration, for messages.
	Key string
	// TLS of its connections; nil: plaintext.
	TLS *tls.Config
	// Connections is how many may be open at a time; 0: no limit.
	Connections int
	// Identity has to hold for a client; nil: it does for all.
	Identity *expr.Predicate
	// Secrets says who is given them: config.SecretsMTLS or SecretsAllow;
	// anything else: nobody.
	Secrets string

	now atomic.Pointer[policy] // instead of the two, once they were changed
}

// policy is what a gate asks of clients. It is not changed.
type policy struct {
	identity *expr.Predicate
	secrets  string
	// besides is what is to hold as well, while others are put in force; nil: nothing.
	// It has no besides.
	besides *policy
}

func (g *Gate) policy() policy {
	if p := g.now.Load(); p != nil {
		return *p
	}
	return policy{identity: g.Identity, secrets: g.Secrets}
}

// Reconfigure has another identity rule and another rule for Secrets hold from
// now on. It ends no stream.
func (g *Gate) Reconfigure(identity *expr.Predicate, secrets string) {
	g.now.Store(&policy{identity: identity, secrets: secrets})
}

// Narrow has another identity rule and another rule for Secrets hold beside what does,
// until Reconfigure.
func (g *Gate) Narrow(identity *expr.Predicate, secrets string) {
	p := g.policy()
	p.besides = &policy{identity: identity, secrets: secrets}
	g.now.Store(&p)
}

// Caller is a client as its connection shows it, before it has said anything.
type Caller struct {
	gate *Gate
	// Peer is what rules see. Its names are empty unless its certificate was
	// verified: what was only claimed is nothing.
	Peer expr.Peer
	// Account is what limits per peer count it by: the identity that its
	// certificate proves, else its address; of IPv6 its /64.
	Account string

	secured, verified bool // by TLS; by a certificate of the client
}

// Caller makes a caller of a connection: its remote address, and what its TLS
// has come to; nil without TLS.
func (g *Gate) Caller(address string, state *tls.ConnectionState) *Caller {
	from := Host(address)
	c := &Caller{gate: g, Peer: expr.Peer{Address: from}, Account: neighbours(address), secured: state != nil}
	if state == nil || len(state.VerifiedChains) == 0 {
		return c
	}
	leaf := state.PeerCertificates[0]
	c.verified = true
	for _, u := range leaf.URIs {
		c.Peer.URISANs = append(c.Peer.URISANs, u.String())
	}
	c.Peer.DNSSANs = leaf.DNSNames
	c.Peer.Subject = leaf.Subject.String()
	// With their kind before them, so that no certificate counts as another's
	// address.
	switch p := &c.Peer; {
	case len(p.URISANs) > 0:
		c.Account = "uri:" + p.URISANs[0]
	case len(p.DNSSANs) > 0:
		c.Account = "dns:" + p.DNSSANs[0]
	case p.Subject != "":
		c.Account = "subject:" + p.Subject
	}
	return c
}

// Host is a remote address without its port.
func Host(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// neighbours is the address by which limits per peer count a client: of IPv6 the /64, since a
// host has as many addresses of it as it likes.
func neighbours(address string) string {
	h := Host(address)
	ip, err := netip.ParseAddr(h)
	if err != nil || ip.Is4() || ip.Is4In6() {
		return h
	}
	return netip.PrefixFrom(ip.WithZone(""), 64).Masked().String()
}

// Verified reports whether a certificate proves the caller's identity.
func (c *Caller) Verified() bool { return c.verified }

// May returns why the caller, with this node, may not have resources of a type;
// nil: it may. It is Admit and MayHave.
func (c *Caller) May(node *xds.Node, url xds.TypeURL) *refusal.Refusal {
	if refused := c.Admit(node); refused != nil {
		return refused
	}
	return c.MayHave(xds.TypeOf(url))
}

// Admit holds the caller against the gate's identity rule. The rule's false and
// its errors refuse alike.
func (c *Caller) Admit(node *xds.Node) *refusal.Refusal {
	p := c.gate.policy()
	if refused := c.holds(p.identity, node); refused != nil || p.besides == nil {
		return refused
	}
	return c.holds(p.besides.identity, node)
}

// holds holds the caller against a rule; nil: it holds for all.
func (c *Caller) holds(rule *expr.Predicate, node *xds.Node) *refusal.Refusal {
	if rule == nil {
		return nil
	}
	var holds bool
	var fails error
	err := node.With(func(m *corev3.Node) error {
		holds, fails = rule.Eval(expr.Input{Node: m, Peer: c.Peer})
		return nil
	})
	switch {
	case err != nil:
		return refusal.New(codes.InvalidArgument, telemetry.NodeInvalid, "request: %w", err)
	case fails != nil:
		return refusal.New(codes.PermissionDenied, telemetry.Identity, "%s.identity: node %.256q: %w", c.gate.Key, node.ID, fails)
	case !holds:
		return refusal.New(codes.PermissionDenied, telemetry.Identity, "%s.identity: it does not hold for node %.256q of this peer", c.gate.Key, node.ID)
	}
	return nil
}

// unproven is what its identity lacks to be given Secrets.
func (c *Caller) unproven(p policy) string {
	g := c.gate
	switch {
	case p.secrets != config.SecretsMTLS:
		return "nobody is given any here"
	case !c.secured:
		return "its connection has no TLS"
	case !c.verified:
		return "it showed no client certificate, which " + g.Key + ".tls.client_ca_file would ask for"
	}
	return "there is no " + g.Key + ".identity rule, so that any certificate could go by any node's name"
}

// MayHave says of a caller that was admitted whether it is given a type:
// Secrets only if its identity is proven (P6). Without an identity rule it is
// not: then a node may call itself as it likes, whatever its certificate.
func (c *Caller) MayHave(t xds.Type) *refusal.Refusal {
	p := c.gate.policy()
	if refused := c.given(t, p); refused != nil || p.besides == nil {
		return refused
	}
	return c.given(t, *p.besides)
}

func (c *Caller) given(t xds.Type, p policy) *refusal.Refusal {
	g := c.gate
	switch {
	case !t.Secret, p.secrets == config.SecretsAllow:
		return nil
	case p.secrets == config.SecretsMTLS && c.verified && p.identity != nil:
		return nil
	}
	return refusal.New(codes.PermissionDenied, telemetry.Secrets, "request: Secrets are not given to this client: %s (%s.secrets is %s)", c.unproven(p), g.Key, p.secrets)
}
