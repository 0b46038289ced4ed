package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// protocols are the HTTP versions of REST.
var protocols = []string{"http1", "h2c"}

// httpClient is a client of one of them, with its own connections.
func httpClient(t testing.TB, protocol string) *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(protocol == "http1")
	tr.Protocols.SetUnencryptedHTTP2(protocol == "h2c")
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

var servingREST = regexp.MustCompile(`msg=serving .*? rest=(\S+)`)

// rest is the relay's address for REST.
func (r *relay) rest() string {
	r.t.Helper()
	m := servingREST.FindStringSubmatch(r.Log())
	if m == nil || m[1] == "off" {
		r.t.Fatalf("REST is not served:\n%s", r.Log())
	}
	return "http://" + m[1]
}

// withREST is the configuration of a relay that serves REST.
func withREST(upstream, longPoll string) xdstest.Config {
	return xdstest.Config{"upstream.variant": upstream, "downstream.rest_address": "127.0.0.1:0", "downstream.long_poll": longPoll}
}

// polled is a reply to a poll.
type polled struct {
	status int
	header http.Header
	body   []byte
	answer *discoveryv3.DiscoveryResponse // with status 200
}

// poll posts a request in Envoy's format: canonical JSON with the field names of the proto file.
func poll(ctx context.Context, c *http.Client, base string, typ string, q *discoveryv3.DiscoveryRequest) (*polled, error) {
	body, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(q)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+xds.TypeOf(xds.TypeURL(typ)).REST, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	out := &polled{status: resp.StatusCode, header: resp.Header}
	if out.body, err = io.ReadAll(resp.Body); err != nil || out.status != http.StatusOK {
		return out, err
	}
	out.answer = new(discoveryv3.DiscoveryResponse)
	return out, protojson.Unmarshal(out.body, out.answer)
}

// ask polls once, and accepts any reply.
func (r *relay) ask(c *http.Client, n *corev3.Node, typ string, version string, names ...string) *polled {
	r.t.Helper()
	out, err := poll(xdstest.Context(r.t), c, r.rest(), typ, &discoveryv3.DiscoveryRequest{Node: n, TypeUrl: string(typ), VersionInfo: version, ResourceNames: names})
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// wantRefused fails the test unless a poll was refused with this status and reason.
func wantRefused(t testing.TB, p *polled, status int, reason string) {
	t.Helper()
	var f struct{ Reason, Error string }
	if err := json.Unmarshal(p.body, &f); err != nil || p.status != status || f.Reason != reason || f.Error == "" {
		t.Errorf("%d %s, %v; want %d %s", p.status, p.body, err, status, reason)
	}
}

// restEnvoy is an Envoy that polls, as its HTTP subscriptions do. It has one for all clusters, one
// for all listeners, and one for each load assignment and each route configuration. Each has one
// poll at a time, and keeps its version until it accepts another.
type restEnvoy struct {
	t    testing.TB
	base string
	http *http.Client
	node *corev3.Node
	wg   sync.WaitGroup

	mu     sync.Mutex
	holds  map[string]map[string]proto.Message
	polls  map[string]context.CancelFunc // subscriptions by type and name
	counts map[int]int                   // replies by status
	change chan struct{}                 // closed at each reply
}

func newRESTEnvoy(t testing.TB, base, protocol string, n *corev3.Node) *restEnvoy {
	t.Helper()
	e := &restEnvoy{
		t: t, base: base, http: httpClient(t, protocol), node: n,
		holds: map[string]map[string]proto.Message{
			resource.ClusterType: {}, resource.EndpointType: {}, resource.ListenerType: {}, resource.RouteType: {}},
		polls: make(map[string]context.CancelFunc), counts: make(map[int]int), change: make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); e.wg.Wait() })
	e.mu.Lock()
	defer e.mu.Unlock()
	e.subscribe(ctx, resource.ClusterType)
	e.subscribe(ctx, resource.ListenerType)
	return e
}

// subscribe begins a subscription, unless it exists. The caller holds the lock.
func (e *restEnvoy) subscribe(ctx context.Context, typ string, names ...string) {
	key := fmt.Sprint(typ, names)
	if e.polls[key] != nil {
		return
	}
	own, cancel := context.WithCancel(ctx)
	e.polls[key] = cancel
	e.wg.Go(func() {
		q := &discoveryv3.DiscoveryRequest{Node: e.node, TypeUrl: string(typ), ResourceNames: names}
		refresh := time.NewTicker(5 * time.Millisecond)
		defer refresh.Stop()
		for own.Err() == nil {
			got, err := poll(own, e.http, e.base, typ, q)
			switch {
			case own.Err() != nil:
				return
			case err != nil:
				got = &polled{} // the connection failed
			case got.answer != nil:
				q.VersionInfo = got.answer.VersionInfo
			}
			e.took(ctx, typ, got)
			<-refresh.C
		}
	})
}

// took applies a reply.
func (e *restEnvoy) took(ctx context.Context, typ string, got *polled) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counts[got.status]++
	if got.answer == nil {
		return
	}
	full := typ == resource.ClusterType || typ == resource.ListenerType
	seen := make(map[string]bool)
	for _, a := range got.answer.Resources {
		m, err := a.UnmarshalNew()
		if err != nil {
			e.t.Error(err)
			continue
		}
		_, name := xdstest.NameOf(m)
		seen[name] = true
		e.holds[typ][name] = m
		switch m := m.(type) {
		case *clusterv3.Cluster:
			e.subscribe(ctx, resource.EndpointType, name)
		case *listenerv3.Listener:
			e.subscribe(ctx, resource.RouteType, routesOf(e.t, m))
		}
	}
	if full {
		for name := range e.holds[typ] {
			if seen[name] {
				continue
			}
			delete(e.holds[typ], name)
			if typ == resource.ClusterType { // its endpoints go with it
				key := fmt.Sprint(resource.EndpointType, []string{name})
				e.polls[key]()
				delete(e.polls, key)
				delete(e.holds[resource.EndpointType], name)
			}
		}
	}
	close(e.change)
	e.change = make(chan struct{})
}

func routesOf(t testing.TB, l *listenerv3.Listener) string {
	m := new(hcmv3.HttpConnectionManager)
	if err := l.FilterChains[0].Filters[0].GetTypedConfig().UnmarshalTo(m); err != nil {
		t.Error(err)
	}
	return m.GetRds().GetRouteConfigName()
}

// wait waits until the client holds exactly these resources.
func (e *restEnvoy) wait(what string, resources ...types.Resource) {
	e.t.Helper()
	ctx := xdstest.Context(e.t)
	for {
		e.mu.Lock()
		change, missing := e.change, e.missing(resources)
		e.mu.Unlock()
		if missing == "" {
			return
		}
		select {
		case <-change:
		case <-ctx.Done():
			e.t.Fatalf("%s: %s", what, missing)
		}
	}
}

// missing describes how the client differs. The caller holds the lock.
func (e *restEnvoy) missing(resources []types.Resource) string {
	n := 0
	for _, typ := range slices.Sorted(maps.Keys(e.holds)) {
		n += len(e.holds[typ])
	}
	for _, r := range resources {
		typ, name := xdstest.NameOf(r)
		if !proto.Equal(e.holds[typ][name], r.(proto.Message)) {
			return fmt.Sprintf("holds %v of %s %s", e.holds[typ][name], typ, name)
		}
	}
	if n != len(resources) {
		return fmt.Sprintf("holds %d resources, want %d", n, len(resources))
	}
	return ""
}

// replies counts the replies by status; 0 means no reply at all.
func (e *restEnvoy) replies() map[int]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.counts)
}
