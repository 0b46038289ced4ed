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
	"xdsrelay/internal/telemetry/tlsfiles"
	"xdsrelay/internal/terminal"
)

// adminFlags say how a command reaches a running relay.
type adminFlags struct {
	address, ca, serverName, token string
	open                           bool // the command uses only paths that need no token
}

// addAdminFlags adds --admin, --admin-ca, --admin-server-name and --token-file. otherwise describes
// the default of --admin.
func addAdminFlags(cmd *cobra.Command, otherwise string) *adminFlags {
	f := addAddressFlags(cmd, otherwise)
	cmd.Flags().StringVar(&f.token, "token-file", "", "file with the admin token (default: admin.token_file of the configuration)")
	f.open = false
	return f
}

// addAddressFlags is addAdminFlags without --token-file.
func addAddressFlags(cmd *cobra.Command, otherwise string) *adminFlags {
	f := adminFlags{open: true}
	cmd.Flags().StringVar(&f.address, "admin", "", "admin address of the relay (default: "+otherwise+")")
	cmd.Flags().StringVar(&f.ca, "admin-ca", "", "file with CA certificates that verify the relay (default: the system's)")
	cmd.Flags().StringVar(&f.serverName, "admin-server-name", "", "name that the relay's certificate must have (default: the host of the address)")
	completeNothing(cmd, "admin", "admin-server-name")
	return &f
}

// adminClient is a client of a running relay's admin API.
type adminClient struct {
	base      string
	token     string
	tokenFile string // source of the token; empty: none
	// places has the positions in the configuration that names tokenFile; nil: --token-file names
	// it.
	places *config.Places
	http   *http.Client
	// load reads the configuration that gave the relay's address; nil: a flag gave it. Its faults do
	// not prevent a request, but may explain why no relay listens.
	load func() (*config.Config, error)
}

// answerTimeout bounds a request and its answer; the relay uses the same bound.
const answerTimeout = 30 * time.Second

// maxAnswer bounds an answer in bytes. A page has a few megabytes.
const maxAnswer = 64 << 20

// client makes a client. It takes what the flags leave out from cfg.
func (f *adminFlags) client(cfg *config.Config) (*adminClient, error) {
	c := new(adminClient)
	if !f.open {
		c.tokenFile = cmp.Or(f.token, cfg.Admin.TokenFile)
	}
	if f.token == "" {
		c.places = cfg.Places
	}
	address := f.address
	if address == "" {
		if cfg.Admin.Address == "" {
			return nil, errors.New("--admin: must be set, because the configuration has no admin.address")
		}
		address = reachableAddress(cfg.Admin.Address)
	}
	secured := f.ca+f.serverName != "" || f.address == "" && cfg.Admin.TLS.CertFile != ""
	if !strings.Contains(address, "://") {
		address = map[bool]string{false: "http://", true: "https://"}[secured] + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("--admin: must be host:port, or a URL of http or https, but is %q", f.address)
	}
	if secured && u.Scheme != "https" {
		flag := "--admin-ca"
		if f.ca == "" {
			flag = "--admin-server-name"
		}
		return nil, fmt.Errorf("%s: needs https, but the address is %s", flag, address)
	}
	c.base = strings.TrimSuffix(u.String(), "/")
	if err := c.readToken(); err != nil {
		return nil, err
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cmp.Or(f.serverName, u.Hostname())}
	if f.ca != "" {
		if conf.RootCAs, err = readCAs("--admin-ca", f.ca); err != nil {
			return nil, err
		}
	}
	if f.address == "" {
		f.trustOwn(conf, cfg.Admin.TLS.CertFile)
	}
	c.http = &http.Client{
		Transport: &http.Transport{TLSClientConfig: conf}, Timeout: answerTimeout,
		// A redirect would send the token to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// trustOwn makes conf also accept the certificate in the relay's own file, whatever its names, issuer
// and expiry are. A command that sends no token accepts any certificate, as probes of Kubernetes do:
// a renewal that failed must not end a relay that is live.
func (f *adminFlags) trustOwn(conf *tls.Config, file string) {
	text, _ := os.ReadFile(file)
	own, _ := tlsfiles.ParseCertificates(file, text) // none: only the other ways to verify are left
	conf.InsecureSkipVerify = true                   // VerifyConnection replaces it
	conf.VerifyConnection = func(s tls.ConnectionState) error {
		leaf := s.PeerCertificates[0]
		if f.open || len(own) > 0 && leaf.Equal(own[0]) {
			return nil
		}
		o := x509.VerifyOptions{Roots: conf.RootCAs, DNSName: conf.ServerName, Intermediates: x509.NewCertPool()}
		for _, c := range s.PeerCertificates[1:] {
			o.Intermediates.AddCert(c)
		}
		_, err := leaf.Verify(o)
		return err
	}
}

// readCAs reads the CA certificates in a file that a flag names.
func readCAs(flag, file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	pool, err := tlsfiles.ParseCAs(file, pem)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return pool, nil
}

// readToken reads the current token from the token's file, if there is one.
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

// tokenFrom names the token's source for errors: the flag, or the configuration key with its place.
func (c *adminClient) tokenFrom() string {
	const key = "admin.token_file"
	if c.places == nil {
		return "--token-file"
	}
	at := c.places.Of(key)
	at.Column = 0
	return at.String() + ": " + key
}

// reachableAddress returns the address at which this host reaches a listener of its own.
func reachableAddress(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip, bad := netip.ParseAddr(host); err == nil && (host == "" || bad == nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

func (c *adminClient) close() { c.http.CloseIdleConnections() }

// post sends a JSON body and decodes the answer.
func (c *adminClient) post(ctx context.Context, path string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("--admin: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	return c.do(req, into)
}

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
	// The answer to a rejected reload is that of a successful one.
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusUnprocessableEntity {
		return c.statusError(resp, b)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("--admin: the answer of %s is not that of a relay: %w", c.base, err)
	}
	return nil
}

// unreached explains why there is no answer. It drops net/http's prefix.
func (c *adminClient) unreached(err error) error {
	if e := (*url.Error)(nil); errors.As(err, &e) {
		err = e.Err
	}
	switch unknown, name := (x509.UnknownAuthorityError{}), (x509.HostnameError{}); {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("--admin: nothing listens at %s: does a relay run there? (%w)%s", c.base, err, c.wrong())
	case errors.As(err, &unknown):
		return fmt.Errorf("--admin: %s: set --admin-ca to the CA of the relay: %w", c.base, err)
	case errors.As(err, &name):
		return fmt.Errorf("--admin: %s: set --admin-server-name to a name of the certificate: %w", c.base, err)
	case strings.Contains(err.Error(), "malformed HTTP response"), strings.Contains(err.Error(), "frame too large"), // these errors have no type
		strings.Contains(err.Error(), "readLoopPeekFailLocked: %!w(<nil>)"): // a gRPC server sends its settings first
		return fmt.Errorf("--admin: %s is not an admin address: the server does not speak HTTP/1.1, perhaps gRPC; must be admin.address, %s by default",
			c.base, config.Default().Admin.Address)
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"): // this error has no type
		return fmt.Errorf("--admin: %s: the server has no TLS: must be http://", c.base)
	}
	return fmt.Errorf("--admin: %s: %w", c.base, err)
}

// maxWrong bounds how many faults of a configuration are listed.
const maxWrong = 5

// wrong lists the faults that keep a relay from starting with this configuration; empty: none are
// found in its text.
func (c *adminClient) wrong() string {
	if c.load == nil {
		return ""
	}
	cfg, err := c.load()
	if err == nil {
		_, err = compileConfig(cfg)
	}
	faults := (config.Faults)(nil)
	if !errors.As(err, &faults) {
		return ""
	}
	out := "\nno relay starts with these faults in its configuration, unless flags or environment variables override them:"
	for i, f := range faults {
		if i == maxWrong {
			return out + fmt.Sprintf("\nand %d more: relay validate lists them", len(faults)-i)
		}
		out += "\n" + faultText(f)
	}
	return out
}

// statusError explains an answer with a status other than 200, from a relay or another server.
func (c *adminClient) statusError(resp *http.Response, body []byte) error {
	var said struct {
		Error string
		relay bool
	}
	_ = json.Unmarshal(body, &said) // another server may answer no JSON
	said.relay = said.Error != ""
	if said.Error == "" {
		text := strings.TrimSpace(string(body))
		said.Error = resp.Status + " " + terminal.Shorten(text)
		if strings.Contains(text, "HTTP request to an HTTPS server") {
			said.Error = "the server has TLS: must be https://"
		}
	}
	switch {
	case resp.StatusCode == http.StatusUnauthorized && c.tokenFile == "":
		return statusErrorf(resp.StatusCode, "--token-file: the relay at %s requires a token", c.base)
	case resp.StatusCode == http.StatusUnauthorized:
		return statusErrorf(resp.StatusCode, "%s: the relay at %s rejects the token in %s", c.tokenFrom(), c.base, c.tokenFile)
	case resp.StatusCode == http.StatusNotFound && said.relay && !strings.HasSuffix(said.Error, admin.NoSuchPath):
		return statusErrorf(resp.StatusCode, "%s", said.Error)
	case resp.StatusCode == http.StatusGatewayTimeout && said.relay: // another member
		return statusErrorf(resp.StatusCode, "%s", said.Error)
	case (resp.StatusCode == http.StatusBadRequest || resp.StatusCode == http.StatusConflict) && said.relay:
		return statusErrorf(resp.StatusCode, "%s", said.Error)
	case resp.StatusCode == http.StatusNotFound:
		return statusErrorf(resp.StatusCode, "--admin: %s is not a relay, or is an older version that lacks this: %s", c.base, said.Error)
	}
	return statusErrorf(resp.StatusCode, "--admin: %s: %s", c.base, said.Error)
}

// statusError is an answer with a status other than 200.
type statusError struct {
	status int
	error
}

func statusErrorf(status int, format string, args ...any) error {
	return statusError{status, fmt.Errorf(format, args...)}
}
