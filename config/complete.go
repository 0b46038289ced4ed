package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// complete fills in the defaults that Default cannot have, and makes relative paths of the file
// relative to the file's directory. Paths from the environment and from flags are relative to the
// working directory.
func (c *Config) complete(file string) error {
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("configuration: name: cannot read the host's name, which is the default: %w", err)
		}
		c.Name = host
	}
	dir := filepath.Dir(file)
	for _, p := range c.paths() {
		if *p.path != "" && !filepath.IsAbs(*p.path) && c.Places.Of(p.key).File == file {
			*p.path = filepath.Join(dir, *p.path)
		}
	}
	for i := range c.Downstream.Several {
		l := &c.Downstream.Several[i]
		l.Key = fmt.Sprintf("downstream.listeners[%d]", i)
		if l.Secrets == "" {
			l.Secrets = SecretsMTLS
		}
		if l.Tokens.OnExpiry == "" {
			l.Tokens.OnExpiry = OnExpiryKeep
		}
	}
	for i := range c.Upstream.Origins {
		o := &c.Upstream.Origins[i]
		if o.Name == "" {
			o.Name = o.Address
		}
		if o.Balance == "" {
			o.Balance = BalanceRoundRobin
		}
		// file:x and unix:x, but not file://host/x, which validate refuses.
		scheme, path, _ := strings.Cut(o.Address, ":")
		if scheme != "file" && scheme != "unix" || path == "" || strings.HasPrefix(path, "//") {
			continue
		}
		if !filepath.IsAbs(path) && c.Places.Of(fmt.Sprintf("upstream.origins[%d]", i)).File == file {
			path = filepath.Join(dir, path)
		}
		abs, err := filepath.Abs(path)
		if err != nil {
			return fmt.Errorf("configuration: origin %s: %w", o.Name, err)
		}
		o.Address = scheme + "://" + abs
	}
	if c.Aggregation.File == "" && len(c.Aggregation.Rules) == 0 {
		c.Aggregation.Rules = []Rule{{Key: Strings{"node.cluster"}}}
	}
	return nil
}

// Dir returns the directory of an origin of files; false for another origin. The path is used as
// written: it has no percent-encoding.
func (o *Origin) Dir() (string, bool) {
	path, ok := strings.CutPrefix(o.Address, "file://")
	return path, ok
}

// path is a value that names a file or directory.
type path struct {
	key  string
	path *string
	dir  bool // created if missing
}

// paths returns all values that name files or directories.
func (c *Config) paths() []path {
	var out []path
	add := func(key string, p *string) { out = append(out, path{key: key, path: p}) }
	server := func(key string, t *ServerTLS) {
		add(key+".cert_file", &t.CertFile)
		add(key+".key_file", &t.KeyFile)
		add(key+".client_ca_file", &t.ClientCAFile)
	}
	tokens := func(key string, t *Tokens) {
		add(key+".jwks_file", &t.JWKSFile)
		add(key+".jwks_ca_file", &t.JWKSCAFile)
		add(key+".jwks_token_file", &t.JWKSTokenFile)
	}
	server("downstream.tls", &c.Downstream.TLS)
	tokens("downstream.tokens", &c.Downstream.Tokens)
	for i := range c.Downstream.Several {
		server(fmt.Sprintf("downstream.listeners[%d].tls", i), &c.Downstream.Several[i].TLS)
		tokens(fmt.Sprintf("downstream.listeners[%d].tokens", i), &c.Downstream.Several[i].Tokens)
	}
	for i := range c.Upstream.Origins {
		add(fmt.Sprintf("upstream.origins[%d].token_file", i), &c.Upstream.Origins[i].TokenFile)
		t, key := c.Upstream.Origins[i].TLS, fmt.Sprintf("upstream.origins[%d].tls", i)
		if t == nil {
			continue
		}
		add(key+".ca_file", &t.CAFile)
		add(key+".cert_file", &t.CertFile)
		add(key+".key_file", &t.KeyFile)
	}
	add("aggregation.file", &c.Aggregation.File)
	add("admin.tls.cert_file", &c.Admin.TLS.CertFile)
	add("admin.tls.key_file", &c.Admin.TLS.KeyFile)
	add("admin.token_file", &c.Admin.TokenFile)
	add("cluster.tls.cert_file", &c.Cluster.TLS.CertFile)
	add("cluster.tls.key_file", &c.Cluster.TLS.KeyFile)
	add("cluster.tls.ca_file", &c.Cluster.TLS.CAFile)
	add("cluster.gossip_key_file", &c.Cluster.GossipKeyFile)
	out = append(out, path{key: "store.path", path: &c.Store.Path, dir: true})
	return out
}

// CheckFiles returns an error if a file that the configuration names cannot be opened. It is for a
// check before a start. It does not check directories of origins, which may come later.
func (c *Config) CheckFiles() error {
	var faults Faults
	for _, p := range c.paths() {
		if *p.path == "" || p.dir {
			continue
		}
		f, err := os.Open(*p.path)
		if err != nil {
			faults = append(faults, c.Places.Fault(p.key, "%v", err))
			continue
		}
		_ = f.Close() // only read
	}
	return faults.Err()
}
