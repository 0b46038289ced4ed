package orchestrator

import (
	"iter"
	"maps"
	"slices"
	"time"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/orchestrator/audience"
	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/upstream/timing"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Group returns the group of a key; nil if the key is not in use.
func (r *Registry) Group(key xds.Key) *Group {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.groups[key]
}

// Groups returns the groups of all keys in use, in no order.
func (r *Registry) Groups() []*Group {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.groups))
}

// Nacks yields the kept NACKs of all keys: see history.History.Nacks.
func (r *Registry) Nacks(before uint64) iter.Seq[history.KeyNack] { return r.history.Nacks(before) }

// MixedUserAgents describes a key whose subscribers differ in their user agent.
type MixedUserAgents = audience.MixedUserAgents

// Status is what a group has published about itself.
type Status struct {
	Key   xds.Key
	Node  *xds.Node // the representative (P58)
	Since time.Time
	// Subscribers counts subscribers, OtherUserAgents those with another user agent than the first
	// of Mixed.
	Subscribers, OtherUserAgents int
	Mixed                        *MixedUserAgents // nil: the user agents do not differ (P58)
	IdleSince                    time.Time        // zero: the group has subscribers
	Types                        []TypeStatus
	State                        *snapshot.State // nil: nothing is published yet
	// Upstreams has the first upstream stream, and the second if there is one (P50).
	Upstreams []upstream.Status
	// Suspended is what the upstream streams do not carry, because the origin ends each stream with
	// it (P68).
	Suspended []upstream.Suspended
	// FrequentEnds are those of the upstream streams that end again and again.
	FrequentEnds []timing.Ends
	// Refusal is why clients are refused; nil: no client is refused.
	Refusal *refusal.Refusal
}

// TypeStatus is what subscribers of a group want of one type.
type TypeStatus struct {
	Type        xds.Type
	Subscribers int
	// The group's subscription, including lingering names.
	Wildcard bool
	Names    *xds.NameSet
}

// count returns the part of the Status that the group publishes when its own state changed.
func (g *Group) count() *Status {
	s := &Status{
		Key: g.key, Node: g.node, Since: g.since,
		Subscribers: len(g.subscribers), OtherUserAgents: g.audience.UserAgents.Others(), Mixed: g.audience.UserAgents.Mixed, IdleSince: g.idleSince,
	}
	for _, t := range g.allTypes() {
		names, wildcard := t.audience.Union()
		s.Types = append(s.Types, TypeStatus{t.Type, t.audience.Subscribers(), wildcard, names})
	}
	return s
}

// Status returns what the group has published. It does not wait for the group. The caller must not
// change Types.
func (g *Group) Status() Status {
	s := *g.counts.Load()
	s.State, s.Refusal = g.state.Load(), g.refusal.Load()
	for _, h := range g.upstreams() {
		s.Upstreams = append(s.Upstreams, *h.status.Load())
		s.Suspended = append(s.Suspended, h.source.Suspended()...)
		if e := h.source.FrequentEnds(); e != nil {
			s.FrequentEnds = append(s.FrequentEnds, *e)
		}
	}
	return s
}

// Nacks returns the NACKs of the group's subscribers.
func (g *Group) Nacks() *history.Nacks { return g.nacks }

// Newest returns the newest snapshot of a type, published or not; nil: there is none. Any goroutine
// may call it.
func (g *Group) Newest(typ xds.TypeURL) *snapshot.Snapshot {
	if t := g.find(typ); t != nil {
		return t.content.Newest()
	}
	return nil
}

// Versions returns the newest versions of a type, the newest first. Any goroutine may call it.
func (g *Group) Versions(typ xds.TypeURL) []*snapshot.VersionProgress {
	if t := g.find(typ); t != nil {
		return t.history.Versions()
	}
	return nil
}

// Differences returns what differs between what a client was offered of a type and what it has: see
// snapshot.Past. Any goroutine may call it.
func (g *Group) Differences(typ xds.TypeURL, o *snapshot.Offer, most int) (out []snapshot.Difference, more int, known bool) {
	t := g.find(typ)
	if t == nil {
		return nil, 0, false
	}
	return t.history.Past(t.content.Newest()).Differences(o, most)
}

// Changes returns what a version of a type changed: see snapshot.Past. The version is the newest of this
// name. Any goroutine may call it.
func (g *Group) Changes(typ xds.TypeURL, version string, most int) (out []snapshot.Difference, more int, known bool) {
	t := g.find(typ)
	if t == nil {
		return nil, 0, false
	}
	for _, v := range t.history.Versions() {
		if v.Matches(version) {
			return t.history.Past(t.content.Newest()).Changes(v, most)
		}
	}
	return nil, 0, false
}

// Snapshots returns the newest snapshot of each type, in the order in which the types were first
// used. It copies nothing.
func (g *Group) Snapshots() (out []*snapshot.Snapshot) {
	for _, t := range g.allTypes() {
		if s := t.content.Newest(); s != nil {
			out = append(out, s)
		}
	}
	return out
}
