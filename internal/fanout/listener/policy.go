package listener

import (
	"crypto/tls"
	"crypto/x509"
	"sync/atomic"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"

	"xdsrelay/config"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/tokens"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// Policy is the policy of one listener: how its connections are secured, which clients are
// admitted, and which of them get Secrets. Its fields do not change once it is in use. Reconfigure
// replaces Identity and Secrets.
type Policy struct {
	// Key of the listener in the configuration, for messages.
	Key string
	// TLS of its connections; nil: plaintext.
	TLS *tls.Config
	// Verify verifies the certificates of a client again, after the authorities have changed; nil: they
	// do not change.
	Verify func(certs []*x509.Certificate) error
	// Tokens verifies the tokens of clients, each of which needs one; nil: no token is read.
	Tokens *tokens.Verifier
	// EndExpired: a stream ends when its client's token expires.
	EndExpired bool
	// HTTP1: its clients may use HTTP/1.
	HTTP1 bool
	// Identity has to hold for a client; nil: every client is admitted.
	Identity *expr.Predicate
	// Secrets says which clients get Secrets: config.SecretsMTLS, config.SecretsIdentity or
	// config.SecretsAllow; anything else: none.
	Secrets string

	changedRules atomic.Pointer[rules] // instead of Identity and Secrets, once they were changed
}

// rules are the rules of a policy for clients. They do not change.
type rules struct {
	identity *expr.Predicate
	secrets  string
	// restriction has to hold as well while the policy changes; nil: nothing. Its own restriction
	// is nil.
	restriction *rules
}

func (p *Policy) rules() rules {
	if r := p.changedRules.Load(); r != nil {
		return *r
	}
	return rules{identity: p.Identity, secrets: p.Secrets}
}

// Reconfigure sets another identity rule and another rule for Secrets. It ends no stream.
func (p *Policy) Reconfigure(identity *expr.Predicate, secrets string) {
	p.changedRules.Store(&rules{identity: identity, secrets: secrets})
}

// Restrict adds another identity rule and another rule for Secrets to those in force. Both have to
// hold until Reconfigure.
func (p *Policy) Restrict(identity *expr.Predicate, secrets string) {
	r := p.rules()
	r.restriction = &rules{identity: identity, secrets: secrets}
	p.changedRules.Store(&r)
}

// May returns why the caller, with this node, may not have resources of a type; nil: it may. It
// calls Admit and MayHave.
func (c *Caller) May(node *xds.Node, url xds.TypeURL) *refusal.Refusal {
	if refused := c.Admit(node); refused != nil {
		return refused
	}
	return c.MayHave(xds.TypeOf(url))
}

// Verify returns why the authorities do not verify the caller's certificate any more; nil: they do, or
// it needs none.
func (c *Caller) Verify() error {
	if c.policy.Verify == nil {
		return nil
	}
	return c.policy.Verify(c.certs)
}

// Admit applies the policy's identity rule to the caller; nil: it is admitted. A rule that fails
// refuses like one that is false. A certificate that the authorities do not verify any more is
// refused too.
func (c *Caller) Admit(node *xds.Node) *refusal.Refusal {
	if err := c.Verify(); err != nil {
		return refusal.New(codes.PermissionDenied, telemetry.Identity, "%s.tls: the certificate of %s is not valid any more: %w", c.policy.Key, c.PeerID, err)
	}
	r := c.policy.rules()
	if refused := c.checkIdentity(r.identity, node); refused != nil || r.restriction == nil {
		return refused
	}
	return c.checkIdentity(r.restriction.identity, node)
}

func (c *Caller) checkIdentity(rule *expr.Predicate, node *xds.Node) *refusal.Refusal {
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
		return refusal.New(codes.PermissionDenied, telemetry.Identity, "%s.identity: node %.256q: %w", c.policy.Key, node.ID, fails)
	case !holds:
		return refusal.New(codes.PermissionDenied, telemetry.Identity, "%s.identity: node %.256q: the rule is false for peer %s", c.policy.Key, node.ID, c.PeerID)
	}
	return nil
}

// MayHave returns why an admitted caller does not get a type; nil: it does. Secrets need a proven
// identity (P6). Without an identity rule nothing is proven, because a node may then use any name,
// whatever its certificate.
func (c *Caller) MayHave(t xds.Type) *refusal.Refusal {
	r := c.policy.rules()
	if refused := c.checkSecrets(t, r); refused != nil || r.restriction == nil {
		return refused
	}
	return c.checkSecrets(t, *r.restriction)
}

func (c *Caller) checkSecrets(t xds.Type, r rules) *refusal.Refusal {
	switch {
	case !t.Secret, r.secrets == config.SecretsAllow:
		return nil
	case r.identity == nil: // nothing is proven
	case c.verified && (r.secrets == config.SecretsMTLS || r.secrets == config.SecretsIdentity):
		return nil
	case c.Token != nil && c.secured && r.secrets == config.SecretsIdentity:
		return nil
	}
	return refusal.New(codes.PermissionDenied, telemetry.Secrets, "request: this client may not get Secrets: %s (%s.secrets is %s)", c.unproven(r), c.policy.Key, r.secrets)
}

// unproven says why the caller does not get Secrets.
func (c *Caller) unproven(r rules) string {
	key := c.policy.Key
	switch {
	case r.secrets != config.SecretsMTLS && r.secrets != config.SecretsIdentity:
		return "the listener serves no Secrets"
	case !c.secured:
		return "the connection has no TLS"
	case r.identity == nil && (c.verified || c.Token != nil):
		return "without " + key + ".identity, neither a certificate nor a token proves the node"
	case c.Token != nil:
		return "the client has no certificate; " + key + ".secrets: identity would accept its token"
	}
	return "the client has no certificate; " + key + ".tls.client_ca_file would require one"
}
