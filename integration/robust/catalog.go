//go:build linux

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"xdsrelay/integration/robust/check"
	"xdsrelay/internal/xdstest"
)

// kinds are the resource types of the run.
var kinds = []string{check.Cluster, check.Endpoint, check.Listener, check.Route}

// Names that a key may have. Routes and clusters are added and removed.
const (
	maxClusters = 10
	maxRoutes   = 4
	apiListener = "grpc" // always exists: gRPC clients start with it
	firstRoute  = "route-0"
)

// spec determines a resource.
type spec struct {
	n    int      // unique in the run, except if the same content is published again
	refs []string // of a route: its clusters
}

// catalog is what all origins should have, by key, type and name. It is safe for concurrent use.
type catalog struct {
	mu   sync.Mutex
	n    int
	keys map[string]*keyContent
	old  map[string][]spec // earlier contents, by key, type and name
	// changed is closed at the next change.
	changed chan struct{}
}

// keyContent is the content for one key.
type keyContent struct {
	rev  int
	revs map[string]int             // by type: when it last changed
	has  map[string]map[string]spec // by type and name
}

func newCatalog(keys []string) *catalog {
	w := &catalog{keys: make(map[string]*keyContent), old: make(map[string][]spec), changed: make(chan struct{})}
	for _, key := range keys {
		r := &keyContent{revs: make(map[string]int), has: make(map[string]map[string]spec)}
		for _, kind := range kinds {
			r.has[kind] = make(map[string]spec)
		}
		w.keys[key] = r
		for i := range 4 {
			w.set(key, check.Cluster, fmt.Sprint("cluster-", i), nil)
			w.set(key, check.Endpoint, fmt.Sprint("cluster-", i), nil)
		}
		w.set(key, check.Route, firstRoute, []string{"cluster-0"})
		w.set(key, check.Listener, apiListener, []string{firstRoute})
		w.set(key, check.Listener, "listener-0", []string{firstRoute})
	}
	return w
}

// set gives a resource a new content. The caller holds mu, or is the only user.
func (w *catalog) set(key, kind, name string, refs []string) {
	w.n++
	w.put(key, kind, name, spec{w.n, refs})
}

func (w *catalog) put(key, kind, name string, s spec) {
	r := w.keys[key]
	w.n++
	r.rev, r.revs[kind] = w.n, w.n
	r.has[kind][name] = s
	id := key + kind + name
	if !slices.ContainsFunc(w.old[id], func(o spec) bool { return o.n == s.n }) {
		w.old[id] = append(w.old[id], s)
	}
}

func (w *catalog) remove(key, kind, name string) {
	r := w.keys[key]
	w.n++
	r.rev, r.revs[kind] = w.n, w.n
	delete(r.has[kind], name)
}

// change makes one change. Routes always refer to existing clusters, and each cluster has its load
// assignment.
func (w *catalog) change(rng *rand.Rand, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.keys[key]
	clusters := slices.Sorted(maps.Keys(r.has[check.Cluster]))
	switch routes := slices.Sorted(maps.Keys(r.has[check.Route])); rng.IntN(12) {
	case 0, 1:
		w.set(key, check.Cluster, pick(rng, clusters), nil)
	case 2, 3, 4:
		w.set(key, check.Endpoint, pick(rng, clusters), nil)
	case 5, 6:
		w.set(key, check.Route, pick(rng, routes), some(rng, clusters))
	case 7: // add a cluster
		name := fmt.Sprint("cluster-", rng.IntN(maxClusters))
		w.set(key, check.Cluster, name, nil)
		w.set(key, check.Endpoint, name, nil)
	case 8: // remove a cluster
		if len(clusters) < 2 {
			break
		}
		name := pick(rng, clusters)
		rest := slices.DeleteFunc(clusters, func(c string) bool { return c == name })
		for _, route := range routes {
			if slices.Contains(r.has[check.Route][route].refs, name) {
				w.set(key, check.Route, route, some(rng, rest))
			}
		}
		w.remove(key, check.Cluster, name)
		w.remove(key, check.Endpoint, name)
	case 9: // add or change a listener, with its route
		n := rng.IntN(maxRoutes)
		route := fmt.Sprint("route-", n)
		w.set(key, check.Route, route, some(rng, clusters))
		w.set(key, check.Listener, fmt.Sprint("listener-", n), []string{route})
	case 10: // remove a listener, and the route that only it uses
		listeners := slices.Sorted(maps.Keys(r.has[check.Listener]))
		name := pick(rng, listeners)
		if name == apiListener {
			break
		}
		refs := r.has[check.Listener][name].refs
		w.remove(key, check.Listener, name)
		if len(refs) == 1 && refs[0] != firstRoute {
			w.remove(key, check.Route, refs[0])
		}
	case 11: // restore an earlier content
		kind := pick(rng, []string{check.Cluster, check.Endpoint})
		name := pick(rng, clusters)
		w.put(key, kind, name, pick(rng, w.old[key+kind+name]))
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

func pick[T any](rng *rand.Rand, of []T) T { return of[rng.IntN(len(of))] }

// some returns one or two of these.
func some(rng *rand.Rand, of []string) []string {
	out := []string{pick(rng, of)}
	if other := pick(rng, of); other != out[0] {
		out = append(out, other)
	}
	return out
}

// waiting returns a channel that is closed at the next change.
func (w *catalog) waiting() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

// newer returns a key for which an origin lacks changes.
func (w *catalog) newer(has map[string]int) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(w.keys)) {
		if w.keys[key].rev > has[key] {
			return key, true
		}
	}
	return "", false
}

// snapshot is all that an origin should have for a key.
type snapshot struct {
	Key   string                       `json:"key"`
	Rev   int                          `json:"rev"`
	Revs  map[string]int               `json:"revs"`  // by type
	Types map[string]map[string][]byte `json:"types"` // by type and name
}

// of returns the snapshot of a key for an origin.
func (w *catalog) of(key, origin string) snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.keys[key]
	s := snapshot{Key: key, Rev: r.rev, Revs: maps.Clone(r.revs), Types: make(map[string]map[string][]byte)}
	for kind, has := range r.has {
		s.Types[kind] = make(map[string][]byte, len(has))
		for name, what := range has {
			s.Types[kind][name] = what.body(origin, key, kind, name)
		}
	}
	return s
}

// contents returns the hashes of a snapshot's contents.
func (s snapshot) contents(kind string) map[string]string {
	out := make(map[string]string, len(s.Types[kind]))
	for name, body := range s.Types[kind] {
		out[name] = content(body)
	}
	return out
}

// content is the hash of a body in a history.
func content(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:16])
}

// body makes a resource that contains the origin's name, so that resources of different origins
// differ. Listeners are the exception: they are equal.
func (s spec) body(origin, key, kind, name string) []byte {
	mark := fmt.Sprintf("%s/%s/%d", key, origin, s.n)
	var m proto.Message
	switch kind {
	case check.Cluster:
		c := xdstest.Cluster(name, 0)
		c.AltStatName = mark
		m = c
	case check.Endpoint:
		la := xdstest.Endpoints(name)
		la.Endpoints[0].Locality.Zone = mark
		m = la
	case check.Route:
		host := &routev3.VirtualHost{Name: mark, Domains: []string{"*"}}
		for i, to := range s.refs {
			host.Routes = append(host.Routes, xdstest.RouteTo(fmt.Sprint("/", i), to))
		}
		m = &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{host}}
	case check.Listener:
		l := xdstest.Listener(name, s.refs[0], 0)
		if name == apiListener {
			l = xdstest.APIListener(name, s.refs[0])
		}
		l.StatPrefix = fmt.Sprintf("%s/%d", key, s.n)
		m = l
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m) // as go-control-plane does
	if err != nil {
		panic(err) // the message is made here and valid
	}
	return b
}
