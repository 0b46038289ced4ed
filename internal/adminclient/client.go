package adminclient

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

	"xdsrelay/config"
	"xdsrelay/internal/admin"
	"xdsrelay/internal/telemetry/tlsfiles"
	"xdsrelay/internal/terminal"
)

// Client is a client of a running relay's admin API.
type Client struct {
	Base      string // URL of the relay, without a slash at its end
	token     string
	tokenFile string // source of the token; empty: none
	// places has the positions in the configuration that names tokenFile; nil: --token-file names
	// it.
	places *config.Places
	http   *http.Client
	// Faults returns what is wrong with the configuration that gave the relay's address, as
	// config.Faults; nil: a flag gave it. Faults do not prevent a request, but may explain why no
	// relay listens.
	Faults func() error
}

// Options say how a running relay is reached. Each has the flag's name in errors.
type Options struct {
	Address    string // --admin; empty: that of the configuration
	CA         string // --admin-ca, a file
	ServerName string // --admin-server-name
	Token      string // --token-file; empty: that of the configuration
	Open       bool   // only paths that need no token are used
}

// answerTimeout bounds a request and its answer; the relay uses the same bound.
const answerTimeout = 30 * time.Second

// maxAnswer bounds an answer in bytes. A page has a few megabytes.
const maxAnswer = 64 << 20

// New makes a client. It takes what the options leave out from cfg.
func New(f Options, cfg *config.Config) (*Client, error) {
	c := new(Client)
	if !f.Open {
		c.tokenFile = cmp.Or(f.Token, cfg.Admin.TokenFile)
	}
	if f.Token == "" {
		c.places = cfg.Places
	}
	address := f.Address
	if address == "" {
		if cfg.Admin.Address == "" {
			return nil, errors.New("--admin: must be set, because the configuration has no admin.address")
		}
		address = reachableAddress(cfg.Admin.Address)
	}
	secured := f.CA+f.ServerName != "" || f.Address == "" && cfg.Admin.TLS.CertFile != ""
	if !strings.Contains(address, "://") {
		address = map[bool]string{false: "http://", true: "https://"}[secured] + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("--admin: must be host:port, or a URL of http or https, but is %q", f.Address)
	}
	if secured && u.Scheme != "https" {
		flag := "--admin-ca"
		if f.CA == "" {
			flag = "--admin-server-name"
		}
		return nil, fmt.Errorf("%s: needs https, but the address is %s", flag, address)
	}
	c.Base = strings.TrimSuffix(u.String(), "/")
	if err := c.ReadToken(); err != nil {
		return nil, err
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cmp.Or(f.ServerName, u.Hostname())}
	if f.CA != "" {
		if conf.RootCAs, err = tlsfiles.ReadCAs(f.CA); err != nil {
			return nil, fmt.Errorf("--admin-ca: %w", err)
		}
	}
	if f.Address == "" {
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
func (f *Options) trustOwn(conf *tls.Config, file string) {
	text, _ := os.ReadFile(file)
	own, _ := tlsfiles.ParseCertificates(file, text) // none: only the other ways to verify are left
	conf.InsecureSkipVerify = true                   // VerifyConnection replaces it
	conf.VerifyConnection = func(s tls.ConnectionState) error {
		leaf := s.PeerCertificates[0]
		if f.Open || len(own) > 0 && leaf.Equal(own[0]) {
			return nil
		}
		_, err := tlsfiles.VerifyChain(s.PeerCertificates, x509.VerifyOptions{Roots: conf.RootCAs, DNSName: conf.ServerName})
		return err
	}
}

// ReadToken reads the current token from the token's file, if there is one.
func (c *Client) ReadToken() error {
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
func (c *Client) tokenFrom() string {
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

// Close closes the connections of a client that makes no more requests.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Post sends a JSON body and decodes the answer.
func (c *Client) Post(ctx context.Context, path string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Base+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("--admin: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	return c.do(req, into)
}

func (c *Client) do(req *http.Request, into any) error {
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
	return c.Decode(b, into)
}

// Decode decodes an answer of the relay.
func (c *Client) Decode(answer []byte, into any) error {
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("--admin: the answer of %s is not that of a relay: %w", c.Base, err)
	}
	return nil
}

// unreached explains why there is no answer. It drops net/http's prefix.
func (c *Client) unreached(err error) error {
	if e := (*url.Error)(nil); errors.As(err, &e) {
		err = e.Err
	}
	switch unknown, name := (x509.UnknownAuthorityError{}), (x509.HostnameError{}); {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("--admin: nothing listens at %s: does a relay run there? (%w)%s", c.Base, err, c.wrong())
	case errors.As(err, &unknown):
		return fmt.Errorf("--admin: %s: set --admin-ca to the CA of the relay: %w", c.Base, err)
	case errors.As(err, &name):
		return fmt.Errorf("--admin: %s: set --admin-server-name to a name of the certificate: %w", c.Base, err)
	case strings.Contains(err.Error(), "malformed HTTP response"), strings.Contains(err.Error(), "frame too large"), // these errors have no type
		strings.Contains(err.Error(), "readLoopPeekFailLocked: %!w(<nil>)"): // a gRPC server sends its settings first
		return fmt.Errorf("--admin: %s is not an admin address: the server does not speak HTTP/1.1, perhaps gRPC; must be admin.address, %s by default",
			c.Base, config.Default().Admin.Address)
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"): // this error has no type
		return fmt.Errorf("--admin: %s: the server has no TLS: must be http://", c.Base)
	}
	return fmt.Errorf("--admin: %s: %w", c.Base, err)
}

// maxWrong bounds how many faults of a configuration are listed.
const maxWrong = 5

// wrong lists the faults that keep a relay from starting with this configuration; empty: none are
// found in its text.
func (c *Client) wrong() string {
	faults := (config.Faults)(nil)
	if c.Faults == nil || !errors.As(c.Faults(), &faults) {
		return ""
	}
	out := "\nno relay starts with these faults in its configuration, unless flags or environment variables override them:"
	for i, f := range faults {
		if i == maxWrong {
			return out + fmt.Sprintf("\nand %d more: relay validate lists them", len(faults)-i)
		}
		out += "\n" + f.Text()
	}
	return out
}

// statusError explains an answer with a status other than 200, from a relay or another server.
func (c *Client) statusError(resp *http.Response, body []byte) error {
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
		return statusErrorf(resp.StatusCode, "--token-file: the relay at %s requires a token", c.Base)
	case resp.StatusCode == http.StatusUnauthorized:
		return statusErrorf(resp.StatusCode, "%s: the relay at %s rejects the token in %s", c.tokenFrom(), c.Base, c.tokenFile)
	case resp.StatusCode == http.StatusNotFound && said.relay && !strings.HasSuffix(said.Error, admin.NoSuchPath):
		return statusErrorf(resp.StatusCode, "%s", said.Error)
	case resp.StatusCode == http.StatusGatewayTimeout && said.relay: // another member
		return statusErrorf(resp.StatusCode, "%s", said.Error)
	case (resp.StatusCode == http.StatusBadRequest || resp.StatusCode == http.StatusConflict) && said.relay:
		return statusErrorf(resp.StatusCode, "%s", said.Error)
	case resp.StatusCode == http.StatusNotFound:
		return statusErrorf(resp.StatusCode, "--admin: %s is not a relay, or is an older version that lacks this: %s", c.Base, said.Error)
	}
	return statusErrorf(resp.StatusCode, "--admin: %s: %s", c.Base, said.Error)
}

// StatusError is an answer with a status other than 200.
type StatusError struct {
	Status int
	error
}

func statusErrorf(status int, format string, args ...any) error {
	return StatusError{status, fmt.Errorf(format, args...)}
}

// Get sends a GET and decodes the answer.
func (c *Client) Get(ctx context.Context, path string, query url.Values, into any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Base+path, nil)
	if err != nil {
		return fmt.Errorf("--admin: %w", err)
	}
	return c.do(req, into)
}
