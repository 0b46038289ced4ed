package tokenstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// URL is the claim iss of an Issuer's tokens.
const URL = "https://issuer.example"

// Audience is the claim aud of an Issuer's tokens.
const Audience = "relay"

// Issuer issues tokens. Its keys are in a file.
type Issuer struct {
	File string // a JSON Web Key Set
	t    testing.TB
	keys []*ecdsa.PrivateKey
}

// New makes an issuer with one key.
func New(t testing.TB) *Issuer {
	s := &Issuer{t: t, File: filepath.Join(t.TempDir(), "jwks.json")}
	s.Rotate(true)
	return s
}

// Rotate adds a key, with which tokens are signed from now on, and writes it to the file if publish.
func (s *Issuer) Rotate(publish bool) {
	s.t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.keys = append(s.keys, k); publish {
		s.Publish()
	}
}

// Publish writes all keys to the file.
func (s *Issuer) Publish() {
	s.t.Helper()
	if err := os.WriteFile(s.File, s.JWKS(), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// JWKS is the set of the public keys.
func (s *Issuer) JWKS() []byte {
	s.t.Helper()
	var set jose.JSONWebKeySet
	for i, k := range s.keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: &k.PublicKey, KeyID: keyID(i), Algorithm: string(jose.ES256), Use: "sig"})
	}
	b, err := json.Marshal(set)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

func keyID(i int) string { return fmt.Sprint("key-", i) }

// Claims are the claims of a token of a subject that is valid for an hour.
func Claims(subject string) map[string]any {
	now := time.Now()
	return map[string]any{
		"iss": URL, "aud": []string{Audience}, "sub": subject,
		"exp": now.Add(time.Hour).Unix(), "nbf": now.Unix(), "iat": now.Unix(), "jti": fmt.Sprint(now.UnixNano()),
	}
}

// Token signs the claims with the newest key.
func (s *Issuer) Token(claims map[string]any) string {
	s.t.Helper()
	i := len(s.keys) - 1
	return Sign(s.t, jose.ES256, jose.JSONWebKey{Key: s.keys[i], KeyID: keyID(i)}, claims)
}

// Sign makes a token.
func Sign(t testing.TB, algorithm jose.SignatureAlgorithm, key any, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// Open returns the claims of a token of the issuer that is valid now. Any goroutine may call it, but
// not while keys change.
func (s *Issuer) Open(token string) (claims map[string]any, err error) {
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return nil, err
	}
	err = errors.New("no key")
	for _, k := range s.keys {
		var standard jwt.Claims
		if err = parsed.Claims(&k.PublicKey, &standard, &claims); err == nil {
			return claims, standard.ValidateWithLeeway(jwt.Expected{Issuer: URL, Time: time.Now()}, 0)
		}
	}
	return nil, err
}
