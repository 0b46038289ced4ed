//go:build linux

package loadtest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"syscall"
	"time"

	"xdsrelay/internal/xdstest"
)

// replicas are relays in front of one origin, each in a process of its own.
type replicas struct {
	*bench
	origin  *contender
	relays  []*contender
	members []string // addresses for other members
	gossip  []string // addresses for gossip
	gen     int
}

// memberNode is the node of all replicas.
const memberNode = `Node{id: "relay", cluster: node.cluster}`

// startReplicas starts so many replicas, as a cluster or not.
func (b *bench) startReplicas(origin string, n int, cluster bool) *replicas {
	b.Helper()
	s := &replicas{bench: b, origin: b.start(origin, nil)}
	s.add(n, cluster)
	return s
}

// add starts more replicas, all together, because the first of a cluster waits for another.
func (s *replicas) add(n int, cluster bool) {
	s.Helper()
	for range n {
		s.members = append(s.members, xdstest.FreeAddress(s))
		s.gossip = append(s.gossip, xdstest.FreeAddress(s))
	}
	have := len(s.relays)
	for i := have; i < len(s.members); i++ {
		c := &contender{t: s, name: nameRelay, load: s.load, addr: xdstest.FreeAddress(s), admin: xdstest.FreeAddress(s)}
		config := xdstest.Config{
			"name": fmt.Sprintf("replica-%d", i), "log.level": "warn", "admin.address": c.admin,
			"downstream.address": c.addr, "downstream.drain": "10s",
			"upstream.origins": []map[string]any{{"name": "origin", "address": s.origin.addr}}, "upstream.node": memberNode,
		}
		if cluster {
			config = config.With(memberConfig(s.members[i], s.gossip[i])).With(xdstest.Config{"cluster.join": s.gossip})
		}
		c.run(xdstest.Command(s, "serve", "--config", config.WriteFile(s)))
		s.relays = append(s.relays, c)
	}
	for _, c := range s.relays[have:] {
		c.awaitReady()
	}
}

// memberConfig is the configuration of a member that joins nobody.
func memberConfig(address, gossip string) xdstest.Config {
	return xdstest.Config{
		"cluster.name": "loadtest", "cluster.address": address, "cluster.gossip": gossip, "cluster.advertise": "127.0.0.1",
	}
}

// connect connects so many clients of the load to each replica, all different.
func (s *replicas) connect(each int) {
	s.Helper()
	for i, c := range s.relays {
		c.load.From, c.load.Clients = i*each, each
		c.connect()
	}
}

// await waits until the origin has a number of streams.
func (s *replicas) await(streams int) {
	s.Helper()
	xdstest.Eventually(s, "streams at the origin", func() error {
		if n := s.origin.metric("loadtest_open_streams"); int(n) != streams {
			return fmt.Errorf("the origin has %v streams, want %d", n, streams)
		}
		return nil
	})
}

// end ends all processes.
func (s *replicas) end() {
	for _, c := range append(s.relays, s.origin) {
		if c.crowd != nil {
			c.crowd.close()
		}
		c.Kill()
	}
}

// usage is what the origin and the replicas used for something.
type usage struct {
	originCPU, relayCPU     float64 // nanoseconds
	originBytes, relayBytes float64 // of TCP, in both directions; relayBytes: between replicas
}

func (u usage) values(prefix string) []value {
	return []value{
		{u.originCPU, prefix + "origin-cpu-ns"}, {u.relayCPU, prefix + "cpu-ns"},
		{u.originBytes, prefix + "origin-B"}, {u.relayBytes, prefix + "between-B"},
	}
}

// use measures what the processes use for something, until they are quiet again.
func (s *replicas) use(do func()) (u usage) {
	settled := func() (origin, relays float64) {
		for _, c := range s.relays {
			c.settle()
		}
		origin = float64(s.origin.settle())
		for _, d := range s.used(s.relays...) {
			relays += float64(d)
		}
		return origin, relays
	}
	origin, relays := settled()
	atOrigin, between := trafficAt(s, s.origin.addr), trafficAt(s, s.members...)
	do()
	u.originCPU, u.relayCPU = settled()
	u.originCPU -= origin
	u.relayCPU -= relays
	u.originBytes, u.relayBytes = trafficAt(s, s.origin.addr).since(atOrigin), trafficAt(s, s.members...).since(between)
	return u
}

// change makes a change of all keys. begin is when the origin got it, and rounds are what the clients of
// each replica saw.
func (s *replicas) change() (begin int64, rounds []round) {
	s.Helper()
	s.gen++
	push := s.origin.next(s.gen)
	begin = monotonic()
	push()
	for _, c := range s.relays {
		if c.crowd != nil {
			rounds = append(rounds, c.await(c.crowd, s.gen))
		}
	}
	return begin, rounds
}

// measureReplicas measures what different numbers of replicas cost the origin, with a cluster and
// without.
func measureReplicas(b *bench) {
	counts := []int{1, 2, 5, 10}
	if b.small {
		counts = []int{1, 2}
	}
	for _, n := range counts {
		for _, cluster := range []bool{false, true} {
			s := b.startReplicas(nameOrigin, n, cluster)
			first := s.use(func() {
				s.connect(b.load.Clients / n)
				if cluster {
					s.await(b.load.Keys)
				}
			})
			name := fmt.Sprintf("relay/replicas=%d/cluster=%v", n, cluster)
			b.print(name, append(first.values("first-"), value{s.origin.metric("loadtest_open_streams"), "origin-streams"})...)
			for r := range warmups + b.rounds {
				latest, begin := int64(0), int64(0)
				u := s.use(func() {
					var rounds []round
					begin, rounds = s.change()
					for _, r := range rounds {
						latest = max(latest, r.last)
					}
				})
				if r >= warmups {
					b.print(name, append(u.values(""), value{float64(latest - begin), "latency-ns"})...)
				}
			}
			s.end()
		}
	}
}

// measureHop measures when a change reaches the clients of a key's owner, and those of its follower.
func measureHop(b *bench) {
	s := b.startReplicas(nameOrigin, 2, true)
	s.connect(b.load.Clients)
	s.await(1)
	owner := 0
	if s.relays[1].keys()[0].Role == "owner" {
		owner = 1
	}
	for r := range warmups + 5*b.rounds {
		begin, rounds := s.change()
		if r < warmups {
			continue
		}
		o, f := rounds[owner], rounds[1-owner]
		late := func(r round) float64 { return float64(r.last - begin) }
		b.print("relay/at=owner", value{late(o), "latency-ns"})
		b.print("relay/at=follower", value{late(f), "latency-ns"}, value{late(f) / late(o), "latency/owner"}, value{late(f) - late(o), "more-ns"})
		for _, c := range s.relays {
			c.settle()
		}
	}
}

type keyRow struct{ Key, Role string }

// keys is a page of the relay's keys.
func (c *contender) keys() []keyRow {
	c.t.Helper()
	var page struct{ Items []keyRow }
	if err := json.Unmarshal(c.get("/keys"), &page); err != nil || len(page.Items) == 0 {
		c.t.Fatalf("/keys has %d keys: %v", len(page.Items), err)
	}
	return page.Items
}

// measureFollower measures at a key's owner what the stream of a follower costs, beside the stream of a
// client. The followers are a crowd too, which requests what relays do.
func measureFollower(b *bench) {
	var sides []*contender
	names := []string{"relay/stream=client", "relay/stream=follower"}
	for i := range names {
		address := xdstest.FreeAddress(b)
		c := b.start(nameRelay, memberConfig(address, xdstest.FreeAddress(b)).With(xdstest.Config{"upstream.node": memberNode}))
		c.first()
		before := b.atRest(c)
		settings := crowdSettings{load: c.load}
		if i == 1 {
			var members struct{ Items []struct{ Compat string } }
			if err := json.Unmarshal(c.get("/members"), &members); err != nil || len(members.Items) != 1 {
				b.Fatalf("/members has %d members: %v", len(members.Items), err)
			}
			c.addr = address
			settings.headers = [][2]string{
				{"x-xdsrelay-key-bin", base64.RawStdEncoding.EncodeToString([]byte(c.keys()[0].Key))},
				{"x-xdsrelay-compat", members.Items[0].Compat},
			}
		}
		c.crowd = c.join(settings)
		c.settle()
		b.print(names[i], b.atRest(c).each(before, b.load.Clients, "stream")...)
		sides = append(sides, c)
	}
	for r := range warmups + b.rounds {
		var got [2]sample
		for k := range sides {
			i := (k + r) % 2
			got[i] = sides[i].round()
		}
		if r < warmups {
			continue
		}
		for i, s := range got {
			b.print(names[i], value{float64(s.cpu) / float64(b.load.Clients), "cpu-ns/stream"}, value{float64(s.latency), "latency-ns"},
				value{s.allocated, "B/client"}, value{float64(s.cpu) / float64(got[0].cpu), "cpu/client"})
		}
	}
}

const (
	// moved is how long nothing may move until all keys have moved. A key waits 10 s for a better owner.
	moved = 12 * time.Second
	// watchEvery is how often moves are counted.
	watchEvery = 100 * time.Millisecond
)

// move is what a move of keys took.
type move struct {
	took                    time.Duration // until the last stream was opened
	origin, members         float64       // streams opened at the origin; keys that left or joined a member
	busiest                 float64       // the most streams that were opened at the origin in about a second
	originBytes, relayBytes float64
}

// watch measures a move. do starts it; it returns the replicas that are left.
func (s *replicas) watch(do func() []*contender) (m move) {
	opened := func() float64 { return s.origin.metric("loadtest_opened_streams_total") }
	moves := func(of []*contender) (sum float64) {
		for _, c := range of {
			sum += c.metric("xdsrelay_cluster_moves_total")
		}
		return sum
	}
	origins, members := opened(), moves(s.relays)
	atOrigin, between := trafficAt(s, s.origin.addr), trafficAt(s, s.members...)
	begin := time.Now()
	left := do()
	since, before := begin, 0.0 // the last full second
	for last := begin; time.Since(last) < moved; xdstest.Pause(s, watchEvery) {
		now, then := trafficAt(s, s.origin.addr), trafficAt(s, s.members...)
		m.originBytes += now.since(atOrigin)
		m.relayBytes += then.since(between)
		atOrigin, between = now, then
		o, r := opened()-origins, moves(left)-members
		if o != m.origin || r != m.members {
			m.origin, m.members, last = o, r, time.Now()
			m.took = last.Sub(begin)
		}
		if took := time.Since(since); took >= time.Second {
			m.busiest = max(m.busiest, (o-before)/took.Seconds())
			since, before = time.Now(), o
		}
	}
	return m
}

// measureMove measures a move of a third of the keys to a new replica without clients, and back when it
// drains.
func measureMove(b *bench) {
	s := b.startReplicas(nameOrigin, 2, true)
	s.connect(b.load.Clients)
	s.await(b.load.Keys)
	for range min(b.rounds, 3) {
		var to *contender
		report := func(what string, keys float64, m move) {
			content := keys * float64(b.load.size(0))
			b.print("relay/move="+what, value{keys, "keys"}, value{float64(m.took), "took-ns"}, value{m.origin, "origin-opens"},
				value{m.members, "member-moves"}, value{m.busiest, "origin-opens/s"}, value{m.originBytes / content, "origin-B/content"},
				value{m.relayBytes / content, "between-B/content"})
			s.await(b.load.Keys)
			s.change() // fails if a client received more than the changes
		}
		added := s.watch(func() []*contender {
			s.add(1, true)
			to = s.relays[2]
			return s.relays
		})
		keys := to.metric("xdsrelay_upstream_streams")
		report("added", keys, added)
		// What the replica counted is lost with it.
		s.relays = s.relays[:2]
		report("drained", keys, s.watch(func() []*contender { to.Signal(syscall.SIGTERM); return s.relays }))
		<-to.Exited()
		s.members, s.gossip = s.members[:2], s.gossip[:2]
	}
}

// measureWide measures a change to all streams of two replicas beside two servers of bare gRPC.
func measureWide(b *bench) {
	s := b.startReplicas(nameOrigin, 2, true)
	s.connect(b.load.Clients)
	s.await(1)
	bares := []*contender{b.start(nameBare, nil), b.start(nameBare, nil)}
	for _, c := range bares {
		c.connect()
	}
	type result struct{ elapsed, latency, cpu float64 }
	measure := func(of []*contender, push func()) (got result) {
		var before float64
		for _, c := range of {
			before += float64(c.settle())
		}
		begin := monotonic()
		push()
		first, last := int64(math.MaxInt64), int64(0)
		for _, c := range of {
			r := c.await(c.crowd, s.gen)
			first, last = min(first, r.first), max(last, r.last)
		}
		for _, c := range of {
			got.cpu += float64(c.settle())
		}
		got.elapsed, got.latency, got.cpu = float64(last-first), float64(last-begin), got.cpu-before
		return got
	}
	for r := range warmups + b.rounds {
		s.gen++
		pushes := []func(){bares[0].next(s.gen), bares[1].next(s.gen)}
		both := func() {
			pushes[0]()
			pushes[1]()
		}
		change := s.origin.next(s.gen)
		var bare, relay result
		if r%2 == 0 {
			bare, relay = measure(bares, both), measure(s.relays, change)
		} else {
			relay, bare = measure(s.relays, change), measure(bares, both)
		}
		if r < warmups {
			continue
		}
		for name, got := range map[string]result{nameBare: bare, nameRelay: relay} {
			b.print(name+"/processes=2", value{got.elapsed, "elapsed-ns"}, value{got.latency, "latency-ns"}, value{got.cpu, "cpu-ns"},
				value{got.elapsed / bare.elapsed, "elapsed/bare"}, value{got.latency / bare.latency, "latency/bare"}, value{got.cpu / bare.cpu, "cpu/bare"})
		}
	}
}
