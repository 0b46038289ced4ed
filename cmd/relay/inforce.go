package main

import (
	"log/slog"
	"regexp"
	"slices"
	"strconv"

	"xdsrelay/config"
	"xdsrelay/internal/fanout"
	"xdsrelay/internal/orchestrator"
	"xdsrelay/internal/telemetry"
)

// inForce is a configuration, with what was compiled of it. It is not changed once
// it is made: a reload makes another.
type inForce struct {
	cfg *config.Config
	*compiled
}

// atOnce are the keys of which other values are in force without a restart, but
// for those of listeners; see needsRestart.
var atOnce = regexp.MustCompile(`^(` +
	`downstream\.(long_poll|ack_timeout|settle|removal_delay|drain)|` +
	`downstream\.limits\.(streams|streams_per_second|requests_per_second|streams_per_peer|node_bytes|names_per_stream|types_per_stream|keys|keys_per_peer|names_per_key|types_per_key|pinned_bytes)|` +
	`upstream\.(linger|idle_ttl|max_idle)|` +
	`aggregation\.(rules.*|file|unmatched)|` +
	`log\.level)$`)

// who are the keys that say who is let in by a listener.
var who = regexp.MustCompile(`^downstream(?:\.listeners\[(\d+)\])?\.(?:identity|secrets)$`)

// needsRestart are those of the keys that the relay has to be started anew for. Who
// is let in by a listener changes at once only if it stays where it is, with the TLS
// that it has: else a rule that is right for the new address would open the old.
func (r *relay) needsRestart(keys []string, to *config.Config) []string {
	stays := func(key string) bool {
		m := who.FindStringSubmatch(key)
		if m == nil {
			return false
		}
		i, _ := strconv.Atoi(m[1]) // none: of the one listener that has no number
		return i < len(to.Downstream.Listen()) && counterpart(i, to, r.cfg) >= 0
	}
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return atOnce.MatchString(key) || stays(key) })
}

// atStart is the configuration that the relay was started with, with the rules that
// hold now at its listeners: what differs from that is not in force. Those of a listener
// that stands elsewhere in the list of the other one, or of a list of another number,
// are no rules to hold against whatever stands in its place.
func (r *relay) atStart(to *config.Config) *config.Config {
	if len(to.Downstream.Several) != len(r.cfg.Downstream.Several) {
		return r.cfg
	}
	c := *r.cfg
	d := &c.Downstream
	d.Several = slices.Clone(d.Several)
	for i, e := range r.down {
		if at := counterpart(i, r.cfg, to); at >= 0 && at != i {
			continue
		}
		identity, secrets := &d.Identity, &d.Secrets
		if len(d.Several) > 0 {
			identity, secrets = &d.Several[i].Identity, &d.Several[i].Secrets
		}
		a := e.admits.Load()
		*identity, *secrets = a.identity, a.secrets
	}
	return &c
}

// counterpart is the number, in another configuration, of the listener that has
// number i in of; -1: there is none. Of several at one address, which is one with port
// 0, each has the one in its place; if they are more or fewer in the other, nobody can
// tell which is which, and none has.
func counterpart(i int, of, in *config.Config) int {
	l := of.Downstream.Listen()[i]
	alike := func(c *config.Config) (at []int) {
		for n, o := range c.Downstream.Listen() {
			if o.Address == l.Address && o.TLS == l.TLS {
				at = append(at, n)
			}
		}
		return at
	}
	mine, theirs := alike(of), alike(in)
	if len(mine) != len(theirs) {
		return -1
	}
	return theirs[slices.Index(mine, i)]
}

// reconfigure puts in force what of the next configuration can be, which is known
// to be good. changed are its keys; it returns those by which listeners let in
// others than before. They need not be among changed: of listeners of another
// number the difference is the list.
func (r *relay) reconfigure(next *inForce, changed []string) []string {
	r.now.Store(next)
	r.showLimits(next)
	r.fanout.Reconfigure(r.fanoutSettings(next))
	var admits []string
	var policies []fanout.PolicyChange
	for n, e := range r.down {
		i := counterpart(n, r.cfg, next.cfg)
		if i < 0 {
			continue
		}
		l := next.cfg.Downstream.Listen()[i]
		if keys := e.others(l); len(keys) > 0 {
			admits = append(admits, keys...)
			policies = append(policies, fanout.PolicyChange{Policy: e.policy, Identity: next.identities[i], Secrets: l.Secrets})
			e.admits.Store(admissionOf(l))
		}
	}
	if slices.Contains(changed, "log.level") {
		// Else what POST /logging has set stays.
		_ = r.level.UnmarshalText([]byte(next.cfg.Log.Level)) // it was checked
	}
	rules := func() { r.registry.Reconfigure(r.registrySettings(next)) }
	if len(admits) > 0 || slices.ContainsFunc(changed, aggregation.MatchString) {
		r.fanout.ChangeRules(policies, rules, next.cfg.Downstream.Drain)
	} else {
		rules()
	}
	return admits
}

var aggregation = regexp.MustCompile(`^aggregation\.`)

// limits that can be in force: those of which the servers were told when they were
// made stay.
func (r *relay) limits(c *inForce) config.Limits {
	l, first := c.cfg.Downstream.Limits, &r.cfg.Downstream.Limits
	l.Connections, l.RequestBytes, l.StreamsPerConnection = first.Connections, first.RequestBytes, first.StreamsPerConnection
	return l
}

// showLimits has the metrics say what numbers are to be held against.
func (r *relay) showLimits(c *inForce) {
	l := r.limits(c)
	r.meters.Limit(telemetry.MaxStreams, int64(l.Streams))
	r.meters.Limit(telemetry.MaxKeys, int64(l.Keys))
	r.meters.Limit(telemetry.MaxPinnedBytes, l.PinnedBytes)
}

func (r *relay) fanoutSettings(c *inForce) fanout.Settings {
	d := &c.cfg.Downstream
	return fanout.Settings{
		AckTimeout: d.AckTimeout, LongPoll: d.LongPoll, Limits: r.limits(c),
	}
}

func (r *relay) registrySettings(c *inForce) orchestrator.Settings {
	u := &c.cfg.Upstream
	return orchestrator.Settings{
		Keys: c.rules, Settle: c.cfg.Downstream.Settle, RemovalDelay: c.cfg.Downstream.RemovalDelay, Linger: u.Linger, IdleTTL: u.IdleTTL, MaxIdle: u.MaxIdle, Limits: r.limits(c),
	}
}

// warn logs what is allowed and seldom meant, unless it was said of the one before.
func (c *inForce) warn(log *slog.Logger, before *inForce) {
	said := map[string]bool{}
	if before != nil {
		for _, w := range before.warnings() {
			said[w.Key+w.Reason] = true
		}
	}
	for _, w := range c.warnings() {
		if !said[w.Key+w.Reason] {
			log.Warn("configuration", "warning", faultText(w))
		}
	}
}

func (c *inForce) warnings() config.Faults {
	return append(warnings(c.cfg, c.compiled), c.rules.Warnings()...)
}
