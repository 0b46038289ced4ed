package tokens

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"xdsrelay/internal/telemetry/redact"
)

const (
	readEvery  = time.Hour        // while the keys can be read
	retryEvery = 10 * time.Second // while they cannot, or a token has an unknown key
	readTime   = 5 * time.Second  // to read them from a URL
	maxKeys    = 1 << 20          // bytes of a key set
)

// Source is where the issuer's keys are.
type Source struct {
	File string
	URL  string // instead of File
	// CAFile has the CAs that verify the URL; empty: the system's. TokenFile has a bearer token for it;
	// empty: none. Both are read each time.
	CAFile, TokenFile string
}

// CheckKeys returns why the issuer's keys in a file cannot be used; nil: they can.
func CheckKeys(file string) error {
	if _, err := (&Source{File: file}).read(context.Background()); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// read reads the keys. It leaves out those that it cannot use, such as keys of a newer kind.
func (s *Source) read(ctx context.Context) (keys []jose.JSONWebKey, err error) {
	var text []byte
	if s.File != "" {
		text, err = os.ReadFile(s.File)
	} else {
		text, err = s.get(ctx)
	}
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("not a JSON Web Key Set: %w", err)
	}
	for _, text := range set.Keys {
		var k jose.JSONWebKey
		if k.UnmarshalJSON(text) == nil && k.Valid() && k.IsPublic() && (k.Use == "" || k.Use == "sig") {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("the JSON Web Key Set has no public key for signatures")
	}
	return keys, nil
}

func (s *Source) get(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return nil, err
	}
	if s.TokenFile != "" {
		token, err := ReadFile(s.TokenFile)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSClientConfig: new(tls.Config)}
	if s.CAFile != "" {
		pem, err := os.ReadFile(s.CAFile)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate", s.CAFile)
		}
	}
	// A redirect could lead to another host, which would get the token and give its own keys.
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }() // only read
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", s.URL, res.Status)
	}
	return io.ReadAll(io.LimitReader(res.Body, maxKeys))
}

// ReadFile returns the token in a file, without white space around it. An empty one is an error.
func ReadFile(name string) (string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s: must have one token of printable ASCII characters without spaces", name)
	}
	return token, nil
}

// keySet has the issuer's keys.
type keySet struct {
	source Source
	log    *slog.Logger

	reading sync.Mutex // held while the keys are read

	mu      sync.Mutex
	keys    []jose.JSONWebKey // nil: never read
	tried   time.Time         // when they were read last, or could not be
	lastErr error             // of that attempt
	failing time.Time         // since when it failed
}

// run reads the keys until ctx ends.
func (s *keySet) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := readEvery
		s.read(ctx, time.Now())
		if _, err := s.fault(); err != nil {
			wait = retryEvery
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

func (s *keySet) fault() (since time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failing, s.lastErr
}

// find returns the keys for the id and the algorithm. It reads the keys again if it knows none. It
// fails if no keys were ever read.
func (s *keySet) find(ctx context.Context, id, algorithm string) ([]jose.JSONWebKey, error) {
	found, _ := s.known(id, algorithm)
	if len(found) > 0 {
		return found, nil
	}
	s.readAgain(ctx)
	return s.known(id, algorithm)
}

// readAgain reads the keys if that was not tried for a while. It reports whether that was tried since
// the call.
func (s *keySet) readAgain(ctx context.Context) bool {
	return s.read(context.WithoutCancel(ctx), time.Now().Add(-retryEvery)) // others wait for it too
}

// known is find without reading. An id is only a hint: a token and a key may have none.
func (s *keySet) known(id, algorithm string) (out []jose.JSONWebKey, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		return nil, s.lastErr
	}
	for _, k := range s.keys {
		if (id == "" || k.KeyID == "" || k.KeyID == id) && (k.Algorithm == "" || k.Algorithm == algorithm) {
			out = append(out, k)
		}
	}
	return out, nil
}

// read reads the keys, unless that was tried after a time. If it fails, the old keys stay. It reports
// whether that was tried since the call.
func (s *keySet) read(ctx context.Context, after time.Time) bool {
	called := time.Now()
	s.reading.Lock()
	defer s.reading.Unlock()
	s.mu.Lock()
	tried := s.tried
	s.mu.Unlock()
	if tried.After(after) {
		return tried.After(called)
	}
	keys, err := s.source.read(ctx)
	if ctx.Err() != nil {
		return false // Run ends
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried = time.Now()
	switch {
	case err != nil && s.lastErr == nil:
		s.failing = s.tried
		s.log.Warn("keys of the tokens' issuer not read; the previous keys stay valid", "error", redact.Text(err.Error()))
	case err == nil && s.lastErr != nil:
		s.log.Info("keys of the tokens' issuer are read again", "keys", len(keys))
	}
	if s.lastErr = err; err == nil {
		s.keys = keys
	}
	return true
}
