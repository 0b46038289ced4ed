package envoy

import (
	"fmt"
	"net"
	"strconv"
	"syscall"
	"testing"

	"xdsrelay/internal/xdstest"
)

// replicas are two relays in front of one origin. A name resolves to both, as
// that of a headless service does. They have one port and two addresses.
type replicas struct {
	*scene // without its relay
	dns    *xdstest.DNS
	hosts  [2]string
	port   string
	config [2]xdstest.Config
	relays [2]*xdstest.Relay
	// keepalive is the interval and timeout of the Envoys' pings; empty: those of
	// config/clients.
	keepalive string
}

const relayDNSName = "relays.test"

func newReplicas(t *testing.T, w way, keepalive string) *replicas {
	t.Helper()
	r := &replicas{scene: newScene(t, w, sceneOptions{direct: true}), dns: xdstest.StartDNS(t, relayDNSName),
		hosts: [2]string{"127.0.0.1", "127.0.0.2"}, keepalive: keepalive}
	_, r.port, _ = net.SplitHostPort(xdstest.FreeAddress(t))
	for i, host := range r.hosts {
		r.config[i] = xdstest.QuickConfig().With(xdstest.Config{
			"name":                          fmt.Sprint("relay-", i),
			"downstream.address":            net.JoinHostPort(host, r.port),
			"downstream.max_connection_age": "2s",
			"upstream.origins":              xdstest.Origins(r.origin.Address),
		})
		if keepalive != "" { // the relay closes connections that ping more often than min_time
			r.config[i]["downstream.keepalive"] = map[string]any{"time": "10s", "timeout": "10s", "min_time": "500ms"}
		}
		r.start(i)
	}
	r.dns.Set(r.hosts[:]...)
	return r
}

// start starts one of the relays.
func (r *replicas) start(i int) {
	r.t.Helper()
	r.relays[i] = xdstest.StartRelay(r.t, r.config[i])
}

// envoys starts Envoys that find the relays by their name, as in config/clients/envoy-replicas.yaml.
func (r *replicas) envoys(n int) []*envoy {
	r.t.Helper()
	var out []*envoy
	for i := range n {
		b := r.way.bootstrap(r.t)
		sample := readBootstrap(r.t, "envoy-replicas.yaml")
		sample.connectTo(net.JoinHostPort(relayDNSName, r.port))
		b["static_resources"] = sample["static_resources"]
		c := b.cluster("relay")
		c["dns_lookup_family"], c["dns_refresh_rate"] = "V4_ONLY", "0.3s"
		c["typed_dns_resolver_config"] = bootstrap{
			"name": "envoy.network.dns_resolver.cares",
			"typed_config": bootstrap{
				"@type": "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
				"resolvers": []any{bootstrap{"socket_address": bootstrap{
					"protocol": "UDP", "address": "127.0.0.1", "port_value": r.dns.Port}}},
				"dns_resolver_options": bootstrap{"no_default_search_domain": true},
			},
		}
		retrySoon(b)
		if r.keepalive != "" {
			c.at("typed_extension_protocol_options", "envoy.extensions.upstreams.http.v3.HttpProtocolOptions", "explicit_http_config",
				"http2_protocol_options")["connection_keepalive"] = bootstrap{"interval": r.keepalive, "timeout": r.keepalive}
		}
		out = append(out, startEnvoy(r.t, "envoy-"+strconv.Itoa(i), "edge", b))
	}
	return out
}

// waitSpread waits until each of these relays has at least two of the Envoys,
// and each Envoy is at one relay.
func (r *replicas) waitSpread(envoys int, relays ...*xdstest.Relay) {
	r.t.Helper()
	xdstest.Eventually(r.t, "the Envoys spread", func() error {
		at := make(map[string]int)
		for _, relay := range relays {
			got, err := connected(relay)
			if err != nil {
				return err
			}
			if len(got) < 2 {
				return fmt.Errorf("%s has %v", relay.Address, got)
			}
			for node, n := range got {
				at[node] += n
			}
		}
		for node, n := range at {
			if n != 1 {
				return fmt.Errorf("%s has %d streams", node, n)
			}
		}
		if len(at) != envoys {
			return fmt.Errorf("%d of %d Envoys are connected", len(at), envoys)
		}
		return nil
	})
}

// lose takes one of two relays away from six Envoys and brings it back. The
// Envoys go to the other one, and spread again afterwards. No request through any
// of them fails.
func lose(t *testing.T, w way, keepalive string, withdraw bool, end, back func(r *replicas)) {
	const n = 6
	r := newReplicas(t, w, keepalive)
	r.origin.Put("edge", web(w.source, xdstest.StartHTTPBackend(t, "blue"))...)
	envoys := r.envoys(n)
	for _, e := range envoys {
		e.reaches("in", "", "/", "blue")
	}
	tr := startTrafficInTurn("in", envoys...)
	r.waitSpread(n, r.relays[0], r.relays[1])

	if withdraw {
		r.dns.Set(r.hosts[0])
	}
	end(r)
	r.waitSpread(n, r.relays[0])
	r.origin.Put("edge", endpoints("web", xdstest.StartHTTPBackend(t, "green")))
	for _, e := range envoys {
		e.reaches("in", "", "/", "green")
	}
	back(r)
	r.dns.Set(r.hosts[:]...)
	r.waitSpread(n, r.relays[0], r.relays[1])
	r.origin.Put("edge", endpoints("web", xdstest.StartHTTPBackend(t, "red")))
	for _, e := range envoys {
		e.reaches("in", "", "/", "red")
	}
	tr.goesOn()
	tr.stop()
	for _, e := range envoys {
		e.lostNothing(webHeld...)
		e.mustBeClean()
	}
}

// eachADS runs a test with both variants of ADS.
func eachADS(t *testing.T, test func(t *testing.T, w way)) {
	t.Parallel()
	for _, w := range adsWays {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			test(t, w)
		})
	}
}

// One of two relays drains, and its address leaves the DNS.
func TestReplicaDrains(t *testing.T) {
	eachADS(t, func(t *testing.T, w way) {
		lose(t, w, "", true, func(r *replicas) { drain(t, r.relays[1]) }, func(r *replicas) { r.start(1) })
	})
}

// One of two relays is killed, and its address stays in the DNS.
func TestReplicaDies(t *testing.T) {
	long(t)
	eachADS(t, func(t *testing.T, w way) {
		lose(t, w, "", false, func(r *replicas) { r.relays[1].Kill() }, func(r *replicas) { r.start(1) })
	})
}

// One of two relays hangs, and its address leaves the DNS. The Envoys'
// keepalive finds out.
func TestReplicaHangs(t *testing.T) {
	long(t)
	eachADS(t, func(t *testing.T, w way) {
		lose(t, w, "1s", true, func(r *replicas) {
			r.relays[1].Signal(syscall.SIGSTOP)
			t.Cleanup(func() { r.relays[1].Signal(syscall.SIGCONT) }) // SIGTERM alone does not wake it
		}, func(r *replicas) { r.relays[1].Signal(syscall.SIGCONT) })
	})
}
