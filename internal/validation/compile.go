package validation

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"xdsrelay/config"
	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/expr"
)

// Compiled has the compiled expressions and rules of a configuration.
type Compiled struct {
	Rules *aggregator.Rules
	// Node makes the node that the relay sends to origins; nil: the first client's node is sent
	// (P58).
	Node *expr.Node
	// Identities are in the order of config.Downstream.Listen; nil where a listener has no identity
	// rule.
	Identities []*expr.Predicate
	// MemberIdentity says which certificates are those of members; nil: there is no cluster, or no TLS.
	MemberIdentity *expr.Predicate
}

// Compile compiles rules and expressions, and reads the certificates. It returns all faults
// as config.Faults.
func Compile(cfg *config.Config) (*Compiled, error) {
	var c Compiled
	faults := certificateFaults(cfg)
	rules, err := aggregator.Compile(cfg)
	var in config.Faults
	switch {
	case errors.As(err, &in):
		faults = append(faults, in...)
	case err != nil:
		return nil, err
	}
	c.Rules = rules
	if cfg.Upstream.Node != "" {
		if c.Node, err = expr.NewNode(cfg.Upstream.Node); err != nil {
			faults = append(faults, aggregator.ExprFaults(cfg.Places, "upstream.node", err)...)
		}
	}
	for _, l := range cfg.Downstream.Listen() {
		var p *expr.Predicate
		if l.Identity != "" {
			if p, err = expr.NewIdentity(l.Identity); err != nil {
				faults = append(faults, aggregator.ExprFaults(cfg.Places, l.Key+".identity", err)...)
			} else if provesForSecrets(l) && len(p.Proven()) == 0 {
				faults = append(faults, cfg.Places.Fault(l.Key+".identity", "uses neither peer.uri_sans, peer.dns_sans, peer.subject nor peer.token: every client with a certificate or a token would get the Secrets of any node that it names; or set %s.secrets to deny", l.Key))
			}
		}
		c.Identities = append(c.Identities, p)
	}
	if rule := cfg.Cluster.Identity; rule != "" {
		if c.MemberIdentity, err = expr.NewIdentity(rule); err != nil {
			faults = append(faults, aggregator.ExprFaults(cfg.Places, "cluster.identity", err)...)
		} else if len(c.MemberIdentity.Proven()) == 0 {
			faults = append(faults, cfg.Places.Fault("cluster.identity", "uses neither peer.uri_sans, peer.dns_sans nor peer.subject: every certificate of the CA would be a member's"))
		}
	}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	return &c, nil
}

// provesForSecrets reports whether clients of the listener get Secrets for what they prove.
func provesForSecrets(l config.Listener) bool {
	switch l.Secrets {
	case config.SecretsMTLS:
		return l.TLS.ClientCAFile != ""
	case config.SecretsIdentity:
		return l.TLS.ClientCAFile != "" || l.Tokens.Issuer != ""
	}
	return false
}

// Check compiles a configuration and finds all its faults: those of its text, which are in err
// (see config.Load), those of compiling it, and those of the files and directories that it names.
// running is the configuration that the relay was started with; nil before the start. Check does
// not look again at directories that are open already. The faults are config.Faults, unless the file
// could not be read. Check returns the compiled rules and expressions even if there are faults.
func Check(cfg *config.Config, err error, running *config.Config) (*Compiled, error) {
	var all config.Faults
	add := func(err error) error {
		var faults config.Faults
		if err != nil && !errors.As(err, &faults) {
			return err
		}
		all = all.With(faults) // drops faults that follow from others
		return nil
	}
	if add(err) != nil || cfg == nil {
		return nil, err
	}
	c, err := Compile(cfg)
	if err := add(err); err != nil {
		return nil, err
	}
	if err := add(cfg.CheckFiles()); err != nil {
		return c, err
	}
	all = all.With(tokenFaults(cfg))
	for i, o := range cfg.Upstream.Origins {
		known := running != nil && slices.ContainsFunc(running.Upstream.Origins, func(r config.Origin) bool { return r.Address == o.Address })
		if dir, ok := o.Dir(); ok && !known {
			if is, err := os.Stat(dir); err == nil && !is.IsDir() {
				all = all.With(config.Faults{cfg.Places.Fault(fmt.Sprintf("upstream.origins[%d].address", i), "%s is not a directory", dir)})
			}
		}
	}
	return c, all.Err()
}
