package keystatus

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"xdsrelay/config"
	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/orchestrator"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/upstream/timing"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	cds = xds.ClusterType
	eds = xds.EndpointType
)

// feed is the upstream stream of a key; the test is its origin.
type feed struct {
	t    *testing.T
	id   string
	sink upstream.Sink

	suspended []upstream.Suspended
	ends      *timing.Ends
}

func (f *feed) Suspended() []upstream.Suspended  { return f.suspended }
func (f *feed) Current() *upstream.CurrentOrigin { return nil }
func (f *feed) FrequentEnds() *timing.Ends       { return f.ends }
func (f *feed) Excluding() bool                  { return false }
func (f *feed) SetMetrics(*telemetry.Key)        {}
func (f *feed) SetInterest(*snapshot.Interest)   {}

func (f *feed) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// give applies a response with clusters, each "name=content".
func (f *feed) give(version string, specs ...string) {
	f.t.Helper()
	f.update(snapshot.Update{Type: cds, Origin: "origin", Version: version, Wildcard: true, Received: time.Now()}, specs...)
}

// names applies a response with resources that were requested by name.
func (f *feed) names(typ xds.TypeURL, names ...string) {
	f.t.Helper()
	f.update(snapshot.Update{Type: typ, Origin: "origin", Version: "1", Received: time.Now()}, names...)
}

func (f *feed) update(u snapshot.Update, specs ...string) {
	f.t.Helper()
	for _, s := range specs {
		name, content, _ := strings.Cut(s, "=")
		r := xdstest.Must(xds.NewResource(xds.TypeOf(u.Type), name, xdstest.NamedAny(string(u.Type), name, content)))(f.t)
		u.Changed = append(u.Changed, r)
	}
	xdstest.Must(f.sink.Update(f.t.Context(), u))(f.t)
	synctest.Wait()
}

// fixture is a Reader of a running registry with the rule "key: node.cluster".
type fixture struct {
	*Reader
	t        *testing.T
	registry *orchestrator.Registry
	nodes    xds.NodeTable
	waiting  map[inspect.KeyType]inspect.Waiting

	mu    sync.Mutex
	feeds map[string]*feed // the first of each key
}

var rules = sync.OnceValues(func() (*aggregator.Rules, error) {
	cfg := config.Default()
	cfg.Aggregation.Rules = []config.Rule{{Match: `node.cluster != ""`, Key: config.Strings{"node.cluster"}}}
	return aggregator.Compile(&cfg)
})

// bubble runs f with a running registry, under fake time.
func bubble(t *testing.T, f func(x *fixture)) {
	t.Helper()
	keys := xdstest.Must(rules())(t)
	metrics := xdstest.Must(telemetry.New(telemetry.Options{}))(t)
	synctest.Test(t, func(t *testing.T) {
		x := &fixture{t: t, feeds: make(map[string]*feed)}
		x.registry = xdstest.Must(orchestrator.New(orchestrator.Options{
			Settings: orchestrator.Settings{Keys: keys, Linger: 10 * time.Second, IdleTTL: 10 * time.Minute, MaxIdle: 1000},
			NewSource: func(key xds.Key, _ []byte, sink upstream.Sink, _ *upstream.CurrentOrigin) orchestrator.Source {
				id := key.String()
				f := &feed{t: t, id: id, sink: sink}
				x.mu.Lock()
				defer x.mu.Unlock()
				if x.feeds[id] == nil {
					x.feeds[id] = f
				}
				return f
			},
			Metrics: metrics, Log: slog.New(slog.DiscardHandler),
		}))(t)
		x.waiting = make(map[inspect.KeyType]inspect.Waiting)
		x.Reader = New(x.registry, func() map[inspect.KeyType]inspect.Waiting { return x.waiting }, nil)
		defer xdstest.Run(t, x.registry.Run)()
		synctest.Wait()
		f(x)
	})
}

// later returns when d has passed on the bubble's clock.
func (x *fixture) later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (x *fixture) feed(key string) *feed {
	x.t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	f := x.feeds[key]
	if f == nil {
		x.t.Fatalf("no stream of key %s was opened", key)
	}
	return f
}

// waker ignores calls.
type waker struct{}

func (waker) Wake() {}

// joined is a client with one type.
type joined struct {
	subscriber.Client
	subscriber.Subscriber
}

// join joins as a node of a cluster and subscribes to names; "*" is the wildcard.
func (x *fixture) join(cluster string, typ xds.TypeURL, names ...string) joined {
	x.t.Helper()
	raw := xdstest.Must(proto.Marshal(&corev3.Node{Id: "node-of-" + cluster, Cluster: cluster}))(x.t)
	node := xdstest.Must(x.nodes.Intern(raw))(x.t)
	client := x.registry.Join(subscriber.Info{Node: node, PeerID: "10.0.0.1", End: func(*refusal.Refusal) {}})
	sub := xdstest.Must(client.Subscribe(typ, waker{}))(x.t)
	if len(names) > 0 {
		sub.Request(sub.Intern(subscription(names...)))
	}
	synctest.Wait()
	return joined{client, sub}
}

func subscription(names ...string) *snapshot.Subscription {
	s := &snapshot.Subscription{Wildcard: slices.Contains(names, "*")}
	s.Names = xds.NewNameSet(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "*" })...)
	return s
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
