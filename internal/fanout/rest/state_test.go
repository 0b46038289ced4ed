package rest

import (
	"testing"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// otherVersion is one that no poller of the test gave.
const otherVersion = "0123456789abcdef0123456789abcdef"

// partOf publishes what has come of an answer so far: one of several resources.
func (r *restFixture) partOf(typ xds.TypeURL, wildcard bool) {
	u := update(r.t, typ, "a", "b")
	u.Changed = u.Changed[:1]
	u.Wildcard, u.Partial = wildcard, wildcard
	r.groups.Group("edge").Publish(u)
}

// A client that polls with a version of before the relay's start is not given a part of the
// answer to the wildcard. One without a version is.
func TestP67_PollsWithStateGetNoPart(t *testing.T) {
	r := newREST(t, func(o *options) { o.LongPoll = time.Second })
	r.partOf(xds.ClusterType, true)
	if got := r.Ask(r.HTTP("http1"), xds.ClusterType, otherVersion); got.Status != 304 {
		t.Errorf("with state: %d %s", got.Status, got.Body)
	}
	if got := r.Ask(r.HTTP("http1"), xds.ClusterType, ""); got.Status != 200 {
		t.Errorf("without state: %d %s", got.Status, got.Body)
	}
}

// The group wakes a poll with state when the answer becomes complete, which is no news for a
// poll without. So they are two pollers.
func TestP67_PollsWithStateSubscribeWithState(t *testing.T) {
	r := newREST(t, func(o *options) { o.LongPoll = time.Second })
	r.partOf(xds.ClusterType, true)
	resumes := r.Begin(xdstest.Context(t), r.HTTP("http1"), xds.ClusterType, otherVersion)
	r.waiting(1) // before the other poll: a version that was given to it is no state
	r.Ask(r.HTTP("http1"), xds.ClusterType, "")
	<-resumes
	g := r.groups.Group("edge")
	g.Mu.Lock()
	defer g.Mu.Unlock()
	states := make(map[bool]int)
	for m := range g.Subscribers {
		states[m.Subscribed.Resumes]++
	}
	if states[true] != 1 || states[false] != 1 || len(g.Subscribers) != 2 {
		t.Errorf("%d pollers, by state: %v", len(g.Subscribers), states)
	}
}

// For a full-state type a client that resumes waits for all names, at most for
// snapshot.NamesWait.
func TestP67_PollsWithStateWaitForNames(t *testing.T) {
	r := newREST(t, func(o *options) { o.LongPoll = 2 * snapshot.NamesWait })
	r.partOf(xds.ListenerType, false)
	began := time.Now()
	if got := r.Ask(r.HTTP("http1"), xds.ListenerType, otherVersion, "a", "b"); got.Status != 200 || time.Since(began) < snapshot.NamesWait {
		t.Errorf("after %v: %d %s", time.Since(began), got.Status, got.Body)
	}
}

// Only clients without a version are given what comes from the store.
func TestP66_PollsWithStateGetNothingStored(t *testing.T) {
	r := newREST(t, func(o *options) { o.LongPoll = time.Second })
	g := r.groups.Group("edge")
	u := update(t, xds.ClusterType, "a")
	u.Wildcard, u.Origin, u.Received = true, "origin", time.Now()
	b := snapshot.NewBuilder(xds.TypeOf(xds.ClusterType))
	b.ApplyStored(u)
	s, _ := b.Snapshot(nil, 1)
	g.Mu.Lock()
	g.Gen, g.Builders[xds.ClusterType], g.Snaps = 1, b, append(g.Snaps, s)
	g.State = snapshot.NewState(1, 1, g.Snaps)
	g.Mu.Unlock()
	if got := r.Ask(r.HTTP("http1"), xds.ClusterType, otherVersion); got.Status != 304 {
		t.Errorf("with state: %d %s", got.Status, got.Body)
	}
	if got := r.Ask(r.HTTP("http1"), xds.ClusterType, ""); got.Status != 200 {
		t.Errorf("without state: %d %s", got.Status, got.Body)
	}
}

// Polls for listeners and routes with state wait while clusters are withheld from another poll of
// the key, for 15 s at most. Polls without state do not wait.
func TestP67_PollsForRoutesWaitForClusters(t *testing.T) {
	r := newREST(t, func(o *options) { o.LongPoll = time.Minute })
	r.partOf(xds.ClusterType, true)
	whole := update(t, xds.ListenerType, "a")
	whole.Wildcard = true
	r.groups.Group("edge").Publish(whole)
	clusters := r.Begin(xdstest.Context(t), r.HTTP("http1"), xds.ClusterType, otherVersion)
	r.waiting(1)
	listeners := r.Begin(xdstest.Context(t), r.HTTP("http1"), xds.ListenerType, otherVersion)
	r.waiting(2)
	if got := r.Ask(r.HTTP("http1"), xds.ListenerType, ""); got.Status != 200 {
		t.Errorf("without state: %d %s", got.Status, got.Body)
	}
	select {
	case got := <-listeners:
		t.Errorf("before the clusters: %d %s", got.Status, got.Body)
	default:
	}
	complete := update(t, xds.ClusterType, "a", "b")
	complete.Wildcard = true
	r.groups.Group("edge").Publish(complete)
	if got := <-clusters; got.Status != 200 {
		t.Errorf("clusters: %d %s", got.Status, got.Body)
	}
	if got := <-listeners; got.Status != 200 {
		t.Errorf("listeners: %d %s", got.Status, got.Body)
	}
}

// The wait for clusters that are requested by name ends after 5 s.
func TestP67_PollsForRoutesWaitForNamedClustersFor5s(t *testing.T) {
	r := newREST(t, func(o *options) { o.LongPoll = time.Minute })
	whole := update(t, xds.ListenerType, "a")
	whole.Wildcard = true
	r.groups.Group("edge").Publish(whole)
	r.Begin(xdstest.Context(t), r.HTTP("http1"), xds.ClusterType, otherVersion, "gone")
	r.waiting(1)
	began := time.Now()
	if got := r.Ask(r.HTTP("http1"), xds.ListenerType, otherVersion); got.Status != 200 || time.Since(began) < snapshot.NamesWait {
		t.Errorf("after %v: %d %s", time.Since(began), got.Status, got.Body)
	}
}
