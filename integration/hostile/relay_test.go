package hostile

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
)

// relayConfig is that of the relay under attack: the defaults, but for times,
// which are shorter so that what they bound shows within a test, and pinned_bytes.
const relayConfig = `
name: under-attack
downstream:
  listeners:
    - {address: "127.0.0.1:0"}
    - {address: "127.0.0.1:0", tls: {cert_file: %q, key_file: %q}}
  drain: 200ms
  ack_timeout: 1s
  send_timeout: 2s
  keepalive: {time: 5s, timeout: 5s, min_time: 10s}
  limits: {pinned_bytes: 67108864}
upstream:
  origins: [{address: %q}]
  linger: 200ms
  idle_ttl: 1s
  backoff: {base: 20ms, max: 200ms}
aggregation:
  rules: [{key: node.cluster}]
admin: {address: "127.0.0.1:0"}
`

// relay is the running binary.
type relay struct {
	t    testing.TB
	cmd  *exec.Cmd
	at   target
	done chan struct{}
	err  error // of the process, once done
	most int   // goroutines, at any look

	mu  sync.Mutex
	log strings.Builder
}

var serving = regexp.MustCompile(`msg=serving .*?downstream=([^,]+),(\S+) admin=(\S+)`)

// serve starts the relay in front of an origin, and stops it at the test's end:
// it has to exit 0.
func serve(t testing.TB, origin string) *relay {
	t.Helper()
	path, err := relayBinary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key := tlstest.NewAuthority(t).Pair(t, tlstest.CN("relay"), tlstest.Loopback()).Write(t, dir, "relay")
	file := filepath.Join(dir, "relay.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, relayConfig, cert, key, origin), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &relay{t: t, cmd: exec.Command(path, "serve", "--config", file), done: make(chan struct{})}
	out, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	started := make(chan target, 1)
	go func() {
		defer close(r.done)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			r.note(lines.Text())
			if m := serving.FindStringSubmatch(lines.Text()); m != nil {
				started <- target{XDS: m[1], TLS: m[2], Admin: m[3]}
			}
		}
		r.err = r.cmd.Wait()
	}()
	t.Cleanup(r.stop)
	select {
	case r.at = <-started:
	case <-r.done:
		t.Fatalf("the relay exited at its start: %v\n%s", r.err, r.said())
	case <-time.After(patience):
		t.Fatalf("the relay did not start:\n%s", r.said())
	}
	return r
}

func (r *relay) note(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.WriteString(line + "\n")
}

func (r *relay) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

func (r *relay) stop() {
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // it may have exited
	select {
	case <-r.done:
	case <-time.After(patience):
		_ = r.cmd.Process.Kill()
		<-r.done
		r.t.Error("the relay did not end after SIGTERM")
	}
	if r.err != nil {
		r.t.Errorf("the relay's exit: %v", r.err)
	}
	if text := r.said(); strings.Contains(text, "panic") || strings.Contains(text, "fatal error") {
		r.t.Errorf("the relay's log has a panic:\n%s", text[max(0, len(text)-20000):])
	}
}

var scraper = &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}

// usage is what a process has at a moment.
type usage struct {
	Resident   int64 // bytes, without free memory that the Go runtime keeps
	Peak       int64 // bytes; since it was last taken
	Open       int   // descriptors
	Goroutines int
	Refused    map[string]float64 // by reason
}

// read reads an admin path, for people.
func (r *relay) read(path string) string {
	resp, err := scraper.Get("http://" + r.at.Admin + path)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// metrics reads /metrics.
func (r *relay) metrics() (map[string]*dto.MetricFamily, error) {
	resp, err := scraper.Get("http://" + r.at.Admin + "/metrics")
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/metrics: %s", resp.Status)
	}
	p := expfmt.NewTextParser(model.LegacyValidation)
	return p.TextToMetricFamilies(strings.NewReader(string(text)))
}

// usage reads what the relay has, from /metrics, and its peak from the kernel.
func (r *relay) usage() (usage, error) {
	families, err := r.metrics()
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

// record is what Go's runtime keeps for ever of each goroutine that there has been
// at once with others, in bytes: its own description, of 448, and what the heap needs
// to find that again.
const record = 640

var peakLine = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peak is the most that was resident since forget.
func (r *relay) peak() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		return -1
	}
	var kb int64
	if m := peakLine.FindSubmatch(text); m != nil {
		_, _ = fmt.Sscan(string(m[1]), &kb)
	}
	return kb << 10
}

// busy is the processor's time that the relay has used, its own and the kernel's for it.
func (r *relay) busy() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	// The fields after the name, which is in parentheses: proc(5) has them 14 and 15.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var own, kernel int64
	_, _ = fmt.Sscan(fields[11], &own)
	_, _ = fmt.Sscan(fields[12], &kernel)
	return time.Duration(own+kernel) * tick
}

// tick is the unit of the kernel's times for programs: a hundredth of a second
// wherever Go runs on Linux (USER_HZ).
const tick = 10 * time.Millisecond

// forget has the peak begin anew.
func (r *relay) forget() {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", r.cmd.Process.Pid), []byte("5"), 0) // then the peak is of the whole run
}
