package orchestrator

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"xdsrelay/config"
	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/upstream/timing"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// feed is the upstream stream of a key. The test acts as its origin.
type feed struct {
	id   string
	node []byte
	sink *feedSink

	mu        sync.Mutex
	interests []*snapshot.Interest
	running   bool
	ended     bool
	fail      chan error // ends Run early

	excluding atomic.Bool
}

// feedSink adds to a Status what an upstream.Source says of a stream by itself: its number, when it
// was opened, and that it had a response.
type feedSink struct {
	*upstreamHandle

	mu      sync.Mutex
	newest  upstream.Status
	streams uint64
}

func (s *feedSink) Status(st upstream.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !st.Connected:
	case !st.Responded && st.SilentSince.IsZero() && st.Arriving == 0: // a stream was opened
		s.streams++
		st.Stream, st.OpenedAt = s.streams, time.Now()
	default:
		st.Stream, st.OpenedAt, st.Responded = s.newest.Stream, s.newest.OpenedAt, st.Responded || s.newest.Responded
	}
	s.newest = st
	s.upstreamHandle.Status(st)
}

func (s *feedSink) Update(ctx context.Context, u snapshot.Update) (changed bool, err error) {
	s.mu.Lock()
	if s.newest.Connected && !u.Ended {
		s.newest.Responded = true
		s.upstreamHandle.Status(s.newest)
	}
	s.mu.Unlock()
	return s.upstreamHandle.Update(ctx, u)
}

func (f *feed) Suspended() []upstream.Suspended  { return nil }
func (f *feed) Current() *upstream.CurrentOrigin { return nil }
func (f *feed) FrequentEnds() *timing.Ends       { return nil }
func (f *feed) Excluding() bool                  { return f.excluding.Load() }
func (f *feed) SetMetrics(*telemetry.Key)        {}

func (f *feed) SetInterest(i *snapshot.Interest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.interests = append(f.interests, i)
}

func (f *feed) Run(ctx context.Context) error {
	f.setRunning(true)
	defer f.setRunning(false)
	select {
	case <-ctx.Done():
		return nil
	case err := <-f.fail:
		return err
	}
}

func (f *feed) setRunning(b bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running, f.ended = b, !b
}

func (f *feed) over() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

func (f *feed) alive() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running
}

// said returns how many times the interest was set.
func (f *feed) said() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.interests)
}

// requested returns what is subscribed of a type: "*", or the names.
func (f *feed) requested(typ xds.TypeURL) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.newest().Of(typ)
	names := slices.Collect(of.Names.All())
	if of.Wildcard {
		names = append(names, "*")
	}
	return strings.Join(names, " ")
}

// newest returns the newest interest; nil: none was set. The caller holds the lock.
func (f *feed) newest() *snapshot.Interest {
	if len(f.interests) == 0 {
		return nil
	}
	return f.interests[len(f.interests)-1]
}

// registryFixture is a registry with the rule "key: node.cluster" and its origins.
type registryFixture struct {
	t   testing.TB
	reg *Registry

	nodes xds.NodeTable
	stop  func()

	mu    sync.Mutex
	feeds []*feed // in the order in which they were opened
}

var rules = sync.OnceValues(func() (*aggregator.Rules, error) {
	cfg := config.Default()
	cfg.Aggregation.Rules = []config.Rule{
		{Match: `node.id == "keyless"`, Key: config.Strings{"node.cluster"}},
		{Match: `node.cluster != ""`, Key: config.Strings{"node.cluster"}},
	}
	return aggregator.Compile(&cfg)
})

func options(t testing.TB) Options {
	t.Helper()
	keys, err := rules()
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := telemetry.New(telemetry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Settings: Settings{Keys: keys, Linger: 10 * time.Second, IdleTTL: 10 * time.Minute, MaxIdle: 1000},
		Metrics:  metrics, Log: slog.New(slog.DiscardHandler),
		FirstAnswerTimeout: 15 * time.Second,
	}
}

// newRegistryFixture makes a registry that is not running.
func newRegistryFixture(t testing.TB, o Options) *registryFixture {
	t.Helper()
	w := &registryFixture{t: t, stop: func() {}}
	o.NewSource = func(key xds.Key, node []byte, sink upstream.Sink, _ *upstream.CurrentOrigin) Source {
		f := &feed{id: key.String(), node: node, sink: &feedSink{upstreamHandle: sink.(*upstreamHandle)}, fail: make(chan error, 1)}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.feeds = append(w.feeds, f)
		return f
	}
	var err error
	if w.reg, err = New(o); err != nil {
		t.Fatal(err)
	}
	return w
}

// bubble runs f with a running registry, under fake time.
func bubble(t *testing.T, edit func(*Options), f func(w *registryFixture)) {
	t.Helper()
	o := options(t)
	if edit != nil {
		edit(&o)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newRegistryFixture(t, o)
		w.run()
		defer w.stop() // also where f ends the test, because the end of the bubble would hide the cause
		f(w)
		w.check()
	})
}

// check checks the invariants of all groups once all goroutines are idle.
func (w *registryFixture) check() {
	w.t.Helper()
	synctest.Wait()
	for _, g := range w.reg.Groups() {
		g.mailbox.mu.Lock() // the next step takes it first, so the group's goroutine comes after this one
		err := g.check()
		g.mailbox.mu.Unlock()
		if err != nil {
			w.t.Errorf("key %s: %v", g.key, err)
		}
	}
}

// goesOn ends the process if a test takes much longer than expected, by the wall clock. A group
// that loops without waiting would stop the fake clock. It must be called outside of the bubble.
func goesOn(t *testing.T) {
	t.Helper()
	name := t.Name()
	end := time.AfterFunc(10*time.Second, func() { panic(name + " does not come to its end: a group spins") })
	t.Cleanup(func() { end.Stop() })
}

// pass lets fake time pass and waits until all goroutines are idle. Outside of a bubble it panics,
// as Wait does, because no test may sleep.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *registryFixture) run() {
	w.stop = xdstest.Run(w.t, w.reg.Run)
	synctest.Wait()
}

// streams returns the streams of a key's newest group that have not ended, in the order of opening.
func (w *registryFixture) streams(key string) []*feed {
	w.mu.Lock()
	feeds := slices.Clone(w.feeds)
	w.mu.Unlock()
	feeds = slices.DeleteFunc(feeds, func(f *feed) bool { return f.id != key })
	if len(feeds) == 0 {
		return nil
	}
	newest := feeds[len(feeds)-1].sink.group
	return slices.DeleteFunc(feeds, func(f *feed) bool { return f.sink.group != newest || f.over() })
}

// feed returns the stream of a key: the first if it has two, the newest ended one if it has none.
func (w *registryFixture) feed(key string) *feed {
	w.t.Helper()
	if now := w.streams(key); len(now) > 0 {
		return now[0]
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range slices.Backward(w.feeds) {
		if f.id == key {
			return f
		}
	}
	w.t.Fatalf("no stream of key %s was opened", key)
	return nil
}

// second returns the second stream of a key, and fails the test if there is none.
func (w *registryFixture) second(key string) *feed {
	w.t.Helper()
	synctest.Wait()
	now := w.streams(key)
	if len(now) != 2 {
		w.t.Fatalf("key %s has %d streams, want 2", key, len(now))
	}
	return now[1]
}

// status returns what the group of a key publishes. The key must be in use.
func (w *registryFixture) status(key string) Status {
	w.t.Helper()
	g := w.reg.Group(xds.NewKey(key))
	if g == nil {
		w.t.Fatalf("key %s is not in use", key)
	}
	return g.Status()
}

func (w *registryFixture) opened() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.feeds)
}

func (w *registryFixture) node(n *corev3.Node) *xds.Node {
	raw, err := proto.Marshal(n)
	if err != nil {
		w.t.Fatal(err)
	}
	node, err := w.nodes.Intern(raw)
	if err != nil {
		w.t.Fatal(err)
	}
	return node
}

// testClient is a client with one type.
type testClient struct {
	w *registryFixture
	subscriber.Subscriber
	joined subscriber.Client

	mu    sync.Mutex
	wakes int
	saw   uint64 // number of the State when it was last woken
	ended *refusal.Refusal
	left  bool
}

// acks acknowledges the newest snapshot of a type.
func (c *testClient) acks(typ xds.TypeURL) {
	s := c.State().Snapshot(typ)
	c.Acked(s.Gen, s)
}

func (c *testClient) Wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left {
		c.w.t.Error("woken after Leave")
	}
	c.wakes++
	if s := c.State(); s != nil {
		c.saw = s.Number
	}
}

func (c *testClient) End(r *refusal.Refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left {
		c.w.t.Error("ended after Leave")
	}
	if c.ended == nil {
		c.ended = r
	}
}

// woken returns how often the client was woken since the last call.
func (c *testClient) woken() int {
	c.w.check()
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.wakes
	c.wakes = 0
	return n
}

func (c *testClient) refusal() *refusal.Refusal {
	c.w.check()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// want subscribes to names. "*" is the wildcard.
func (c *testClient) want(names ...string) *testClient {
	c.Request(c.Intern(subscription(names...)))
	return c
}

// leave leaves. After it nothing may call the Waker.
func (c *testClient) leave() {
	c.joined.Leave()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = true
}

// alsoRoutes has the client subscribe to routes as well, without a name.
func (c *testClient) alsoRoutes() {
	if _, err := c.joined.Subscribe(rds, c); err != nil {
		c.w.t.Error(err)
	}
}

func (c *testClient) of() *clientType { return c.Subscriber.(*clientType) }

// sees returns what the client may know about a name: its content, "-" for absent and "?" for
// pending.
func (c *testClient) sees(sub *snapshot.Subscription, name string) string {
	c.w.check()
	r, is := c.State().Snapshot(c.of().typ).Look(sub, name)
	switch is {
	case snapshot.Present:
		return contentOf(r)
	case snapshot.Absent:
		return "-"
	}
	return "?"
}

func subscription(names ...string) *snapshot.Subscription {
	s := &snapshot.Subscription{Wildcard: slices.Contains(names, "*")}
	s.Names = xds.NewNameSet(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "*" })...)
	return s
}

// try joins as a node of a cluster.
func (w *registryFixture) try(cluster string, typ xds.TypeURL) (*testClient, error) {
	return w.tryNode(&corev3.Node{Id: "node-of-" + cluster, Cluster: cluster}, "10.0.0.1", typ)
}

func (w *registryFixture) tryNode(n *corev3.Node, peer string, typ xds.TypeURL) (*testClient, error) {
	c := &testClient{w: w}
	c.joined = w.reg.Join(subscriber.Info{Node: w.node(n), PeerID: peer, End: c.End})
	m, err := c.joined.Subscribe(typ, c)
	c.Subscriber = m
	if (m == nil) == (err == nil) {
		w.t.Fatalf("Join returned %v and %v", m, err)
	}
	synctest.Wait()
	return c, err
}

// join joins and fails the test if it cannot.
func (w *registryFixture) join(cluster string, typ xds.TypeURL) *testClient {
	w.t.Helper()
	c, err := w.try(cluster, typ)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// update hands over an update of names ("a=1" changed, "a" removed) and waits for its effects.
func (f *feed) update(t testing.TB, typ xds.TypeURL, wildcard bool, what ...string) {
	t.Helper()
	u := snapshot.Update{Type: typ, Origin: "origin", Wildcard: wildcard, Received: time.Now()}
	for _, s := range what {
		if name, value, ok := strings.Cut(s, "="); ok {
			u.Changed = append(u.Changed, resource(t, typ, name, value))
		} else {
			u.Removed = append(u.Removed, s)
		}
	}
	f.hand(t, u)
}

// version hands over an update of clusters, with the origin's version.
func (f *feed) version(t testing.TB, version, name, value string) {
	t.Helper()
	f.hand(t, snapshot.Update{Type: cds, Origin: "origin", Version: version, Wildcard: true, Received: time.Now(),
		Changed: []*xds.Resource{resource(t, cds, name, value)}})
}

// part hands over a part of a delta origin's answer to a wildcard.
func (f *feed) part(t testing.TB, typ xds.TypeURL, names ...string) {
	t.Helper()
	u := snapshot.Update{Type: typ, Origin: "origin", Wildcard: true, Partial: true, Received: time.Now()}
	for _, name := range names {
		u.Changed = append(u.Changed, resource(t, typ, name, "1"))
	}
	f.hand(t, u)
}

// hand hands an update over for what is requested now.
func (f *feed) hand(t testing.TB, u snapshot.Update) {
	t.Helper()
	f.mu.Lock()
	u.WildcardID = f.newest().Of(u.Type).WildcardID
	f.mu.Unlock()
	if _, err := f.sink.Update(context.Background(), u); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// resource makes a resource of any type.
func resource(t testing.TB, typ xds.TypeURL, name, value string) *xds.Resource {
	t.Helper()
	r, err := xds.NewResource(xds.TypeOf(typ), name, xdstest.NamedAny(string(typ), name, value))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// contentOf returns the value that resource put in.
func contentOf(r *xds.Resource) string { return xdstest.ContentOf(r.Any()) }

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%06d", prefix, i)
	}
	return out
}
