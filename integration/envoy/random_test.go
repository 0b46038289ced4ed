package envoy

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"xdsrelay/internal/xdstest"
)

// randomChanges is how many changes a run makes. A change that changes nothing
// does not count.
func randomChanges() int {
	if os.Getenv("ENVOY_LONG") != "" {
		return 200
	}
	return 25
}

// seed is ENVOY_SEED, or a new one.
func seed(t testing.TB) uint64 {
	t.Helper()
	text := os.Getenv("ENVOY_SEED")
	if text == "" {
		return rand.Uint64()
	}
	s, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("ENVOY_SEED: %v", err)
	}
	return s
}

// Random changes under traffic: clusters, endpoints, routes and listeners come,
// change and go. The route of the listener "in" moves from cluster to cluster.
// The listener "always" sends its requests to the EDS cluster "web". No request
// fails, nothing is rejected, and at the end Envoy has exactly what the origin
// has. ENVOY_SEED repeats a run.
//
// It is not played directly: the result is compared with the origin, and
// without a relay each changed EDS cluster may warm for 15 s.
func TestRandomChanges(t *testing.T) {
	t.Parallel()
	seed := seed(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("ENVOY_SEED=%d repeats the changes", seed)
		}
	})
	each(t, adsWays, func(t *testing.T, w way, variant string) {
		s := newScene(t, w, sceneOptions{variant: variant, config: keepsOldClusters, origin: ordered})
		m := newRandomModel(t, s, seed)
		e := s.envoy("envoy-1", nil)
		all := make([]*traffic, 2)
		for i, listener := range []string{"in", "always"} {
			e.reaches(listener, "", "/", "backend-0")
			all[i] = startTraffic(e, listener)
		}
		for len(m.done) <= randomChanges() { // the first is the beginning
			m.change(e)
			if m.rng.IntN(3) == 0 {
				all[m.rng.IntN(2)].goesOn()
			}
		}
		e.mustHave(m.now)
		for _, tr := range all {
			tr.goesOn()
		}
		e.mustBeClean()
	})
}

// randomModel changes what an origin serves. The cluster "web", the listeners
// "in" and "always" and the routes to "web" always exist.
type randomModel struct {
	s        *scene
	rng      *rand.Rand
	backends []*xdstest.HTTPBackend
	now      config
	base     string   // the cluster of all requests but those for another route
	moves    int      // how often base changed
	done     []string // the changes made
}

func newRandomModel(t *testing.T, s *scene, seed uint64) *randomModel {
	m := &randomModel{s: s, rng: rand.New(rand.NewPCG(seed, 0)), base: "web", now: config{lds: {}, rds: {}, cds: {}, eds: {}}}
	for i := range 3 {
		m.backends = append(m.backends, xdstest.StartHTTPBackend(t, fmt.Sprint("backend-", i)))
	}
	m.put("begin", append(web(s.way.source, m.backends[0]),
		xdstest.HTTPListener("always", xdstest.Manager("always", s.way.source)), routes("always", "web"))...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the changes: %s", strings.Join(m.done, "; "))
		}
	})
	return m
}

// put adds or changes resources at the origin and in the model.
func (m *randomModel) put(what string, resources ...types.Resource) { m.apply(what, resources, nil) }

func (m *randomModel) apply(what string, put []types.Resource, remove map[string][]string) {
	changes := len(remove) > 0
	for _, r := range put {
		url, name := xdstest.NameOf(r)
		changes = changes || !proto.Equal(m.now[url][name], r)
		m.now[url][name] = r
	}
	if !changes {
		return
	}
	m.done = append(m.done, what)
	for url, names := range remove {
		for _, n := range names {
			delete(m.now[url], n)
		}
	}
	m.s.origin.Change("edge", put, remove)
}

// change makes one random change.
func (m *randomModel) change(e *envoy) {
	name := fmt.Sprint("more-", m.rng.IntN(5))
	if m.rng.IntN(4) == 0 {
		name = "web"
	}
	_, exists := m.now[cds][name]
	switch n := m.rng.IntN(11); {
	case n < 2: // endpoints
		if exists {
			m.put("endpoints of "+name, endpoints(name, m.someBackends()...))
		}
	case n < 4: // a cluster that warms again
		if exists {
			c := proto.Clone(m.now[cds][name]).(*clusterv3.Cluster)
			c.ConnectTimeout = durationpb.New(time.Duration(1000+m.rng.IntN(5000)) * time.Millisecond)
			m.put("cluster "+name, c)
		}
	case n < 7: // a cluster with its endpoints and its route comes or goes, in one snapshot
		switch {
		case name == "web":
		case exists:
			m.settle(e)
			m.apply("without "+name, []types.Resource{m.routesTo(name, false)}, map[string][]string{cds: {name}, eds: {name}})
		default:
			m.put("with "+name, cluster(name, m.s.way.source), endpoints(name, m.someBackends()...), m.routesTo(name, true))
		}
	case n < 8: // another header in all routes
		r := proto.Clone(m.now[rds]["in"]).(*routev3.RouteConfiguration)
		r.ResponseHeadersToAdd = []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{
			Key: "x-change", Value: fmt.Sprint(m.rng.IntN(1000))}}}
		m.put("routes", r)
	case n < 9: // all requests go to a new cluster, and the one that they went to is deleted
		// Before its clusters are acknowledged, go-control-plane sends a route
		// before the new cluster.
		e.mustHave(m.now)
		m.move(e)
	default: // another listener comes, changes or goes
		name = []string{"always", "in-0", "in-1", "in-2"}[m.rng.IntN(4)]
		if _, exists = m.now[lds][name]; exists && name != "always" && m.rng.IntN(2) == 0 {
			m.settle(e)
			m.apply("without listener "+name, nil, map[string][]string{lds: {name}, rds: {name}})
			return
		}
		l := xdstest.HTTPListener(name, xdstest.Manager(name, m.s.way.source))
		l.StatPrefix = fmt.Sprint("change-", m.rng.IntN(1000))
		m.put("listener "+name, l, routes(name, "web"))
	}
}

// settle waits until Envoy has everything, and so has asked for every name. In
// SotW, go-control-plane's ordered cache forgets a watch if a snapshot has names
// that were not asked for. If they go before they are asked for, it never answers.
func (m *randomModel) settle(e *envoy) { e.mustHave(m.now) }

// move moves the requests of the listener "in" to a new cluster, and deletes the
// old one in the same snapshot. The cluster "web" stays. A new EDS cluster comes
// before its route, because Envoy uses a route also while its cluster warms.
func (m *randomModel) move(e *envoy) {
	old := m.base
	m.moves++
	m.base = fmt.Sprint("base-", m.moves)
	r := proto.Clone(m.now[rds]["in"]).(*routev3.RouteConfiguration)
	all := r.GetVirtualHosts()[0].GetRoutes()
	all[len(all)-1] = xdstest.RouteTo("/", m.base)
	put := []types.Resource{r}
	if m.rng.IntN(2) == 0 {
		m.put("with "+m.base, cluster(m.base, m.s.way.source), endpoints(m.base, m.someBackends()...))
		e.mustHave(m.now)
	} else {
		c := staticCluster(m.base, m.someBackends()...)
		put = append(put, c)
		m.now[eds][m.base] = c.GetLoadAssignment() // Envoy's dump has it there too
	}
	var remove map[string][]string
	if old != "web" {
		remove = map[string][]string{cds: {old}, eds: {old}}
	}
	m.apply("move to "+m.base, put, remove)
}

// routesTo is the routes of the listener "in" with or without one to a cluster.
func (m *randomModel) routesTo(cluster string, with bool) *routev3.RouteConfiguration {
	r := proto.Clone(m.now[rds]["in"]).(*routev3.RouteConfiguration)
	host := r.GetVirtualHosts()[0]
	host.Routes = slices.DeleteFunc(host.GetRoutes(), func(r *routev3.Route) bool { return r.GetRoute().GetCluster() == cluster })
	if with {
		host.Routes = append([]*routev3.Route{xdstest.RouteTo("/"+cluster, cluster)}, host.GetRoutes()...)
	}
	return r
}

// someBackends is one backend or more.
func (m *randomModel) someBackends() []*xdstest.HTTPBackend {
	out := slices.Clone(m.backends)
	m.rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:1+m.rng.IntN(len(out))]
}
