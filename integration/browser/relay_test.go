package browser

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
)

const (
	clusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	listenerType = "type.googleapis.com/envoy.config.listener.v3.Listener"
)

// fixture is an origin of files, a relay and clients.
type fixture struct {
	testing.TB
	dir    string // of the origin
	origin string // its address
	down   string // address for clients
	admin  string // its URL
	config string // file of the relay
	stop   func() // stops the relay
	signal func(syscall.Signal)

	nack atomic.Pointer[string] // why clients reject clusters; nil: they accept them
	lds  bool                   // clients that join subscribe to listeners, too
}

// serve starts a relay, with more configuration.
func serve(t testing.TB, more xdstest.Config) *fixture {
	t.Helper()
	f := &fixture{TB: t, dir: t.TempDir()}
	f.origin = "file://" + f.dir
	f.clusters("1", "web", "api", "accounts")
	f.start(more)
	return f
}

// start runs the relay until the test ends or stop is called.
func (f *fixture) start(more xdstest.Config) {
	f.Helper()
	f.config = xdstest.QuickConfig().With(xdstest.Config{
		"downstream.drain":  "0s",
		"upstream.origins":  []map[string]any{{"address": f.origin, "name": "files"}},
		"aggregation.rules": []map[string]any{{"match": `node.cluster != "nobody"`, "key": []string{"node.cluster", "node.locality.zone"}}},
	}).With(more).WriteFile(f)
	r := xdstest.StartRelayCommand(f, xdstest.Command(f, "serve", "--config", f.config))
	f.down, f.admin, f.stop, f.signal = r.Address, "http://"+r.Admin, r.Stop, r.Signal
}

// clusters sets the origin's clusters.
func (f *fixture) clusters(version string, names ...string) {
	f.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "type_url: %s\nversion_info: %q\nresources:\n", clusterType, version)
	for _, n := range names {
		fmt.Fprintf(&b, "  - {\"@type\": %q, name: %q, type: STATIC, connect_timeout: 1s}\n", clusterType, n)
	}
	f.publish("clusters.yaml", b.String())
}

// listener adds a listener to the origin. Clients that join from now on subscribe to it.
func (f *fixture) listener() {
	f.Helper()
	f.lds = true
	f.publish("listeners.yaml", fmt.Sprintf("type_url: %s\nversion_info: \"1\"\nresources:\n  - {\"@type\": %q, name: web}\n", listenerType, listenerType))
}

// publish writes a file of the origin.
func (f *fixture) publish(name, content string) {
	f.Helper()
	// It writes a second file and renames it, so that the origin never reads half a file.
	next := filepath.Join(f.TempDir(), "next")
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		f.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(f.dir, name)); err != nil {
		f.Fatal(err)
	}
}

// nacking makes clients reject clusters with a message from now on; "": accept them.
func (f *fixture) nacking(message string) {
	if message == "" {
		f.nack.Store(nil)
		return
	}
	f.nack.Store(&message)
}

// node returns a node of a cluster in a zone.
func node(id, cluster, zone string) *corev3.Node {
	return &corev3.Node{Id: id, Cluster: cluster, Locality: &corev3.Locality{Zone: zone}}
}

// join connects a client for each node, half of them with delta, and waits until all have their
// clusters. The first rejects them if the fixture says so.
func (f *fixture) join(nodes ...*corev3.Node) (leave func()) {
	f.Helper()
	var served sync.WaitGroup
	served.Add(len(nodes))
	leave = f.begin(served.Done, nodes...)
	all := make(chan struct{})
	go func() { served.Wait(); close(all) }()
	select {
	case <-all:
	case <-time.After(xdstest.Patience):
		f.Fatal("clients have no clusters")
	}
	return leave
}

// begin is join for clients that may never have any clusters. It calls served once for each that
// has.
func (f *fixture) begin(served func(), nodes ...*corev3.Node) (leave func()) {
	types := []fleet.Subscription{{Type: clusterType}}
	if f.lds {
		types = append(types, fleet.Subscription{Type: listenerType})
	}
	var leaves []func()
	for i, n := range nodes {
		once := sync.OnceFunc(served)
		c, err := fleet.NewClient(fleet.ClientConfig{
			Target: f.down, Node: n, Variant: fleet.Variant(i % 2), Behaviour: fleet.Raw, Subscribe: types, NoReconnect: true,
			OnResponse: func(*fleet.Client, fleet.Response) { once() },
			Nack: func(typ xds.TypeURL, _ []fleet.Resource) error {
				if why := f.nack.Load(); why != nil && i == 0 && typ == clusterType {
					return errors.New(*why)
				}
				return nil
			},
		})
		if err != nil {
			f.Fatal(err)
		}
		leaves = append(leaves, xdstest.Run(f, c.Run))
	}
	return func() {
		for _, leave := range leaves {
			leave()
		}
	}
}

// refuse lets a client connect whose node has no key.
func (f *fixture) refuse() {
	f.Helper()
	s := xdstest.OpenStream(f, f.down, xdstest.SotWMethod)
	s.Ask(node("lost-1", "nobody", ""), clusterType)
	s.WantEnd(codes.PermissionDenied)
}

// edge returns n nodes in two zones.
func edge(n int) []*corev3.Node {
	var out []*corev3.Node
	for i := range n {
		out = append(out, node(fmt.Sprintf("edge-%03d", i), "edge", []string{"eu-1", "eu-2"}[i%2]))
	}
	return slices.Clip(out)
}
