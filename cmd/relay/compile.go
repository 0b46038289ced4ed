package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

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

// checked compiles a configuration and finds all that is wrong with it, wherever it is
// to be used: in what it says, which is err (see config.Load), what does not compile,
// and the files and directories that it names. running is the configuration that a relay
// was started with, nil before there is one: what that has opened is not opened again.
// What is wrong is returned as config.Faults, unless nothing could be read; what
// compiled is there nevertheless.
func checked(cfg *config.Config, err error, running *config.Config) (*compiled, error) {
	var all config.Faults
	add := func(err error) error {
		var faults config.Faults
		if err != nil && !errors.As(err, &faults) {
			return err
		}
		all = all.With(faults) // but for those that follow from others
		return nil
	}
	if add(err) != nil || cfg == nil {
		return nil, err
	}
	c, err := compileConfig(cfg)
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
				all = all.With(config.Faults{cfg.Places.Fault(fmt.Sprintf("upstream.origins[%d].address", i), "%s is no directory", dir)})
			}
		}
	}
	return c, all.Err()
}
