package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// keys are the keys in use. Each has clients at each member.
var keys = []string{"edge-0", "edge-1", "edge-2", "edge-3", "edge-4", "edge-5"}

// environment is a cluster of three members, with clients at each, in front of one origin.
type environment struct {
	t         testing.TB
	origin    *xdstest.Origin
	authority *tlstest.Authority
	dir       string
	ca, keys  []byte // content of the files of members that are started
	tokenFile string // of admin; empty: none
	version   int    // of what the origin has
	members   []*member
}

// member is a place in the cluster. Its relay may be restarted.
type member struct {
	*xdstest.Relay
	name    string
	host    string // its IP address
	address string // for other members
	gossip  string
	enter   []string       // runs a command where the member runs; empty: here
	proxy   *xdstest.Proxy // between clients and the relay
	clients []*client
}

// newEnvironment starts the members and their clients, and waits until each key has one owner.
func newEnvironment(t testing.TB) *environment {
	t.Helper()
	e := &environment{t: t}
	for _, name := range []string{"a", "b", "c"} {
		e.members = append(e.members, &member{name: name, host: "127.0.0.1", address: xdstest.FreeAddress(t), gossip: gossipAddress(t)})
	}
	e.begin(xdstest.OriginOptions{})
	return e
}

// begin starts the origin, the members and their clients, and waits until each key has one owner.
func (e *environment) begin(o xdstest.OriginOptions) {
	t := e.t
	t.Helper()
	o.Cache = xdstest.Linear
	e.origin, e.authority, e.dir = xdstest.StartOrigin(t, o), tlstest.NewAuthority(t), t.TempDir()
	e.ca, e.keys = e.authority.PEM(), gossipKey()
	e.change()
	var cmds []*exec.Cmd
	for _, m := range e.members {
		cmds = append(cmds, e.command(m, e.config(m)))
	}
	for i, r := range xdstest.StartRelays(t, cmds...) {
		e.members[i].Relay = r
	}
	for _, m := range e.members {
		m.proxy = xdstest.StartProxy(t, m.Address)
		e.seesMembers(m, "alive", len(e.members))
	}
	for i, m := range e.members {
		for j, key := range keys {
			m.clients = append(m.clients, e.client(m.proxy.Address, m.name, key, fleet.Variant((i+j)%2)))
		}
	}
	e.haveAll()
	e.oneStreamPerKey()
}

// gossipAddress returns a loopback address that is free for TCP and UDP.
func gossipAddress(t testing.TB) string {
	t.Helper()
	for {
		address := xdstest.FreeAddress(t)
		if c, err := net.ListenPacket("udp", address); err == nil {
			_ = c.Close() // it carried nothing
			return address
		}
	}
}

// gossipKey returns a line of a file of gossip keys.
func gossipKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	return []byte(base64.StdEncoding.EncodeToString(key) + "\n")
}

// writeKeys and writeCA write files of a member, and return their paths.
func (e *environment) writeKeys(name string, keys []byte) string {
	return tlstest.File(e.t, e.dir, name+".gossip", keys)
}

func (e *environment) writeCA(name string, ca []byte) string {
	return tlstest.File(e.t, e.dir, name+".ca", ca)
}

const identity = `"spiffe://demo/relay" in peer.uri_sans`

// config is the configuration of a member.
func (e *environment) config(m *member) xdstest.Config {
	cert, key := e.authority.Pair(e.t, tlstest.URI("spiffe://demo/relay")).Write(e.t, e.dir, m.name)
	join := []string{m.gossip}
	for _, other := range e.members {
		join = append(join, other.gossip)
	}
	return xdstest.QuickConfig().With(xdstest.Config{
		"name":                    m.name,
		"downstream.address":      m.host + ":0",
		"downstream.drain":        "1s",
		"admin.address":           m.host + ":0",
		"admin.token_file":        e.tokenFile,
		"upstream.origins":        []map[string]any{{"name": "control", "address": e.origin.Address}},
		"upstream.node":           `Node{id: "relay", cluster: node.cluster}`,
		"aggregation.rules":       rules(1),
		"cluster.name":            "demo",
		"cluster.address":         m.address,
		"cluster.gossip":          m.gossip,
		"cluster.advertise":       m.host,
		"cluster.join":            join,
		"cluster.identity":        identity,
		"cluster.gossip_key_file": e.writeKeys(m.name, e.keys),
		"cluster.tls":             map[string]any{"cert_file": cert, "key_file": key, "ca_file": e.writeCA(m.name, e.ca)},
	})
}

// file is a member's configuration file.
func (e *environment) file(m *member) string { return filepath.Join(e.dir, m.name+".yaml") }

// command writes a member's configuration, and returns the command that serves it.
func (e *environment) command(m *member, c xdstest.Config) *exec.Cmd {
	e.t.Helper()
	tlstest.File(e.t, e.dir, m.name+".yaml", c.Text())
	cmd := xdstest.Command(e.t, "serve", "--config", e.file(m))
	if len(m.enter) > 0 {
		in := exec.Command(m.enter[0], append(slices.Clone(m.enter[1:]), cmd.Args...)...)
		in.Env = cmd.Env
		return in
	}
	return cmd
}

// start starts a relay at a member's place.
func (e *environment) start(m *member, more xdstest.Config) {
	e.t.Helper()
	m.Relay = xdstest.StartRelayCommand(e.t, e.command(m, e.config(m).With(more)))
}

// rules give all nodes the same keys, whatever n is. n changes the compat.
func rules(n int) []map[string]any {
	return []map[string]any{{"match": fmt.Sprintf(`node.id == "nobody-%d"`, n), "key": "node.id"}, {"key": "node.cluster"}}
}

// seesMembers waits until a relay knows so many members in a state, itself included.
func (e *environment) seesMembers(r *member, state string, n int) {
	e.t.Helper()
	xdstest.Eventually(e.t, r.name+" sees the members", func() error {
		if got := int(r.Metric("cluster_members", "state", state)); got != n {
			return fmt.Errorf("%d members are %s, want %d", got, state, n)
		}
		return nil
	})
}

// change makes the origin change what all keys have.
func (e *environment) change() {
	e.t.Helper()
	e.version++
	for _, key := range keys {
		e.origin.Put(key, xdstest.Web(e.version)...)
	}
}

// haveAll waits until each client has what the origin has.
func (e *environment) haveAll() {
	e.t.Helper()
	for _, m := range e.members {
		for _, c := range m.clients {
			c.has(e.t, xdstest.Web(e.version)...)
		}
	}
}

// reachesAll makes a change and waits until each client has it.
func (e *environment) reachesAll() {
	e.t.Helper()
	e.change()
	e.haveAll()
}

// keyStatus is the part of /keys that the tests read.
type keyStatus struct {
	Key      string `json:"key"`
	Upstream struct {
		Connected bool   `json:"connected"`
		Origin    string `json:"origin"`
	} `json:"upstream"`
}

// owners returns the member that has a stream to the origin, for each key. It is an error if a key
// has none, or has several.
func (e *environment) owners() (map[string]*member, error) {
	owners := make(map[string]*member)
	for _, m := range e.members {
		select {
		case <-m.Exited():
			continue
		default:
		}
		list, err := xdstest.List[keyStatus](m.Relay, "/keys")
		if err != nil {
			return nil, err
		}
		for _, k := range list {
			switch {
			case !k.Upstream.Connected || k.Upstream.Origin != "control":
			case owners[k.Key] != nil:
				return nil, fmt.Errorf("%s has a stream to the origin at %s and %s", k.Key, owners[k.Key].name, m.name)
			default:
				owners[k.Key] = m
			}
		}
	}
	if open, _ := e.origin.Streams(); len(owners) != len(keys) || open != len(keys) {
		return nil, fmt.Errorf("%d of %d keys have an owner, and the origin has %d streams", len(owners), len(keys), open)
	}
	return owners, nil
}

// oneStreamPerKey waits until the origin has one stream for each key. It returns the keys' owners. A key
// may move twice, and each time waits 10 s.
func (e *environment) oneStreamPerKey() (owners map[string]*member) {
	e.t.Helper()
	err := xdstest.Poll(2*xdstest.Patience, 20*time.Millisecond, func() (err error) {
		owners, err = e.owners()
		return err
	})
	if err != nil {
		e.t.Fatalf("one origin stream for each key: %v", err)
	}
	return owners
}

// moveClients sends the next connections of a member's clients to another one.
func (e *environment) moveClients(from, to *member) { from.proxy.SetTarget(to.Address) }

// ended checks how many streams of each client of a member have ended.
func (e *environment) ended(m *member, want int) {
	e.t.Helper()
	for _, c := range m.clients {
		if got, err := c.ends(); got != want {
			e.t.Errorf("%d streams of client %s ended, want %d: %v", got, c.ID(), want, err)
		}
	}
}

// client is a client that notices lost resources and older content.
type client struct {
	*fleet.Client
	mu     sync.Mutex
	ended  int                 // streams
	err    error               // of the last of them
	held   map[xds.TypeURL]int // resources
	newest int                 // the version of the cluster, on this stream
	faults []string
	older  []string // older content after newer on a stream
	// mayGoBack: the client may get the state before a change once, because its key moves while the
	// origin changes. docs/cluster.md has this as a known limit.
	mayGoBack bool
}

// client starts a client that runs until the end of the test.
func (e *environment) client(target, at, key string, v fleet.Variant) *client {
	e.t.Helper()
	c := &client{held: make(map[xds.TypeURL]int)}
	inner, err := fleet.NewClient(fleet.ClientConfig{
		Target: target, Node: &corev3.Node{Id: fmt.Sprintf("%s-at-%s", key, at), Cluster: key}, Variant: v, Behaviour: fleet.Envoy,
		Backoff:  fleet.Backoff{Base: 10 * time.Millisecond, Max: 100 * time.Millisecond},
		OnStream: c.onStream, OnApplied: c.onApplied,
	})
	if err != nil {
		e.t.Fatal(err)
	}
	c.Client = inner
	e.t.Cleanup(func() { // after the client's end
		if all := c.wrong(); len(all) > 0 {
			e.t.Errorf("client %s: %q", c.ID(), all)
		}
	})
	xdstest.Run(e.t, c.Run)
	return c
}

func (c *client) onStream(_ *fleet.Client, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.newest = 0
	if err != nil && !errors.Is(err, context.Canceled) {
		c.ended++
		c.err = err
	}
}

// onApplied checks what the client holds after a response. The origin removes nothing, and each of its
// versions has a greater connect timeout.
func (c *client) onApplied(f *fleet.Client, typ xds.TypeURL, _ string, _ time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := f.Len(typ)
	if n < c.held[typ] {
		c.faults = append(c.faults, fmt.Sprintf("has %d resources of %s, and had %d", n, typ, c.held[typ]))
	}
	c.held[typ] = n
	r, ok := f.Get(xds.ClusterType, "web")
	if typ != xds.ClusterType || !ok {
		return
	}
	var cluster clusterv3.Cluster
	if err := proto.Unmarshal(r.Body, &cluster); err != nil {
		c.faults = append(c.faults, err.Error())
	}
	version := int(cluster.ConnectTimeout.AsDuration() / time.Millisecond)
	switch {
	case version == c.newest-1 && c.mayGoBack:
		c.mayGoBack = false
	case version < c.newest:
		c.older = append(c.older, fmt.Sprintf("got version %d after %d", version, c.newest))
	}
	c.newest = version
}

// wrong says what the client lost, and how the relay violated the protocol.
func (c *client) wrong() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Concat(c.faults, c.older, c.Violations())
}

// ends returns how many streams have ended, and the error of the last one.
func (c *client) ends() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended, c.err
}

// moves says that the client's key moves while the origin changes.
func (c *client) moves() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mayGoBack = true
}

// has waits until the client has exactly these. A relay may need 45 s to notice a dead path to its origin.
func (c *client) has(t testing.TB, want ...types.Resource) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*xdstest.Patience)
	defer cancel()
	err := c.Wait(ctx, func(f *fleet.Client) bool {
		for _, w := range want {
			typ, name := xdstest.NameOf(w)
			if r, ok := f.Get(xds.TypeURL(typ), name); !ok || !bytes.Equal(r.Body, xdstest.Wire(w)) {
				return false
			}
		}
		return true
	})
	if err != nil {
		t.Fatalf("what the origin has: %v", err)
	}
}
