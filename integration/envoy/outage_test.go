package envoy

import (
	"fmt"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"
)

// drain tells a relay to drain through its admin API and waits until it exits.
func drain(t *testing.T, r *xdstest.Relay) {
	t.Helper()
	resp, err := http.Post("http://"+r.Admin+"/drain", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // only the status matters
	if resp.StatusCode != http.StatusAccepted {
		t.Fatalf("/drain: %s", resp.Status)
	}
	select {
	case <-r.Exited():
	case <-time.After(xdstest.Patience):
		t.Fatal("the relay did not end after /drain")
	}
}

// waitConnected waits until a relay has exactly this many nodes connected.
func waitConnected(t *testing.T, r *xdstest.Relay, want int) {
	t.Helper()
	xdstest.Eventually(t, "the relay's clients", func() error {
		got, err := connected(r)
		if err == nil && len(got) != want {
			err = fmt.Errorf("%v, want %d", got, want)
		}
		return err
	})
}

// The relay is restarted, killed and drained, and comes back at the same
// address. The origin changes while it is away. No request fails, and the Envoy
// gets what changed and nothing else.
func TestRelayOutages(t *testing.T) {
	t.Parallel()
	each(t, adsWays, func(t *testing.T, w way, variant string) {
		s, _ := proxied(t, w, variant, xdstest.Config{"downstream.address": xdstest.FreeAddress(t)})
		s.origin.Put("edge", cluster("old", w.source), endpoints("old"))
		e, tr := s.underTraffic(nil)
		for _, how := range []struct {
			name string
			end  func()
		}{
			{"restarted", func() { s.relay.Stop() }},
			{"killed", func() { s.relay.Kill() }},
			{"drained", func() { drain(t, s.relay) }},
		} {
			how.end()
			e.waitStat("control_plane.connected_state", 0)
			s.origin.Put("edge", endpoints("web", xdstest.StartHTTPBackend(t, how.name)))
			tr.goesOn()
			s.restart()
			tr.reaches(how.name)
			waitInStep(e, s.relay)
			e.lostNothing(append(webHeld, "CDS old")...)
		}
		// What the origin deletes while the relay is away is deleted, and nothing else.
		s.relay.Kill()
		s.origin.Remove("edge", cds, "old")
		s.restart()
		e.waitHolds(webHeld...)
		waitInStep(e, s.relay)
		tr.stop()
		e.removed(1, 0)
		e.mustBeClean()
	})
}

// The relay hangs for a while. Traffic goes on, and the Envoy gets what changed
// meanwhile.
func TestRelayHangs(t *testing.T) {
	t.Parallel()
	each(t, adsWays, func(t *testing.T, w way, variant string) {
		s := newScene(t, w, sceneOptions{variant: variant})
		e, tr := s.underTraffic(nil)
		s.relay.Signal(syscall.SIGSTOP)
		defer s.relay.Signal(syscall.SIGCONT) // SIGTERM alone does not wake it
		s.origin.Put("edge", endpoints("web", xdstest.StartHTTPBackend(t, "green")))
		tr.goesOn()
		xdstest.Pause(t, time.Second)
		s.relay.Signal(syscall.SIGCONT)
		tr.reaches("green")
		tr.stop()
		s.haveLostNothing(e)
	})
}

// The origin is stopped and started again, and hangs. The Envoy keeps all that
// it has, and a new Envoy is served from what the relay holds. What changed
// meanwhile comes when the origin is back, and nothing else is sent.
func TestOriginOutages(t *testing.T) {
	t.Parallel()
	each(t, adsWays, func(t *testing.T, w way, variant string) {
		s, proxy := proxied(t, w, variant, nil)
		e, tr := s.underTraffic(nil)
		clusters, listeners := e.stat("cluster_manager.cds.update_success"), e.stat("listener_manager.lds.update_success")

		s.origin.Stop()
		xdstest.Eventually(t, "the origin away", func() error {
			if n := s.relay.Metric("upstream_streams"); n != 0 {
				return fmt.Errorf("%v upstream streams", n)
			}
			return nil
		})
		late := s.envoy("envoy-2", nil)
		late.reaches("in", "", "/", "blue")
		s.origin.Put("edge", endpoints("web", xdstest.StartHTTPBackend(t, "green")))
		tr.goesOn()
		s.origin.Start()
		tr.reaches("green")
		late.reaches("in", "", "/", "green")

		proxy.Hang()
		s.origin.Put("edge", endpoints("web", xdstest.StartHTTPBackend(t, "red")))
		later := s.envoy("envoy-3", nil)
		later.reaches("in", "", "/", "green")
		xdstest.Pause(t, time.Second)
		tr.goesOn()
		proxy.Resume()
		tr.reaches("red")

		s.haveLostNothing(e, late, later)
		if c, l := e.stat("cluster_manager.cds.update_success"), e.stat("listener_manager.lds.update_success"); c != clusters || l != listeners {
			t.Errorf("%d updates of clusters and %d of listeners, want %d and %d: nothing changed", c, l, clusters, listeners)
		}
		tr.stop()
	})
}

// underTraffic lets an Envoy reach the backend blue, and returns the Envoy and traffic through it.
// change is that of its bootstrap.
func (s *scene) underTraffic(change func(bootstrap)) (*envoy, *traffic) {
	s.t.Helper()
	s.origin.Put("edge", web(s.way.source, xdstest.StartHTTPBackend(s.t, "blue"))...)
	e := s.envoy("envoy-1", change)
	e.reaches("in", "", "/", "blue")
	waitInStep(e, s.relay)
	return e, startTraffic(e, "in")
}

// haveLostNothing waits until Envoys are in step, and fails the test if they lost or rejected something.
func (s *scene) haveLostNothing(envoys ...*envoy) {
	s.t.Helper()
	for _, e := range envoys {
		waitInStep(e, s.relay)
		e.lostNothing(webHeld...)
		e.mustBeClean()
	}
}

// outage is a scene whose relay reaches the origin through a proxy, and can be
// started again.
type outage struct {
	*scene
	config xdstest.Config
}

// restart starts the relay again, with the same configuration.
func (o *outage) restart() {
	o.t.Helper()
	o.relay = xdstest.StartRelay(o.t, o.config)
}

// proxied starts an outage's scene.
func proxied(t *testing.T, w way, variant string, config xdstest.Config) (*outage, *xdstest.Proxy) {
	t.Helper()
	o := &outage{scene: newScene(t, w, sceneOptions{direct: true})}
	proxy := xdstest.StartProxy(t, o.origin.Address)
	o.config = xdstest.QuickConfig().With(xdstest.Config{
		"upstream.origins": xdstest.Origins(proxy.Address), "upstream.variant": variant}).With(config)
	o.restart()
	return o, proxy
}

// The connection to the origin dies without being closed. The relay's keepalive
// finds out, and what changed meanwhile comes over a new connection.
func TestOriginUnreachableUnnoticed(t *testing.T) {
	long(t)
	t.Parallel()
	each(t, adsWays, func(t *testing.T, w way, variant string) {
		// gRPC pings every 10 s at the shortest.
		s, proxy := proxied(t, w, variant, xdstest.Config{
			"upstream.keepalive": map[string]any{"time": "10s", "timeout": "1s"}})
		e, tr := s.underTraffic(nil)
		proxy.HangOpen()
		s.origin.Put("edge", endpoints("web", xdstest.StartHTTPBackend(t, "green")))
		late := s.envoy("envoy-2", nil)
		late.reaches("in", "", "/", "blue")
		tr.reaches("green")
		late.reaches("in", "", "/", "green")
		tr.stop()
		s.haveLostNothing(e, late)
	})
}

// loss is a way in which an origin does not answer. A long one lasts longer than Envoy's timeouts.
type loss struct {
	name         string
	lose, regain func(*xdstest.Origin, *xdstest.Proxy)
	away         time.Duration // at least
	long         bool
}

var losses = []loss{
	{"stopped", func(o *xdstest.Origin, _ *xdstest.Proxy) { o.Stop() }, func(o *xdstest.Origin, _ *xdstest.Proxy) { o.Start() }, time.Second, false},
	{"hanging", func(_ *xdstest.Origin, p *xdstest.Proxy) { p.Hang() }, func(_ *xdstest.Origin, p *xdstest.Proxy) { p.Resume() }, 25 * time.Second, true},
}

func eachLoss(t *testing.T, test func(t *testing.T, w way, variant string, l loss)) {
	for _, l := range losses {
		t.Run(l.name, func(t *testing.T) {
			if l.long {
				long(t)
			}
			each(t, adsWays, func(t *testing.T, w way, variant string) { test(t, w, variant, l) })
		})
	}
}

// The relay stores what its clients took. All is stopped, but one Envoy. The
// relay starts again without any origin: the Envoy keeps what it has, and new
// Envoys start and serve traffic. What changed at the origin comes when it is
// back.
func TestStartWithoutOrigin(t *testing.T) { eachLoss(t, startWithoutOrigin) }

func startWithoutOrigin(t *testing.T, w way, variant string, l loss) {
	store := t.TempDir()
	s, proxy := proxied(t, w, variant, xdstest.Config{"downstream.address": xdstest.FreeAddress(t),
		"store": map[string]any{"path": store, "interval": "20ms"}})
	e, tr := s.underTraffic(nil)
	waitStored(t, s.relay, store, 4)
	s.relay.Kill()
	l.lose(s.origin, proxy)

	s.restart()
	e.waitStat("control_plane.connected_state", 1)
	late := s.envoy("envoy-2", nil)
	late.reaches("in", "", "/", "blue")
	waitConnected(t, s.relay, 2)
	tr.goesOn()
	for _, e := range []*envoy{e, late} {
		e.lostNothing(webHeld...)
	}
	if n := s.relay.Metric("stale_types"); n != 4 {
		t.Errorf("%v types are marked as served from the store, want 4", n)
	}

	s.origin.Put("edge", endpoints("web", xdstest.StartHTTPBackend(t, "green")))
	l.regain(s.origin, proxy)
	tr.reaches("green")
	late.reaches("in", "", "/", "green")
	tr.stop()
	s.haveLostNothing(e, late)
}

// The relay has no store and starts again without any origin. It has nothing
// for the Envoy, which keeps what it has until the origin is back.
func TestStartWithoutOriginAndStore(t *testing.T) { eachLoss(t, startWithoutStore) }

func startWithoutStore(t *testing.T, w way, variant string, l loss) {
	s, proxy := proxied(t, w, variant, xdstest.Config{"downstream.address": xdstest.FreeAddress(t)})
	e, tr := s.underTraffic(retrySoon)
	s.relay.Kill()
	l.lose(s.origin, proxy)
	s.restart()
	xdstest.Pause(t, l.away)
	tr.goesOn()
	e.lostNothing(webHeld...)
	s.origin.Put("edge", endpoints("web", xdstest.StartHTTPBackend(t, "green")))
	l.regain(s.origin, proxy)
	tr.reaches("green")
	tr.stop()
	s.haveLostNothing(e)
}

// retrySoon makes an Envoy open a stream again after 1 s at most. By default
// that takes up to 30 s, which is the patience of these tests.
func retrySoon(b bootstrap) {
	services := b.at("dynamic_resources", "ads_config")["grpc_services"].([]any)
	services[0].(bootstrap).at("envoy_grpc", "retry_policy")["retry_back_off"] = bootstrap{
		"base_interval": "0.1s", "max_interval": "1s"}
}

// waitStored waits until the relay has that many files in its store and nothing
// more to write.
func waitStored(t *testing.T, r *xdstest.Relay, path string, files int) {
	xdstest.Eventually(t, "the store", func() error {
		found, err := filepath.Glob(filepath.Join(path, "*.good"))
		if err == nil && len(found) < files {
			err = fmt.Errorf("%q", found)
		}
		if err == nil && r.Metric("store_unwritten_age_seconds") > 0 {
			err = fmt.Errorf("not all is written")
		}
		return err
	})
}
