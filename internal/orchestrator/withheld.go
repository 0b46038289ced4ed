package orchestrator

import (
	"maps"
	"slices"
	"sync"
	"time"

	"xdsrelay/internal/orchestrator/subscriptions"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// withheld counts the members whose full-state responses of clusters wait, and has the members that
// wait with them (P67): listeners and routes may lead to clusters that their client does not have
// yet. It is safe for concurrent use.
type withheld struct {
	mu sync.Mutex
	// members is the number of withheld members for each value.
	members [snapshot.WithheldForWildcard + 1]int
	// namesUntil is until when members that wait for names count. A client that does not read would
	// hold up the others for longer.
	namesUntil time.Time
	// wildcardUntil is the same for members that wait for the wildcard; zero: it is not answered yet.
	wildcardUntil time.Time
	waiting       map[*member]struct{}
	seen          snapshot.Withheld // for what the newest of them waits
}

// Withhold implements fanout.Member.
func (m *member) Withhold(w snapshot.Withheld) {
	h := &m.group.withheld
	h.mu.Lock()
	was := m.withheld
	m.withheld = w
	if was != snapshot.NotWithheld {
		h.members[was]--
	}
	if w != snapshot.NotWithheld {
		h.members[w]++
	}
	if w == snapshot.WithheldForNames && was != w {
		h.namesUntil = time.Now().Add(w.AtMost())
	}
	wake := w < was && len(h.waiting) > 0
	h.mu.Unlock()
	if wake {
		m.group.signal()
	}
}

// Withheld implements fanout.Member.
func (m *member) Withheld() snapshot.Withheld {
	h := &m.group.withheld
	h.mu.Lock()
	w := h.longest(time.Now())
	if w != snapshot.NotWithheld {
		if h.waiting == nil {
			h.waiting = make(map[*member]struct{})
		}
		h.waiting[m], h.seen = struct{}{}, max(h.seen, w)
	}
	timed := w == snapshot.WithheldForWildcard && !h.wildcardUntil.IsZero()
	h.mu.Unlock()
	if timed {
		m.group.signal() // the group sets its timer
	}
	return w
}

// sendTime is for how long at most listeners and routes wait until the members have been sent the
// answer to the wildcard of clusters. Those that do not read hold up the others no longer.
const sendTime = time.Second

// longest returns for what the clusters of the key wait: the longest wait of any member. The lock is
// held.
func (h *withheld) longest(now time.Time) snapshot.Withheld {
	switch {
	case h.members[snapshot.WithheldForWildcard] > 0 && (h.wildcardUntil.IsZero() || now.Before(h.wildcardUntil)):
		return snapshot.WithheldForWildcard
	case h.members[snapshot.WithheldForNames] > 0 && now.Before(h.namesUntil):
		return snapshot.WithheldForNames
	}
	return snapshot.NotWithheld
}

// next returns when a wait ends by time alone for the members that wait; zero: none does.
func (h *withheld) next() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.waiting) == 0 || h.longest(time.Now()) != snapshot.WithheldForWildcard {
		return time.Time{} // the waits for names have timers of their own
	}
	return h.wildcardUntil
}

// forget forgets a member that waits.
func (h *withheld) forget(m *member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting, m)
}

// wakeWithheld wakes the members that wait for clusters if these wait no longer, or for something
// else.
func (g *Group) wakeWithheld(now time.Time) {
	h := &g.withheld
	answered := g.state.Load().Snapshot(xds.ClusterType).AnswersWildcard(subscriptions.EverythingResumed)
	h.mu.Lock()
	switch {
	case !answered:
		h.wildcardUntil = time.Time{}
	case h.wildcardUntil.IsZero():
		h.wildcardUntil = now.Add(sendTime)
	}
	var woken []*member
	if len(h.waiting) > 0 && h.longest(now) != h.seen {
		woken = slices.Collect(maps.Keys(h.waiting))
		clear(h.waiting)
		h.seen = snapshot.NotWithheld
	}
	h.mu.Unlock()
	for _, m := range woken {
		if m.known && !m.ended {
			m.waker.Wake()
		}
	}
}
