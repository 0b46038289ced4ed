package main

import (
	"errors"

	"xdsrelay/config"
	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/expr"
)

// compiled is everything in the configuration that has to be compiled.
type compiled struct {
	rules *aggregator.Rules
	// node makes the node that is sent upstream; nil: the first client's (P58).
	node *expr.Node
	// identities are those of config.Downstream.Listen, in its order; nil
	// where a listener has none.
	identities []*expr.Predicate
}

// compileConfig compiles rules and expressions, and looks at the certificates.
// All that is wrong is returned as config.Faults.
func compileConfig(cfg *config.Config) (*compiled, error) {
	var c compiled
	faults := certificateFaults(cfg)
	rules, err := aggregator.Compile(cfg)
	var in config.Faults
	switch {
	case errors.As(err, &in):
		faults = append(faults, in...)
	case err != nil:
		return nil, err
	}
	c.rules = rules
	if cfg.Upstream.Node != "" {
		if c.node, err = expr.NewNode(cfg.Upstream.Node); err != nil {
			faults = append(faults, aggregator.ExprFaults(cfg.Places, "upstream.node", err)...)
		}
	}
	for _, l := range cfg.Downstream.Listen() {
		var p *expr.Predicate
		if l.Identity != "" {
			if p, err = expr.NewIdentity(l.Identity); err != nil {
				faults = append(faults, aggregator.ExprFaults(cfg.Places, l.Key+".identity", err)...)
			}
		}
		c.identities = append(c.identities, p)
	}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	return &c, nil
}
