package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// settings are keys of the relay's configuration, dotted.
type settings map[string]any

// quick are settings with which nothing takes long, but for what a test says.
func quick() settings {
	return settings{
		"name":                          "relay-under-test",
		"downstream.address":            "127.0.0.1:0",
		"downstream.drain":              "200ms",
		"downstream.removal_delay":      "50ms",
		"admin.address":                 "127.0.0.1:0",
		"upstream.linger":               "200ms",
		"upstream.first_answer_timeout": "2s",
		"upstream.backoff":              map[string]any{"base": "20ms", "max": "200ms"},
	}
}

// file writes the settings as the relay's configuration file.
func (s settings) file(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "relay.yaml")
	if err := os.WriteFile(path, s.text(t), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// text is that of the file.
func (s settings) text(t testing.TB) []byte {
	t.Helper()
	root := map[string]any{}
	for key, v := range s {
		at := root
		parts := strings.Split(key, ".")
		for _, p := range parts[:len(parts)-1] {
			sub, ok := at[p].(map[string]any)
			if !ok {
				sub = map[string]any{}
				at[p] = sub
			}
			at = sub
		}
		at[parts[len(parts)-1]] = v
	}
	text, err := yaml.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// origins is the list of origins at these addresses.
func origins(addresses ...string) []map[string]any {
	var list []map[string]any
	for _, a := range addresses {
		list = append(list, map[string]any{"address": a})
	}
	return list
}

// relay is a running relay.
type relay struct {
	t     testing.TB
	cmd   *exec.Cmd
	addr  string // downstream
	admin string

	told   bool // to stop; of the test's goroutine
	log    transcript
	exited chan struct{}
	err    error // of the process, once exited
}

// transcript is what a process wrote.
type transcript struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *transcript) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.WriteString(line + "\n")
}

func (l *transcript) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// serve starts a relay in front of an origin, with quick settings but for more.
func serve(t testing.TB, origin string, more settings) *relay {
	t.Helper()
	s := quick()
	s["upstream.origins"] = origins(origin)
	maps.Copy(s, more)
	return start(t, "", nil, "serve", "--config", s.file(t))
}

var serving = regexp.MustCompile(`msg=serving .*?downstream=(\S+) admin=(\S+)`)

// start runs the binary, and waits until it is ready. At the end of the test it
// is told to stop, and has to exit 0.
func start(t testing.TB, dir string, env []string, args ...string) *relay {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{t: t, cmd: exec.Command(path, args...), exited: make(chan struct{})}
	r.cmd.Dir = dir
	r.cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1 exitcode=66")
	r.cmd.Env = append(r.cmd.Env, env...)
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	addresses := make(chan []string, 1)
	go func() {
		defer close(r.exited)
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			r.log.add(lines.Text())
			if m := serving.FindStringSubmatch(lines.Text()); m != nil {
				select {
				case addresses <- m[1:]:
				default:
				}
			}
		}
		r.err = r.cmd.Wait()
	}()
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			t.Logf("the relay's log:\n%s", tail(r.log.String(), 200))
		}
	})
	select {
	case a := <-addresses:
		r.addr, r.admin = a[0], a[1]
	case <-r.exited:
		t.Fatalf("the relay exited at its start: %v\n%s", r.err, &r.log)
	case <-time.After(patience):
		t.Fatalf("the relay did not start:\n%s", &r.log)
	}
	if r.admin == "off" {
		return r // it says that it serves when it does
	}
	until(t, "/ready", func() error {
		_, err := r.get("/ready")
		return err
	})
	return r
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(all) > lines {
		all = append([]string{"…"}, all[len(all)-lines:]...)
	}
	return strings.Join(all, "\n")
}

// signal sends a signal, if the relay still runs.
func (r *relay) signal(s syscall.Signal) {
	select {
	case <-r.exited:
	default:
		_ = r.cmd.Process.Signal(s) // it may have exited just now
	}
}

// drain tells the relay to stop, once: a second signal would end it at once.
func (r *relay) drain() {
	if !r.told {
		r.told = true
		r.signal(syscall.SIGTERM)
	}
}

// stop has the relay drain, if it was not told yet, and waits for its end. It
// has to exit 0. May be called again.
func (r *relay) stop() {
	r.t.Helper()
	r.drain()
	select {
	case <-r.exited:
	case <-time.After(patience):
		r.signal(syscall.SIGQUIT) // for the goroutines in the log
		select {
		case <-r.exited:
		case <-time.After(patience):
			r.signal(syscall.SIGKILL)
			<-r.exited
		}
		r.t.Errorf("the relay did not end after SIGTERM")
	}
	if r.err != nil {
		r.t.Errorf("the relay's exit: %v", r.err)
		r.err = nil // said once
	}
}

var http1 = &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}

// get reads a path of the admin address.
func (r *relay) get(path string) ([]byte, error) {
	resp, err := http1.Get("http://" + r.admin + path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return body, nil
}

// metric sums the series of a metric that have these labels, given as name and
// value in turn. A histogram gives its count. What is not there is 0.
func (r *relay) metric(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	body, err := r.get("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
	if err != nil {
		t.Fatalf("/metrics: %v", err)
	}
	var sum float64
series:
	for _, m := range families["xdsrelay_"+name].GetMetric() {
		for i := 0; i < len(labels); i += 2 {
			found := false
			for _, l := range m.GetLabel() {
				found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
			}
			if !found {
				continue series
			}
		}
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue() +
			float64(m.GetHistogram().GetSampleCount())
	}
	return sum
}

// waitMetric waits until a metric is at least so large.
func (r *relay) waitMetric(t testing.TB, least float64, name string, labels ...string) {
	t.Helper()
	until(t, name, func() error {
		if v := r.metric(t, name, labels...); v < least {
			return fmt.Errorf("%v is %v, want at least %v", labels, v, least)
		}
		return nil
	})
}

// list reads a path that gives a list, page by page.
func list[T any](r *relay, path string) []T {
	r.t.Helper()
	var out []T
	for token := ""; ; {
		body, err := r.get(path + "?page_token=" + url.QueryEscape(token))
		if err != nil {
			r.t.Fatal(err)
		}
		var page struct {
			Items []T    `json:"items"`
			Next  string `json:"next_page_token"`
		}
		if err := json.Unmarshal(body, &page); err != nil {
			r.t.Fatalf("%s: %v: %s", path, err, body)
		}
		out = append(out, page.Items...)
		if token = page.Next; token == "" {
			return out
		}
	}
}

// keyStatus is what the tests read of /keys.
type keyStatus struct {
	Key     string `json:"key"`
	Members int    `json:"members"`
	Types   []struct {
		Short     string `json:"short"`
		Resources int    `json:"resources"`
		Names     int    `json:"names"`
	} `json:"types"`
	Upstream struct {
		Connected bool   `json:"connected"`
		Error     string `json:"error"`
		Silent    string `json:"silent_since"`
	} `json:"upstream"`
}

func (r *relay) keys() []keyStatus { return list[keyStatus](r, "/keys") }

// clientStatus is what the tests read of /clients.
type clientStatus struct {
	Node  string `json:"node"`
	Types []struct {
		Type  string `json:"type"`
		State string `json:"state"`
	} `json:"types"`
}

func (r *relay) clients() []clientStatus { return list[clientStatus](r, "/clients") }

// listen listens on a port that can be listened on again, after a restart: it
// is none of those that the kernel gives to outgoing connections.
func listen(t testing.TB) net.Listener {
	t.Helper()
	var err error
	for range 200 {
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.N(12000))); err == nil {
			return l
		}
	}
	t.Fatalf("no port to listen on: %v", err)
	return nil
}

// port is an address that nobody listens on.
func port(t testing.TB) string {
	t.Helper()
	l := listen(t)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}
