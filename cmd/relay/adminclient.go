package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/config"
	"xdsrelay/internal/admin"
)

// adminFlags say how a running relay is reached.
type adminFlags struct{ address, ca, token string }

// addAdminFlags adds --admin and what belongs to it; otherwise is what is asked without.
func addAdminFlags(cmd *cobra.Command, otherwise string) *adminFlags {
	var f adminFlags
	cmd.Flags().StringVar(&f.address, "admin", "", "admin address of a running relay, host:port or a URL (default: "+otherwise+")")
	cmd.Flags().StringVar(&f.ca, "admin-ca", "", "file of the authorities that its certificate is trusted by (default: the system's)")
	cmd.Flags().StringVar(&f.token, "token-file", "", "file of the token that it asks for (default: admin.token_file of the configuration)")
	completeNothing(cmd, "admin")
	return &f
}

// adminClient asks a running relay.
type adminClient struct {
	base      string
	token     string
	tokenFile string // where it is from; empty: none was given
	// places are those of the configuration that names tokenFile; nil: --token-file does.
	places *config.Places
	http   *http.Client
	// configuration says where the relay is; nil: none does. What is wrong with it is no
	// reason not to ask, but may be why nobody answers.
	configuration *config.Config
}

// answerTimeout is how long an answer may take: as long as the relay gives itself.
const answerTimeout = 30 * time.Second

// maxAnswer bounds an answer, in bytes: a page has a few megabytes.
const maxAnswer = 64 << 20

// client makes a client, with what flags leave out from a configuration.
func (f *adminFlags) client(cfg *config.Config) (*adminClient, error) {
	c := &adminClient{tokenFile: cmp.Or(f.token, cfg.Admin.TokenFile)}
	if f.token == "" {
		c.places = cfg.Places
	}
	address := f.address
	if address == "" {
		if cfg.Admin.Address == "" {
			return nil, errors.New("--admin: wants the admin address of a running relay; the configuration has none")
		}
		address = here(cfg.Admin.Address)
	}
	secured := f.ca != "" || f.address == "" && cfg.Admin.TLS.CertFile != ""
	if !strings.Contains(address, "://") {
		address = map[bool]string{false: "http://", true: "https://"}[secured] + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("--admin: wants host:port, or a URL of http or https, got %q", f.address)
	}
	if f.ca != "" && u.Scheme != "https" {
		return nil, fmt.Errorf("--admin-ca: is for https, not for %s", address)
	}
	c.base = strings.TrimSuffix(u.String(), "/")
	if err := c.readToken(); err != nil {
		return nil, err
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("--admin-ca: %w", err)
		}
		tr.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !tr.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--admin-ca: no certificate in %s", f.ca)
		}
	}
	c.http = &http.Client{
		Transport: tr, Timeout: answerTimeout,
		// The token is for this relay and nobody to whom it points.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// readToken takes the token that the file has now, if there is one.
func (c *adminClient) readToken() error {
	if c.tokenFile == "" {
		return nil
	}
	token, err := admin.ReadToken(c.tokenFile)
	if err != nil {
		return fmt.Errorf("%s: %w", c.tokenFrom(), err)
	}
	c.token = token
	return nil
}

// tokenFrom is what names the token's file: the flag, or the key of the configuration
// with its place.
func (c *adminClient) tokenFrom() string {
	const key = "admin.token_file"
	if c.places == nil {
		return "--token-file"
	}
	at := c.places.Of(key)
	at.Column = 0
	return at.String() + ": " + key
}

// here is where a listener is reached from this host.
func here(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip, bad := netip.ParseAddr(host); err == nil && (host == "" || bad == nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

func (c *adminClient) close() { c.http.CloseIdleConnections() }

// post sends a body, which is JSON, and decodes the answer.
func (c *adminClient) post(ctx context.Context, path string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("--admin: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	return c.do(req, into)
}

// do sends a request and decodes the answer.
func (c *adminClient) do(req *http.Request, into any) error {
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unreached(err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return c.unreached(err)
	}
	if resp.StatusCode != http.StatusOK {
		return c.refused(resp, b)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("--admin: %s answers what no relay does: %w", c.base, err)
	}
	return nil
}

// unreached says why there is no answer, without what net/http puts around it.
func (c *adminClient) unreached(err error) error {
	if e := (*url.Error)(nil); errors.As(err, &e) {
		err = e.Err
	}
	switch unknown := (x509.UnknownAuthorityError{}); {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("--admin: nobody listens at %s: does a relay run there? (%w)%s", c.base, err, c.wrong())
	case errors.As(err, &unknown):
		return fmt.Errorf("--admin: %s: --admin-ca names the authorities to trust: %w", c.base, err)
	case strings.Contains(err.Error(), "malformed HTTP response"), strings.Contains(err.Error(), "frame too large"), // of no type
		strings.Contains(err.Error(), "readLoopPeekFailLocked: %!w(<nil>)"): // it spoke before it was asked, as gRPC does
		return fmt.Errorf("--admin: %s is no admin address: what answers there does not speak HTTP/1.1, as the addresses for gRPC do not; wants admin.address (%s by default)",
			c.base, config.Default().Admin.Address)
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"): // of no type
		return fmt.Errorf("--admin: %s: there is no TLS: wants http://", c.base)
	}
	return fmt.Errorf("--admin: %s: %w", c.base, err)
}

// maxWrong is how many faults of a configuration are told.
const maxWrong = 5

// wrong says what is wrong with the configuration, with which no relay starts; empty:
// nothing that its text tells.
func (c *adminClient) wrong() string {
	if c.configuration == nil {
		return ""
	}
	cfg, err := config.Load(c.configuration.Places.File(), nil)
	if err == nil {
		_, err = compileConfig(cfg)
	}
	faults := (config.Faults)(nil)
	if !errors.As(err, &faults) {
		return ""
	}
	out := "\nwith these faults of its configuration no relay starts, unless its flags or environment say otherwise:"
	for i, f := range faults {
		if i == maxWrong {
			return out + fmt.Sprintf("\nand %d more: relay validate has them", len(faults)-i)
		}
		out += "\n" + faultText(f)
	}
	return out
}

// refused says what a relay, or whoever it is, answers instead.
func (c *adminClient) refused(resp *http.Response, body []byte) error {
	var said struct {
		Error string
		relay bool
	}
	_ = json.Unmarshal(body, &said) // whoever is no relay says something else
	said.relay = said.Error != ""
	if said.Error == "" {
		text := strings.TrimSpace(string(body))
		said.Error = resp.Status + " " + cut(text)
		if strings.Contains(text, "HTTP request to an HTTPS server") {
			said.Error = "it has TLS: wants https://"
		}
	}
	switch {
	case resp.StatusCode == http.StatusUnauthorized && c.tokenFile == "":
		return refusedf(resp.StatusCode, "--token-file: the relay at %s asks for a token", c.base)
	case resp.StatusCode == http.StatusUnauthorized:
		return refusedf(resp.StatusCode, "%s: the relay at %s asks for another token than that in %s", c.tokenFrom(), c.base, c.tokenFile)
	case resp.StatusCode == http.StatusNotFound && said.relay && !strings.HasSuffix(said.Error, admin.NoSuchPath):
		return refusedf(resp.StatusCode, "%s", said.Error)
	case resp.StatusCode == http.StatusBadRequest && said.relay:
		return refusedf(resp.StatusCode, "%s", said.Error)
	case resp.StatusCode == http.StatusNotFound:
		return refusedf(resp.StatusCode, "--admin: %s is no relay, or an older one, which cannot do this: %s", c.base, said.Error)
	}
	return refusedf(resp.StatusCode, "--admin: %s: %s", c.base, said.Error)
}

// refusedError is what a relay answers instead, with its HTTP status.
type refusedError struct {
	status int
	error
}

func refusedf(status int, format string, args ...any) error {
	return refusedError{status, fmt.Errorf(format, args...)}
}
