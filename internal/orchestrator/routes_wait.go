package orchestrator

import (
	"sync/atomic"
	"time"

	"xdsrelay/internal/orchestrator/audience"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// routesWait has the subscribers whose full-state responses of clusters wait. Listeners and routes
// wait with them (P67), because they may lead to clusters that their client does not have yet. It
// is safe for concurrent use.
type routesWait struct {
	// wildcard and names count the subscribers that wait for the wildcard, and for names alone.
	wildcard, names atomic.Int64
	// namesUntil is until when subscribers that wait for names count, UnixNano. A client that does
	// not read would hold up the others for longer.
	namesUntil atomic.Int64
	shorter    atomic.Bool // it has become shorter since the last step
}

// SetRoutesWait implements subscriber.Subscriber.
func (ct *clientType) SetRoutesWait(wait time.Duration) {
	if ct.relay {
		return // it does not wait for names, and its clients' routes wait there
	}
	was := time.Duration(ct.routesWait.Swap(int64(wait)))
	if was == wait {
		return
	}
	g := ct.group
	before := g.routesMayWait()
	if wait == snapshot.NamesWait {
		g.routesWait.namesUntil.Store(time.Now().Add(wait).UnixNano())
	}
	g.routesWait.count(was, -1)
	g.routesWait.count(wait, 1)
	if g.routesMayWait() < before {
		g.routesWait.shorter.Store(true)
		g.signal()
	}
}

func (w *routesWait) count(wait time.Duration, n int64) {
	switch wait {
	case snapshot.WildcardWait:
		w.wildcard.Add(n)
	case snapshot.NamesWait:
		w.names.Add(n)
	}
}

// RoutesWait implements subscriber.Subscriber.
func (ct *clientType) RoutesWait() time.Duration { return ct.group.routesMayWait() }

// routesMayWait returns for how long at most listeners and routes wait for clusters. Any goroutine
// may call it.
func (g *Group) routesMayWait() time.Duration {
	w := &g.routesWait
	switch {
	case w.wildcard.Load() > 0 && !g.clustersComplete():
		return snapshot.WildcardWait
	case w.names.Load() > 0 && time.Now().UnixNano() < w.namesUntil.Load():
		return snapshot.NamesWait
	}
	return 0
}

// clustersComplete reports whether subscribers see a complete answer to the wildcard of clusters.
func (g *Group) clustersComplete() bool {
	return g.state.Load().Snapshot(xds.ClusterType).AnswersWildcard(audience.EverythingResuming)
}

// wakeRoutes wakes the subscribers that may wait for clusters, if that has become shorter.
func (g *Group) wakeRoutes() {
	was := g.hadClusters
	g.hadClusters = g.clustersComplete()
	if !g.routesWait.shorter.Swap(false) && (was || !g.hadClusters || g.routesWait.wildcard.Load() == 0) {
		return
	}
	for ct := range g.subscribers {
		if ct.joined != nil && ct.joined.RefersToClusters && ct.sub.Resumes && !ct.ended {
			ct.waker.Wake()
		}
	}
}
