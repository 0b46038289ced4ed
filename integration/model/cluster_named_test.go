package model

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/store"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Faults of a cluster that a rule of its own prevents. docs/development.md lists them with the rule.

// disk is a store in memory, which outlives the relays that have it.
type disk struct {
	mu    sync.Mutex
	files map[xds.Key]map[xds.TypeURL]storedFile
}

type storedFile struct {
	bytes string
	at    time.Time
}

func newDisk() *disk { return &disk{files: make(map[xds.Key]map[xds.TypeURL]storedFile)} }

// Load implements orchestrator.Store.
func (d *disk) Load(_ context.Context, key xds.Key) map[xds.TypeURL]*store.Stored {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[xds.TypeURL]*store.Stored)
	for typ, f := range d.files[key] {
		_, s, err := store.Decode([]byte(f.bytes))
		if err != nil {
			panic(err) // Put has encoded it
		}
		s.Received = f.at
		out[typ] = &store.Stored{Snapshot: s}
	}
	return out
}

// Put implements orchestrator.Store.
func (d *disk) Put(key xds.Key, typ xds.TypeURL, s *snapshot.Snapshot) {
	b, err := store.Encode(key, s)
	if err != nil {
		panic(err) // it is written to memory
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files[key] == nil {
		d.files[key] = make(map[xds.TypeURL]storedFile)
	}
	d.files[key][typ] = storedFile{string(b), s.Received}
}

// file is what is stored of a type of a key.
func (d *disk) file(key string, typ xds.TypeURL) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.files[xds.NewKey(key)][typ].bytes
}

// clientOf starts a client that uses one relay only.
func (w *clusterFixture) clientOf(r *relay, key string, v xds.Variant, subs map[xds.TypeURL]*watched, edit ...func(*watcher)) *watcher {
	return w.join(key, v, subs, append(edit, func(c *watcher) { c.only = r.name })...)
}

// wild subscribes to the wildcards of types.
func wild(all ...xds.TypeURL) map[xds.TypeURL]*watched {
	out := make(map[xds.TypeURL]*watched)
	for _, typ := range all {
		out[typ] = &watched{wild: true}
	}
	return out
}

// ranked returns the relays in the order in which they may own a key.
func (w *clusterFixture) ranked(key string) (out []*relay) {
	for _, m := range w.running()[0].cluster.Candidates(xds.NewKey(key)) {
		out = append(out, w.named(m.Name))
	}
	return out
}

// mustHold fails the test if a client does not have what the origin has.
func (w *clusterFixture) mustHold(when string, clients ...*watcher) {
	for _, c := range clients {
		if err := c.differs(); err != nil {
			w.fail("%s, %s (%v): %v", when, c.id, c.v, err)
		}
	}
}

// The owner restarts, and its stream to the origin breaks in the middle of a wildcard's answer, again and
// again. What the owner has of it is not given to followers, which would take it for all.
func TestCluster_AnswerBreaks(t *testing.T) {
	inCluster(t, xds.Delta, 3, 1, func(w *clusterFixture) {
		for i := range 100 {
			w.put(cds, fmt.Sprint("p", i))
		}
		w.rest("start")
		ranked := w.ranked("a")
		for _, r := range ranked[1:] {
			for _, v := range []xds.Variant{xds.Delta, xds.SotW} {
				w.clientOf(r, "a", v, wild(cds))
			}
		}
		w.rest("clients")
		w.event(func() {
			w.mu.Lock()
			w.breaks = 100 * time.Millisecond
			w.mu.Unlock()
			both(func() {
				w.restarted(ranked[0])
				w.restarted(ranked[2]) // its clients resume, and it holds only what the owner gives it
			}, func() {
				for range 50 {
					sleepInBubble(400 * time.Millisecond)
					w.o.cut()
				}
			})()
			w.mu.Lock()
			w.breaks = 0
			w.mu.Unlock()
			w.o.wake()
		})
		w.rest("breaks")
	})
}

// A relay forgets a wildcard, and a client subscribes to it before the stream to the source is replaced. A
// change that the source sent meanwhile is not the answer to it.
func TestCluster_SubscribesAsLingerEnds(t *testing.T) {
	for name, v := range variants {
		for rank := range 2 {
			t.Run(fmt.Sprint(name, "/", rank), func(t *testing.T) {
				t.Parallel()
				inCluster(t, v, 2, 1, func(w *clusterFixture) {
					w.rest("start")
					r := w.ranked("a")[rank]
					w.clientOf(r, "a", xds.Delta, wild(lds)) // the key stays in use
					both := func() map[xds.TypeURL]*watched { return wild(cds, eds) }
					c := w.clientOf(r, "a", xds.SotW, both())
					for after := range 5 { // ms: the stream is replaced after 5 ms
						sleepInBubble(20 * time.Second)
						c.cancel()
						<-c.done
						w.watchers = w.watchers[:1]
						sleepInBubble(linger + time.Duration(after)*time.Millisecond)
						was := c.subs
						c = w.clientOf(r, "a", xds.SotW, both(), func(c *watcher) {
							for typ, t := range c.subs {
								t.holds, t.version = was[typ].holds, was[typ].version
							}
						})
						for range 10 {
							sleepInBubble(500 * time.Microsecond)
							w.put(cds, "p")
							w.put(eds, "p")
						}
					}
					w.rest("changes")
				})
			})
		}
	}
}

// All relays restart while the origin is away, and one of them has no disk. Nobody is sent an empty set,
// and new clients of each relay are served.
func TestCluster_AllRestartWithoutOrigin(t *testing.T) {
	for name, v := range variants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inCluster(t, v, 3, 1, func(w *clusterFixture) {
				w.disks["relay-0"], w.disks["relay-1"] = newDisk(), newDisk()
				for _, r := range w.running()[:2] {
					w.restarted(r) // now it has the disk
				}
				w.rest("start")
				for _, r := range w.running() {
					w.clientOf(r, "a", xds.Delta, wild(types...))
					w.clientOf(r, "a", xds.SotW, wild(types...))
				}
				w.rest("clients")
				w.event(func() {
					w.o.leave(true)
					for _, r := range w.running() {
						w.restarted(r)
					}
					sleepInBubble(settleTime)
					for _, r := range w.running() {
						w.clientOf(r, "a", xds.Delta, wild(types...))
						w.clientOf(r, "a", xds.SotW, wild(types...))
					}
					sleepInBubble(settleTime)
					w.mustHold("without the origin", w.watchers...)
					w.o.leave(false)
				})
				w.rest("return")
			})
		})
	}
}

// All clients refuse a cluster, at the owner and at a follower, whose relay acknowledges it to the owner.
// No store has it, and once the origin takes it back, that reaches all clients at once.
func TestCluster_AllRefuse(t *testing.T) {
	inCluster(t, xds.Delta, 3, 1, func(w *clusterFixture) {
		for _, r := range w.running() {
			w.disks[r.name] = newDisk()
			w.restarted(r)
		}
		w.rest("start")
		var mu sync.Mutex
		gone := make(map[string]time.Time) // by client: when it was told that bad is gone
		for _, r := range w.ranked("a")[:2] {
			for _, v := range []xds.Variant{xds.Delta, xds.SotW} {
				w.clientOf(r, "a", v, wild(cds, lds), func(c *watcher) {
					c.refuses = func(m proto.Message) bool {
						text := fmt.Sprint(m)
						if d, ok := m.(*discoveryv3.DeltaDiscoveryResponse); ok && slices.Contains(d.RemovedResources, "bad") || !ok && !strings.Contains(text, "bad") && strings.Contains(text, string(cds)) {
							mu.Lock()
							gone[c.id] = time.Now()
							mu.Unlock()
							return false
						}
						return strings.Contains(text, `"bad"`)
					}
				})
			}
		}
		w.rest("clients")
		before := make(map[string]string)
		for name, d := range w.disks {
			before[name] = d.file("a", cds)
		}
		w.put(cds, "bad")
		sleepInBubble(30 * time.Second)
		for name, d := range w.disks {
			if d.file("a", cds) != before[name] {
				w.fail("%s stores what all clients refuse", name)
			}
		}
		w.remove(cds, "bad")
		removed := time.Now()
		sleepInBubble(2 * removalDelay)
		mu.Lock()
		defer mu.Unlock()
		for _, c := range w.watchers {
			if late := gone[c.id].Sub(removed); late < 0 || late > time.Second {
				w.fail("%s is told %v after the origin that the cluster is gone", c.id, late)
			}
		}
	})
}

// The origin renews a TTL of 10 s each 3 s, and the owner is killed. Nothing expires at clients of the
// others.
func TestCluster_TTL(t *testing.T) {
	inCluster(t, xds.Delta, 3, 1, func(w *clusterFixture) {
		const ttl = 10 * time.Second
		w.o.mu.Lock()
		w.o.ttl[string(cds)+"p"] = ttl
		w.o.mu.Unlock()
		w.rest("start")
		ranked := w.ranked("a")
		var mu sync.Mutex
		until := make(map[string]time.Time) // by client: when the resource expires
		for _, r := range ranked[1:] {
			w.clientOf(r, "a", xds.Delta, wild(cds), func(c *watcher) {
				c.features = []string{"xds.config.supports-resource-ttl"}
				c.refuses = func(m proto.Message) bool {
					mu.Lock()
					defer mu.Unlock()
					for _, r := range m.(*discoveryv3.DeltaDiscoveryResponse).Resources {
						if r.Name == "p" && r.Ttl != nil {
							until[c.id] = time.Now().Add(r.Ttl.AsDuration())
						}
					}
					return false
				}
			})
		}
		w.event(func() {
			for i := range 40 {
				if w.o.heartbeat(cds, "p"); i == 10 {
					w.kill(ranked[0])
				}
				for range 6 {
					sleepInBubble(500 * time.Millisecond)
					mu.Lock()
					for _, c := range w.watchers {
						if left := time.Until(until[c.id]); i > 1 && left <= 0 {
							w.fail("after %d s, the resource of %s expired %v ago", 3*i, c.id, -left)
						}
					}
					mu.Unlock()
				}
			}
		})
	})
}

// What must not be cached goes at followers, too, once the owner's stream to the origin ends.
func TestCluster_DoNotCache(t *testing.T) {
	inCluster(t, xds.Delta, 3, 1, func(w *clusterFixture) {
		w.o.mu.Lock()
		w.o.volatile[string(cds)+"q"] = true
		w.o.mu.Unlock()
		w.rest("start")
		follower := w.ranked("a")[1]
		c := w.clientOf(follower, "a", xds.Delta, wild(cds))
		w.rest("client")
		holds := func(c *watcher) string {
			c.mu.Lock()
			defer c.mu.Unlock()
			return fmt.Sprint(c.subs[cds].holds["p"] > 0, c.subs[cds].holds["q"] > 0)
		}
		if got := holds(c); got != "true true" {
			w.fail("before: %s", got)
		}
		w.put(cds, "q")
		w.event(func() {
			w.o.mu.Lock()
			w.removed[string(cds)+"q"] = append(w.removed[string(cds)+"q"], w.clock+1) // the client may be told so
			w.o.mu.Unlock()
			w.o.leave(true)
			sleepInBubble(time.Second)
			late := w.clientOf(follower, "a", xds.Delta, wild(cds))
			sleepInBubble(time.Second)
			if got := holds(late); got != "true false" {
				w.fail("without the origin, a new client has %s", got)
			}
			w.o.leave(false)
		})
		w.rest("return")
	})
}

// refusal opens a stream at a relay and returns when and how it ended.
func (w *clusterFixture) refusal(at *relay, key string, typ xds.TypeURL) (after time.Duration, err error) {
	cc, err := grpc.NewClient("passthrough:///relay", grpc.WithContextDialer(dialerOf(at.down)), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 0, err
	}
	defer cc.Close()
	began := time.Now()
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(cc).StreamAggregatedResources(ctx)
	if err != nil {
		return 0, err
	}
	if err := stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: string(typ), Node: &corev3.Node{Id: "grpc", Cluster: key}, ResourceNames: []string{"p"}}); err != nil {
		return 0, err
	}
	_, err = stream.Recv()
	return time.Since(began), err
}

// All origins refuse connections, or end each stream. A gRPC client of a follower is told so soon, because
// it falls back to another configuration only then. If streams end, the relay first tries whether what the
// client wants is the reason (P68). After 15 s the client would take silence for absence.
func TestCluster_OriginRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		refuse  func(w *clusterFixture, refuse bool)
		held    bool
		longest time.Duration
	}{
		{"connections", func(w *clusterFixture, refuse bool) { w.n.refuse(originHost, refuse) }, true, 8 * time.Second},
		{"connections, nothing held", func(w *clusterFixture, refuse bool) { w.n.refuse(originHost, refuse) }, false, 2 * time.Second},
		{"streams", func(w *clusterFixture, refuse bool) { w.o.leave(refuse) }, true, 14 * time.Second},
		{"streams, nothing held", func(w *clusterFixture, refuse bool) { w.o.leave(refuse) }, false, 2 * time.Second},
	} {
		for rank := 1; rank <= 2; rank++ {
			for name, v := range variants {
				t.Run(fmt.Sprint(c.name, "/", rank, "/", name), func(t *testing.T) {
					t.Parallel()
					inCluster(t, v, 3, 1, func(w *clusterFixture) {
						w.rest("start")
						r := w.ranked("a")[rank]
						if c.held {
							w.clientOf(r, "a", xds.SotW, wild(cds))
							w.rest("client")
						}
						w.event(func() {
							c.refuse(w, true)
							after, err := w.refusal(r, "a", lds)
							t.Logf("refused after %v", after)
							if status.Code(err) != codes.Unavailable || after > c.longest {
								w.fail("%v after %v", err, after)
							}
							c.refuse(w, false)
						})
						w.rest("return")
					})
				})
			}
		}
	}
}

// An upstream.node that changes what it gets is computed once, also if a follower asks and after moves.
func TestCluster_NodeIsComputedOnce(t *testing.T) {
	inCluster(t, xds.Delta, 3, 1, func(w *clusterFixture) {
		w.node = func(n *corev3.Node) *corev3.Node { return &corev3.Node{Id: "relay-" + n.Id, Cluster: n.Cluster} }
		w.rest("start")
		owner := w.ranked("a")[0]
		for _, r := range w.running() {
			if r != owner {
				w.clientOf(r, "a", xds.Delta, wild(cds))
			}
		}
		w.rest("clients")
		w.event(func() { w.killed(owner, time.Minute) })
		w.rest("owner killed")
		w.o.mu.Lock()
		defer w.o.mu.Unlock()
		nodes := make(map[string]bool)
		from := make(map[string]bool)
		for _, l := range w.o.history {
			if m, ok := l.m.(*discoveryv3.DeltaDiscoveryRequest); ok {
				nodes[m.Node.GetId()], from[l.s.from] = true, true
			}
		}
		for id := range nodes {
			if !strings.HasPrefix(id, "relay-client-") {
				w.o.fault("a node is %q", id)
			}
		}
		if len(from) < 2 {
			w.o.fault("the origin had streams of %v only", from)
		}
	})
}

// The owner is killed, and the origin deletes a cluster before the second asks for it by name. The client
// that has it is told.
func TestCluster_DeletedDuringFailover(t *testing.T) {
	for name, v := range variants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inCluster(t, v, 3, 1, func(w *clusterFixture) {
				w.put(cds, "a")
				w.rest("start")
				ranked := w.ranked("b")
				for _, v := range []xds.Variant{xds.Delta, xds.SotW} {
					w.clientOf(ranked[2], "b", v, map[xds.TypeURL]*watched{cds: {names: []string{"a", "p"}}})
				}
				w.rest("clients")
				w.event(both(func() { w.kill(ranked[0]) }, after(time.Millisecond, func() { w.remove(cds, "a") })))
				w.rest("failover")
				for _, c := range w.watchers {
					c.mu.Lock()
					if held := c.subs[cds].holds; held["a"] > 0 || held["p"] == 0 {
						w.fail("%s (%v) holds %v", c.id, c.v, held)
					}
					c.mu.Unlock()
				}
			})
		})
	}
}

// A client has 100,000 names (in make test 10,000), and the owner is killed. Next to nothing is sent again
// to its relay, and deletions are.
func TestCluster_ManyNames(t *testing.T) {
	const deleted = 3
	count := 10_000
	if flagOf(t, "rapid.seed") != 1 { // make model
		count = 100_000
	}
	inCluster(t, xds.Delta, 3, 1, func(w *clusterFixture) {
		w.o.mu.Lock()
		w.o.whole, w.o.keep = true, 1
		all := &watched{}
		for i := range count {
			name := fmt.Sprintf("p%06d", i)
			all.names = append(all.names, name)
			w.o.has[eds][name] = 1
		}
		w.o.mu.Unlock()
		w.rest("start")
		ranked := w.ranked("b")
		c := w.clientOf(ranked[2], "b", xds.Delta, map[xds.TypeURL]*watched{eds: all})
		w.rest("client")
		received := func(from *relay) int {
			w.n.mu.Lock()
			defer w.n.mu.Unlock()
			return w.n.received[[2]string{from.host, ranked[2].host}]
		}
		first, before := received(ranked[0]), received(ranked[1])
		w.event(func() {
			for i := range deleted {
				w.remove(eds, all.names[i*1000])
			}
			w.kill(ranked[0])
		})
		w.rest("failover")
		if again := received(ranked[1]) - before; again > first/100 || first < count*20 {
			w.fail("%d bytes came from the first owner, and %d from the second", first, again)
		}
		if len(c.subs[eds].holds) != count-deleted {
			w.fail("the client has %d names", len(c.subs[eds].holds))
		}
	})
}

// Three relays become ten, and three again.
func TestCluster_GrowsAndShrinks(t *testing.T) {
	for name, v := range variants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inCluster(t, v, 3, 1, func(w *clusterFixture) {
				w.rest("start")
				for i := range 9 {
					key := []string{"a", "b", "c"}[i%3]
					w.join(key, []xds.Variant{xds.Delta, xds.SotW}[i/3%2], subscriptions(key, i))
				}
				w.rest("clients")
				w.event(func() {
					for i := range 7 {
						w.start(fmt.Sprint("relay-x", i), "c1")
						w.busy(3 * time.Second)
					}
				})
				w.rest("ten relays")
				w.event(func() {
					for i := range 7 {
						w.drain(w.named(fmt.Sprint("relay-x", i)))
						w.busy(3 * time.Second)
					}
				})
				w.rest("three relays")
			})
		})
	}
}

// A client comes back with the wildcard just when its relay has forgotten that. What the relay's stream
// brings for the subscription before does not count as the answer to the new one (P67).
func TestCluster_WildcardReturns(t *testing.T) {
	inCluster(t, xds.Delta, 2, 1, func(w *clusterFixture) {
		w.rest("start")
		ranked := w.ranked("a")
		w.clientOf(ranked[0], "a", xds.Delta, wild(cds))
		w.clientOf(ranked[1], "a", xds.Delta, wild(lds)) // the key stays in use
		c := w.clientOf(ranked[1], "a", xds.SotW, wild(cds))
		w.rest("clients")
		returns := func(away time.Duration) {
			c.cancel()
			<-c.done
			sleepInBubble(away)
			var ctx context.Context
			ctx, c.cancel = context.WithCancel(w.ctx)
			c.done = make(chan struct{})
			go c.run(ctx)
			sleepInBubble(20 * time.Second)
		}
		w.event(func() {
			for ms := range time.Duration(10) {
				both(func() { returns(linger + 2*ms*time.Millisecond) }, after(linger-time.Millisecond, func() {
					for range 40 {
						w.put(cds, "a")
						sleepInBubble(time.Millisecond)
					}
				}))()
			}
		})
		w.rest("returns")
	})
}
