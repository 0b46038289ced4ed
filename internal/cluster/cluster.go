package cluster

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"xdsrelay/internal/filewatch"
	"xdsrelay/internal/telemetry"

	"github.com/hashicorp/memberlist"
)

const (
	// streamTimeout bounds a stream of gossip. An attempt to join delays the return of Run as long.
	streamTimeout = 3 * time.Second
	// leaveTimeout bounds each of the two messages with which a member leaves.
	leaveTimeout = time.Second
	// pushPullEvery is how often a member exchanges all that it knows with another one. Gossip repeats
	// a change a few times, which may not reach all: some would take the owner of a key for another
	// one until then.
	pushPullEvery = 10 * time.Second
	// pruneEvery is how often members that ended long ago are looked for.
	pruneEvery = 30 * time.Second
)

// Options of a Cluster. The caller has checked them, except for the total size of what members tell.
type Options struct {
	Name    string // of this relay. Owners are computed from it
	Version string // of the program, for operators
	// Label is cluster.name. Relays with another label do not become members.
	Label string
	// Address is where others reach this relay's member listener, as host:port. An unspecified host,
	// as in 0.0.0.0:15020, stands for the IP that others reach gossip at.
	Address string
	// Gossip is where gossip listens, over TCP and UDP.
	Gossip netip.AddrPort
	// Advertise is the IP that others reach gossip at. Empty: it is found from the interfaces.
	Advertise string
	// Join has host:port of members. They are resolved again every 30 s.
	Join []string
	// KeyFile has AES-256 keys in base64, one a line. The first encrypts, all decrypt. The file is
	// read again when it changes. Empty: gossip is not encrypted.
	KeyFile string
	// Transport replaces the network, in tests. Nil: the network.
	Transport memberlist.NodeAwareTransport
	// Resolve returns the addresses of a host, which may be an IP. Nil: by DNS.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	Metrics *telemetry.Metrics
	Log     *slog.Logger
}

// Cluster is this relay's view of the members of a cluster.
type Cluster struct {
	options Options
	keyring *memberlist.Keyring // nil: gossip is not encrypted
	joined  chan struct{}       // for Joined
	endJoin func()              // closes joined
	notify  chan struct{}       // of capacity 1: for Run's goroutine, after each change
	view    atomic.Pointer[view]
	// watch is filewatch.Run, except in tests.
	watch func(context.Context, *slog.Logger, func() []string, func() bool) error

	// mu protects the following. It is not held while memberlist or the log is called.
	mu      sync.Mutex
	self    *peer            // its id does not change
	peers   map[string]*peer // by id, self included
	changed chan struct{}    // for Changed
}

// New returns a cluster of which this relay is the only member. It reads KeyFile, and starts nothing.
func New(o Options) (*Cluster, error) {
	if o.Resolve == nil {
		o.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	now := time.Now()
	id := fmt.Sprintf("%s-%016x", o.Name, rand.Uint64())
	self := &peer{started: now.UnixMilli(), known: true,
		Member: Member{Name: o.Name, Version: o.Version, Address: o.Address, Self: true, State: telemetry.MemberAlive, Since: now, id: id}}
	c := &Cluster{
		options: o,
		joined:  make(chan struct{}),
		notify:  make(chan struct{}, 1),
		watch:   filewatch.Run,
		self:    self,
		peers:   map[string]*peer{id: self},
		changed: make(chan struct{}),
	}
	c.endJoin = sync.OnceFunc(func() { close(c.joined) })
	// The name counts too: it is sent with the metadata, and both must fit in one packet.
	if n := len(id) + len(c.metadata()) + maxCompat; n > maxMetadata {
		return nil, fmt.Errorf("cluster: what members tell each other has %d bytes, more than %d: the relay's name has %d, cluster.address %d, the version %d",
			n, maxMetadata, len(o.Name), len(o.Address), len(o.Version))
	}
	if o.KeyFile != "" {
		c.keyring = new(memberlist.Keyring)
		if err := c.readKeys(); err != nil {
			return nil, err
		}
	}
	c.update()
	if len(o.Join) == 0 {
		c.endJoin()
	}
	return c, nil
}

// readKeys makes the keyring hold the keys of KeyFile.
func (c *Cluster) readKeys() error {
	keys, err := readKeys(c.options.KeyFile)
	if err != nil {
		return fmt.Errorf("cluster.gossip_key_file: %w", err)
	}
	setKeys(c.keyring, keys)
	return nil
}

func (c *Cluster) config() *memberlist.Config {
	config := memberlist.DefaultLANConfig()
	config.Name = c.self.id
	config.Label = c.options.Label
	if c.options.Transport != nil {
		config.Transport = c.options.Transport
	}
	config.BindAddr, config.BindPort = c.options.Gossip.Addr().String(), int(c.options.Gossip.Port())
	config.AdvertiseAddr, config.AdvertisePort = c.options.Advertise, config.BindPort
	config.Keyring = c.keyring
	config.TCPTimeout = streamTimeout
	config.PushPullInterval = pushPullEvery
	config.EnableCompression = false // it costs more than it saves
	config.Delegate, config.Events = delegate{c}, delegate{c}
	config.Logger = log.New(&gossipLog{log: c.options.Log}, "", 0)
	return config
}

// Run gossips until ctx ends. Then it leaves the cluster, and returns when its goroutines have ended.
func (c *Cluster) Run(ctx context.Context) error {
	told, logged := c.metadata(), c.Members()
	list, err := memberlist.Create(c.config())
	if err != nil {
		return fmt.Errorf("cluster.gossip and cluster.advertise: %w", err) // the settings that Create uses
	}
	var children sync.WaitGroup
	defer children.Wait()
	if c.keyring != nil {
		children.Go(func() { c.watchKeys(ctx) })
	}
	if len(c.options.Join) > 0 {
		children.Go(func() { (&joiner{Cluster: c, list: list, failing: make(map[failure]bool)}).run(ctx) })
		defer time.AfterFunc(maxJoin, c.endJoin).Stop()
	}
	prune := time.Tick(pruneEvery)
	for {
		select {
		case <-ctx.Done():
			c.leave(list)
			return list.Shutdown()
		case <-prune:
			c.change(func(*peer) {})
		case <-c.notify:
		}
		if me := c.metadata(); me != told {
			told = me
			_ = list.UpdateNode(time.Millisecond) // an error: the broadcast takes longer, and goes on
		}
		members := c.Members()
		logChanges(c.options.Log, logged, members)
		logged = members
	}
}

// leave tells others that this relay ends. Those that it cannot tell find out by themselves.
func (c *Cluster) leave(list *memberlist.Memberlist) {
	c.SetDraining(true) // tells a member that left from one that died
	_ = list.UpdateNode(leaveTimeout)
	_ = list.Leave(leaveTimeout)
}

// watchKeys reads KeyFile again each time that it changes.
func (c *Cluster) watchKeys(ctx context.Context) {
	failed := ""
	_ = c.watch(ctx, c.options.Log, func() []string { return []string{c.options.KeyFile} }, func() bool {
		before := c.keyring.GetKeys()
		err := c.readKeys()
		if now := c.keyring.GetKeys(); !slices.EqualFunc(now, before, bytes.Equal) {
			c.options.Log.Info("gossip keys reloaded", "keys", len(now))
		}
		if err != nil && err.Error() != failed {
			c.options.Log.Warn("the gossip keys cannot be used; the previous keys stay in force", "error", err)
		}
		failed = fmt.Sprint(err)
		return err == nil
	}) // it returns nil
}

// Joined is closed once another member is known. Without Options.Join it is closed at once, otherwise
// 10 s after the start of Run at the latest.
func (c *Cluster) Joined() <-chan struct{} { return c.joined }

func (c *Cluster) isJoined() bool {
	select {
	case <-c.joined:
		return true
	default:
		return false
	}
}

// SetReady sets whether this relay serves clients. Only a relay that is ready is a candidate.
func (c *Cluster) SetReady(ready bool) { c.change(func(self *peer) { self.Ready = ready }) }

// SetDraining sets whether this relay is about to end.
func (c *Cluster) SetDraining(draining bool) { c.change(func(self *peer) { self.Draining = draining }) }

// SetCompat sets what members must have in common to share keys. Only its first 64 bytes count. It
// has no newline.
func (c *Cluster) SetCompat(compat string) {
	c.change(func(self *peer) { self.Compat = compat[:min(len(compat), maxCompat)] })
}

// change changes what is known of this relay.
func (c *Cluster) change(f func(self *peer)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.self)
	c.update()
}

// metadata returns what this relay tells others.
func (c *Cluster) metadata() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.self.metadata(c.options.Address)
}

// delegate is what memberlist calls. It may hold a lock of its own.
type delegate struct{ c *Cluster }

// NodeMeta returns this relay's metadata.
func (d delegate) NodeMeta(int) []byte { return []byte(d.c.metadata()) }

// The rest of memberlist.Delegate is for messages of other kinds, which the cluster does not use.
func (delegate) NotifyMsg([]byte)                {}
func (delegate) GetBroadcasts(int, int) [][]byte { return nil }
func (delegate) LocalState(bool) []byte          { return nil }
func (delegate) MergeRemoteState([]byte, bool)   {}

// NotifyJoin, NotifyUpdate and NotifyLeave are memberlist.EventDelegate.
func (d delegate) NotifyJoin(n *memberlist.Node)   { d.c.observe(n, true) }
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.c.observe(n, true) }
func (d delegate) NotifyLeave(n *memberlist.Node)  { d.c.observe(n, false) }

// observe records what memberlist says about a member.
func (c *Cluster) observe(n *memberlist.Node, alive bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[n.Name]
	if p == nil {
		name := n.Name[:max(0, strings.LastIndexByte(n.Name, '-'))]
		p = &peer{Member: Member{Name: name, id: n.Name, State: telemetry.MemberAlive, Since: time.Now()}}
		c.peers[n.Name] = p
	}
	ip, _ := netip.AddrFromSlice(n.Addr) // an IP: memberlist has used it
	p.gossip = netip.AddrPortFrom(ip.Unmap(), n.Port)
	if p == c.self {
		p.Address = reachable(c.options.Address, p.gossip.Addr())
		c.update()
		return
	}
	p.read(string(n.Meta))
	state := telemetry.MemberAlive
	switch {
	case !alive && p.Draining:
		state = telemetry.MemberLeft
	case !alive:
		state = telemetry.MemberDead
	}
	if p.State != state {
		p.State, p.Since = state, time.Now()
	}
	c.endJoin()
	c.update()
}
