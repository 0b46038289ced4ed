package orchestrator

import (
	"fmt"
	"slices"
)

// check returns which of the invariants below does not hold between two steps; nil if all do. The
// group's goroutine must not run meanwhile.
func (g *Group) check() error {
	if err := g.content.Check(); err != nil {
		return fmt.Errorf("content: %w", err)
	}
	if err := g.audience.Check(); err != nil {
		return fmt.Errorf("audience: %w", err)
	}
	subscribers, unpublished := 0, false
	for _, t := range g.allTypes() {
		names, wildcard := t.audience.Union()
		// A part is on a stream of the group if there is anything to request, and the two parts are
		// on different streams (P50).
		requests := t.content.ToRequest().Len() > 0
		if wildcard != (t.wildcardOn != nil) || requests != (t.namesOn != nil) || t.wildcardOn != nil && t.wildcardOn == t.namesOn {
			return fmt.Errorf("%s: wildcard %v on %p, names %v on %p", t.Label(), wildcard, t.wildcardOn, requests, t.namesOn)
		}
		for _, h := range []*upstreamHandle{t.wildcardOn, t.namesOn} {
			if h != nil && !slices.Contains(g.upstreams(), h) {
				return fmt.Errorf("%s is on a stream that was closed", t.Label())
			}
		}
		// The content has the audience's subscription: to set it again changes nothing.
		if changed, _ := t.content.SetSubscribed(names, wildcard, nil); changed {
			return fmt.Errorf("%s: the content has another subscription than the audience", t.Label())
		}
		subscribers += t.audience.Subscribers()
		unpublished = unpublished || g.state.Load().Snapshot(t.URL) != t.content.Newest()
	}
	// A stream that carries nothing is the only one (P50).
	for _, h := range g.upstreams() {
		if len(h.sent.Types) == 0 && len(g.upstreams()) > 1 {
			return fmt.Errorf("one of %d streams carries nothing", len(g.upstreams()))
		}
	}
	// What is not published has a time when it will be.
	if newer, _ := g.content.Unpublished(); unpublished && !newer || newer == g.publishAt.IsZero() {
		return fmt.Errorf("unpublished: %v, content says %v, due %v", unpublished, newer, g.publishAt)
	}
	// Each subscriber that was not refused is one of its type.
	joined, represented := 0, 0
	for m := range g.subscribers {
		if m.joined != nil {
			joined++
		}
		if m.node == g.represents.client {
			represented++
		}
	}
	if joined > subscribers {
		return fmt.Errorf("%d subscribers have types, which have %d", joined, subscribers)
	}
	// The representative's subscribers are counted (P58).
	if represented != g.represents.subscribers {
		return fmt.Errorf("%d subscribers have the representative's node, not %d", represented, g.represents.subscribers)
	}
	return nil
}
