package envoy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"xdsrelay/internal/xdstest"
)

// badCluster is a cluster that Envoy rejects.
func badCluster(name string, source *corev3.ConfigSource) *clusterv3.Cluster {
	c := cluster(name, source)
	c.LbPolicy = clusterv3.Cluster_RING_HASH
	c.LbConfig = &clusterv3.Cluster_RingHashLbConfig_{RingHashLbConfig: &clusterv3.Cluster_RingHashLbConfig{
		MinimumRingSize: wrapperspb.UInt64(2048), MaximumRingSize: wrapperspb.UInt64(1024)}}
	return c
}

// badListener is a listener that Envoy rejects: it names an HTTP filter
// that does not exist.
func badListener(name string, source *corev3.ConfigSource) types.Resource {
	m := xdstest.Manager(name, source)
	m.HttpFilters = append([]*hcmv3.HttpFilter{{Name: "no-such-filter",
		ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: xdstest.Pack(&corev3.Node{})}}}, m.HttpFilters...)
	return xdstest.HTTPListener(name, m)
}

// badRoutes are routes that Envoy rejects: two virtual hosts have one domain.
func badRoutes(name, cluster string) types.Resource {
	r := routes(name, cluster)
	again := routes(name, cluster).VirtualHosts[0]
	again.Name = "again"
	r.VirtualHosts = append(r.VirtualHosts, again)
	return r
}

// badResource is a resource that Envoy rejects.
type badResource struct {
	resource string // type and name, as in envoy.holds
	bad      types.Resource
	good     types.Resource // what it was before
	counter  string         // of Envoy's NACKs
	reason   string         // in Envoy's message
	diff     string         // in a line that `relay diff` adds
}

func (r badResource) typ() string  { return strings.Fields(r.resource)[0] }
func (r badResource) name() string { return strings.Fields(r.resource)[1] }

// nackItem is an item of `relay nacks`.
type nackItem struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	Clients []struct {
		Node string `json:"node"`
	} `json:"clients"`
	StillNacking int `json:"still_nacking"`
}

// nacksOf returns what `relay nacks` prints for the key "edge".
func nacksOf(r *xdstest.Relay) ([]nackItem, error) {
	text, code := r.Run("nacks", "--key", "edge", "-o", "json")
	if code != 0 {
		return nil, fmt.Errorf("relay nacks exited with %d", code)
	}
	var list struct {
		Items []nackItem `json:"items"`
	}
	err := json.Unmarshal([]byte(text), &list)
	return list.Items, err
}

// rollBack has the origin take a change back. The Envoy has to be in step at
// once. Ten seconds are for a busy machine.
func (s *scene) rollBack(e *envoy, back func()) {
	s.t.Helper()
	began := time.Now()
	back()
	waitInStep(e, s.relay)
	if took := time.Since(began); took > 10*time.Second {
		s.t.Errorf("%s was in step %v after the roll-back, want at once", e.node, took)
	}
}

// nackScene is a scene with CSDS, an Envoy that serves web, and traffic
// through it.
func nackScene(t *testing.T, w way, variant string, config xdstest.Config) (s *scene, e *envoy, csdsAddress string) {
	csdsAddress = xdstest.FreeAddress(t)
	s = newScene(t, w, sceneOptions{variant: variant,
		config: xdstest.Config{"admin.grpc_address": csdsAddress}.With(config)})
	s.origin.Put("edge", web(w.source, xdstest.StartHTTPBackend(t, "blue"))...)
	e = s.envoy("envoy-1", nil)
	e.reaches("in", "", "/", "blue")
	waitInStep(e, s.relay)
	return s, e, csdsAddress
}

// An Envoy rejects a changed cluster, listener and route. It keeps what it had
// and traffic goes on. `relay nacks`, /clients, `relay status`, `relay diff` and CSDS
// say what it rejected and why. When the origin takes the change back, the Envoy
// is in step at once.
func TestNacks(t *testing.T) {
	t.Parallel()
	each(t, adsWays, func(t *testing.T, w way, variant string) {
		s, e, csdsAddress := nackScene(t, w, variant, nil)
		tr := startTraffic(e, "in")
		for _, r := range []badResource{
			{"CDS web", badCluster("web", w.source), cluster("web", w.source), "cluster_manager.cds.update_rejected", "ring", "ring_hash_lb_config"},
			{"LDS in", badListener("in", w.source), xdstest.HTTPListener("in", xdstest.Manager("in", w.source)), "listener_manager.lds.update_rejected", "no-such-filter", "no-such-filter"},
			{"RDS in", badRoutes("in", "web"), routes("in", "web"), "http.test.rds.in.update_rejected", "domain", "again"},
		} {
			before := e.mustHold()
			s.origin.Put("edge", r.bad)
			xdstest.Eventually(t, e.node+"'s NACK", func() error {
				if e.stat(r.counter) == 0 {
					return fmt.Errorf("%s is 0", r.counter)
				}
				return nil
			})
			tr.goesOn()
			if after := e.mustHold(); after[r.resource] != before[r.resource] {
				t.Errorf("%s changed\nfrom %s\nto   %s", r.resource, before[r.resource], after[r.resource])
			}
			waitNacked(t, s.relay, e, csdsAddress, r)

			s.rollBack(e, func() { s.origin.Put("edge", r.good) })
			waitAcked(t, s.relay, e, csdsAddress, r)
		}
		tr.stop()
		e.lostNothing(webHeld...)
	})
}

// waitNacked waits until everything that the relay shows says that the Envoy
// rejected this, and that its other types are in step.
func waitNacked(t *testing.T, relay *xdstest.Relay, e *envoy, csdsAddress string, r badResource) {
	t.Helper()
	xdstest.Eventually(t, "the relay's view of the NACK of "+r.resource, func() error {
		got, err := states(relay, e.node)
		if err != nil {
			return err
		}
		for typ, state := range got {
			if want := map[bool]string{true: "NACKED", false: "SYNCED"}[typ == r.typ()]; state != want {
				return fmt.Errorf("/clients: %s is %s, want %s", typ, state, want)
			}
		}
		nacks, err := nacksOf(relay)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(nacks, func(n nackItem) bool {
			return short(n.Type) == r.typ() && strings.Contains(n.Message, r.reason) && n.StillNacking == 1 &&
				len(n.Clients) == 1 && n.Clients[0].Node == e.node
		}) {
			return fmt.Errorf("relay nacks: no %s with %q in %+v", r.typ(), r.reason, nacks)
		}
		if out, code := relay.Run("status", "--node", e.node); code != 0 || !strings.Contains(out, "NACKED") {
			return fmt.Errorf("relay status exits with %d and says\n%s", code, out)
		}
		if out, code := relay.Run("diff", "--node", e.node); code != 0 || !strings.Contains(out, r.reason) ||
			!strings.Contains(out, "+++ "+r.name()) || !adds(out, r.diff) {
			return fmt.Errorf("relay diff exits with %d and says\n%s", code, out)
		}
		shown, err := csds(csdsAddress, e.node)
		if err != nil {
			return err
		}
		g := shown[r.resource]
		if g.GetClientStatus() != adminv3.ClientResourceStatus_NACKED || !strings.Contains(g.GetErrorState().GetDetails(), r.reason) ||
			g.GetErrorState().GetFailedConfiguration() == nil {
			return fmt.Errorf("CSDS says of %s: %v", r.resource, g)
		}
		return nil
	})
}

// adds says whether a diff adds a line that contains text.
func adds(diff, text string) bool {
	return slices.ContainsFunc(strings.Split(diff, "\n"), func(line string) bool {
		return strings.HasPrefix(line, "+") && !strings.HasPrefix(line, "+++") && strings.Contains(line, text)
	})
}

// waitAcked waits until everything that the relay shows says that the Envoy
// rejects nothing any more. `relay nacks` keeps the NACK as history.
func waitAcked(t *testing.T, relay *xdstest.Relay, e *envoy, csdsAddress string, r badResource) {
	t.Helper()
	xdstest.Eventually(t, "the relay's view after the roll-back of "+r.resource, func() error {
		nacks, err := nacksOf(relay)
		if err != nil {
			return err
		}
		for _, n := range nacks {
			if n.StillNacking != 0 {
				return fmt.Errorf("relay nacks: still rejected: %+v", n)
			}
		}
		if out, code := relay.Run("diff", "--node", e.node); code != 0 || !strings.Contains(out, "has acknowledged all that the relay has for it") {
			return fmt.Errorf("relay diff exits with %d and says\n%s", code, out)
		}
		shown, err := csds(csdsAddress, e.node)
		if err != nil {
			return err
		}
		for name, g := range shown {
			if g.GetClientStatus() != adminv3.ClientResourceStatus_ACKED || g.GetErrorState() != nil {
				return fmt.Errorf("CSDS says of %s: %v", name, g)
			}
		}
		return nil
	})
}

// A new cluster that the Envoy rejects comes beside a change of the endpoints.
// The Envoy takes the endpoints. When the origin takes the cluster back, the
// Envoy is in step at once.
func TestNackOfNewCluster(t *testing.T) {
	t.Parallel()
	each(t, adsWays, func(t *testing.T, w way, variant string) {
		s, e, csdsAddress := nackScene(t, w, variant, xdstest.Config{"downstream.removal_delay": "10m"})
		tr := startTraffic(e, "in")
		spare := badResource{resource: "CDS spare", reason: "ring", diff: "ring_hash_lb_config"}
		s.origin.Put("edge", badCluster("spare", w.source), endpoints("web", xdstest.StartHTTPBackend(t, "green")))
		tr.reaches("green")
		waitNacked(t, s.relay, e, csdsAddress, spare)
		// P36: the roll-back does not wait for removal_delay.
		s.rollBack(e, func() { s.origin.Remove("edge", cds, "spare") })
		waitAcked(t, s.relay, e, csdsAddress, spare)
		tr.stop()
		// Envoy lists a new cluster that it rejected among those that warm, until
		// the origin removes it.
		e.waitHolds(webHeld...)
		e.removed(1, 0)
		if w, err := e.warming(); err != nil || len(w) > 0 {
			t.Errorf("warming: %v, error %v", w, err)
		}
	})
}

// A stream that opens again after a NACK of a new cluster gets the corrected cluster (envoy#34334).
// Until then, Envoy acknowledges the cluster that it has rejected, and keeps it warming.
func TestP15_RejectedClusterAndReconnect(t *testing.T) {
	t.Parallel()
	each(t, adsWays, func(t *testing.T, w way, variant string) {
		s := newScene(t, w, sceneOptions{variant: variant})
		proxy := xdstest.StartProxy(t, s.relay.Address)
		s.origin.Put("edge", web(w.source, xdstest.StartHTTPBackend(t, "web"))...)
		e := s.envoy("envoy-1", func(b bootstrap) { b.connectTo(proxy.Address) })
		e.reaches("in", "", "/", "web")
		s.origin.Put("edge", badCluster("new", w.source))
		e.waitStat("cluster_manager.cds.update_rejected", 1)
		proxy.Cut()
		waitInStep(e, s.relay)
		good := cluster("new", w.source)
		s.origin.Put("edge", good, endpoints("new"))
		e.waitCluster(good)
		if n := e.stat("cluster_manager.cds.update_rejected"); n != 1 {
			t.Errorf("Envoy rejected %d updates, want 1", n)
		}
	})
}
