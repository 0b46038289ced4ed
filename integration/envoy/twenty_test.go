package envoy

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"
)

// Twenty Envoys of four keys, half of them delta, cost the origin four streams.
// Each serves the backend of its key, and a change of every key reaches all.
func TestTwentyEnvoysShareStreams(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 4, 5, 1)
	f.reaches("blue")
	f.mustShareStreams()
	f.change("green")
	f.reaches("green")
	f.mustShareStreams()
	for _, e := range f.envoys {
		e.mustBeClean()
	}
}

// Measures what the relay uses for twenty Envoys of four keys with 100 clusters
// each. docs/performance/README.md has the result.
func TestTwentyEnvoysCost(t *testing.T) {
	long(t)
	t.Parallel()
	const seconds = 20
	f := startFleet(t, 4, 5, 100)
	f.reaches("blue")
	t.Logf("%d cores; CPU in percent of one; without any client: RSS %d MB", runtime.NumCPU(), f.idle.RSS>>20)
	f.measure("at rest", func() { xdstest.Pause(t, seconds*time.Second) })
	colour := "blue"
	f.measure("one change of each key a second", func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for range seconds {
			colour = map[string]string{"blue": "green", "green": "blue"}[colour]
			f.change(colour)
			<-tick.C
		}
	})
	f.reaches(colour)
	f.mustShareStreams()
	for _, e := range f.envoys {
		e.mustBeClean()
	}
}

// fleet is Envoys of several keys behind one relay.
type fleet struct {
	*scene
	keys     []string
	envoys   []*envoy
	keyOf    map[*envoy]string
	backends map[string]*xdstest.HTTPBackend // by name: the key and a colour
	idle     xdstest.Usage                   // of the relay before the first Envoy
}

// startFleet starts an origin, a relay, and as many Envoys as said for each of
// the keys. Every second Envoy is delta. Each key has backends "blue" and
// "green", and so many clusters; the backends begin as blue.
func startFleet(t *testing.T, keys, envoysPerKey, clusters int) *fleet {
	t.Helper()
	f := &fleet{scene: newScene(t, adsSotW, sceneOptions{}), keyOf: make(map[*envoy]string),
		backends: make(map[string]*xdstest.HTTPBackend)}
	for i := range keys {
		key := fmt.Sprint("key-", i)
		f.keys = append(f.keys, key)
		for _, colour := range []string{"blue", "green"} {
			name := key + " " + colour
			f.backends[name] = xdstest.StartHTTPBackend(t, name)
		}
		first := f.backends[key+" blue"]
		resources := web(overADS, first)
		for n := 1; n < clusters; n++ {
			name := fmt.Sprint("other-", n)
			resources = append(resources, cluster(name, overADS), endpoints(name, first))
		}
		f.origin.Put(key, resources...)
	}
	f.idle = f.relay.Usage()
	for i := range envoysPerKey {
		for k, key := range f.keys {
			w := adsWays[(i+k)%2]
			e := startEnvoy(t, fmt.Sprintf("%s-envoy-%d-%s", key, i, w.name), key, w.bootstrap(t, f.server()))
			f.envoys = append(f.envoys, e)
			f.keyOf[e] = key
		}
	}
	return f
}

// change makes the backend of that colour the one of each key.
func (f *fleet) change(colour string) {
	f.t.Helper()
	for _, key := range f.keys {
		f.origin.Put(key, endpoints("web", f.backends[key+" "+colour]))
	}
}

// reaches waits until each Envoy's requests are answered by the backend of that
// colour of its key.
func (f *fleet) reaches(colour string) {
	f.t.Helper()
	for _, e := range f.envoys {
		e.reaches("in", "", "/", f.keyOf[e]+" "+colour)
	}
}

// mustShareStreams fails the test unless the origin has and had one stream for
// each key.
func (f *fleet) mustShareStreams() {
	f.t.Helper()
	if open, ever := f.origin.Streams(); open != len(f.keys) || ever != len(f.keys) {
		f.t.Errorf("%d streams at the origin, %d ever opened; want %d", open, ever, len(f.keys))
	}
	for _, variant := range variants {
		if streams := f.relay.Metric("downstream_streams", "variant", variant); int(streams) != len(f.envoys)/2 {
			f.t.Errorf("%v streams of Envoys in %s, want %d", streams, variant, len(f.envoys)/2)
		}
	}
}

// measure logs what the relay uses while something goes on.
func (f *fleet) measure(what string, run func()) {
	f.t.Helper()
	before, began := f.relay.Usage(), time.Now()
	run()
	after, took := f.relay.Usage(), time.Since(began)
	f.t.Logf("%-32s %3.0f s: RSS %3d MB, CPU %4.1f %%", what, took.Seconds(), after.RSS>>20,
		100*(after.CPU-before.CPU).Seconds()/took.Seconds())
}
