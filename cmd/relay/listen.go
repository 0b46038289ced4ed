package main

import (
	"context"
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
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tlsfiles"
)

// entrance is where clients come in: a listener of the configuration.
type entrance struct {
	conf   config.Listener
	policy *listener.Policy
	certs  *tlsfiles.Source // nil: plaintext
	// admits is the policy, as the configuration says it.
	admits atomic.Pointer[admission]

	net.Listener // nil until it is open
}

// admission says who is let in by a listener, and who is given Secrets.
type admission struct{ identity, secrets string }

func admissionOf(l config.Listener) *admission { return &admission{l.Identity, l.Secrets} }

// others returns the keys of the rules of another configuration's listener that are
// not those that hold.
func (e *entrance) others(l config.Listener) (keys []string) {
	was, is := e.admits.Load(), admissionOf(l)
	if was.identity != is.identity {
		keys = append(keys, l.Key+".identity")
	}
	if was.secrets != is.secrets {
		keys = append(keys, l.Key+".secrets")
	}
	return keys
}

// admitted is whom a listener at an address, as it was configured, lets in; false:
// there is no such listener.
func (r *relay) admitted(address string) (identity, secrets string, ok bool) {
	for _, e := range r.down {
		if e.conf.Address == address {
			a := e.admits.Load()
			return a.identity, a.secrets, true
		}
	}
	return "", "", false
}

// newEntrances makes those of the configuration, with their identity rules in
// the same order. None is open.
func newEntrances(d *config.Downstream, identities []*expr.Predicate, m *telemetry.Metrics, log *slog.Logger) ([]*entrance, error) {
	var out []*entrance
	for i, l := range d.Listen() {
		e := &entrance{conf: l, policy: &listener.Policy{Key: l.Key, Connections: d.Limits.Connections, Identity: identities[i], Secrets: l.Secrets}}
		e.admits.Store(admissionOf(l))
		if l.TLS.CertFile != "" {
			var err error
			if e.certs, err = tlsfiles.Open(serverFiles(l.TLS), tlsfiles.Options{Name: l.Key + ".tls", Metrics: m, Log: log}); err != nil {
				return nil, fmt.Errorf("%s.tls: %w", l.Key, err)
			}
			e.policy.TLS = e.certs.Server("h2")
		}
		out = append(out, e)
	}
	return out, nil
}

// open opens the listener.
func (e *entrance) open() error {
	// gRPC's keepalive does the kernel's work (KeepAlive).
	lc := net.ListenConfig{KeepAlive: listener.KeepAlive}
	l, err := lc.Listen(context.Background(), "tcp", e.conf.Address)
	if err != nil {
		return fmt.Errorf("%s.address: %w", e.conf.Key, err)
	}
	e.Listener = listener.New(l, e.policy)
	return nil
}

// addresses of the open listeners, with commas between them.
func addresses(es []*entrance) string {
	var out []string
	for _, e := range es {
		out = append(out, where(e.conf.Address, e.Listener))
	}
	return strings.Join(out, ",")
}

// secured says how the listeners are, in their order, with commas between them.
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

// originNames are the origins in their order, with commas between them: the
// names, which the log has elsewhere, and where an address is another, it too.
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

// where a listener is: at the host that was configured, and the port that it got.
// Go listens on 0.0.0.0 as [::], which is both families.
func where(configured string, l net.Listener) string {
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

// serveREST serves REST, whose clients have to pass the policies of all
// listeners as they would in plaintext.
func (r *relay) serveREST(ctx context.Context) error {
	var policies []*listener.Policy
	for _, e := range r.down {
		policies = append(policies, e.policy)
	}
	return r.fanout.ServeREST(ctx, r.rest, fanout.Keepalive(r.cfg.Downstream.Keepalive), policies...)
}

func serverFiles(t config.ServerTLS) tlsfiles.Files {
	return tlsfiles.Files{CertFile: t.CertFile, KeyFile: t.KeyFile, CAFile: t.ClientCAFile, CAKey: "client_ca_file"}
}
