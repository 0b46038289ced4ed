package integration

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
)

// kill ends the relay without a word.
func (r *relay) kill() {
	r.t.Helper()
	r.told = true
	r.signal(syscall.SIGKILL)
	<-r.exited
	r.err = nil
}

// identifier is what the first response for clusters says of who gives it.
func identifier(t *testing.T, r *relay, v fleet.Variant, cluster string) string {
	t.Helper()
	s := raw(t, r.addr, v)
	send(t, s, ask(v, node("who-are-you", cluster), xds.ClusterType))
	m := answer(v)
	if err := s.RecvMsg(m); err != nil {
		t.Fatal(err)
	}
	if m, ok := m.(*discoveryv3.DiscoveryResponse); ok {
		return m.GetControlPlane().GetIdentifier()
	}
	return m.(*discoveryv3.DeltaDiscoveryResponse).GetControlPlane().GetIdentifier()
}

// written waits until all that the clients took is on disk: as many files.
func (r *relay) written(t *testing.T, dir string, files int) {
	t.Helper()
	until(t, "the last known good on disk", func() error {
		found, err := filepath.Glob(filepath.Join(dir, "*.good"))
		if err != nil || len(found) < files || r.metric(t, "store_unwritten_age_seconds") > 0 {
			return errNotYet
		}
		return err
	})
}

// P53: a relay that starts while its origin is away serves what clients took before,
// marked as such, in all combinations; when the origin is back its word counts, and
// nothing that is equal is sent again.
func TestP53_LastKnownGood(t *testing.T) {
	eachOrigin(t, func(t *testing.T, upstream, kind string) {
		dir := t.TempDir()
		o := newOrigin(t, kind)
		o.put("edge", web(1)...)
		gone := cluster("gone", 1)
		o.put("edge", gone, endpoints("gone", 1))
		conf := settings{"upstream.variant": upstream, "store": map[string]any{"path": dir, "interval": "20ms"}}
		first := serve(t, o.addr, conf)
		waitAll(t, envoys(t, first.addr, "edge"), "what the origin has", hasAll(append(web(1), gone)...))
		first.written(t, dir, 4)
		first.kill()
		o.stop()

		r := serve(t, o.addr, conf)
		clients := envoys(t, r.addr, "edge")
		waitAll(t, clients, "what was taken before", hasAll(append(web(1), gone)...))
		r.waitMetric(t, 4, "stale_types")
		for _, v := range variants {
			if id := identifier(t, r, v, "edge"); !strings.HasPrefix(id, "relay-under-test/") || !strings.HasSuffix(id, " (last known good)") {
				t.Errorf("identifier %q", id)
			}
			// Of another key there is nothing.
			s := raw(t, r.addr, v)
			send(t, s, ask(v, node("n", "nothing-good"), xds.ClusterType))
			refused(t, s, answer(v), codes.Unavailable)
		}

		o.remove("edge", xds.ClusterType, "gone")
		o.start()
		waitAll(t, clients, "what is gone", all(hasAll(web(1)...), hasNot(xds.ClusterType, "gone")))
		until(t, "an origin that has spoken of all", func() error {
			if n := r.metric(t, "stale_types"); n > 0 {
				return errNotYet
			}
			return nil
		})
		for _, c := range clients {
			if n := c.Counters(); c.Variant() == fleet.Delta && n.Resends > 0 {
				t.Errorf("%s was sent %d times what it had", c, n.Resends)
			}
		}
		o.put("edge", web(2)...)
		waitAll(t, clients, "what is new", hasAll(web(2)...))
		if id := identifier(t, r, fleet.SotW, "edge"); strings.Contains(id, "last known good") {
			t.Errorf("identifier %q", id)
		}
		for _, c := range clients {
			if n := c.Counters().Streams; n != 1 {
				t.Errorf("%s needed %d streams", c, n)
			}
		}
	})
}

// What clients refuse is not written down: after a restart without an origin they
// get what they had taken before.
func TestP53_WhatIsRefusedIsNotKept(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			o := newOrigin(t, linear)
			o.put("edge", cluster("c", 1))
			conf := settings{"store": map[string]any{"path": dir, "interval": "20ms"}}
			first := serve(t, o.addr, conf)
			c := client(t, first.addr, fleet.ClientConfig{Node: node("n", "edge"), Variant: v, Behaviour: fleet.Raw,
				Subscribe: []fleet.Subscription{{Type: xds.ClusterType}}})
			waitFor(t, c, "the first", has(cluster("c", 1)))
			first.written(t, dir, 1)
			c.SetRefuse(func(xds.TypeURL, []fleet.Resource) error { return os.ErrInvalid })
			o.put("edge", cluster("c", 2))
			first.waitMetric(t, 1, "downstream_nacks_total", "type", "CDS")
			first.stop()
			o.stop()

			r := serve(t, o.addr, conf)
			late := client(t, r.addr, fleet.ClientConfig{Node: node("late", "edge"), Variant: v, Behaviour: fleet.Raw,
				Subscribe: []fleet.Subscription{{Type: xds.ClusterType}}})
			waitFor(t, late, "what was taken", has(cluster("c", 1)))
		})
	}
}
