package integration

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

var variants = []fleet.Variant{fleet.SotW, fleet.Delta}

// upstreams are the values of upstream.variant.
var upstreams = []string{"sotw", "delta"}

func node(id, cluster string) *corev3.Node { return &corev3.Node{Id: id, Cluster: cluster} }

// client runs a simulated client until the test ends. It must not have seen the server break the
// protocol. Its backoff is short.
func client(t testing.TB, target string, cfg fleet.ClientConfig) *fleet.Client {
	t.Helper()
	cfg.Target = target
	cfg.Backoff = fleet.Backoff{Base: 10 * time.Millisecond, Max: 100 * time.Millisecond}
	c, err := fleet.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the client's end
		if v := c.Violations(); len(v) > 0 {
			t.Errorf("client %s saw the server break the protocol: %q", c.ID(), v)
		}
	})
	xdstest.Run(t, func(ctx context.Context) error {
		if err := c.Run(ctx); err != nil && !cfg.NoReconnect {
			return fmt.Errorf("client %s: %w", c.ID(), err)
		}
		return nil
	})
	return c
}

// waitFor waits until a condition holds for a client.
func waitFor(t testing.TB, c *fleet.Client, what string, cond func(c *fleet.Client) bool) {
	t.Helper()
	if err := c.Wait(xdstest.Context(t), cond); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// has reports whether the client holds exactly this resource.
func has(want types.Resource) func(c *fleet.Client) bool {
	typ, name := xdstest.NameOf(want)
	body := xdstest.Wire(want)
	return func(c *fleet.Client) bool {
		r, ok := c.Get(xds.TypeURL(typ), name)
		return ok && bytes.Equal(r.Body, body)
	}
}

// hasNot reports whether the client holds no resource of that name.
func hasNot(typ string, name string) func(c *fleet.Client) bool {
	return func(c *fleet.Client) bool {
		_, ok := c.Get(xds.TypeURL(typ), name)
		return !ok
	}
}

// all joins conditions.
func all(conds ...func(c *fleet.Client) bool) func(c *fleet.Client) bool {
	return func(c *fleet.Client) bool {
		return !slices.ContainsFunc(conds, func(cond func(c *fleet.Client) bool) bool { return !cond(c) })
	}
}

// hasAll reports whether the client holds all of these.
func hasAll(want ...types.Resource) func(c *fleet.Client) bool {
	var conds []func(c *fleet.Client) bool
	for _, r := range want {
		conds = append(conds, has(r))
	}
	return all(conds...)
}

// envoys starts an Envoy of each variant, in one cluster.
func envoys(t testing.TB, target, cluster string) []*fleet.Client {
	t.Helper()
	var out []*fleet.Client
	for _, v := range variants {
		out = append(out, client(t, target, fleet.ClientConfig{
			Node: node(fmt.Sprintf("%s-%s", cluster, v), cluster), Variant: v, Behaviour: fleet.Envoy}))
	}
	return out
}

// waitAll waits until a condition holds for each of the clients.
func waitAll(t testing.TB, clients []*fleet.Client, what string, cond func(c *fleet.Client) bool) {
	t.Helper()
	for _, c := range clients {
		waitFor(t, c, what, cond)
	}
}

// eachOrigin runs a test for both upstream variants with both kinds of cache.
func eachOrigin(t *testing.T, test func(t *testing.T, upstream, kind string)) {
	for _, up := range upstreams {
		for _, kind := range xdstest.Caches {
			t.Run(up+"/"+kind, func(t *testing.T) {
				t.Parallel()
				test(t, up, kind)
			})
		}
	}
}

// methods are the methods of the aggregated service.
var methods = map[fleet.Variant]string{fleet.SotW: xdstest.SotWMethod, fleet.Delta: xdstest.DeltaMethod}

// gets fails the test unless the next response has only this resource.
func gets(t testing.TB, s *xdstest.Stream, want types.Resource) {
	t.Helper()
	r := s.Next()
	if r.Type != xdstest.TypeOf(want) || len(r.Resources) != 1 || string(r.Resources[0].Value) != string(xdstest.Wire(want)) {
		t.Fatalf("%s has %q, want %v", r.Type, r.Resources, want)
	}
}
