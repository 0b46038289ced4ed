package orchestrator

import (
	"slices"
	"time"

	"xdsrelay/internal/xds/snapshot"
)

// subscribe indexes a member's new subscription in place of its old one.
func (v *View) subscribe(m *member, sub *snapshot.Subscription) {
	was := m.sub
	if was == sub {
		return
	}
	v.touched = v.index.Replace(m, was, sub, v.touched)
	m.sub = sub
}

// subscribes reports whether anything of the type is subscribed.
func (v *View) subscribes() bool { return v.wildcard || v.names.Len() > 0 }

// sendInterest sets the interest of each upstream stream, if it changed.
func (g *Group) sendInterest() {
	for _, h := range g.upstreams() {
		if now := interestOn(g.views, h); !now.Same(h.sent) {
			h.sent, g.changed = now, true
			h.source.SetInterest(now)
		}
	}
	for _, v := range g.views {
		v.again = nil
	}
}

// interestOn returns the interest for a stream. It omits types that no client wants (P64).
func interestOn(views []*View, h *upstreamHandle) *snapshot.Interest {
	out := new(snapshot.Interest)
	for _, v := range views {
		switch h {
		case v.wildcardOn:
			out.Types = append(out.Types, snapshot.TypeInterest{Type: v.typ.URL, Wildcard: true})
		case v.namesOn:
			out.Types = append(out.Types, snapshot.TypeInterest{Type: v.typ.URL, Names: v.namesToRequest(views), Again: v.again})
		}
	}
	return out
}

// assign decides which stream carries the wildcard and which carries the names of each type. They
// are never on the same stream: the part that came second uses a second stream. A part stays on its
// stream for as long as it is subscribed. A stream that carries nothing is closed (P50).
func (g *Group) assign() {
	for _, v := range g.views {
		v.assign(g)
	}
	for _, h := range slices.Backward(g.upstreams()) {
		carries := slices.ContainsFunc(g.views, func(v *View) bool { return v.wildcardOn == h || v.namesOn == h })
		if !carries && len(g.upstreams()) > 1 {
			g.closeUpstream(h)
		}
	}
}

// assign assigns the two parts of a type to streams.
func (v *View) assign(g *Group) {
	if !v.wildcard {
		v.wildcardOn = nil
	}
	names := v.namesToRequest(g.views)
	if names.Len() == 0 {
		v.namesOn = nil
	}
	if v.wildcard && v.wildcardOn == nil {
		v.wildcardOn = g.otherThan(v.namesOn)
		v.completion = completion{requested: time.Now()}
	}
	if names.Len() > 0 && v.namesOn == nil {
		v.namesOn = g.otherThan(v.wildcardOn)
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

// subscribes reports whether the group subscribes to anything.
func (g *Group) subscribes() bool {
	return slices.ContainsFunc(g.upstreams(), func(h *upstreamHandle) bool { return len(h.sent.Types) > 0 })
}
