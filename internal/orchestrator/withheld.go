package orchestrator

import (
	"maps"
	"slices"
	"sync"
	"time"

	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/orchestrator/subscriptions"
	"xdsrelay/internal/xds"
)

// withheld counts the members whose full-state responses of clusters wait, and has the members that
// wait with them (P67): listeners and routes may lead to clusters that their client does not have
// yet. It is safe for concurrent use.
type withheld struct {
	mu sync.Mutex
	// members is the number of withheld members for each value.
	members [session.WithheldForWildcard + 1]int
	// namesUntil is until when members that wait for names count. A client that does not read would
	// hold up the others for longer.
	namesUntil time.Time
	waiting    map[*member]struct{}
	seen       session.Withheld // for what the waiting members waited when they were woken last
}

// Withhold implements fanout.Member.
func (m *member) Withhold(w session.Withheld) {
	h := &m.group.withheld
	h.mu.Lock()
	was := m.withheld
	m.withheld = w
	if was != session.NotWithheld {
		h.members[was]--
	}
	if w != session.NotWithheld {
		h.members[w]++
	}
	if w == session.WithheldForNames && was != w {
		h.namesUntil = time.Now().Add(w.AtMost())
	}
	wake := w < was && len(h.waiting) > 0
	h.mu.Unlock()
	if wake {
		m.group.signal()
	}
}

// Withheld implements fanout.Member.
func (m *member) Withheld() session.Withheld {
	g := m.group
	g.withheld.mu.Lock()
	defer g.withheld.mu.Unlock()
	w := g.clustersWithheld()
	if w != session.NotWithheld {
		if g.withheld.waiting == nil {
			g.withheld.waiting = make(map[*member]struct{})
		}
		g.withheld.waiting[m] = struct{}{}
	}
	return w
}

// clustersWithheld returns for what the clusters of the key wait: the longest wait of any member. The
// wildcard counts until its answer is complete, however long it takes to send that to a member. The
// lock of withheld is held.
func (g *Group) clustersWithheld() session.Withheld {
	h := &g.withheld
	switch {
	case h.members[session.WithheldForWildcard] > 0 && !g.state.Load().Snapshot(xds.ClusterType).AnswersWildcard(subscriptions.EverythingResumed):
		return session.WithheldForWildcard
	case h.members[session.WithheldForNames] > 0 && time.Now().Before(h.namesUntil):
		return session.WithheldForNames
	}
	return session.NotWithheld
}

// forget forgets a member that waits.
func (h *withheld) forget(m *member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting, m)
}

// wakeWithheld wakes the members that wait for clusters if these wait no longer, or for something
// else.
func (g *Group) wakeWithheld() {
	h := &g.withheld
	h.mu.Lock()
	var woken []*member
	if len(h.waiting) > 0 {
		if w := g.clustersWithheld(); w != h.seen {
			h.seen = w
			woken = slices.Collect(maps.Keys(h.waiting))
			clear(h.waiting)
		}
	}
	h.mu.Unlock()
	for _, m := range woken {
		if m.known && !m.ended {
			m.waker.Wake()
		}
	}
}
