package validation

import (
	"errors"
	"fmt"

	"xdsrelay/config"
	"xdsrelay/internal/telemetry/tlsfiles"
)

// certificateFaults reads all certificates that the configuration names. Its faults have the place
// of the key that names the unusable file.
func certificateFaults(cfg *config.Config) (faults config.Faults) {
	check := func(key string, f tlsfiles.Files) {
		err := tlsfiles.Check(f)
		if err == nil {
			return
		}
		if at := (*tlsfiles.Error)(nil); errors.As(err, &at) {
			err, key = at.Err, key+"."+at.File
		}
		faults = append(faults, cfg.Places.Fault(key, "%v", err))
	}
	for _, c := range certificates(cfg) {
		check(c.key, c.files)
	}
	return faults
}

// certificate is a key of the configuration that names certificate files.
type certificate struct {
	key   string
	files tlsfiles.Files
}

func certificates(cfg *config.Config) (out []certificate) {
	for _, l := range cfg.Downstream.Listen() {
		out = append(out, certificate{l.Key + ".tls", ServerFiles(l.TLS)},
			certificate{l.Key + ".tokens", tlsfiles.Files{CAFile: l.Tokens.JWKSCAFile, CAKey: "jwks_ca_file"}})
	}
	for i, o := range cfg.Upstream.Origins {
		if o.TLS != nil {
			out = append(out, certificate{fmt.Sprintf("upstream.origins[%d].tls", i),
				tlsfiles.Files{CertFile: o.TLS.CertFile, KeyFile: o.TLS.KeyFile, CAFile: o.TLS.CAFile}})
		}
	}
	if cfg.Cluster.Name != "" {
		out = append(out, certificate{"cluster.tls", MemberFiles(cfg.Cluster.TLS)})
	}
	return append(out, certificate{"admin.tls", tlsfiles.Files{CertFile: cfg.Admin.TLS.CertFile, KeyFile: cfg.Admin.TLS.KeyFile}})
}

// ServerFiles are the certificate files of a listener for clients.
func ServerFiles(t config.ServerTLS) tlsfiles.Files {
	return tlsfiles.Files{CertFile: t.CertFile, KeyFile: t.KeyFile, CAFile: t.ClientCAFile, CAKey: "client_ca_file"}
}

// MemberFiles are the certificate files of a member of a cluster.
func MemberFiles(t config.MemberTLS) tlsfiles.Files {
	return tlsfiles.Files{CertFile: t.CertFile, KeyFile: t.KeyFile, CAFile: t.CAFile}
}
