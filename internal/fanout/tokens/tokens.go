package tokens

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
)

// algorithms are those with a public key. none and HMAC are not among them: with HMAC, whoever knows
// the public key could sign.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// leeway is how far the issuer's clock may be ahead. An expired token is refused at once.
const leeway = time.Minute

// Bounds of a token and of its header, in bytes. A token of Kubernetes has about 1 KB, and its header
// 100 bytes. The header is parsed before the signature is verified: a large one would cost more.
const (
	maxToken  = 16 << 10
	maxHeader = 1 << 10
)

type Options struct {
	Key       string // the place in the configuration, "downstream.tokens", for messages
	Issuer    string // the tokens' iss
	Audiences []string
	Source    Source
	Log       *slog.Logger // nil: the default one
}

// Token is a verified token. It does not change.
type Token struct {
	// Text is the token itself. It is never shown.
	Text    string
	Issuer  string
	Subject string
	Expires time.Time
	// Claims are all claims but exp, iat, nbf and jti, which differ in each token of one client.
	Claims map[string]any
}

// Verifier verifies tokens of one issuer.
type Verifier struct {
	opts Options
	keys keySet
}

// New makes a Verifier without keys. See Run.
func New(o Options) *Verifier {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Verifier{opts: o, keys: keySet{source: o.Source, log: o.Log.With("of", o.Key)}}
}

// Run reads the issuer's keys now, and again each hour, until ctx ends. Then it returns nil.
func (v *Verifier) Run(ctx context.Context) error {
	v.keys.run(ctx)
	return nil
}

// Fault returns why the issuer's keys could not be read the last time, and since when; nil: they could.
func (v *Verifier) Fault() (since time.Time, err error) { return v.keys.fault() }

// Verify returns the token of a call. authorization has the values of that header. It may wait for the
// issuer's keys.
func (v *Verifier) Verify(ctx context.Context, authorization []string) (*Token, *refusal.Refusal) {
	text, refused := v.bearer(authorization)
	if refused != nil {
		return nil, refused
	}
	parsed, err := jwt.ParseSigned(text, algorithms)
	if err != nil {
		return nil, v.refuse(telemetry.TokenInvalid, "it is no JSON Web Token that is signed with a private key")
	}
	header := parsed.Headers[0]
	keys, err := v.keys.find(ctx, header.KeyID, header.Algorithm)
	switch {
	case err != nil:
		return nil, refusal.New(codes.Unavailable, telemetry.TokenKeys, "%s: the relay has no keys of the issuer", v.opts.Key) // Fault says why; a stranger need not know
	case len(keys) == 0:
		return nil, v.refuse(telemetry.TokenInvalid, "the issuer has no key %.64q for %s", header.KeyID, header.Algorithm)
	}
	var claims jwt.Claims
	var all map[string]any
	verifies := func(k jose.JSONWebKey) bool { return parsed.Claims(k.Key, &claims, &all) == nil }
	verified := slices.ContainsFunc(keys, verifies)
	if !verified && v.keys.readAgain(ctx) { // the issuer may have replaced a key by one of the same id, or without one
		keys, _ = v.keys.known(header.KeyID, header.Algorithm)
		verified = slices.ContainsFunc(keys, verifies)
	}
	if !verified {
		return nil, v.refuse(telemetry.TokenInvalid, "its signature is not that of the issuer's key %.64q", header.KeyID)
	}
	if refused := v.validate(&claims); refused != nil {
		return nil, refused
	}
	for _, changing := range []string{"exp", "iat", "nbf", "jti"} {
		delete(all, changing)
	}
	return &Token{Text: text, Issuer: claims.Issuer, Subject: claims.Subject, Expires: claims.Expiry.Time(), Claims: all}, nil
}

// bearer returns the token in the values of the header authorization.
func (v *Verifier) bearer(values []string) (string, *refusal.Refusal) {
	if len(values) == 0 {
		return "", v.refuse(telemetry.TokenMissing, "the call has no header authorization")
	}
	scheme, text, _ := strings.Cut(values[0], " ")
	switch {
	case len(values) > 1:
		return "", v.refuse(telemetry.TokenInvalid, "the call has several headers authorization")
	case !strings.EqualFold(scheme, "Bearer"):
		return "", v.refuse(telemetry.TokenInvalid, "the header authorization must begin with Bearer")
	case len(text) > maxToken:
		return "", v.refuse(telemetry.TokenInvalid, "it has %d bytes, more than %d", len(text), maxToken)
	case strings.IndexByte(text, '.') > maxHeader:
		return "", v.refuse(telemetry.TokenInvalid, "its header has more than %d bytes", maxHeader)
	}
	return strings.TrimSpace(text), nil
}

// validate checks the claims of a token whose signature is right.
func (v *Verifier) validate(c *jwt.Claims) *refusal.Refusal {
	if c.Expiry == nil {
		return v.refuse(telemetry.TokenInvalid, "it has no claim exp, so it would never expire")
	}
	if c.Subject == "" {
		return v.refuse(telemetry.TokenInvalid, "it has no claim sub, so it names nobody")
	}
	err := c.ValidateWithLeeway(jwt.Expected{Issuer: v.opts.Issuer, AnyAudience: v.opts.Audiences, Time: time.Now()}, leeway)
	if err == nil && time.Now().After(c.Expiry.Time()) {
		err = jwt.ErrExpired
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jwt.ErrExpired):
		return v.refuse(telemetry.TokenExpired, "the token of %.256q expired at %s", c.Subject, c.Expiry.Time().UTC().Format(time.RFC3339))
	case errors.Is(err, jwt.ErrNotValidYet), errors.Is(err, jwt.ErrIssuedInTheFuture):
		return v.refuse(telemetry.TokenInvalid, "it is not valid yet")
	case errors.Is(err, jwt.ErrInvalidIssuer):
		return v.refuse(telemetry.TokenInvalid, "its issuer is %.256q, and not %q", c.Issuer, v.opts.Issuer)
	case errors.Is(err, jwt.ErrInvalidAudience):
		return v.refuse(telemetry.TokenInvalid, "its audience is %.256q, and not one of %q", []string(c.Audience), v.opts.Audiences)
	}
	return v.refuse(telemetry.TokenInvalid, "%s", err)
}

func (v *Verifier) refuse(reason telemetry.Reason, format string, args ...any) *refusal.Refusal {
	return refusal.New(codes.Unauthenticated, reason, "%s: the client's token: %s", v.opts.Key, fmt.Sprintf(format, args...))
}
