package relay

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"

	"xdsrelay/config"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/tokens"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tlsfiles"
	"xdsrelay/internal/validation"
)

// clientListener is a listener for clients, as the configuration defines it.
type clientListener struct {
	conf   config.Listener
	policy *listener.Policy
	certs  *tlsfiles.Source // nil: plaintext
	// admits is what the policy applies now, in the configuration's words.
	admits atomic.Pointer[admission]

	net.Listener // nil until it is open
}

// admission has a listener's rules for admitting clients and for giving them Secrets.
type admission struct{ identity, secrets string }

func admissionOf(l config.Listener) *admission { return &admission{l.Identity, l.Secrets} }

// changedAdmission returns the keys of l's admission rules that differ from those that apply.
func (e *clientListener) changedAdmission(l config.Listener) (keys []string) {
	was, is := e.admits.Load(), admissionOf(l)
	if was.identity != is.identity {
		keys = append(keys, l.Key+".identity")
	}
	if was.secrets != is.secrets {
		keys = append(keys, l.Key+".secrets")
	}
	return keys
}

// admitted returns the admission rules of the listener at a configured address; false: there is
// none.
func (r *Relay) admitted(address string) (identity, secrets string, ok bool) {
	for _, e := range r.listeners {
		if e.conf.Address == address {
			a := e.admits.Load()
			return a.identity, a.secrets, true
		}
	}
	return "", "", false
}

// newClientListeners makes the listeners of the configuration without opening them. identities are
// in the same order. casChanged is called when other authorities verify clients.
func newClientListeners(d *config.Downstream, identities []*expr.Predicate, casChanged func(), m *telemetry.Metrics, log *slog.Logger) ([]*clientListener, error) {
	var out []*clientListener
	for i, l := range d.Listen() {
		e := &clientListener{conf: l, policy: &listener.Policy{Key: l.Key, Identity: identities[i], Secrets: l.Secrets}}
		e.admits.Store(admissionOf(l))
		if t := l.Tokens; t.Issuer != "" {
			e.policy.EndExpired = t.OnExpiry == config.OnExpiryEnd
			e.policy.Tokens = tokens.New(tokens.Options{
				Key: l.Key + ".tokens", Issuer: t.Issuer, Audiences: t.Audiences,
				Source: tokens.Source{File: t.JWKSFile, URL: t.JWKSURL, CAFile: t.JWKSCAFile, TokenFile: t.JWKSTokenFile},
				Log:    log,
			})
		}
		if l.TLS.CertFile != "" {
			var err error
			if e.certs, err = tlsfiles.Open(validation.ServerFiles(l.TLS), tlsfiles.Options{Name: l.Key + ".tls", CAsChanged: casChanged, Metrics: m, Log: log}); err != nil {
				return nil, fmt.Errorf("%s.tls: %w", l.Key, err)
			}
			e.policy.TLS, e.policy.Verify = e.certs.Server("h2"), e.certs.VerifyClient
		}
		out = append(out, e)
	}
	return out, nil
}

func (e *clientListener) open(on *fanout.Server) error {
	// gRPC's keepalive replaces the kernel's (see listener.KeepAlive).
	lc := net.ListenConfig{KeepAlive: listener.KeepAlive}
	l, err := lc.Listen(context.Background(), "tcp", e.conf.Address)
	if err != nil {
		return fmt.Errorf("%s.address: %w", e.conf.Key, err)
	}
	e.Listener = on.Listen(l, e.policy)
	return nil
}

// addresses returns the addresses of the open listeners, separated by commas.
func addresses(es []*clientListener) string {
	var out []string
	for _, e := range es {
		out = append(out, listenAddress(e.conf.Address, e.Listener))
	}
	return strings.Join(out, ",")
}

// secured returns "on", "off" or "mtls" for each listener, separated by commas.
func secured(listeners []config.Listener) string {
	var out []string
	for _, l := range listeners {
		is := onOff(l.TLS.CertFile != "")
		if l.TLS.ClientCAFile != "" {
			is = "mtls"
		}
		out = append(out, is)
	}
	return strings.Join(out, ",")
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// originNames returns the names of the origins, separated by commas, with the address where it
// differs from the name.
func originNames(origins []config.Origin) string {
	var out []string
	for _, o := range origins {
		if o.Name != o.Address {
			o.Name += "=" + o.Address
		}
		out = append(out, o.Name)
	}
	return strings.Join(out, ",")
}

// listenAddress is a listener's address: the configured host, and the port in use. The host is not
// the listener's, because Go shows 0.0.0.0 as [::].
func listenAddress(configured string, l net.Listener) string {
	if l == nil {
		return "off"
	}
	host, _, err := net.SplitHostPort(configured)
	tcp, ok := l.Addr().(*net.TCPAddr)
	if err != nil || !ok {
		return l.Addr().String()
	}
	return net.JoinHostPort(host, strconv.Itoa(tcp.Port))
}

// serveREST serves REST, with the TLS of the first listener. A client has to pass the policies of
// all listeners.
func (r *Relay) serveREST(ctx context.Context) error {
	var policies []*listener.Policy
	for _, e := range r.listeners {
		policies = append(policies, e.policy)
	}
	var secured *tls.Config
	if certs := r.listeners[0].certs; certs != nil {
		secured = certs.Server("h2", "http/1.1")
	}
	return r.fanout.ServeREST(ctx, r.restListener, secured, fanout.Keepalive(r.cfg.Downstream.Keepalive), policies...)
}
