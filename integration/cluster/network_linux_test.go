package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

var (
	robustFor  = flag.Duration("for", 0, "run random events for this time")
	robustSeed = flag.Uint64("seed", 0, "of the random events; 0: a new one")
)

const (
	inside     = "CLUSTER_NETWORK" // set in the process with a network of its own
	hubHost    = "10.77.0.1"       // clients
	originHost = "10.77.0.2"
)

// The members are in network namespaces of their own. Links between them fail, in one direction or both, or
// lose only UDP. Members are killed, stopped and drained. Fleet's clients and real Envoys lose nothing.
//
// The network is that of another process of this test: a namespace without a link to this host.
func TestNetwork(t *testing.T) {
	if os.Getenv(inside) == "" {
		inNewNetwork(t)
		return
	}
	n := newNetwork(t)
	if *robustFor == 0 {
		for _, e := range n.short() {
			n.happens(e)
		}
		return
	}
	seed := *robustSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for time.Since(n.began) < *robustFor && !t.Failed() {
		n.happens(n.random(random))
	}
}

// inNewNetwork runs the test in a process with a network of its own.
func inNewNetwork(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("links between members cannot be cut without iproute2 and util-linux: %v", err)
		}
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestNetwork$", "-test.v=true", "-test.timeout=24h",
		fmt.Sprint("-for=", *robustFor), fmt.Sprint("-seed=", *robustSeed))
	cmd.Env = append(os.Environ(), inside+"=1", "RELAY_BINARY="+xdstest.Binary(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 { // root of a user namespace may make networks
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	p, err := xdstest.LaunchProcess("the test in a network of its own", cmd, func(line string) {
		if testing.Verbose() {
			fmt.Println(line)
		}
	})
	if err != nil {
		t.Skipf("links between members cannot be cut, because no network namespace can be made here: %v", err)
	}
	<-p.Exited()
	if p.Err() != nil {
		t.Errorf("%v:\n%s", p.Err(), p.Log())
	} else if strings.Contains(p.Log(), "--- SKIP") {
		t.Skip(p.Log())
	}
}

// network is a cluster whose members have links that can be cut.
type network struct {
	*environment
	began  time.Time
	spare  *member // it comes and goes; nil process: it has not come yet
	envoys []*envoy
}

// newNetwork makes a bridge, the namespaces, and what runs in them.
func newNetwork(t *testing.T) *network {
	n := &network{environment: &environment{t: t}}
	if out, err := exec.Command("ip", "link", "add", "hub", "type", "bridge").CombinedOutput(); err != nil {
		t.Skipf("links between members cannot be cut, because this kernel has no bridge for them: %v: %s", err, out)
	}
	n.ip(nil, "link set lo up", "address add "+hubHost+"/24 dev hub", "address add "+originHost+"/24 dev hub", "link set hub up")
	for i, name := range []string{"a", "b", "c", "d"} {
		host := fmt.Sprint("10.77.0.", 11+i)
		m := &member{name: name, host: host, address: host + ":15020", gossip: host + ":7946"}
		path := newNamespace(t)
		m.enter = []string{"nsenter", "--net=" + path}
		n.ip(nil, "link add to-"+name+" type veth peer name hub netns "+path, "link set to-"+name+" up master hub")
		// Rules of a member come before those for its own addresses.
		n.ip(m, "link set lo up", "address add "+host+"/24 dev hub", "link set hub up", "rule add pref 100 lookup local", "rule del pref 0")
		n.members = append(n.members, m)
	}
	n.spare, n.members = n.members[3], n.members[:3]
	xdstest.Token = "open-sesame"
	n.tokenFile = tlstest.File(t, t.TempDir(), "token", []byte(xdstest.Token))
	n.begin(xdstest.OriginOptions{Address: originHost + ":18000", Server: []grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 5 * time.Second, Timeout: 5 * time.Second})}})
	for i, v := range []fleet.Variant{fleet.Delta, fleet.SotW} {
		n.envoys = append(n.envoys, startEnvoy(t, n.members[i].proxy.Address, keys[i], v))
	}
	n.began = time.Now()
	n.rest("the members a, b and c run; the origin has streams", 0, false)
	return n
}

// newNamespace makes a network namespace that lasts until the end of the process, and returns its path.
func newNamespace(t *testing.T) string {
	made := make(chan error)
	var f *os.File
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		err := syscall.Unshare(syscall.CLONE_NEWNET)
		if err == nil {
			f, err = os.Open("/proc/thread-self/ns/net")
		}
		made <- err
	}()
	if err := <-made; err != nil {
		t.Skipf("links between members cannot be cut, because no network namespace can be made here: %v", err)
	}
	t.Cleanup(func() { _ = f.Close() }) // nothing is written to it
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
}

// ip runs commands of iproute2 where a member is; nil: where the clients are.
func (n *network) ip(m *member, commands ...string) {
	n.t.Helper()
	for _, c := range commands {
		args := append([]string{"ip"}, strings.Fields(c)...)
		if m != nil {
			args = append(append([]string{}, m.enter...), args...)
		}
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			n.t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
}

// loses makes a member lose what a host sends to it: all, or what protocol is, such as "ipproto udp".
func (n *network) loses(at *member, from, protocol string) (restore func()) {
	n.t.Helper()
	rule := strings.TrimSpace(fmt.Sprintf("pref 10 from %s iif hub %s", from, protocol)) + " blackhole"
	n.ip(at, "rule add "+rule)
	return func() { n.ip(at, "rule del "+rule) }
}

// event is what happens to the cluster.
type event struct {
	what  string
	for_  time.Duration // until it ends
	begin func() (end func())
	// mayAge: clients may get older content after newer. docs/cluster.md has this as a known limit.
	mayAge bool
}

// short returns the events of make test.
func (n *network) short() []event {
	a, b, c := n.members[0], n.members[1], n.members[2]
	return []event{n.withoutUDP(2 * time.Second), n.cut(a, b, 5*time.Second), n.kill(c, time.Second)}
}

// random returns an event.
func (n *network) random(r *rand.Rand) event {
	order := r.Perm(len(n.members))
	m, other := n.members[order[0]], n.members[order[1]]
	for_ := time.Duration(1+r.IntN(25)) * time.Second
	return []func() event{
		func() event { return n.kill(m, for_) },
		func() event { return n.stop(m, for_) },
		func() event { return n.drain(m, for_) },
		func() event { return n.cut(m, other, for_) },
		func() event {
			return event{"what " + other.name + " sends to " + m.name + " is lost", for_, func() func() { return n.loses(m, other.host, "") }, false}
		},
		func() event { return n.withoutUDP(for_) },
		func() event {
			return event{"what the origin sends to " + m.name + " is lost", for_, func() func() { return n.loses(m, originHost, "") }, true}
		},
		func() event { return n.add(for_) },
	}[r.IntN(8)]()
}

func (n *network) cut(m, other *member, for_ time.Duration) event {
	return event{"the link between " + m.name + " and " + other.name + " is cut", for_, func() func() {
		one, two := n.loses(m, other.host, ""), n.loses(other, m.host, "")
		return func() { one(); two() }
	}, false}
}

func (n *network) withoutUDP(for_ time.Duration) event {
	return event{"all gossip over UDP is lost", for_, func() func() {
		var restore []func()
		for _, m := range n.members {
			restore = append(restore, n.loses(m, "10.77.0.0/24", "ipproto udp"))
		}
		return func() {
			for _, f := range restore {
				f()
			}
		}
	}, false}
}

func (n *network) kill(m *member, for_ time.Duration) event {
	return event{"kill -9 of " + m.name, for_, func() func() { return n.ends(m, m.Kill) }, false}
}

func (n *network) drain(m *member, for_ time.Duration) event {
	return event{m.name + " drains", for_, func() func() { return n.ends(m, m.Stop) }, false}
}

func (n *network) stop(m *member, for_ time.Duration) event {
	return event{"SIGSTOP of " + m.name, for_, func() func() {
		m.Signal(syscall.SIGSTOP)
		return func() { m.Signal(syscall.SIGCONT) }
	}, false}
}

// ends ends a member whose clients use the next one, until it is back.
func (n *network) ends(m *member, end func()) func() {
	for i, other := range n.members {
		if other == m {
			n.moveClients(m, n.members[(i+1)%len(n.members)])
		}
	}
	end()
	return func() {
		n.start(m, nil)
		m.proxy.SetTarget(m.Address)
		m.proxy.Cut() // they come back
	}
}

// add adds a member, with clients of its own, which drains in the end.
func (n *network) add(for_ time.Duration) event {
	return event{"d is added, and drains", for_, func() func() {
		n.members = append(n.members, n.spare)
		n.start(n.spare, nil)
		n.seesMembers(n.spare, "alive", len(n.members))
		for i, m := range n.members[:3] {
			m.proxy.SetTarget(n.spare.Address)
			if i == 0 {
				m.proxy.Cut() // its clients are those of d
			}
		}
		return func() {
			for _, m := range n.members[:3] {
				m.proxy.SetTarget(m.Address)
			}
			n.spare.Stop()
			n.members = n.members[:3]
		}
	}, false}
}

// happens lets an event happen while the origin makes changes.
func (n *network) happens(e event) {
	n.t.Helper()
	before, most := n.streamsEnded(), 0
	end := e.begin()
	for left := e.for_; left > 0; left -= time.Second {
		n.change()
		xdstest.Pause(n.t, min(left, time.Second))
		open, _ := n.origin.Streams()
		most = max(most, open)
	}
	end()
	what := fmt.Sprintf("%s for %v; the origin had %d streams", e.what, e.for_, most)
	n.rest(what, before, e.mayAge)
}

// rest waits until each key has one stream to the origin, and all clients have a change. It prints what
// origin and clients saw.
func (n *network) rest(what string, ended int, mayAge bool) {
	n.t.Helper()
	ends := time.Now()
	n.oneStreamPerKey()
	rested, changed := time.Now(), time.Now()
	n.reachesAll()
	for _, e := range n.envoys {
		e.has(n.version)
	}
	clients, older, faults := len(n.envoys), 0, []string(nil)
	for _, m := range n.members {
		for _, c := range m.clients {
			clients++
			if mayAge {
				older += c.takeOlder()
			}
			faults = append(faults, c.wrong()...)
		}
	}
	n.t.Logf("%6.1fs  %s, and one for each of %d keys %.1f s later; a change reached %d clients after %d ms; %d of their streams ended",
		time.Since(n.began).Seconds(), what, len(keys), rested.Sub(ends).Seconds(), clients, time.Since(changed).Milliseconds(), n.streamsEnded()-ended)
	if older > 0 {
		n.t.Logf("         %d times a client got older content after newer, which is a known limit", older)
	}
	if len(faults) > 0 {
		n.t.Fatalf("clients lost something: %q", faults)
	}
}

// streamsEnded counts the streams of fleet's clients that have ended.
func (n *network) streamsEnded() (sum int) {
	for _, m := range n.members {
		for _, c := range m.clients {
			ended, _ := c.ends()
			sum += ended
		}
	}
	return sum
}

// takeOlder forgets the older content that the client got, and returns how often it did.
func (c *client) takeOlder() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.older)
	c.older = nil
	return n
}

// envoy is a real Envoy.
type envoy struct {
	t           testing.TB
	name, admin string
}

// has waits until the Envoy has a version of the origin's resources. It must never have removed a cluster or
// a listener.
func (e *envoy) has(version int) {
	e.t.Helper()
	xdstest.Eventually(e.t, e.name, func() error {
		routes, err := xdstest.HTTPGet("http://" + e.admin + "/config_dump?resource=dynamic_route_configs")
		if err == nil && !strings.Contains(string(routes), fmt.Sprintf(`"v%d"`, version)) {
			err = errors.New("it has no routes of this version")
		}
		return err
	})
	stats, err := xdstest.HTTPGet("http://" + e.admin + "/stats?filter=(cluster|listener)_removed$")
	if err != nil {
		e.t.Fatal(err)
	}
	if got := strings.Fields(string(stats)); len(got) != 4 || got[1] != "0" || got[3] != "0" {
		e.t.Fatalf("%s removed a cluster or listener: %s", e.name, stats)
	}
}

// startEnvoy starts an Envoy with a bootstrap of config/clients.
func startEnvoy(t testing.TB, relay, key string, v fleet.Variant) *envoy {
	t.Helper()
	e := &envoy{t: t, name: fmt.Sprint("envoy-", v)}
	file := map[fleet.Variant]string{fleet.Delta: "envoy-delta.yaml", fleet.SotW: "envoy-sotw.yaml"}[v]
	text, err := os.ReadFile("../../config/clients/" + file)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(relay, ":")
	dir := t.TempDir()
	config := tlstest.File(t, dir, "envoy.yaml", []byte(strings.NewReplacer("cluster: edge ", "cluster: "+key+" ", "id: envoy-1", "id: "+e.name,
		"port_value: 9901", "port_value: 0", "port_value: 15010", "port_value: "+port).Replace(string(text))))
	cmd := exec.Command(xdstest.Envoy(t), "-c", config, "--admin-address-path", dir+"/admin", "--concurrency", "1", "--disable-hot-restart", "--log-level", "warning")
	xdstest.StartProcess(t, e.name, cmd, nil)
	xdstest.Eventually(t, e.name, func() error {
		address, err := os.ReadFile(dir + "/admin")
		if e.admin = strings.TrimSpace(string(address)); err == nil && e.admin == "" {
			err = xdstest.ErrNotYet
		}
		return err
	})
	return e
}
