package model

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/cluster"
	"xdsrelay/internal/cluster/clustertest"
	"xdsrelay/internal/fanout"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/orchestrator"
	"xdsrelay/internal/ownership"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// clusterFixture is a cluster of whole relays with one origin and clients, in a bubble.
type clusterFixture struct {
	t       *testing.T
	ctx     context.Context
	o       *origin
	n       *network
	variant xds.Variant // of the origin
	parts   sync.WaitGroup

	// The locks below are taken in this order.
	contentMu sync.Mutex
	clock     int              // of the origin's content
	removed   map[string][]int // type and name: when the origin removed it, by its clock

	mu        sync.Mutex
	relays    []*relay // the running ones, in the order of their names
	hosts     int      // so far
	watchers  []*watcher
	wild      map[string]bool // key and type: clients have the wildcard
	byName    map[string]bool // or names
	events    int             // in progress
	quietFrom time.Time       // when the last event ended
	failures  []string
	lines     []string // the newest of the log
	loggedAt  time.Time
	atOnce    int           // how many lines were logged then
	breaks    time.Duration // between responses of the origin, at most

	node  func(*corev3.Node) *corev3.Node // as upstream.node
	disks map[string]*disk                // of the relays, by name; nil: it has none

	diceMu sync.Mutex
	dice   *rand.Rand
}

// relay is one start of a relay of a cluster.
type relay struct {
	name, host string
	compat     string

	cluster   *cluster.Cluster
	transport *clustertest.Transport
	table     *ownership.Table
	clients   *fanout.Server
	members   *fanout.Server
	down      *bufconn.Listener // for clients
	servers   []*grpc.Server
	end       context.CancelFunc
	parts     sync.WaitGroup

	ending bool // protected by the fixture's lock: it does not take new clients
}

// settleTime is how long after an event the cluster has to be at rest.
const settleTime = 60 * time.Second

// inCluster runs f with a cluster of n relays in a bubble.
func inCluster(t *testing.T, v xds.Variant, n int, seed uint64, f func(w *clusterFixture)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		w := &clusterFixture{
			t: t, ctx: ctx, o: startOrigin(), n: newNetwork(), variant: v, disks: make(map[string]*disk),
			node: func(n *corev3.Node) *corev3.Node { return &corev3.Node{Id: "relay", Cluster: n.Cluster} },
			dice: rand.New(rand.NewPCG(seed, 1)), removed: make(map[string][]int), wild: make(map[string]bool), byName: make(map[string]bool),
		}
		w.o.dirty, w.o.keep, w.o.splits = make(chan struct{}, 1), 2000, true
		for _, typ := range types {
			for _, name := range permanent {
				w.put(typ, name)
			}
		}
		w.parts.Go(w.pump)
		w.event(func() {
			for i := range n {
				w.start(fmt.Sprint("relay-", i), "c1")
			}
		})
		defer func() {
			for _, c := range w.watchers {
				c.cancel()
				<-c.done
			}
			for _, r := range slices.Clone(w.relays) {
				w.kill(r)
			}
			cancel()
			w.o.stop()
			w.parts.Wait()
			time.Sleep(clustertest.Ends)
		}()
		f(w)
		w.check("at the end")
	})
}

// pick draws a number below n. Any goroutine.
func (w *clusterFixture) pick(n int) int {
	w.diceMu.Lock()
	defer w.diceMu.Unlock()
	return w.dice.IntN(n)
}

// pump sends what is pending at the origin, until the bubble ends.
func (w *clusterFixture) pump() {
	for {
		select {
		case <-w.o.dirty:
		case <-w.ctx.Done():
			return
		}
		for w.o.say(w.pick) {
			w.mu.Lock()
			wait := w.breaks
			w.mu.Unlock()
			if wait > 0 {
				time.Sleep(time.Duration(w.pick(int(wait))))
			}
		}
	}
}

func (w *clusterFixture) put(typ xds.TypeURL, name string) {
	w.contentMu.Lock()
	defer w.contentMu.Unlock()
	w.clock++
	w.o.put(typ, name, w.clock)
}

func (w *clusterFixture) remove(typ xds.TypeURL, name string) {
	w.contentMu.Lock()
	defer w.contentMu.Unlock()
	w.clock++
	w.removed[string(typ)+name] = append(w.removed[string(typ)+name], w.clock)
	w.o.remove(typ, name)
}

// removedAfter is when the origin first removed a name after it put a content, as content that is put then
// has; 0: it did not.
func (w *clusterFixture) removedAfter(typ xds.TypeURL, name string, content int) int {
	w.contentMu.Lock()
	defer w.contentMu.Unlock()
	for _, at := range w.removed[string(typ)+name] {
		if at > content {
			return at
		}
	}
	return 0
}

// removedLately reports whether a relay may still have a resource that the origin removed: it delays
// the deletion, and so does the one that it asks (P36).
func (w *clusterFixture) removedLately(typ xds.TypeURL, name string) bool {
	w.o.mu.Lock()
	defer w.o.mu.Unlock()
	at := w.o.removals[string(typ)+name]
	return len(at) > 0 && time.Since(at[len(at)-1]) < settleTime
}

// fail records a failure. Any goroutine.
func (w *clusterFixture) fail(format string, args ...any) {
	w.log("FAILURE: "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = append(w.failures, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// maxLines bounds the log that a failed test prints.
const maxLines = 3000

// maxLinesAtOnce is more than any cluster logs within a second. A relay that does something again and
// again would not let the time of the bubble pass.
const maxLinesAtOnce = 20000

func (w *clusterFixture) log(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.atOnce++; time.Since(w.loggedAt) > time.Second {
		w.loggedAt, w.atOnce = time.Now(), 0
	}
	if w.atOnce > maxLinesAtOnce {
		panic("no time passes:\n" + strings.Join(w.lines[len(w.lines)-100:], "\n"))
	}
	w.lines = append(w.lines, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	if len(w.lines) >= 2*maxLines {
		w.lines = append([]string(nil), w.lines[maxLines:]...)
	}
}

// logWriter has the log lines of a relay.
type logWriter struct {
	w    *clusterFixture
	name string
}

func (l logWriter) Write(b []byte) (int, error) {
	l.w.log("%s: %s", l.name, strings.TrimSpace(string(b)))
	return len(b), nil
}

// event runs f as an event, which may disturb clients.
func (w *clusterFixture) event(f func()) {
	w.mu.Lock()
	w.events++
	w.mu.Unlock()
	f()
	w.mu.Lock()
	w.events--
	w.quietFrom = time.Now()
	w.mu.Unlock()
}

// disturbed reports whether there is an event, or was one lately.
func (w *clusterFixture) disturbed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events > 0 || time.Since(w.quietFrom) < settleTime
}

// quietSince is when the last event ended.
func (w *clusterFixture) quietSince() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.quietFrom
}

// start starts a relay on a new host.
func (w *clusterFixture) start(name, compat string) *relay {
	w.mu.Lock()
	w.hosts++
	host := netip.AddrFrom4([4]byte{10, 0, byte(w.hosts >> 8), byte(w.hosts)}).String()
	w.mu.Unlock()
	return w.startOn(host, name, compat)
}

// resolve returns the hosts of the running relays, as a headless Service does.
func (w *clusterFixture) resolve(context.Context, string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []netip.Addr
	for _, r := range w.relays {
		out = append(out, netip.MustParseAddr(r.host))
	}
	return out, nil
}

// startOn starts a relay.
func (w *clusterFixture) startOn(host, name, compat string) *relay {
	t := w.t
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	m, err := metrics()
	must(err)
	keys, err := rules()
	must(err)
	r := &relay{name: name, host: host, compat: compat, transport: w.n.gossip.Transport(host + gossipPort), down: bufconn.Listen(1 << 16)}
	log := slog.New(slog.NewTextHandler(logWriter{w, name}, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	r.cluster, err = cluster.New(cluster.Options{
		Name: name, Version: "v1", Label: "model", Address: "0.0.0.0" + memberPort, Join: []string{"relays" + gossipPort},
		Gossip: netip.MustParseAddrPort(host + gossipPort), Transport: r.transport, Resolve: w.resolve, Metrics: m, Log: log,
	})
	must(err)
	r.cluster.SetCompat(compat)
	r.table = ownership.New(ownership.Options{Cluster: r.cluster, Compat: func() string { return compat }, Credentials: insecure.NewCredentials()})
	origins, err := upstream.New(upstream.Options{
		Origins: []upstream.OriginOptions{{Name: "origin", Address: "passthrough:///" + originHost, Variant: w.variant, Keepalive: upstream.Keepalive{Time: 10 * time.Second, Timeout: 5 * time.Second}}},
		Order:   r.table.Order, Dialer: w.n.dialer(host), Metrics: m, Log: log,
	})
	must(err)
	o := orchestrator.Options{
		Settings: orchestrator.Settings{Keys: keys, RemovalDelay: removalDelay, Linger: linger, IdleTTL: 10 * time.Minute, MaxIdle: 10},
		NewSource: func(key xds.Key, node []byte, sink upstream.Sink, first *upstream.CurrentOrigin) orchestrator.Source {
			return origins.NewSource(key, node, sink, first)
		},
		Node: func(n *xds.Node) ([]byte, error) {
			node := new(corev3.Node)
			if err := proto.Unmarshal(n.Bytes(), node); err != nil {
				return nil, err
			}
			return proto.Marshal(w.node(node))
		},
		Owns: r.table.Owns, Seeds: r.table.Seeds, SotWOrigins: w.variant == xds.SotW, FirstAnswerTimeout: 10 * time.Second, Metrics: m, Log: log,
	}
	if d := w.disks[name]; d != nil {
		o.Store = d
	}
	registry, err := orchestrator.New(o)
	must(err)
	r.clients = fanout.NewServer(fanout.Options{Joiner: registry, Metrics: m, Log: log, Replica: name, Settings: fanout.Settings{AckTimeout: ackTimeout}})
	r.members = fanout.NewServer(fanout.Options{Joiner: r.table.Joiner(registry), Metrics: m, Log: log, Replica: name, Settings: fanout.Settings{AckTimeout: ackTimeout},
		RelayKey: r.table.RelayKey})

	var ctx context.Context
	ctx, r.end = context.WithCancel(context.Background())
	run := func(f func(context.Context) error) {
		r.parts.Go(func() {
			if err := f(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	serve := func(s *fanout.Server, l *bufconn.Listener, k fanout.Keepalive) {
		g := grpc.NewServer(s.ServerOptions(k)...)
		s.Register(g)
		if s == r.members {
			r.table.RegisterSeeds(g, registry.Seed)
		}
		r.servers = append(r.servers, g)
		run(s.Run)
		r.parts.Go(func() {
			if err := g.Serve(s.Listen(l, &listener.Policy{Key: "model"})); err != nil && !errors.Is(err, grpc.ErrServerStopped) && ctx.Err() == nil {
				w.log("%s: serve: %v", name, err)
			}
		})
	}
	// The origin is reached through a listener of its own for each host.
	up := w.n.listen(originHost + "/" + host)
	w.o.serving.Go(func() { _ = w.o.server.Serve(hostListener{up, host}) }) // it ends by Stop
	run(origins.Run)
	run(registry.Run)
	run(r.cluster.Run)
	run(func(ctx context.Context) error { return r.table.Run(ctx, origins, log) })
	<-registry.Running()
	serve(r.members, w.n.listen(host+memberPort), fanout.Keepalive{Time: 10 * time.Second, Timeout: 5 * time.Second, MinTime: 5 * time.Second})
	w.mu.Lock()
	w.relays = append(w.relays, r)
	slices.SortFunc(w.relays, func(a, b *relay) int { return strings.Compare(a.name, b.name) })
	r.ending = true // until it is ready
	w.mu.Unlock()
	w.log("start %s on %s with %s", name, host, compat)
	r.parts.Go(func() {
		select {
		case <-r.cluster.Joined():
		case <-ctx.Done():
			return
		}
		r.cluster.SetReady(true)
		serve(r.clients, r.down, fanout.Keepalive{Time: time.Hour, Timeout: time.Hour, MinTime: time.Second})
		w.mu.Lock()
		r.ending = false
		w.mu.Unlock()
	})
	return r
}

// kill ends a relay at once, without a word to others.
func (w *clusterFixture) kill(r *relay) {
	w.mu.Lock()
	r.ending = true
	w.relays = slices.DeleteFunc(w.relays, func(x *relay) bool { return x == r })
	w.mu.Unlock()
	_ = r.transport.Shutdown() // it returns nil
	w.n.remove(r.host)
	r.stop()
}

// stop ends the parts of a relay.
func (r *relay) stop() {
	r.end()
	_ = r.down.Close()
	for _, g := range r.servers {
		g.Stop()
	}
	r.parts.Wait()
}

// drain ends a relay as a SIGTERM does.
func (w *clusterFixture) drain(r *relay) {
	w.log("drain %s", r.name)
	w.mu.Lock()
	r.ending = true
	w.mu.Unlock()
	r.cluster.SetDraining(true)
	r.members.RefuseStreams()
	r.clients.Drain(w.ctx, 5*time.Second)
	time.Sleep(5 * time.Second)
	r.members.Drain(w.ctx, 0)
	w.mu.Lock()
	w.relays = slices.DeleteFunc(w.relays, func(x *relay) bool { return x == r })
	w.mu.Unlock()
	r.stop()
	w.n.remove(r.host)
}

// join starts a client of a key, after edit.
func (w *clusterFixture) join(key string, v xds.Variant, subs map[xds.TypeURL]*watched, edit ...func(*watcher)) *watcher {
	ctx, cancel := context.WithCancel(w.ctx)
	c := &watcher{id: fmt.Sprintf("client-%d-%s", len(w.watchers), key), key: key, v: v, w: w, subs: subs, cancel: cancel, done: make(chan struct{})}
	for typ, t := range subs {
		t.typ, t.holds, t.versions = typ, make(map[string]int), make(map[string]string)
		w.mu.Lock()
		w.wild[key+string(typ)] = w.wild[key+string(typ)] || t.wild
		w.byName[key+string(typ)] = w.byName[key+string(typ)] || !t.wild
		w.mu.Unlock()
	}
	for _, f := range edit {
		f(c)
	}
	w.watchers = append(w.watchers, c)
	go c.run(ctx)
	return c
}

// hasBoth reports whether clients of a key subscribe to a type's wildcard and to names.
func (w *clusterFixture) hasBoth(key string, typ xds.TypeURL) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wild[key+string(typ)] && w.byName[key+string(typ)]
}

// relayFor chooses the relay for a client's next stream; nil: there is none.
func (w *clusterFixture) relayFor(c *watcher) *relay {
	w.mu.Lock()
	defer w.mu.Unlock()
	serving := slices.DeleteFunc(slices.Clone(w.relays), func(r *relay) bool { return r.ending || c.only != "" && r.name != c.only })
	if len(serving) == 0 {
		return nil
	}
	return serving[w.pick(len(serving))]
}

// streamEnded checks that a client's stream had to end.
func (w *clusterFixture) streamEnded(c *watcher, at *relay, answered bool, err error) {
	w.mu.Lock()
	ending := at.ending
	w.mu.Unlock()
	w.log("the stream of %s at %s ended: %s", c.id, at.name, text(err))
	switch {
	case ending:
	case !answered && w.disturbed() && strings.Contains(err.Error(), "none of the requested resources"): // P53
	default:
		w.fail("the stream of %s at %s ended: %s", c.id, at.name, text(err))
	}
}

// sleepInBubble lets the bubble's time pass.
func sleepInBubble(d time.Duration) { time.Sleep(d) }
