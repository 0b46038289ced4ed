package integration

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// identifier is the control plane identifier of the first response for clusters.
func identifier(t *testing.T, r *relay, v fleet.Variant, cluster string) string {
	t.Helper()
	s := xdstest.OpenStream(t, r.Address, methods[v])
	s.Ask(node("who-are-you", cluster), resource.ClusterType)
	return s.Next().Identifier
}

// written waits until everything that the clients accepted is on disk: this many files.
func (r *relay) written(t *testing.T, dir string, files int) {
	t.Helper()
	xdstest.Eventually(t, "the last known good on disk", func() error {
		found, err := filepath.Glob(filepath.Join(dir, "*.good"))
		if err != nil || len(found) < files || r.Metric("store_unwritten_age_seconds") > 0 {
			return xdstest.ErrNotYet
		}
		return err
	})
}

// storedBefore returns an origin, and the configuration of a relay that has stored all of the
// origin's resources. That relay was killed.
func storedBefore(t *testing.T, upstream, kind string) (*xdstest.Origin, xdstest.Config, []types.Resource) {
	t.Helper()
	dir := t.TempDir()
	o := origin(t, kind)
	had := append(xdstest.Web(1), xdstest.Cluster("gone", 1), xdstest.Endpoints("gone", 1))
	o.Put("edge", had...)
	conf := xdstest.Config{"upstream.variant": upstream, "store": map[string]any{"path": dir, "interval": "20ms"}}
	r := serve(t, o.Address, conf)
	waitAll(t, envoys(t, r.Address, "edge"), "what the origin has", hasAll(had...))
	r.written(t, dir, 4)
	r.Kill()
	return o, conf, had
}

// P53: a relay that starts while its origin is away serves what clients accepted before, marked as
// stale, in all combinations. When the origin is back its answers count, and equal resources are
// not sent again.
func TestP53_LastKnownGood(t *testing.T) {
	t.Parallel()
	eachOrigin(t, func(t *testing.T, upstream, kind string) {
		o, conf, had := storedBefore(t, upstream, kind)
		o.Stop()

		r := serve(t, o.Address, conf)
		clients := envoys(t, r.Address, "edge")
		waitAll(t, clients, "what was taken before", hasAll(had...))
		r.WaitMetric(4, "stale_types")
		for _, v := range variants {
			if id := identifier(t, r, v, "edge"); !strings.HasPrefix(id, "relay-under-test/") || !strings.HasSuffix(id, " (last known good)") {
				t.Errorf("identifier %q", id)
			}
			// For another key nothing is stored.
			s := xdstest.OpenStream(t, r.Address, methods[v])
			s.Ask(node("n", "nothing-good"), resource.ClusterType)
			s.WantEnd(codes.Unavailable)
		}

		o.Remove("edge", resource.ClusterType, "gone")
		o.Start()
		waitAll(t, clients, "what is gone", all(hasAll(xdstest.Web(1)...), hasNot(resource.ClusterType, "gone")))
		xdstest.Eventually(t, "an origin that has spoken of all", func() error {
			if n := r.Metric("stale_types"); n > 0 {
				return xdstest.ErrNotYet
			}
			return nil
		})
		for _, c := range clients {
			if n := c.Counters(); c.Variant() == fleet.Delta && n.Resends > 0 {
				t.Errorf("%s received %d times what it had", c, n.Resends)
			}
		}
		o.Put("edge", xdstest.Web(2)...)
		waitAll(t, clients, "what is new", hasAll(xdstest.Web(2)...))
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
