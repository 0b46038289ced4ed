package tokens_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/tokens"
	"xdsrelay/internal/fanout/tokens/tokenstest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func verifier(source tokens.Source) *tokens.Verifier { return logging(source, io.Discard) }

func logging(source tokens.Source, log io.Writer) *tokens.Verifier {
	return tokens.New(tokens.Options{
		Key: "downstream.tokens", Issuer: tokenstest.URL, Audiences: []string{"other", tokenstest.Audience}, Source: source,
		Log: slog.New(slog.NewTextHandler(log, nil)),
	})
}

func TestVerify(t *testing.T) {
	issuer := tokenstest.New(t)
	v := verifier(tokens.Source{File: issuer.File})
	changed := func(key string, value any) string {
		c := tokenstest.Claims("pod")
		if c[key] = value; value == nil {
			delete(c, key)
		}
		return "Bearer " + issuer.Token(c)
	}
	good := changed("role", "gateway")
	body := strings.Split(strings.TrimPrefix(good, "Bearer "), ".")[1]
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"key-0"}`)) + "." + body + "."
	public := jose.JSONWebKey{Key: issuer.JWKS(), KeyID: "key-0"}
	stranger := tokenstest.New(t)
	past, future := time.Now().Add(-time.Hour).Unix(), time.Now().Add(time.Hour).Unix()
	for name, c := range map[string]struct {
		headers []string
		reason  telemetry.Reason
		want    string
	}{
		"valid":               {[]string{good}, "", ""},
		"scheme in capitals":  {[]string{"BEARER " + strings.TrimPrefix(good, "Bearer ")}, "", ""},
		"one audience":        {[]string{changed("aud", tokenstest.Audience)}, "", ""},
		"no header":           {nil, telemetry.TokenMissing, "no header authorization"},
		"two headers":         {[]string{good, good}, telemetry.TokenInvalid, "several headers"},
		"another scheme":      {[]string{"Basic eDp5"}, telemetry.TokenInvalid, "Bearer"},
		"no token":            {[]string{"Bearer hunter2"}, telemetry.TokenInvalid, "no JSON Web Token"},
		"1 MB":                {[]string{"Bearer " + strings.Repeat("x", 1<<20)}, telemetry.TokenInvalid, "1048576 bytes"},
		"a large header":      {[]string{"Bearer " + strings.Repeat("x", 2<<10) + "." + body + ".x"}, telemetry.TokenInvalid, "header has more than 1024 bytes"},
		"algorithm none":      {[]string{"Bearer " + none}, telemetry.TokenInvalid, "private key"},
		"HMAC by public key":  {[]string{"Bearer " + tokenstest.Sign(t, jose.HS256, public, tokenstest.Claims("pod"))}, telemetry.TokenInvalid, "private key"},
		"another issuer's":    {[]string{"Bearer " + stranger.Token(tokenstest.Claims("pod"))}, telemetry.TokenInvalid, "signature"},
		"another issuer":      {[]string{changed("iss", "https://evil.example")}, telemetry.TokenInvalid, "https://evil.example"},
		"another audience":    {[]string{changed("aud", "istio-ca")}, telemetry.TokenInvalid, "istio-ca"},
		"no audience":         {[]string{changed("aud", nil)}, telemetry.TokenInvalid, "audience"},
		"expired":             {[]string{changed("exp", past)}, telemetry.TokenExpired, "expired at"},
		"not valid yet":       {[]string{changed("nbf", future)}, telemetry.TokenInvalid, "not valid yet"},
		"without expiry":      {[]string{changed("exp", nil)}, telemetry.TokenInvalid, "exp"},
		"without subject":     {[]string{changed("sub", nil)}, telemetry.TokenInvalid, "sub"},
		"exp is text":         {[]string{changed("exp", "soon")}, telemetry.TokenInvalid, "signature"},
		"an unexpected claim": {[]string{changed("password", "hunter2")}, "", ""},
	} {
		token, refused := v.Verify(t.Context(), c.headers)
		switch {
		case c.want == "" && refused != nil:
			t.Errorf("%s: %v", name, refused)
		case c.want == "":
			if token.Issuer != tokenstest.URL || token.Subject != "pod" || time.Until(token.Expires) < 50*time.Minute {
				t.Errorf("%s: %+v", name, token)
			}
		case refused == nil:
			t.Errorf("%s: accepted", name)
		case refused.Reason != c.reason || refused.Code != codes.Unauthenticated || !strings.Contains(refused.Error(), c.want):
			t.Errorf("%s: %s (%s), want %q", name, refused, refused.Reason, c.want)
		case strings.Contains(refused.Error(), "hunter2") || strings.Contains(refused.Error(), body):
			t.Errorf("%s: the refusal has a secret: %s", name, refused)
		}
	}
}

// Each rotation of a token would otherwise be another peer.
func TestClaimsThatChangeAreLeftOut(t *testing.T) {
	issuer := tokenstest.New(t)
	token, refused := verifier(tokens.Source{File: issuer.File}).Verify(t.Context(), []string{"Bearer " + issuer.Token(tokenstest.Claims("pod"))})
	if refused != nil {
		t.Fatal(refused)
	}
	want := map[string]any{"iss": tokenstest.URL, "aud": []any{tokenstest.Audience}, "sub": "pod"}
	if got, err := json.Marshal(token.Claims); err != nil || !maps.EqualFunc(token.Claims, want, func(a, b any) bool { x, _ := json.Marshal(a); y, _ := json.Marshal(b); return string(x) == string(y) }) {
		t.Errorf("%s, %v", got, err)
	}
}

// Keys are read at the start, each hour, and for an unknown key once in ten seconds. If they cannot be
// read, the old ones stay.
func TestKeysAreReadAgain(t *testing.T) {
	issuer := tokenstest.New(t)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		v := logging(tokens.Source{File: issuer.File}, &log)
		go func() { _ = v.Run(t.Context()) }()
		synctest.Wait()
		accepts := func(want bool) {
			t.Helper()
			if _, refused := v.Verify(t.Context(), []string{"Bearer " + issuer.Token(tokenstest.Claims("pod"))}); (refused == nil) != want {
				t.Errorf("refused: %v, want accepted: %v", refused, want)
			}
		}
		accepts(true)
		issuer.Rotate(true)
		accepts(false) // read a moment ago
		time.Sleep(11 * time.Second)
		accepts(true)
		xdstest.NoError(t, os.WriteFile(issuer.File, []byte("garbage"), 0o600))
		time.Sleep(2 * time.Hour)
		accepts(true)
		if since, err := v.Fault(); err == nil || time.Since(since) < 59*time.Minute {
			t.Errorf("fault %v since %v", err, since)
		}
		issuer.Publish()
		time.Sleep(11 * time.Second)
		if _, err := v.Fault(); err != nil {
			t.Errorf("fault %v after the keys are back", err)
		}
		if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "not read") || !strings.Contains(text, "read again") {
			t.Errorf("the log has not one line for the failure and one for its end:\n%s", text)
		}
	})
}

// An issuer may replace a key by one of the same id.
func TestKeysAreReadAgainForASignature(t *testing.T) {
	issuer, next := tokenstest.New(t), tokenstest.New(t)
	synctest.Test(t, func(t *testing.T) {
		v := verifier(tokens.Source{File: issuer.File})
		old, now := []string{"Bearer " + issuer.Token(tokenstest.Claims("pod"))}, []string{"Bearer " + next.Token(tokenstest.Claims("pod"))}
		if _, refused := v.Verify(t.Context(), old); refused != nil {
			t.Fatal(refused)
		}
		xdstest.NoError(t, os.WriteFile(issuer.File, next.JWKS(), 0o600))
		if _, refused := v.Verify(t.Context(), now); refused == nil {
			t.Error("the keys were read twice in ten seconds")
		}
		time.Sleep(11 * time.Second)
		if _, refused := v.Verify(t.Context(), now); refused != nil {
			t.Error(refused)
		}
	})
}

// A key of a kind that is not known does not make the others useless.
func TestKeysThatCannotBeUsed(t *testing.T) {
	issuer := tokenstest.New(t)
	set := strings.Replace(string(issuer.JWKS()), `{"keys":[`, `{"keys":[{"kty":"AKP","alg":"ML-DSA-44","pub":"x"},{"kty":"EC","crv":"secp256k1","x":"AA","y":"AA"},7,`, 1)
	xdstest.NoError(t, os.WriteFile(issuer.File, []byte(set), 0o600))
	if _, refused := verifier(tokens.Source{File: issuer.File}).Verify(t.Context(), []string{"Bearer " + issuer.Token(tokenstest.Claims("pod"))}); refused != nil {
		t.Error(refused)
	}
}

// The id of a key is only a hint: keys and tokens may have none.
func TestKeysWithoutAnID(t *testing.T) {
	issuer := tokenstest.New(t)
	token := issuer.Token(tokenstest.Claims("pod"))
	xdstest.NoError(t, os.WriteFile(issuer.File, bytes.Replace(issuer.JWKS(), []byte(`"kid":"key-0",`), nil, 1), 0o600))
	if _, refused := verifier(tokens.Source{File: issuer.File}).Verify(t.Context(), []string{"Bearer " + token}); refused != nil {
		t.Error(refused)
	}
}

func TestWithoutKeysClientsAreUnavailable(t *testing.T) {
	issuer := tokenstest.New(t)
	for name, content := range map[string]string{"garbage": "garbage", "no keys": `{"keys":[]}`, "a secret key": `{"keys":[{"kty":"oct","k":"aHVudGVyMg"}]}`} {
		file := filepath.Join(t.TempDir(), "jwks")
		xdstest.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		_, refused := verifier(tokens.Source{File: file}).Verify(t.Context(), []string{"Bearer " + issuer.Token(tokenstest.Claims("pod"))})
		if refused == nil || refused.Code != codes.Unavailable || refused.Reason != telemetry.TokenKeys {
			t.Errorf("%s: %v", name, refused)
		}
	}
}

// Kubernetes' /openid/v1/jwks needs its CA and a token.
func TestKeysFromAURL(t *testing.T) {
	issuer := tokenstest.New(t)
	var asked atomic.Int32
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "Bearer mine" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		_, _ = w.Write(issuer.JWKS())
	}))
	defer server.Close()
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		xdstest.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	token := write("token", "other\n")
	source := tokens.Source{URL: server.URL, CAFile: write("ca", pemOf(server)), TokenFile: token}
	header := []string{"Bearer " + issuer.Token(tokenstest.Claims("pod"))}
	v := verifier(source)
	if _, refused := v.Verify(t.Context(), header); refused == nil || strings.Contains(refused.Error(), server.URL) {
		t.Errorf("with a wrong token: %v", refused)
	}
	if _, err := v.Fault(); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("with a wrong token: %v", err)
	}
	write("token", "mine\n") // the file is read again
	v = verifier(source)
	if _, refused := v.Verify(t.Context(), header); refused != nil {
		t.Error(refused)
	}
	n := asked.Load()
	for range 100 { // unknown keys
		stranger := tokenstest.Claims("pod")
		_, _ = v.Verify(t.Context(), []string{"Bearer " + tokenstest.New(t).Token(stranger)})
	}
	issuer.Rotate(false)
	for range 100 {
		_, _ = v.Verify(t.Context(), []string{"Bearer " + issuer.Token(tokenstest.Claims("pod"))})
	}
	if got := asked.Load(); got != n {
		t.Errorf("%d requests for unknown keys within ten seconds", got-n)
	}
}

func pemOf(s *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}
