package cluster

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"xdsrelay/internal/telemetry"

	"github.com/zeebo/xxh3"
)

// KeepEnded is how long Members lists a member that left or died.
const KeepEnded = 10 * time.Minute

// Member is a relay of the cluster, as operators read it in /members. Its JSON names are those of the
// admin API.
type Member struct {
	Name string `json:"name"`
	Self bool   `json:"self"` // this relay
	// State is MemberLeft only if the member had told that it was draining. A member that memberlist
	// suspects is alive until the suspicion is confirmed.
	State    telemetry.MemberState `json:"state"`
	Problem  string                `json:"problem,omitempty"` // why the member is MemberUnusable; "" in other states
	Ready    bool                  `json:"ready"`
	Draining bool                  `json:"draining"` // a candidate after all others
	Version  string                `json:"version"`  // of the program
	Address  string                `json:"address"`  // host:port of its member listener
	Compat   string                `json:"compat"`
	Since    time.Time             `json:"since"` // when this relay noticed that the member was alive, left or dead

	id     string         // its name in gossip
	gossip netip.AddrPort // where others reach its gossip
}

// peer is what is known of a member. Several peers may have one name.
type peer struct {
	Member        // its State is not MemberUnusable, and its Problem empty: they follow from other peers
	started int64 // in milliseconds since 1970, by its own clock
	known   bool  // its metadata is of this protocol version
}

// newer reports whether p counts and q does not, of two peers of one name.
func (p *peer) newer(q *peer) bool {
	if alive := p.State == telemetry.MemberAlive; alive != (q.State == telemetry.MemberAlive) {
		return alive
	}
	return cmp.Or(cmp.Compare(p.started, q.started), strings.Compare(p.id, q.id)) > 0
}

// view is an immutable state of the cluster.
type view struct {
	members    []Member // by name
	candidates []*Member
	hashes     []uint64 // of the candidates' names
}

// update computes the view anew, and announces what has changed. The caller holds mu.
func (c *Cluster) update() {
	newest := make(map[string]*peer)
	for _, p := range c.peers {
		if q := newest[p.Name]; q == nil || p.newer(q) {
			newest[p.Name] = p
		}
	}
	counts := make(map[telemetry.MemberState]int)
	now := new(view)
	for _, id := range slices.Sorted(maps.Keys(c.peers)) {
		p := c.peers[id]
		m := p.Member
		switch {
		case m.State != telemetry.MemberAlive:
			if newest[m.Name] != p || time.Since(m.Since) >= KeepEnded {
				delete(c.peers, id)
				continue
			}
		case newest[m.Name] != p:
			m.Problem = "a newer start of the same name"
		case !p.known:
			m.Problem = "another protocol version"
		case m.Compat != c.self.Compat:
			m.Problem = "another compat"
		}
		if m.Problem != "" {
			m.State = telemetry.MemberUnusable
		}
		counts[m.State]++
		now.members = append(now.members, m)
	}
	for i := range now.members {
		if m := &now.members[i]; m.State == telemetry.MemberAlive && m.Ready {
			now.candidates = append(now.candidates, m)
			now.hashes = append(now.hashes, xxh3.HashString(m.Name))
		}
	}
	for state, gauge := range c.options.Metrics.ClusterMembers {
		gauge.Set(counts[state])
	}
	was := c.view.Swap(now)
	if was != nil && !slices.EqualFunc(was.candidates, now.candidates, func(a, b *Member) bool { return *a == *b }) {
		close(c.changed)
		c.changed = make(chan struct{})
	}
	select {
	case c.notify <- struct{}{}:
	default: // Run's goroutine has yet to look
	}
}

// logChanges logs which members are in another state than before.
func logChanges(log *slog.Logger, before, now []Member) {
	known := make(map[string]Member, len(before))
	for _, m := range before {
		known[m.id] = m
	}
	for _, m := range now {
		was, ok := known[m.id]
		if ok && was.State == m.State && was.Problem == m.Problem {
			continue
		}
		level := slog.LevelInfo
		if m.State == telemetry.MemberDead || m.Self && m.Problem != "" {
			level = slog.LevelWarn
		}
		args := []any{"member", m.Name, "self", m.Self, "address", m.Address, "version", m.Version}
		if m.Problem != "" {
			args = append(args, "reason", m.Problem)
		}
		log.Log(context.Background(), level, "cluster member is "+string(m.State), args...)
	}
}

// Members returns all known members, this relay included: also members of another compat, and those
// that left or died within the last minutes. The caller must not modify them.
func (c *Cluster) Members() []Member { return c.view.Load().members }

// Changed is closed at the next change of what Candidates returns.
func (c *Cluster) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}
