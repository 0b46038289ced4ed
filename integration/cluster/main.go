// Command cluster runs an origin, three relays as a cluster and 300 clients on loopback. It kills,
// adds and drains a relay in turn, and prints what the origin and the clients see. The origin and the
// relays are processes of the built binary, and the clients are internal/fleet's.
//
// Its tests are the smoke test of clusters: the same with mutual TLS and gossip keys, and with relays
// that are configured wrongly.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

const (
	keyCount  = 12
	resources = 20 // of each key
	patience  = time.Minute
)

func main() {
	binary := flag.String("relay", "bin/relay", "the relay")
	clients := flag.Int("clients", 300, "number of clients")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *binary, *clients, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// show is a run.
type show struct {
	binary, dir string
	out         io.Writer
	origin      *xdstest.Relay
	replicas    []*replica
	fleet       *fleet.Fleet
	began       time.Time
	changes     int

	mu    sync.Mutex
	held  map[*fleet.Client]int // clusters
	got   map[*fleet.Client]bool
	lost  int // times that a client had fewer clusters than before
	ended int // streams
}

// replica is a relay of the cluster; nil process: it does not run.
type replica struct {
	name                        string
	downstream, members, gossip string // addresses
	process                     *xdstest.Relay
}

// run starts everything, and ends it.
func run(ctx context.Context, binary string, clients int, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "cluster-")
	if err != nil {
		return err
	}
	s := &show{binary: binary, dir: dir, out: out, held: make(map[*fleet.Client]int)}
	defer func() { err = errors.Join(err, s.stop(), os.RemoveAll(dir)) }()
	for _, name := range []string{"a", "b", "c", "d"} {
		r := &replica{name: name}
		for _, address := range []*string{&r.downstream, &r.members, &r.gossip} {
			if *address, err = freeAddress(); err != nil {
				return err
			}
		}
		s.replicas = append(s.replicas, r)
	}
	if err := s.change(); err != nil {
		return err
	}
	if s.origin, err = s.launch("origin", xdstest.Config{
		"downstream.address": "127.0.0.1:0", "admin.address": "127.0.0.1:0",
		"upstream.origins": xdstest.Origins("file://" + filepath.Join(dir, "files")),
	}); err != nil {
		return err
	}
	if err := s.start(s.replicas[:3]...); err != nil {
		return err
	}
	if s.fleet, err = s.newFleet(clients); err != nil {
		return err
	}
	clientsCtx, leave := context.WithCancel(context.WithoutCancel(ctx))
	left := make(chan error, 1)
	go func() { left <- s.fleet.Run(clientsCtx) }()
	err = s.events(ctx, clients)
	leave()
	return errors.Join(err, <-left)
}

// events are the steps of the run.
func (s *show) events(ctx context.Context, clients int) error {
	s.began = time.Now()
	a, b, c, d := s.replicas[0], s.replicas[1], s.replicas[2], s.replicas[3]
	s.printf("%d clients of %d keys; each client may use any replica\n", clients, keyCount)
	for _, step := range []struct {
		what string
		do   func() error
		new  *replica // it owns keys after the step; nil: none
	}{
		{"the replicas a, b and c run", func() error { return nil }, nil},
		{"kill -9 of b", func() error { b.process.Kill(); b.process = nil; return nil }, nil},
		{"d is added", func() error { return s.start(d) }, d},
		{"c drains", func() error { err := c.process.Terminate(); c.process = nil; return err }, nil},
		{"b is back", func() error { return s.start(b) }, b},
		{"a drains", func() error { err := a.process.Terminate(); a.process = nil; return err }, nil},
	} {
		s.mu.Lock()
		before := s.ended
		s.mu.Unlock()
		if err := step.do(); err != nil {
			return err
		}
		if err := s.rest(ctx, step.what, before, step.new); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.fleet.Violations(); s.lost > 0 || len(v) > 0 {
		return fmt.Errorf("clients lost resources %d times, and saw violations of the protocol: %q", s.lost, v)
	}
	s.printf("no client lost a resource\n")
	return nil
}

// rest waits until the origin has one stream for each key, all clients are connected, and owner owns
// keys. Then it makes a change and prints what origin and clients see.
func (s *show) rest(ctx context.Context, what string, ended int, owner *replica) error {
	var streams, clients string
	err := s.wait(ctx, func() (err error) { streams, clients, err = s.see(owner); return err })
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	s.mu.Lock()
	s.got = make(map[*fleet.Client]bool)
	ended = s.ended - ended
	s.mu.Unlock()
	settled, changed := time.Since(s.began), time.Now()
	if err := s.change(); err != nil {
		return err
	}
	err = s.wait(ctx, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.fleet.Clients()) - len(s.got); n > 0 {
			return fmt.Errorf("%d clients did not get a change", n)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	s.printf("\n%5.1fs  %s\n        streams at the origin  %s\n        clients                %s; %d of their streams ended\n        a change reached all   after %d ms\n",
		settled.Seconds(), what, streams, clients, ended, time.Since(changed).Milliseconds())
	return nil
}

// see describes the streams at the origin and the clients of each replica. It is an error if a key has
// another number of streams than one, a client is not complete, or owner has no stream.
func (s *show) see(owner *replica) (streams, clients string, err error) {
	type key struct {
		Upstream struct {
			Connected bool   `json:"connected"`
			Origin    string `json:"origin"`
		} `json:"upstream"`
	}
	type client struct{}
	for _, c := range s.fleet.Clients() {
		if !c.Connected() || !c.Complete() {
			return "", "", fmt.Errorf("client %s is not complete", c.ID())
		}
	}
	sum := 0
	for _, r := range s.replicas {
		if r.process == nil {
			continue
		}
		list, err := xdstest.List[key](r.process, "/keys")
		if err != nil {
			return "", "", err
		}
		connected, err := xdstest.List[client](r.process, "/clients")
		if err != nil {
			return "", "", err
		}
		n := 0
		for _, k := range list {
			if k.Upstream.Connected && k.Upstream.Origin == "origin" {
				n++
			}
		}
		if sum += n; r == owner && n == 0 {
			return "", "", fmt.Errorf("%s owns no key", r.name)
		}
		streams += fmt.Sprintf("%s%s %d", comma(streams), r.name, n)
		clients += fmt.Sprintf("%s%s %d", comma(clients), r.name, len(connected))
	}
	open, err := xdstest.List[client](s.origin, "/clients")
	if err == nil && (len(open) != keyCount || sum != keyCount) {
		err = fmt.Errorf("the origin has %d streams, and the replicas say %d, for %d keys", len(open), sum, keyCount)
	}
	return fmt.Sprintf("%d: %s", len(open), streams), clients, err
}

func comma(before string) string {
	if before == "" {
		return ""
	}
	return ", "
}

// wait waits until check returns nil.
func (s *show) wait(ctx context.Context, check func() error) error {
	return xdstest.Poll(patience, 10*time.Millisecond, func() error {
		if ctx.Err() != nil {
			return nil // run ends
		}
		return check()
	})
}

// change writes the origin's file, with other content each time.
func (s *show) change() error {
	s.changes++
	text := fmt.Sprintf("version_info: \"%d\"\nresources:\n", s.changes)
	for i := range resources {
		text += fmt.Sprintf("  - {\"@type\": %s, name: service-%d, connect_timeout: %ds}\n", xds.ClusterType, i, s.changes)
	}
	files := filepath.Join(s.dir, "files")
	if err := os.MkdirAll(files, 0o755); err != nil {
		return err
	}
	file := filepath.Join(s.dir, "clusters.new")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(file, filepath.Join(files, "clusters.yaml"))
}

// start starts replicas together: the first waits for another.
func (s *show) start(replicas ...*replica) error {
	var join []string
	for _, r := range s.replicas {
		join = append(join, r.gossip)
	}
	errs := make([]error, len(replicas))
	var wait sync.WaitGroup
	for i, r := range replicas {
		wait.Go(func() {
			r.process, errs[i] = s.launch(r.name, xdstest.Config{
				"downstream.address": r.downstream, "downstream.drain": "2s", "admin.address": "127.0.0.1:0",
				"upstream.origins":  []map[string]any{{"name": "origin", "address": s.origin.Address}},
				"upstream.node":     `Node{id: "relay", cluster: node.cluster}`,
				"aggregation.rules": []map[string]any{{"key": "node.cluster"}},
				"cluster.name":      "demo", "cluster.address": r.members, "cluster.gossip": r.gossip, "cluster.advertise": "127.0.0.1", "cluster.join": join,
			})
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// launch starts a process of the relay.
func (s *show) launch(name string, c xdstest.Config) (*xdstest.Relay, error) {
	file := filepath.Join(s.dir, name+".yaml")
	if err := os.WriteFile(file, c.With(xdstest.Config{"name": name}).Text(), 0o600); err != nil {
		return nil, err
	}
	return xdstest.LaunchRelay(exec.Command(s.binary, "serve", "--config", file), nil)
}

// stop ends the processes.
func (s *show) stop() error {
	var errs []error
	for _, r := range s.replicas {
		if r.process != nil {
			errs = append(errs, r.process.Terminate())
		}
	}
	if s.origin != nil {
		errs = append(errs, s.origin.Terminate())
	}
	return errors.Join(errs...)
}

// newFleet makes the clients. Each tries the replicas in an order of its own, as behind a Service.
func (s *show) newFleet(n int) (*fleet.Fleet, error) {
	names := manual.NewBuilderWithScheme("replicas")
	var state resolver.State
	for _, r := range s.replicas {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: r.downstream})
	}
	names.InitialState(state)
	return fleet.New(fleet.Config{
		Target: "replicas:///", Clients: n, DeltaShare: 0.5,
		DialOptions: []grpc.DialOption{
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithResolvers(names),
			grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"pick_first": {"shuffleAddressList": true}}]}`),
		},
		Nodes: func(i int) *corev3.Node {
			return &corev3.Node{Id: fmt.Sprintf("client-%03d", i), Cluster: fmt.Sprintf("edge-%d", i%keyCount)}
		},
		Client: fleet.ClientConfig{DiscardBodies: true, OnStream: s.onStream, OnApplied: s.onApplied},
	})
}

func (s *show) onStream(_ *fleet.Client, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.ended++
	}
}

func (s *show) onApplied(c *fleet.Client, typ xds.TypeURL, _ string, _ time.Time) {
	if typ != xds.ClusterType {
		return
	}
	n := c.Len(typ)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n < s.held[c] {
		s.lost++
	}
	s.held[c] = n
	if s.got != nil {
		s.got[c] = true
	}
}

func (s *show) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, format, args...) // a terminal that has gone away is no reason to stop
}

// freeAddress returns a loopback address that nothing listens at.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
