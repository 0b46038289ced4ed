package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/cluster/clustertest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"

	"github.com/hashicorp/memberlist"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network is a network with a resolver that knows all its relays.
type network struct {
	t testing.TB
	clustertest.Network

	mu        sync.Mutex
	made      byte // relays
	addresses []netip.Addr
}

// resolve returns the addresses of the relays that run.
func (n *network) resolve(context.Context, string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.addresses), nil
}

// relay is a member under test.
type relay struct {
	*Cluster
	transport *clustertest.Transport
	address   string // of gossip
	metrics   *telemetry.Metrics
	log       *xdstest.Log
	stop      func()
}

// run makes a test of relays in a bubble.
func run(t *testing.T, test func(t *testing.T, n *network)) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { sleep(clustertest.Ends) })
		test(t, &network{t: t})
	})
}

// sleep waits until relays have noticed something.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// new makes a relay, which is not started.
func (n *network) new(name string, change ...func(*Options)) *relay {
	n.t.Helper()
	n.mu.Lock()
	n.made++
	ip := netip.AddrFrom4([4]byte{10, 0, 0, n.made})
	n.addresses = append(n.addresses, ip)
	n.mu.Unlock()
	r := &relay{address: netip.AddrPortFrom(ip, 7946).String(), log: new(xdstest.Log)}
	r.transport = n.Transport(r.address)
	metrics, err := telemetry.New(telemetry.Options{})
	if err != nil {
		n.t.Fatal(err)
	}
	r.metrics = metrics
	o := Options{
		Name: name, Version: "v1", Label: "test", Address: "0.0.0.0:15020", Join: []string{"relays:7946"},
		Transport: r.transport, Metrics: metrics, Log: r.log.Logger(),
		Resolve: n.resolve,
	}
	for _, f := range change {
		f(&o)
	}
	if r.Cluster, err = New(o); err != nil {
		n.t.Fatal(err)
	}
	r.SetCompat("rules")
	r.SetReady(true)
	return r
}

// start makes a relay and runs it.
func (n *network) start(name string, change ...func(*Options)) *relay {
	n.t.Helper()
	r := n.new(name, change...)
	stop := xdstest.Run(n.t, r.Run)
	r.stop = func() {
		stop()
		n.mu.Lock()
		defer n.mu.Unlock()
		ip := netip.MustParseAddrPort(r.address).Addr()
		n.addresses = slices.DeleteFunc(n.addresses, func(a netip.Addr) bool { return a == ip })
	}
	return r
}

// kill ends a relay without a word to others.
func (r *relay) kill() {
	_ = r.transport.Shutdown() // it returns nil
	r.stop()
}

// link cuts or restores both directions between two relays.
func (n *network) link(a, b *relay, up bool) {
	n.Link(a.address, b.address, up)
	n.Link(b.address, a.address, up)
}

// lines describes members, in the order of their names.
func lines(members []Member) string {
	var out []string
	for _, m := range members {
		line := m.Name + " " + string(m.State)
		if m.Problem != "" {
			line += " (" + m.Problem + ")"
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// candidates returns the names of a relay's candidates for a key.
func (r *relay) candidates(key string) string {
	var names []string
	for _, m := range r.Candidates(xds.NewKey(key)) {
		names = append(names, m.Name)
	}
	return strings.Join(names, " ")
}

// expect checks what relays see of their cluster, and that they agree about candidates.
func expect(t *testing.T, members string, relays ...*relay) {
	t.Helper()
	for _, r := range relays {
		if got := lines(r.Members()); got != members {
			t.Errorf("%s sees %q, want %q", r.options.Name, got, members)
		}
		for i := range 10 {
			if key := fmt.Sprint(i); r.candidates(key) != relays[0].candidates(key) {
				t.Errorf("candidates for %s: %s has %q, %s has %q", key, r.options.Name, r.candidates(key), relays[0].options.Name, relays[0].candidates(key))
			}
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestJoin(t *testing.T) {
	run(t, func(t *testing.T, n *network) {
		a, b := n.start("a"), n.start("b")
		sleep(2 * time.Second)
		if !closed(a.Joined()) || !closed(b.Joined()) {
			t.Error("not joined")
		}
		start := time.Now()
		c := n.start("c", func(o *Options) {
			o.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
				if time.Since(start) < 3*time.Second {
					return nil, nil // not yet in DNS
				}
				return n.resolve(ctx, host)
			}
		})
		sleep(6 * time.Second)
		expect(t, "a alive, b alive, c alive", a, b, c)
		for _, m := range c.Members() {
			if m.Version != "v1" || !m.Ready || m.Draining || m.Compat != "rules" || m.Self != (m.Name == "c") {
				t.Errorf("%+v", m)
			}
			if want := fmt.Sprintf("10.0.0.%d:15020", m.Name[0]-'a'+1); m.Address != want {
				t.Errorf("%s has the address %s, want %s", m.Name, m.Address, want)
			}
		}
		if n := c.metrics.ClusterMembers[telemetry.MemberAlive].Value(); n != 3 {
			t.Errorf("%d members in the metric", n)
		}
		if n := c.metrics.ClusterUnjoined.Value(); n != 0 {
			t.Errorf("%d addresses without a member in the metric", n)
		}
		if got := c.log.Count("cluster member is alive"); got != 2 {
			t.Errorf("%d lines in the log:\n%s", got, c.log)
		}
		if s := a.log.String() + b.log.String() + c.log.String(); strings.Contains(s, "level=WARN") {
			t.Errorf("warnings:\n%s", s)
		}
	})
}

// A member that leaves is told from one that dies. Both are forgotten.
func TestLeaveAndDeath(t *testing.T) {
	run(t, func(t *testing.T, n *network) {
		a, b, c, d := n.start("a"), n.start("b"), n.start("c"), n.start("d")
		sleep(5 * time.Second)
		changed := a.Changed()
		c.stop()
		left := time.Now()
		sleep(time.Second)
		expect(t, "a alive, b alive, c left, d alive", a, b, d)
		if since := a.Members()[2].Since; left.Sub(since).Abs() > time.Second {
			t.Errorf("left since %s, not %s", since, left)
		}
		if !closed(changed) {
			t.Error("no change")
		}
		d.kill()
		sleep(30 * time.Second) // memberlist counts the member that left: it waits for its opinion too
		expect(t, "a alive, b alive, c left, d dead", a, b)
		for _, r := range []*relay{a, b} {
			if r.log.Count(`msg="cluster member is left" member=c`) != 1 || r.log.Count(`level=WARN msg="cluster member is dead" member=d`) != 1 {
				t.Errorf("log of %s:\n%s", r.options.Name, r.log)
			}
		}
		if n := a.metrics.ClusterMembers[telemetry.MemberDead].Value(); n != 1 {
			t.Errorf("%d dead members in the metric", n)
		}
		sleep(KeepEnded + pruneEvery)
		expect(t, "a alive, b alive", a, b)
	})
}

// After a split each side goes on alone. Rejoining heals it, in both directions of a link and in one.
func TestSplit(t *testing.T) {
	run(t, func(t *testing.T, n *network) {
		a, b, c, d, e := n.start("a"), n.start("b"), n.start("c"), n.start("d"), n.start("e")
		left, right := []*relay{a, b}, []*relay{c, d, e}
		sleep(5 * time.Second)
		for range 3 {
			for _, x := range left {
				for _, y := range right {
					n.link(x, y, false)
				}
			}
			sleep(2 * time.Minute)
			expect(t, "a alive, b alive, c dead, d dead, e dead", left...)
			expect(t, "a dead, b dead, c alive, d alive, e alive", right...)
			for _, x := range left {
				for _, y := range right {
					n.link(x, y, true)
				}
			}
			sleep(time.Minute)
			expect(t, "a alive, b alive, c alive, d alive, e alive", a, b, c, d, e)
		}
		if got := a.log.Count("cannot join a member"); got != 9 { // 3 splits from 3 members
			t.Errorf("%d lines about unreachable members:\n%s", got, a.log)
		}
	})
}

// One lost direction between two of five members changes nothing: others ask for them.
func TestOneDirectionOfALink(t *testing.T) {
	run(t, func(t *testing.T, n *network) {
		relays := []*relay{n.start("a"), n.start("b"), n.start("c"), n.start("d"), n.start("e")}
		sleep(5 * time.Second)
		changed := relays[2].Changed()
		n.Link(relays[0].address, relays[1].address, false)
		sleep(5 * time.Minute)
		expect(t, "a alive, b alive, c alive, d alive, e alive", relays...)
		if closed(changed) {
			t.Error("the candidates changed")
		}
	})
}

// A relay that returns under its name, at another address, counts at once.
func TestRestart(t *testing.T) {
	run(t, func(t *testing.T, n *network) {
		a, b := n.start("a"), n.start("b")
		sleep(5 * time.Second)
		b.kill()
		b2 := n.start("b")
		sleep(2 * time.Second) // before the death is noticed
		expect(t, "a alive, b alive, b unusable (a newer start of the same name)", a)
		for _, m := range a.Candidates(xds.NewKey("key")) {
			if m.Name == "b" && m.Address != "10.0.0.3:15020" {
				t.Errorf("a uses %s", m.Address)
			}
		}
		sleep(10 * time.Second)
		expect(t, "a alive, b alive", a, b2)
		b2.stop()
		b3 := n.start("b")
		sleep(5 * time.Second)
		expect(t, "a alive, b alive", a, b3)
	})
}

// Of two members of one name, the one that started later counts, for itself too.
func TestTwoMembersOfOneName(t *testing.T) {
	run(t, func(t *testing.T, n *network) {
		first := n.start("a")
		sleep(time.Second)
		second, b := n.start("a"), n.start("b")
		sleep(30 * time.Second)
		expect(t, "a alive, a unusable (a newer start of the same name), b alive", first, second, b)
		for _, r := range []*relay{first, second, b} {
			for _, m := range r.Candidates(xds.NewKey("key")) {
				if m.Name == "a" && m.Address != "10.0.0.2:15020" {
					t.Errorf("%s uses %s", r.address, m.Address)
				}
			}
		}
		const line = `level=WARN msg="cluster member is unusable" member=a self=true address=10.0.0.1:15020 version=v1 reason="a newer start of the same name"`
		if first.log.Count(line) != 1 || second.log.Count("self=true") != 0 {
			t.Errorf("logs:\n%s\n%s", first.log, second.log)
		}
		second.stop()
		sleep(time.Second)
		expect(t, "a alive, b alive", first, b)
		if first.log.Count(`msg="cluster member is alive" member=a self=true`) != 1 {
			t.Errorf("log:\n%s", first.log)
		}
	})
}

// Two starts at one time differ by their suffix. A dead member counts for nothing.
func TestNewer(t *testing.T) {
	p, q := &peer{Member: Member{id: "a-1", State: telemetry.MemberAlive}}, &peer{Member: Member{id: "a-2", State: telemetry.MemberAlive}}
	if p.newer(q) || !q.newer(p) {
		t.Error("the larger suffix does not count")
	}
	p.started = 1
	if !p.newer(q) || q.newer(p) {
		t.Error("the later start does not count")
	}
	p.State = telemetry.MemberDead
	if p.newer(q) || !q.newer(p) {
		t.Error("a dead member counts")
	}
}

func TestFlags(t *testing.T) {
	run(t, func(t *testing.T, n *network) {
		a, b, c := n.start("a"), n.start("b"), n.start("c")
		sleep(5 * time.Second)
		all := []*relay{a, b, c}
		before := a.candidates("key")
		owner := all[slices.IndexFunc(all, func(r *relay) bool { return r.options.Name == before[:1] })]
		step := func(what string, do func(), want string) {
			t.Helper()
			var changed []<-chan struct{}
			for _, r := range all {
				changed = append(changed, r.Changed())
			}
			do()
			sleep(2 * time.Second)
			for i, r := range all {
				want := want
				if r == owner && what == "draining" { // it keeps its sources
					want = before
				}
				if got := r.candidates("key"); got != want {
					t.Errorf("%s: %s has %q, want %q", what, r.options.Name, got, want)
				}
				if !closed(changed[i]) {
					t.Errorf("%s: %s announced no change", what, r.options.Name)
				}
			}
		}
		step("draining", func() { owner.SetDraining(true) }, before[2:]+" "+before[:1])
		step("not draining", func() { owner.SetDraining(false) }, before)
		step("not ready", func() { owner.SetReady(false) }, before[2:])
		step("ready", func() { owner.SetReady(true) }, before)
		changed := a.Changed()
		sleep(10 * time.Minute)
		if closed(changed) {
			t.Error("a change without a reason")
		}
	})
}

// Members of another compat are candidates of each other only.
func TestAnotherCompat(t *testing.T) {
	run(t, func(t *testing.T, n *network) {
		a, b, c := n.start("a"), n.start("b"), n.start("c")
		sleep(5 * time.Second)
		c.SetCompat("other rules")
		sleep(2 * time.Second)
		expect(t, "a alive, b alive, c unusable (another compat)", a, b)
		expect(t, "a unusable (another compat), b unusable (another compat), c alive", c)
		if got := c.candidates("key"); got != "c" {
			t.Errorf("c has %q", got)
		}
		if n := a.metrics.ClusterMembers[telemetry.MemberUnusable].Value(); n != 1 {
			t.Errorf("%d unusable members in the metric", n)
		}
		a.SetCompat("other rules")
		b.SetCompat("other rules")
		sleep(2 * time.Second)
		expect(t, "a alive, b alive, c alive", a, b, c)
	})
}

// A join that reaches nobody else is no join. It is logged once.
func TestJoinsThatCannotWork(t *testing.T) {
	for name, test := range map[string]struct {
		resolve func(n *network) ([]netip.Addr, error)
		line    string
		missing int
	}{
		"only itself":  {func(n *network) ([]netip.Addr, error) { return n.resolve(context.Background(), "") }, "cluster.join names only this relay", 0},
		"no such name": {func(*network) ([]netip.Addr, error) { return nil, errors.New("no such host") }, `msg="cannot resolve a name of cluster.join" address=relays:7946 error="no such host"`, 1},
		"unreachable address": {func(*network) ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("10.9.9.9")}, nil },
			`msg="cannot join a member" address=10.9.9.9:7946`, 1},
		"unreachable": {func(*network) ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("10.9.9.9")}, nil },
			`msg="cannot join a member" address=10.9.9.9:7946 error="failed to join 10.9.9.9:7946: dial tcp 10.9.9.9:7946: connection refused"`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, n *network) {
				start := time.Now()
				a := n.start("a", func(o *Options) {
					o.Resolve = func(context.Context, string) ([]netip.Addr, error) { return test.resolve(n) }
					if name == "unreachable address" {
						o.Join = []string{"10.9.9.9:7946"}
					}
				})
				sleep(maxJoin - time.Second)
				if name == "only itself" && a.log.Count(test.line) != 0 {
					t.Error("logged before others had time to come")
				}
				<-a.Joined()
				if d := time.Since(start); d != maxJoin {
					t.Errorf("joined after %s", d)
				}
				sleep(time.Hour)
				if a.log.Count(test.line) != 1 || a.log.Count("level=WARN") != 1 {
					t.Errorf("log:\n%s", a.log)
				}
				if got := a.metrics.ClusterUnjoined.Value(); got != test.missing {
					t.Errorf("%d addresses without a member in the metric", got)
				}
			})
		})
	}
}

// Only some of many addresses are joined at a time.
func TestJoinsAreFew(t *testing.T) {
	run(t, func(t *testing.T, n *network) {
		a := n.start("a", func(o *Options) {
			o.Resolve = func(context.Context, string) (out []netip.Addr, err error) {
				for i := range 100 {
					out = append(out, netip.AddrFrom4([4]byte{10, 9, 9, byte(i)}))
				}
				return out, nil
			}
		})
		sleep(joinFirst / 4)
		if got := a.log.Count("cannot join a member"); got != joinsAtOnce {
			t.Errorf("%d joins at the start", got)
		}
		sleep(maxJoin)
		before := a.log.Count("cannot join a member")
		sleep(2 * joinEvery)
		if got := a.log.Count("cannot join a member") - before; got == 0 || got > 4*joinsAtOnce {
			t.Errorf("%d more in a minute", got)
		}
	})
}

// Without names to join, and before Run, a relay is alone and owns everything.
func TestAlone(t *testing.T) {
	run(t, func(t *testing.T, n *network) {
		a := n.new("a", func(o *Options) { o.Join = nil })
		if b := n.new("b"); !closed(a.Joined()) || closed(b.Joined()) {
			t.Error("a is not joined, or b is")
		}
		expect(t, "a alive", a)
		if got := a.candidates("key"); got != "a" {
			t.Errorf("candidates: %q", got)
		}
		changed := a.Changed()
		a.SetReady(false)
		if !closed(changed) || a.candidates("key") != "" {
			t.Error("still a candidate")
		}
	})
}

func TestOptions(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"more than 512: the relay's name has 300, cluster.address 13, the version 200": func(o *Options) { o.Name, o.Version = strings.Repeat("x", 300), strings.Repeat("v", 200) },
		"cluster.gossip_key_file: open /none: no such file or directory":               func(o *Options) { o.KeyFile = "/none" },
	} {
		o := Options{Name: "a", Label: "test", Address: "0.0.0.0:15020"}
		change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// The largest metadata that New accepts fits with the largest compat.
	run(t, func(t *testing.T, n *network) {
		name := strings.Repeat("n", 380)
		a := n.start(name)
		a.SetCompat(strings.Repeat("c", 1000))
		if n := len(a.metadata()); n > maxMetadata || n < maxMetadata-len(name)-50 {
			t.Errorf("%d bytes", n)
		}
		b := n.start("b")
		b.SetCompat(strings.Repeat("c", 1000))
		sleep(5 * time.Second)
		expect(t, "b alive, "+name+" alive", a, b)
	})
}

// noAddress is a transport of a host on which memberlist finds no address.
type noAddress struct{ memberlist.NodeAwareTransport }

func (noAddress) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return nil, 0, errors.New("no private IP address found")
}
func (noAddress) Shutdown() error { return nil }

// The error says which settings to change (dskit#1078).
func TestNoAddress(t *testing.T) {
	metrics, err := telemetry.New(telemetry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Options{Name: "a", Label: "test", Address: "0.0.0.0:15020", Transport: noAddress{}, Metrics: metrics, Log: new(xdstest.Log).Logger()})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "cluster.advertise: ") || !strings.Contains(err.Error(), "no private IP") {
		t.Error(err)
	}
}

// writeKeys writes a file with the keys of these numbers.
func writeKeys(t testing.TB, numbers ...byte) string {
	path := filepath.Join(t.TempDir(), "keys")
	putKeys(t, path, numbers...)
	return path
}
