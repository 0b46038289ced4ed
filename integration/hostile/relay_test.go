package hostile

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

// relay is the relay under attack.
type relay struct {
	*xdstest.Relay
	at   target
	most int // the highest number of goroutines that usage has seen
}

// serve starts the relay in front of an origin, with the default configuration. Only pinned_bytes
// and some timeouts differ, to keep the test short.
func serve(t testing.TB, origin string) *relay {
	t.Helper()
	cert, key := tlstest.NewAuthority(t).Pair(t, tlstest.CN("relay"), tlstest.Loopback()).Write(t, t.TempDir(), "relay")
	r := &relay{Relay: xdstest.StartRelay(t, xdstest.Config{
		"name": "under-attack",
		"downstream.listeners": []map[string]any{{"address": "127.0.0.1:0"},
			{"address": "127.0.0.1:0", "tls": map[string]any{"cert_file": cert, "key_file": key}}},
		"downstream.rest_address": "127.0.0.1:0",
		"downstream.drain":        "200ms",
		"downstream.ack_timeout":  "1s",
		"downstream.send_timeout": "2s",
		"downstream.keepalive":    map[string]any{"time": "5s", "timeout": "5s", "min_time": "10s"},
		"downstream.limits":       map[string]any{"pinned_bytes": 64 << 20},
		"upstream.origins":        xdstest.Origins(origin),
		"upstream.linger":         "200ms",
		"upstream.idle_ttl":       "1s",
		"upstream.backoff":        map[string]any{"base": "20ms", "max": "200ms"},
		"aggregation.rules":       []map[string]any{{"key": "node.cluster"}},
		"admin.address":           "127.0.0.1:0",
	})}
	r.at = target{XDS: r.Addresses[0], TLS: r.Addresses[1], Admin: r.Admin, REST: r.RESTAddress}
	t.Cleanup(func() {
		if text := r.Log(); strings.Contains(text, "panic") || strings.Contains(text, "fatal error") {
			t.Errorf("the relay's log has a panic:\n%s", text[max(0, len(text)-20000):])
		}
	})
	return r
}

// usage is a process's use of resources at a moment.
type usage struct {
	Resident   int64 // bytes, without free memory that the Go runtime keeps
	Peak       int64 // bytes; highest value since it was last read
	Open       int   // descriptors
	Goroutines int
	Refused    map[string]float64 // by reason
}

// read returns the body of an admin path, or the error.
func (r *relay) read(path string) string {
	text, err := r.Get(path)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// usage reads the relay's use of resources from /metrics, and its peak from the kernel.
func (r *relay) usage() (usage, error) {
	families, err := r.Metrics()
	if err != nil {
		return usage{}, err
	}
	gauge := func(name string) int64 {
		if m := families[name].GetMetric(); len(m) == 1 {
			return int64(m[0].GetGauge().GetValue())
		}
		return -1
	}
	kept := gauge("go_memstats_heap_idle_bytes") - gauge("go_memstats_heap_released_bytes")
	u := usage{
		Resident: gauge("process_resident_memory_bytes") - kept, Open: int(gauge("process_open_fds")),
		Goroutines: int(gauge("go_goroutines")), Refused: make(map[string]float64), Peak: r.peak(),
	}
	for _, m := range families["xdsrelay_refused_total"].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "reason" {
				u.Refused[l.GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	r.most = max(r.most, u.Goroutines)
	return u, nil
}

// record is the memory that Go's runtime never releases for each goroutine of the highest number at
// a time, in bytes: its descriptor of 448, and the heap's bookkeeping for it.
const record = 640

var peakLine = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peak is the highest resident memory since forget.
func (r *relay) peak() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.PID()))
	if err != nil {
		return -1
	}
	var kb int64
	if m := peakLine.FindSubmatch(text); m != nil {
		_, _ = fmt.Sscan(string(m[1]), &kb)
	}
	return kb << 10
}

// forget resets the peak.
func (r *relay) forget() {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", r.PID()), []byte("5"), 0) // if this fails, the peak is that of the whole run
}
