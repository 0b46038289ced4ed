package relay

import (
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"

	"xdsrelay/config"
	"xdsrelay/internal/fanout"
	"xdsrelay/internal/orchestrator"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/validation"
)

// activeConfig is a configuration with what was compiled from it. It is immutable: a reload makes
// another.
type activeConfig struct {
	cfg *config.Config
	*validation.Compiled
}

// reloadable matches the keys whose new values apply without a restart. The keys of listeners need
// more: see needsRestart.
var reloadable = regexp.MustCompile(`^(` +
	`downstream\.(rest_bytes|long_poll|ack_timeout|settle|removal_delay|drain)|` +
	`downstream\.limits\.(streams|streams_per_second|requests_per_second|names_per_second|streams_per_peer|node_bytes|names_per_stream|types_per_stream|keys|keys_per_peer|names_per_key|types_per_key|pinned_bytes)|` +
	`upstream\.(linger|idle_ttl|max_idle)|` +
	`aggregation\.(rules.*|file|unmatched|max_rekeyed)|` +
	`log\.level)$`)

// admissionKey matches the keys that decide which clients a listener admits.
var admissionKey = regexp.MustCompile(`^downstream(?:\.listeners\[(\d+)\])?\.(?:identity|secrets)$`)

// needsRestart returns those of keys whose new values apply only after a restart. A listener's
// admission rules apply at once only if the listener keeps its address and TLS. Otherwise a rule
// that is right for the new address would admit clients at the old one.
func (r *Relay) needsRestart(keys []string, to *config.Config) []string {
	stays := func(key string) bool {
		m := admissionKey.FindStringSubmatch(key)
		if m == nil {
			return false
		}
		i, _ := strconv.Atoi(m[1]) // empty: the only listener, which has no number
		return i < len(to.Downstream.Listen()) && matchingListener(i, to, r.cfg) >= 0
	}
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return reloadable.MatchString(key) || stays(key) })
}

// atStart returns the configuration that the relay was started with, but with the admission rules
// that its listeners apply now. What differs between it and the file is not in force. It leaves out
// listeners that have another position in the file, because their rules belong to another listener.
func (r *Relay) atStart(to *config.Config) *config.Config {
	if len(to.Downstream.Several) != len(r.cfg.Downstream.Several) {
		return r.cfg
	}
	c := *r.cfg
	d := &c.Downstream
	d.Several = slices.Clone(d.Several)
	for i, e := range r.listeners {
		if at := matchingListener(i, r.cfg, to); at >= 0 && at != i {
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

// matchingListener returns the index, in the configuration in, of listener i of the configuration
// of; -1: there is none. Listeners match by address and TLS. Several listeners match each other in
// order if both configurations have equally many; otherwise none match. Several at one address
// occur with port 0.
func matchingListener(i int, of, in *config.Config) int {
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

// reconfigure applies what can change without a restart. next has no faults, and changed are its
// changed keys. It returns the keys of the admission rules that changed. These may be missing in
// changed: if the number of listeners changed, that has only the list's key.
func (r *Relay) reconfigure(next *activeConfig, changed []string) []string {
	if next.Rules != r.active.Load().Rules {
		next.Rules.CountErrors(r.metrics.RuleErrors)
	}
	r.active.Store(next)
	if r.Member != nil {
		r.Member.setCompat()
	}
	r.showLimits(next)
	r.fanout.Reconfigure(r.fanoutSettings(next))
	var admits []string
	var policies []fanout.PolicyChange
	for n, e := range r.listeners {
		i := matchingListener(n, r.cfg, next.cfg)
		if i < 0 {
			continue
		}
		l := next.cfg.Downstream.Listen()[i]
		if keys := e.changedAdmission(l); len(keys) > 0 {
			admits = append(admits, keys...)
			policies = append(policies, fanout.PolicyChange{Policy: e.policy, Identity: next.Identities[i], Secrets: l.Secrets})
		}
		e.admits.Store(admissionOf(l))
	}
	if slices.Contains(changed, "log.level") {
		// A level that POST /logging has set stays unless the file's level changes.
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

// checkRekeyed returns a fault if the rules of next give more clients another key, or none, than its
// aggregation.max_rekeyed allows. changed are its changed keys. It does not count clients that a new
// identity rule refuses: an identity must be revocable at once. compared counts the clients meanwhile.
func (r *Relay) checkRekeyed(next *activeConfig, changed []string, compared *atomic.Int64) error {
	if !slices.ContainsFunc(changed, aggregation.MatchString) {
		return nil
	}
	rekeyed, clients := 0, 0
	for c := range r.fanout.PreviewRekey(0, next.Rules.Key) {
		clients++
		compared.Add(1)
		if len(c.Changes) > 0 {
			rekeyed++
		}
	}
	if !next.cfg.Aggregation.NeedsForce(rekeyed, clients) {
		return nil
	}
	return config.Faults{next.cfg.Places.Fault("aggregation", "the new rules change the key of %d of %d clients, more than aggregation.max_rekeyed (%s); run 'relay reload --force' to apply them",
		rekeyed, clients, next.cfg.Aggregation.MaxRekeyed)}
}

// aggregation matches the keys that change the rules.
var aggregation = regexp.MustCompile(`^aggregation\.(rules|file|unmatched)`)

// limits returns the limits that apply. The grpc server takes some only when it is made, so those
// keep their first values.
func (r *Relay) limits(c *activeConfig) config.Limits {
	l, first := c.cfg.Downstream.Limits, &r.cfg.Downstream.Limits
	l.Connections, l.RequestBytes, l.StreamsPerConnection = first.Connections, first.RequestBytes, first.StreamsPerConnection
	if l.Connections == config.Auto {
		l.Connections = autoConnections(r.cfg, openFiles())
	}
	return l
}

// showLimits sets the gauges of the limits.
func (r *Relay) showLimits(c *activeConfig) {
	l := r.limits(c)
	r.metrics.Limit(telemetry.MaxStreams, int64(l.Streams))
	r.metrics.Limit(telemetry.MaxKeys, int64(l.Keys))
	r.metrics.Limit(telemetry.MaxPinnedBytes, l.PinnedBytes)
}

func (r *Relay) fanoutSettings(c *activeConfig) fanout.Settings {
	d := &c.cfg.Downstream
	return fanout.Settings{
		AckTimeout: d.AckTimeout, LongPoll: d.LongPoll, RESTBytes: d.RESTBytes, Limits: r.limits(c),
	}
}

func (r *Relay) registrySettings(c *activeConfig) orchestrator.Settings {
	u, l := &c.cfg.Upstream, &c.cfg.Downstream.Limits
	return orchestrator.Settings{
		Keys: c.Rules, Settle: c.cfg.Downstream.Settle, RemovalDelay: c.cfg.Downstream.RemovalDelay, Linger: u.Linger, IdleTTL: u.IdleTTL, MaxIdle: u.MaxIdle,
		Limits: orchestrator.Limits{Keys: l.Keys, KeysPerPeer: l.KeysPerPeer, NamesPerKey: l.NamesPerKey, TypesPerKey: l.TypesPerKey},
	}
}

// warn logs the warnings of a configuration, except those that the one before had too.
func (c *activeConfig) warn(log *slog.Logger, before *activeConfig) {
	said := map[string]bool{}
	if before != nil {
		for _, w := range before.warnings() {
			said[w.Key+w.Reason] = true
		}
	}
	for _, w := range c.warnings() {
		if !said[w.Key+w.Reason] {
			log.Warn("configuration warning", "warning", w.Text())
		}
	}
}

func (c *activeConfig) warnings() config.Faults {
	return append(validation.Warnings(c.cfg, c.Compiled), c.Rules.Warnings()...)
}
