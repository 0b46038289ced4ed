package validation

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"xdsrelay/config"
	"xdsrelay/internal/telemetry/tlsfiles"
)

// absentAfter is how long gRPC, and by default Envoy, wait for a resource (P53).
const absentAfter = 15 * time.Second

// Warnings are about settings that are allowed but seldom intended. serve logs them, and validate
// prints them. Without c, which is nil if compiling failed, there are none about expressions.
func Warnings(cfg *config.Config, c *Compiled) (out config.Faults) {
	warn := func(key, format string, args ...any) {
		out = append(out, cfg.Places.Fault(key, format, args...))
	}
	d := &cfg.Downstream
	var secured []string
	for i, l := range d.Listen() {
		if l.TLS.CertFile != "" {
			secured = append(secured, l.Key)
		} else if l.Secrets == config.SecretsAllow {
			warn(l.Key+".secrets", "any client that reaches %s gets Secrets in plaintext", l.Address)
		}
		if l.Tokens.Issuer != "" && l.TLS.CertFile == "" && !config.Loopback(l.Address) {
			warn(l.Key+".tokens", "clients send their tokens to %s in plaintext; set tls to encrypt them", l.Address)
		}
		if c != nil && c.Identities[i] != nil {
			names := slices.DeleteFunc(c.Identities[i].Proven(), func(name string) bool {
				if name == "peer.token" {
					return l.Tokens.Issuer != ""
				}
				return l.TLS.ClientCAFile != ""
			})
			if len(names) > 0 {
				needed := "tls.client_ca_file"
				if slices.Contains(names, "peer.token") {
					needed = "tokens"
				}
				warn(l.Key+".identity", "uses %s, but clients of this listener prove no identity, because %s is not set", strings.Join(names, ", "), needed)
			}
		}
		for i, o := range cfg.Upstream.Origins {
			if reaches(o.Address, l.Address) {
				warn(fmt.Sprintf("upstream.origins[%d].address", i), "is the same as %s.address: the relay would subscribe to itself", l.Key)
			}
		}
	}
	for i, o := range cfg.Upstream.Origins {
		if o.TokenPlaintext && o.TLS == nil {
			warn(fmt.Sprintf("upstream.origins[%d].token_plaintext", i), "tokens cross the network in plaintext; anybody on the path can use them")
		}
	}
	verifies := func(l config.Listener) bool { return l.TLS.ClientCAFile != "" }
	if c != nil && !slices.ContainsFunc(d.Listen(), verifies) {
		if where, names, ok := c.Rules.NeedsCertificate(); ok {
			where.Reason = fmt.Sprintf("uses %s, but clients prove no identity, because no listener has tls.client_ca_file", strings.Join(names, ", "))
			out = append(out, where)
		}
	}
	if d.MaxConnectionAge == 0 && slices.ContainsFunc(d.Listen(), verifies) {
		warn("downstream.max_connection_age", "is 0: connections stay open after certificates expire")
	}
	if d.RESTAddress != "" && len(secured) > 0 && d.Listen()[0].TLS.CertFile == "" {
		warn("downstream.rest_address", "has no TLS, like the first listener and unlike %s: the relay serves any client that reaches it, unless the identity rules refuse clients without a certificate", strings.Join(secured, ", "))
	}
	if a := &cfg.Admin; a.Address != "" && a.TokenFile != "" && a.TLS.CertFile == "" && !config.Loopback(a.Address) {
		warn("admin.address", "operators send the token to %s in plaintext; set admin.tls to encrypt it", a.Address)
	}
	if t := cfg.Upstream.FirstAnswerTimeout; t >= absentAfter {
		warn("upstream.first_answer_timeout", "is %s: gRPC and Envoy take a resource as absent after %s; they would do so before the relay serves the store or refuses them", t, absentAfter)
	}
	out = append(out, cfg.Places.Removed()...)
	return append(out, config.UnknownEnv()...)
}

// expiryFaults are the certificates that have expired, and warnings of those that expire soon or are
// not valid yet. serve starts with them and logs them, because without the relay no client would
// be served. Certificates that cannot be read are not among them.
func expiryFaults(cfg *config.Config, now time.Time) (faults, warnings config.Faults) {
	for _, c := range certificates(cfg) {
		v, ok := tlsfiles.ReadValidity(c.files)
		if !ok {
			continue
		}
		key, expires := c.key+".cert_file", v.Expires.Format(time.RFC3339)
		switch {
		case v.Expired(now):
			faults = append(faults, cfg.Places.Fault(key, "the %s expired at %s", v.Name(), expires))
		case now.Before(v.From):
			warnings = append(warnings, cfg.Places.Fault(key, "the certificate is not valid before %s", v.From.Format(time.RFC3339)))
		case v.Soon(now):
			warnings = append(warnings, cfg.Places.Fault(key, "the %s expires at %s, in %s", v.Name(), expires, v.Left(now)))
		}
	}
	return faults, warnings
}

// reaches reports whether a gRPC target names the listener at address. It resolves no names.
func reaches(target, address string) bool {
	if i := strings.LastIndexByte(target, '/'); i >= 0 {
		target = target[i+1:]
	}
	to, port, err := net.SplitHostPort(strings.TrimPrefix(target, "dns:"))
	at, listens, wrong := net.SplitHostPort(address)
	if err != nil || wrong != nil || port != listens {
		return false
	}
	here := func(host string) netip.Addr {
		if host == "localhost" {
			host = "127.0.0.1"
		}
		ip, _ := netip.ParseAddr(host)
		return ip.Unmap()
	}
	if every := at == "" || here(at).IsUnspecified(); every {
		return here(to).IsLoopback() || here(to).IsUnspecified() || to == ""
	}
	return to == at || here(to).IsValid() && here(to) == here(at)
}
