package browser

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// world is an origin of files, a relay and clients.
type world struct {
	testing.TB
	origin string // directory
	remote string // another origin in its place, if there is one
	down   string // address for clients
	admin  string // its URL

	config string // file of the relay
	stop   func()

	refuse atomic.Pointer[string] // what clients say to clusters; nil: they take them
}

const config = `name: %s
downstream: {address: "127.0.0.1:0", drain: 0s, removal_delay: 50ms}
upstream: {origins: [{address: %q, name: files}], linger: 200ms, backoff: {base: 20ms, max: 200ms}}
aggregation: {rules: [{match: 'node.cluster != "nobody"', key: [node.cluster, node.locality.zone]}]}
admin: {address: %q%s}
`

// serve starts a relay, with more of the configuration of admin.
func serve(t testing.TB, more string) *world {
	t.Helper()
	w := &world{TB: t, origin: t.TempDir(), config: filepath.Join(t.TempDir(), "relay.yaml")}
	w.clusters("1", "web", "api", "accounts")
	w.start("127.0.0.1:0", more)
	return w
}

var serving = regexp.MustCompile(`msg=serving .*?downstream=(\S+) admin=(\S+)`)

// start runs the relay until the test ends or stop is called.
func (w *world) start(admin, more string) {
	w.Helper()
	text := fmt.Sprintf(config, "relay-under-test", cmp.Or(w.remote, "file://"+w.origin), admin, more)
	if err := os.WriteFile(w.config, []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
	cmd := exec.Command(binary, "serve", "--config", w.config)
	out, err := cmd.StderrPipe()
	if err != nil {
		w.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	addresses := make(chan []string, 1)
	said := make(chan string, 1)
	go func() {
		var log strings.Builder
		lines := bufio.NewScanner(io.TeeReader(out, &log))
		for lines.Scan() {
			if m := serving.FindStringSubmatch(lines.Text()); m != nil {
				addresses <- m[1:]
			}
		}
		close(addresses)
		said <- log.String()
	}()
	w.stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // if it has ended, Wait says so
		log := <-said
		if err := cmd.Wait(); err != nil {
			w.Errorf("the relay: %v\n%s", err, log)
		}
	})
	w.Cleanup(func() { w.stop() })
	at, ok := <-addresses
	if !ok {
		w.Fatal("the relay did not start")
	}
	w.down, w.admin = at[0], "http://"+at[1]
}

// clusters has the origin give these.
func (w *world) clusters(version string, names ...string) {
	w.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "type_url: %s\nversion_info: %q\nresources:\n", clusterType, version)
	for _, n := range names {
		fmt.Fprintf(&b, "  - {\"@type\": %q, name: %q, type: STATIC, connect_timeout: 1s}\n", clusterType, n)
	}
	// Beside it, and then in its place: the origin is never seen half.
	next := filepath.Join(w.TempDir(), "next")
	if err := os.WriteFile(next, []byte(b.String()), 0o600); err != nil {
		w.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(w.origin, "clusters.yaml")); err != nil {
		w.Fatal(err)
	}
}

// refusing has clients refuse clusters with a message from now on; "": take them.
func (w *world) refusing(message string) {
	if message == "" {
		w.refuse.Store(nil)
		return
	}
	w.refuse.Store(&message)
}

// node of a cluster in a zone.
func node(id, cluster, zone string) *corev3.Node {
	return &corev3.Node{Id: id, Cluster: cluster, Locality: &corev3.Locality{Zone: zone}}
}

// join connects a client for each node, half of them incremental, and waits until
// all have their clusters. The first refuses when the world says so.
func (w *world) join(nodes ...*corev3.Node) (leave func()) {
	w.Helper()
	var served sync.WaitGroup
	served.Add(len(nodes))
	leave = w.begin(served.Done, nodes...)
	all := make(chan struct{})
	go func() { served.Wait(); close(all) }()
	select {
	case <-all:
	case <-time.After(patience):
		w.Fatal("clients have no clusters")
	}
	return leave
}

// begin is join for those who may never have any; served is called once for each that
// has.
func (w *world) begin(served func(), nodes ...*corev3.Node) (leave func()) {
	ctx, cancel := context.WithCancel(context.Background())
	c := &crowd{stop: cancel}
	for i, n := range nodes {
		one := &client{node: n, delta: i%2 == 1, served: sync.OnceFunc(served), refuse: func() string {
			if why := w.refuse.Load(); why != nil && i == 0 {
				return *why
			}
			return ""
		}}
		c.ended.Go(func() {
			if err := one.run(ctx, w.down); err != nil {
				c.mu.Lock()
				c.wrong = append(c.wrong, err)
				c.mu.Unlock()
			}
		})
	}
	leave = sync.OnceFunc(func() {
		if err := c.leave(); err != nil {
			w.Error(err)
		}
	})
	w.Cleanup(leave)
	return leave
}

// edge are n nodes of two zones.
func edge(n int) []*corev3.Node {
	var out []*corev3.Node
	for i := range n {
		out = append(out, node(fmt.Sprintf("edge-%03d", i), "edge", []string{"eu-1", "eu-2"}[i%2]))
	}
	return slices.Clip(out)
}

// mesh are n nodes of another cluster.
func mesh(n int) []*corev3.Node {
	var out []*corev3.Node
	for i := range n {
		out = append(out, node(fmt.Sprintf("mesh-%03d", i), "mesh", "eu-1"))
	}
	return out
}
