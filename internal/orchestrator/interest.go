package orchestrator

import (
	"slices"
	"time"

	"xdsrelay/internal/orchestrator/audience"
	"xdsrelay/internal/orchestrator/content"
	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// groupType is one type of a group: what origins sent, the subscriptions to it, and the streams
// that carry it. The group's goroutine owns it. Other goroutines read its constants, and what
// content.TypeContent lets any goroutine call.
type groupType struct {
	// These fields are constant.
	xds.Type
	content     *content.TypeContent
	audience    *audience.TypeAudience[*clientType]
	metrics     *telemetry.TypeMetrics
	history     *history.TypeHistory
	storeWriter *storeWriter // nil: nothing is stored

	// wildcardOn and namesOn are the streams that carry the subscription. They differ; nil: nothing
	// is subscribed (P50).
	wildcardOn, namesOn *upstreamHandle
	// brought are names that other relays received from origins (P65). A SotW origin says nothing of those
	// that do not exist any more.
	brought *xds.NameSet
	// toRequestAgain has the names to request again from the origin (P18, P25).
	toRequestAgain []string
}

// streamOf returns the upstream stream that carries a part; nil if none does.
func (t *groupType) streamOf(wild bool) *upstreamHandle {
	if wild {
		return t.wildcardOn
	}
	return t.namesOn
}

func (g *Group) addType(typ xds.TypeURL) *groupType {
	t := &groupType{Type: xds.TypeOf(typ), metrics: g.metrics.Type(typ)}
	t.history = g.registry.history.NewType(t.Type)
	t.content = g.content.Add(t.Type, t.history)
	t.audience = g.audience.Add(t.content.Newest)
	t.storeWriter = newStoreWriter(g, t)
	if s := g.stored[typ]; s != nil {
		t.content.SetStored(s.Snapshot)
	}
	types := append(slices.Clone(g.allTypes()), t)
	g.types.Store(&types)
	return t
}

// removeTypes removes the types for which remove returns true, and reports whether there was any.
// What is stored of them stays on disk.
func (g *Group) removeTypes(remove func(*groupType) bool) bool {
	if !slices.ContainsFunc(g.allTypes(), remove) {
		return false
	}
	types := slices.DeleteFunc(slices.Clone(g.allTypes()), func(t *groupType) bool {
		gone := remove(t)
		if gone {
			g.content.Remove(t.content)
			g.audience.Remove(t.audience)
			t.history.Close()
		}
		return gone
	})
	g.types.Store(&types)
	return true
}

// allTypes returns the types in the order of their first use. The caller must not change the slice.
// Any goroutine may call it.
func (g *Group) allTypes() []*groupType { return *g.types.Load() }

// find returns a type; nil if no subscriber ever wanted it. Any goroutine may call it.
func (g *Group) find(typ xds.TypeURL) *groupType {
	types := g.allTypes()
	if i := slices.IndexFunc(types, func(t *groupType) bool { return t.URL == typ }); i >= 0 {
		return types[i]
	}
	return nil
}

// mergeSubscriptions brings the group's subscription up to date with what subscribers want. Names
// that have lingered long enough are forgotten, with what they brought. So are do_not_cache
// resources that no subscriber wants any more (P63): they do not linger, not even if all
// subscribers have left. Their names leave the subscription too, so that the origin answers the
// next client that subscribes to them. The same holds for the wildcard, with everything that it
// brought.
func (g *Group) mergeSubscriptions(now time.Time) {
	s := g.settings()
	g.audience.Merge(now)
	for _, t := range g.allTypes() {
		for _, names := range t.content.Uncacheable() {
			t.audience.Drop(names)
		}
		if t.content.WildcardUncacheable() {
			t.audience.DropWildcard()
		}
	}
	g.audience.Expire(now, !g.wasEverOpen.Load() || g.connected(), s.Linger, s.Limits.NamesPerKey)
	for _, t := range g.allTypes() {
		names, wildcard := t.audience.Union()
		forgotten := t.audience.TakeForgotten()
		t.brought = t.brought.Remove(forgotten...)
		changed, uncacheable := t.content.SetSubscribed(names, wildcard, forgotten)
		t.metrics.Dropped[telemetry.Unwanted].Add(uncacheable)
		g.changed = g.changed || changed
	}
	g.removeTypes(func(t *groupType) bool { return t.audience.Unused() })
}

// requestAgain requests names again that have no resource: see content.TypeContent.RequestAgain.
func (g *Group) requestAgain(t *groupType, names []string) {
	if len(names) > 0 {
		t.toRequestAgain = append(t.toRequestAgain, t.content.RequestAgain(names, time.Now(), g.settings().Linger)...)
	}
}

// assign decides which stream carries the wildcard and which carries the names of each type. They
// are never on the same stream: the part that came second uses a second stream. A part stays on its
// stream for as long as it is subscribed. A stream that carries nothing is closed (P50).
func (g *Group) assign(now time.Time) {
	for _, t := range g.allTypes() {
		_, wildcard := t.audience.Union()
		names := t.content.ToRequest().Len() > 0
		if !wildcard {
			t.wildcardOn = nil
		}
		if !names {
			t.namesOn = nil
		}
		if wildcard && t.wildcardOn == nil {
			t.wildcardOn = g.otherThan(t.namesOn)
			t.content.WildcardAssigned(now)
		}
		if names && t.namesOn == nil {
			t.namesOn = g.otherThan(t.wildcardOn)
		}
	}
	for _, h := range slices.Backward(g.upstreams()) {
		carries := slices.ContainsFunc(g.allTypes(), func(t *groupType) bool { return t.wildcardOn == h || t.namesOn == h })
		if !carries && len(g.upstreams()) > 1 {
			g.closeUpstream(h)
		}
	}
}

// otherThan returns the stream for a part of a type whose other part is on h. h is nil if no stream
// has the other part.
func (g *Group) otherThan(h *upstreamHandle) *upstreamHandle {
	for _, o := range g.upstreams() {
		if o != h {
			return o
		}
	}
	return g.openSecond()
}

// sendInterest sets the interest of each upstream stream, if it changed.
func (g *Group) sendInterest() {
	for _, h := range g.upstreams() {
		if now := interestOn(g.allTypes(), h); !now.Same(h.sent) {
			h.sent, g.changed = now, true
			h.source.SetInterest(now)
		}
	}
	for _, t := range g.allTypes() {
		t.toRequestAgain = nil
	}
}

// interestOn returns the interest for a stream. It omits types that no client wants (P64).
func interestOn(types []*groupType, h *upstreamHandle) *snapshot.Interest {
	out := new(snapshot.Interest)
	for _, t := range types {
		switch h {
		case t.wildcardOn:
			out.Types = append(out.Types, snapshot.TypeInterest{Type: t.URL, Wildcard: true, WildcardID: t.content.WildcardID()})
		case t.namesOn:
			out.Types = append(out.Types, snapshot.TypeInterest{Type: t.URL, Names: t.content.ToRequest(), Again: t.toRequestAgain, Brought: t.brought})
		}
	}
	return out
}

// subscribes reports whether the group subscribes to anything.
func (g *Group) subscribes() bool {
	return slices.ContainsFunc(g.upstreams(), func(h *upstreamHandle) bool { return len(h.sent.Types) > 0 })
}
