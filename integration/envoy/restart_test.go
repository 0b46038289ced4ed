package envoy

import (
	"fmt"
	"os"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"xdsrelay/internal/xdstest"
)

// The relay is killed and comes back while the route moves to a new cluster all the time. An Envoy
// misses several clusters meanwhile. On ADS it gets no route to a cluster that it does not have (P67).
func TestP67_RestartUnderChanges(t *testing.T) {
	t.Parallel()
	each(t, adsWays, func(t *testing.T, w way, variant string) {
		restartUnderChanges(t, w, variant, false).stop()
	})
}

// The same with a stream per type. Envoy opens each of them again when it likes. So the test makes sure
// that the relay knows that clusters are withheld under the key: another client asks for them first.
// Only a delta origin's answer takes time. Routes and clusters come over two connections at nearly the
// same time, so the requests of a few milliseconds may fail, as they do at an origin. A busy machine may
// delay one of the connections for longer, so one of several tries has to pass. Without P67, half of the
// requests fail in each.
func TestP67_RestartUnderChangesPerType(t *testing.T) {
	t.Parallel()
	const bound, tries = 20, 4
	fails := bound + 1
	for try := 0; fails > bound && try < tries; try++ {
		t.Run(fmt.Sprint("try-", try), func(t *testing.T) {
			tr := restartUnderChanges(t, typesSotW, "delta", true)
			tr.end()
			fails = len(tr.TakeFailed())
		})
	}
	if fails > bound {
		t.Errorf("%d requests failed in the last of %d tries, bound %d", fails, tries, bound)
	}
}

// restartUnderChanges returns the traffic, which has reached the last route.
func restartUnderChanges(t *testing.T, w way, variant string, withAnother bool) *traffic {
	away := time.Second
	if os.Getenv("ENVOY_LONG") != "" {
		away = 5 * time.Second
	}
	s := &outage{scene: newScene(t, w, sceneOptions{direct: true, origin: ordered})}
	s.config = xdstest.QuickConfig().With(xdstest.Config{"downstream.address": xdstest.FreeAddress(t),
		"upstream.origins": xdstest.Origins(s.origin.Address), "upstream.variant": variant})
	s.restart()
	proxy := xdstest.StartProxy(t, s.relay.Address)
	s.origin.Put("edge", web(retriesSoon(w.source), xdstest.StartHTTPBackend(t, "web"))...)
	e := s.envoy("envoy-1", func(b bootstrap) {
		b.connectTo(proxy.Address)
		retryTypesSoon(b, w)
	})
	e.reaches("in", "", "/", "web")
	waitInStep(e, s.relay)
	tr := startTraffic(e, "in")
	stop := s.moveAllTheTime()
	tr.reaches("blue")
	tr.reaches("green")
	proxy.SetTarget("")
	s.relay.Kill()
	xdstest.Pause(t, away)
	s.restart()
	if withAnother {
		s.askForClusters("another")
	}
	proxy.SetTarget(s.relay.Address)
	xdstest.Eventually(t, "the Envoy at the relay", func() error {
		got, err := connected(s.relay)
		if err == nil && got[e.node] == 0 {
			err = xdstest.ErrNotYet
		}
		return err
	})
	xdstest.Pause(t, time.Second) // further changes
	stop()
	s.origin.Put("edge", staticCluster("last", xdstest.StartHTTPBackend(t, "last")))
	xdstest.Eventually(t, "the last cluster", func() error {
		if got, err := e.config(); err != nil || got[cds]["last"] == nil {
			return fmt.Errorf("not there, error %v", err)
		}
		return nil
	})
	s.origin.Put("edge", routes("in", "last"))
	tr.reaches("last")
	e.mustBeClean()
	return tr
}

// moveAllTheTime moves the route "in" to a new cluster several times a second. A cluster comes before
// the route to it, and stays for long enough after it. The function that it returns ends that.
func (s *outage) moveAllTheTime() (stop func()) {
	const kept = 60
	backends := []*xdstest.HTTPBackend{xdstest.StartHTTPBackend(s.t, "blue"), xdstest.StartHTTPBackend(s.t, "green")}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			name := func(i int) string { return fmt.Sprint("web-", i) }
			s.origin.Put("edge", staticCluster(name(i), backends[i%2]))
			select {
			case <-tick.C:
			case <-end:
				return
			}
			s.origin.Change("edge", []types.Resource{routes("in", name(i))}, map[string][]string{cds: {name(i - kept)}})
			select {
			case <-tick.C:
			case <-end:
				return
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// askForClusters opens a stream for clusters as a SotW client that had some before.
func (s *outage) askForClusters(node string) {
	s.t.Helper()
	conn, err := grpc.NewClient(s.relay.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() }) // only read from
	stream, err := clusterservice.NewClusterDiscoveryServiceClient(conn).StreamClusters(s.t.Context(), grpc.WaitForReady(true))
	if err == nil {
		err = stream.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: node, Cluster: "edge"}, VersionInfo: "before"})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	xdstest.Eventually(s.t, "the client at the relay", func() error {
		if got, err := connected(s.relay); err != nil || got[node] == 0 {
			return fmt.Errorf("clients %v, error %v", got, err)
		}
		return nil
	})
}

// retryTypesSoon is retrySoon for all ways.
func retryTypesSoon(b bootstrap, w way) {
	if w.source == overADS {
		retrySoon(b)
		return
	}
	for _, name := range []string{"cds_config", "lds_config"} {
		services := b.at("dynamic_resources", name, "api_config_source")["grpc_services"].([]any)
		services[0].(bootstrap).at("envoy_grpc", "retry_policy")["retry_back_off"] = bootstrap{
			"base_interval": "0.1s", "max_interval": "1s"}
	}
}

// retriesSoon is a config source whose streams are opened again after 1 s at most.
func retriesSoon(source *corev3.ConfigSource) *corev3.ConfigSource {
	own := proto.CloneOf(source)
	for _, s := range own.GetApiConfigSource().GetGrpcServices() {
		s.GetEnvoyGrpc().RetryPolicy = &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
			BaseInterval: durationpb.New(100 * time.Millisecond), MaxInterval: durationpb.New(time.Second)}}
	}
	return own
}
