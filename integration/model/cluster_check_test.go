package model

import (
	"maps"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"xdsrelay/internal/xds"
)

// rest checks that the cluster comes to rest after the last event.
func (w *clusterFixture) rest(after string) {
	time.Sleep(settleTime)
	synctest.Wait()
	w.log("rest after %s", after)
	w.check("after " + after)
}

// check fails the test if the cluster is not as it has to be at rest.
func (w *clusterFixture) check(when string) {
	for _, c := range w.watchers {
		if err := c.differs(); err != nil {
			w.fail("%s, %s (%v): %v", when, c.id, c.v, err)
		}
	}
	w.checkVersions(when)
	w.checkStreams(when)
	w.mu.Lock()
	failures, lines := w.failures, w.lines
	w.mu.Unlock()
	w.o.mu.Lock()
	failures = append(failures, w.o.faults...)
	w.o.mu.Unlock()
	if len(failures) > 0 {
		for _, l := range lines {
			w.t.Log(l)
		}
		w.o.tell(w.t.Logf)
		w.t.Fatalf("%s:\n%s", when, strings.Join(failures, "\n"))
	}
}

// checkVersions: the versions of a resource of the origin are equal at all relays.
func (w *clusterFixture) checkVersions(when string) {
	versions := make(map[string]string)
	for _, c := range w.watchers {
		if c.v != xds.Delta {
			continue
		}
		c.mu.Lock()
		for typ, t := range c.subs {
			for n, v := range t.versions {
				if !w.has(c, t, n) {
					continue
				}
				if other := versions[string(typ)+n]; other != "" && other != v {
					w.fail("%s: %s: %s %s has version %s, elsewhere %s", when, c.id, typ, n, v, other)
				}
				versions[string(typ)+n] = v
			}
		}
		c.mu.Unlock()
	}
}

// has reports whether the origin has a resource, and a client is certain to get it.
func (w *clusterFixture) has(c *watcher, t *watched, n string) bool {
	w.o.mu.Lock()
	defer w.o.mu.Unlock()
	_, there := w.o.has[t.typ][n]
	return there && !c.leftOut(t, n)
}

// behind reports whether the source of a response cannot know the newest content of a resource. Either its
// path to the origin is cut, and it has not noticed. Or the origin, which tells one stream after another,
// has not told all streams of the key yet.
func (w *clusterFixture) behind(key string, from *corev3.ControlPlane, typ xds.TypeURL, n string) bool {
	replica, source, _ := strings.Cut(from.GetIdentifier(), "/")
	if source != "origin" {
		replica = source
	}
	if r := w.named(replica); r != nil && w.n.isLate(originHost, r.host) {
		return true
	}
	w.o.mu.Lock()
	defer w.o.mu.Unlock()
	if at, ok := w.o.saidAt[key+string(typ)+n]; ok && time.Since(at) < time.Millisecond {
		return true // and the relay is about to read it
	}
	return slices.ContainsFunc(w.o.streams, func(s *originStream) bool {
		names, _ := w.o.pending(s, typ)
		return s.key == key && slices.Contains(names, n)
	})
}

// ring is a key among the relays of one compat.
type ring struct{ compat, key string }

// checkStreams: each key that is in use at relays of one compat has one stream at the origin, or two
// (P50).
func (w *clusterFixture) checkStreams(when string) {
	compats := make(map[string]string) // by host
	for _, r := range w.running() {
		compats[r.host] = r.compat
	}
	streams := make(map[ring][]string)
	w.o.mu.Lock()
	for _, s := range w.o.streams {
		at := ring{compats[s.from], s.key}
		streams[at] = append(streams[at], s.from)
	}
	w.o.mu.Unlock()
	used, both := make(map[ring]bool), make(map[string]bool)
	for _, c := range w.watchers {
		c.mu.Lock()
		if c.at != nil {
			used[ring{c.at.compat, c.key}] = true
		}
		c.mu.Unlock()
		for typ := range c.subs {
			both[c.key] = both[c.key] || w.hasBoth(c.key, typ)
		}
	}
	for at := range used {
		if len(streams[at]) == 0 {
			w.fail("%s: key %s of %s has no stream at the origin", when, at.key, at.compat)
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(streams), func(a, b ring) int { return strings.Compare(a.compat+a.key, b.compat+b.key) }) {
		most := 1
		if both[at.key] {
			most = 2
		}
		if len(streams[at]) > most {
			w.fail("%s: key %s of %s has %d streams at the origin, from %v", when, at.key, at.compat, len(streams[at]), streams[at])
		}
	}
}
