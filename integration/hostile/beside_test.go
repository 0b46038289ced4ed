package hostile

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// gcp is go-control-plane's server with a snapshot cache. It serves every node the same cluster. Only
// that of the honest clients' key changes, so that an attack with many keys gets no changes.
type gcp struct {
	addr  string
	cache cache.SnapshotCache

	mu  sync.Mutex
	gen int
}

// groups has the nodes of the honest clients' key as one group of the cache, and all others as another.
type groups struct{}

// ID returns the group of a node.
func (groups) ID(n *corev3.Node) string {
	if n.GetCluster() == honest {
		return honest
	}
	return "others"
}

func newGCP(t testing.TB) *gcp {
	t.Helper()
	o := &gcp{cache: cache.NewSnapshotCache(false, groups{}, nil)}
	o.set("others")
	o.publish()
	o.addr = xdstest.ServeADS(t, server.NewServer(context.Background(), o.cache, nil))
	return o
}

// publish changes the probe of the honest clients' key, and returns the time.
func (o *gcp) publish() time.Time { return o.set(honest) }

// set gives a group the next version of the probe, and returns the time.
func (o *gcp) set(group string) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gen++
	snap, err := cache.NewSnapshot(fmt.Sprint(o.gen), map[string][]types.Resource{
		string(xds.ClusterType): {&clusterv3.Cluster{Name: "probe", ConnectTimeout: durationpb.New(time.Duration(o.gen) * time.Millisecond)}},
	})
	if err != nil {
		panic(err) // the snapshot is made here and valid
	}
	now := time.Now()
	if err := o.cache.SetSnapshot(context.Background(), group, snap); err != nil {
		panic(err) // likewise
	}
	return now
}

// besides are attacks by a client of the honest clients' key, or by one with many keys. The origin
// shares its work between all of them (P16).
var besides = []threat{
	{name: "names that change", short: 1, full: 1},
	{name: "names that change, 8 streams", short: 4, full: 8},
	{name: "many names", short: 1, full: 4},
	{name: "unknown types", short: 1, full: 4},
	{name: "Secrets without identity", short: 1, full: 4},
	{name: "keys of one client", short: 500, full: 9000},
}

// Bounds of the p99 of honest clients under attack. While an attack begins, thousands of streams or
// names arrive at once.
const (
	besideGoal   = 100 * time.Millisecond
	beginsWithin = 1500 * time.Millisecond
)

// Honest clients of the relay wait for changes about as long as those of go-control-plane under the
// same attack.
func TestHostileBesideTheOrigin(t *testing.T) {
	b := limits()
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "threat\tdone\tp99 without\tas it begins\tunder attack\tdone directly\tdirectly without\tas it begins\tunder attack")
	for _, th := range besides {
		t.Run(th.name, func(t *testing.T) {
			direct := newGCP(t)
			dDid, dWas, dBegins, dIs, _ := beside(t, direct, target{XDS: direct.addr}, th, b)
			origin := newGCP(t)
			r := serve(t, origin.addr)
			did, was, begins, is, broke := beside(t, origin, r.at, th, b)
			_, _ = fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", th.name, did, round(was), round(begins), round(is), dDid, round(dWas), round(dBegins), round(dIs))
			if broke > 0 {
				t.Errorf("%d streams of honest clients broke", broke)
			}
			if full() && begins > max(beginsWithin, 2*dBegins) {
				t.Errorf("the p99 of honest clients is %s as the attack begins, directly at the origin %s; bound %s", round(begins), round(dBegins), beginsWithin)
			}
			if full() && is > max(besideGoal, 2*dIs) {
				t.Errorf("the p99 of honest clients is %s under attack, directly at the origin %s; bound %s", round(is), round(dIs), besideGoal)
			}
		})
	}
	_ = w.Flush() // writes to memory
	if full() || os.Getenv("HOSTILE_SHOW") != "" {
		fmt.Printf("%d honest clients, %d rounds\n%s", b.clients, b.rounds, &table)
	}
	if file := os.Getenv("HOSTILE_BESIDE"); file != "" {
		if err := os.WriteFile(file, []byte(table.String()), 0o600); err != nil {
			t.Error(err)
		}
	}
}

// beside measures honest clients of a server without an attack, as it begins, and under it.
func beside(t *testing.T, o publisher, at target, th threat, b bounds) (did int64, was, begins, is time.Duration, broke uint64) {
	t.Helper()
	c := newCrowd(t, o, at, b.clients)
	c.rounds(t, b.rounds) // warms up
	calm := c.rounds(t, b.rounds)
	size := th.short
	if full() {
		size = th.full
	}
	a := launch(t, th.name, at, size)
	first := c.rounds(t, b.rounds)
	<-time.After(b.least)
	under := c.rounds(t, 2*b.rounds)
	slices.Sort(under)
	did = a.stop()
	return did, slices.Max(calm), slices.Max(first), under[len(under)*99/100], c.broken()
}

// namesThatChange subscribes to ten other names in each request, as fast as it can.
func namesThatChange(a *assault) {
	a.streams(a.size, func(i int, s stream) {
		q := &discoveryv3.DeltaDiscoveryRequest{Node: node("names", honest), TypeUrl: string(xds.EndpointType)}
		go discard(s)
		for n := 0; ; n++ {
			q.ResourceNamesUnsubscribe, q.ResourceNamesSubscribe = q.ResourceNamesSubscribe, nil
			for j := range 10 {
				q.ResourceNamesSubscribe = append(q.ResourceNamesSubscribe, fmt.Sprint("n-", i, "-", n, "-", j))
			}
			if s.Send(q) != nil {
				return
			}
			a.hit(1)
			q.Node = nil
		}
	})
}

// manyNames subscribes to half of names_per_stream at once, and then to one more name in each request.
func manyNames(a *assault) {
	a.streams(a.size, func(i int, s stream) {
		q := &discoveryv3.DeltaDiscoveryRequest{Node: node("names", honest), TypeUrl: string(xds.EndpointType)}
		go discard(s)
		for j := range 49_000 {
			q.ResourceNamesSubscribe = append(q.ResourceNamesSubscribe, fmt.Sprint("m-", i, "-", j))
		}
		for n := 0; s.Send(q) == nil; n++ {
			a.hit(1)
			q.Node, q.ResourceNamesSubscribe = nil, []string{fmt.Sprint("n-", i, "-", n)}
		}
	})
}

// unknownTypes subscribes to types that the origin does not know, on stream after stream.
func unknownTypes(a *assault) {
	a.streams(a.size, func(i int, s stream) {
		q := &discoveryv3.DeltaDiscoveryRequest{Node: node("types", honest), ResourceNamesSubscribe: []string{"a"}}
		go discard(s)
		for n := range 30 {
			q.TypeUrl = fmt.Sprintf("type.googleapis.com/hostile.Unknown%d-%d", i, n)
			if s.Send(q) != nil {
				return
			}
			a.hit(1)
			q.Node = nil
		}
		a.wait(100 * time.Millisecond)
	})
}

// secretsWithoutIdentity asks for Secrets, in one request after the other and on stream after stream.
func secretsWithoutIdentity(a *assault) {
	a.streams(a.size, func(i int, s stream) {
		q := &discoveryv3.DeltaDiscoveryRequest{Node: node("secrets", honest), TypeUrl: string(xds.SecretType)}
		go discard(s)
		for n := range 1000 {
			q.ResourceNamesSubscribe = []string{fmt.Sprint("s-", i, "-", n)}
			if s.Send(q) != nil {
				return
			}
			a.hit(1)
			q.Node = nil
		}
	})
}

// keysOfOneClient are streams with a key each, on one connection for each 100.
func keysOfOneClient(a *assault) {
	a.requests(100, func(i, n int) []byte { return ask("n", fmt.Sprint("key-", i, "-", n)) })
}
