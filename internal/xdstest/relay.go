package xdstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// Config holds keys of the relay's configuration in dotted form, such as
// "upstream.variant".
type Config map[string]any

// QuickConfig is a configuration of short times, on ports of the kernel's
// choice.
func QuickConfig() Config {
	return Config{
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

// Origins is the value of "upstream.origins" for these addresses.
func Origins(addresses ...string) []map[string]any {
	var list []map[string]any
	for _, a := range addresses {
		list = append(list, map[string]any{"address": a})
	}
	return list
}

// With returns a copy with more keys set.
func (c Config) With(more Config) Config {
	out := maps.Clone(c)
	maps.Copy(out, more)
	return out
}

// Text returns the configuration as YAML.
func (c Config) Text() []byte {
	root := map[string]any{}
	for key, value := range c {
		node := root
		parts := strings.Split(key, ".")
		for _, part := range parts[:len(parts)-1] {
			child, ok := node[part].(map[string]any)
			if !ok {
				child = map[string]any{}
				node[part] = child
			}
			node = child
		}
		node[parts[len(parts)-1]] = value
	}
	text, err := yaml.Marshal(root)
	if err != nil {
		panic(err) // of values made here
	}
	return text
}

// WriteFile writes the configuration as YAML and returns the file's path.
func (c Config) WriteFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "relay.yaml")
	if err := os.WriteFile(path, c.Text(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Relay is a running relay process.
type Relay struct {
	*Process
	Address     string   // of the first gRPC listener
	Addresses   []string // of all gRPC listeners
	Admin       string   // of the admin HTTP API; "off" without one
	RESTAddress string   // of polls; "off" without them

	t testing.TB // nil if several tests share the relay
}

var (
	buildDir    string // set by Main
	givenBinary string // set by Main, from RELAY_BINARY
	buildOnce   = sync.OnceValues(func() (string, error) {
		if buildDir == "" {
			return "", errors.New("TestMain has to call xdstest.Main")
		}
		root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "xdsrelay").Output()
		if err != nil {
			return "", fmt.Errorf("find the relay's module: %w", err)
		}
		path := filepath.Join(buildDir, "relay")
		args := []string{"build", "-C", strings.TrimSpace(string(root)), "-o", path}
		if os.Getenv("RELAY_RACE") != "" {
			args = append(args, "-race")
		}
		out, err := exec.Command("go", append(args, "./cmd/relay")...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("build the relay: %w\n%s", err, out)
		}
		return path, nil
	})
)

// Binary returns the path of the relay's binary. The first call builds it, with the race detector
// if RELAY_RACE is set. RELAY_BINARY names another one to test.
func Binary(t testing.TB) string {
	t.Helper()
	if givenBinary != "" {
		return givenBinary
	}
	path, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var servingLine = regexp.MustCompile(`msg=serving .*?downstream=(\S+) admin=(\S+) rest=(\S+)`)

// Command is a command of the relay's binary. The caller may change its directory and environment.
func Command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(Binary(t), args...)
	cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1 exitcode=66")
	return cmd
}

// StartRelay runs `relay serve` and waits until it is ready. At the end of the
// test it gets SIGTERM and has to exit with 0.
func StartRelay(t testing.TB, config Config) *Relay {
	t.Helper()
	return StartRelayCommand(t, Command(t, "serve", "--config", config.WriteFile(t)))
}

// StartRelayCommand is StartRelay for a command line.
func StartRelayCommand(t testing.TB, cmd *exec.Cmd) *Relay {
	t.Helper()
	return StartRelays(t, cmd)[0]
}

// StartRelays is StartRelay for relays that start together, by their command lines.
func StartRelays(t testing.TB, cmds ...*exec.Cmd) []*Relay {
	t.Helper()
	relays, errs := make([]*Relay, len(cmds)), make([]error, len(cmds))
	var wait sync.WaitGroup
	for i, cmd := range cmds {
		wait.Go(func() { relays[i], errs[i] = LaunchRelay(cmd, nil) })
	}
	wait.Wait()
	for _, r := range relays {
		if r != nil {
			r.t = t
			r.endWith(t)
			t.Cleanup(r.Stop) // runs before the process is killed
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return relays
}

// LaunchRelay starts a relay that several tests share, or that no test starts. It waits until the
// relay is ready. The caller ends it with Terminate. onLine may be nil.
func LaunchRelay(cmd *exec.Cmd, onLine func(string)) (*Relay, error) {
	addresses := make(chan []string, 1)
	p, err := LaunchProcess("relay", cmd, func(line string) {
		if onLine != nil {
			onLine(line)
		}
		if m := servingLine.FindStringSubmatch(line); m != nil {
			select {
			case addresses <- m[1:]:
			default:
			}
		}
	})
	if err != nil {
		return nil, err
	}
	r := &Relay{Process: p}
	select {
	case a := <-addresses:
		r.Addresses, r.Admin, r.RESTAddress = strings.Split(a[0], ","), a[1], a[2]
		r.Address = r.Addresses[0]
	case <-p.Exited():
		return nil, fmt.Errorf("the relay exited at its start:\n%s", p.Log())
	case <-time.After(Patience):
		p.Kill()
		return nil, fmt.Errorf("the relay did not start:\n%s", p.Log())
	}
	if r.Admin == "off" {
		return r, nil // it logs that it serves once it does
	}
	if err := Poll(Patience, 5*time.Millisecond, func() error { _, err := r.Get("/ready"); return err }); err != nil {
		p.Kill()
		return nil, fmt.Errorf("the relay's /ready: %w", err)
	}
	return r, nil
}

// Run runs another command of the relay's binary against this relay's admin
// address and returns its output and exit code.
func (r *Relay) Run(args ...string) (stdout string, code int) {
	r.t.Helper()
	var out, errs strings.Builder
	cmd := exec.Command(Binary(r.t), append(args, "--admin", r.Admin)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.t.Fatalf("relay %s: %v", strings.Join(args, " "), err)
	}
	if errs.Len() > 0 {
		r.t.Logf("relay %s: %s", strings.Join(args, " "), errs.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

var httpClient = &http.Client{Timeout: Patience, Transport: &http.Transport{DisableKeepAlives: true}}

// Token is the bearer token that HTTPGet sends; empty: none. A process sets it once, at its start.
var Token string

// HTTPGet returns the body of a URL. Any status but 200 is an error.
func HTTPGet(url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if Token != "" {
		req.Header.Set("Authorization", "Bearer "+Token)
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // only read from
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	return body, nil
}

// HTTPGetJSON reads a URL's body, which is JSON, into a value. Any status but 200 is an error.
func HTTPGetJSON(url string, into any) error {
	body, err := HTTPGet(url)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s: %w: %s", url, err, body)
	}
	return nil
}

// Get returns the body of a path of the admin API.
func (r *Relay) Get(path string) ([]byte, error) { return HTTPGet("http://" + r.Admin + path) }

// GetJSON reads a path of the admin API into a value.
func (r *Relay) GetJSON(path string, into any) error {
	return HTTPGetJSON("http://"+r.Admin+path, into)
}

// List returns all items of a paged list of the admin API, such as "/clients".
func List[T any](r *Relay, path string) ([]T, error) {
	var items []T
	for token := ""; ; {
		var page struct {
			Items []T    `json:"items"`
			Next  string `json:"next_page_token"`
		}
		if err := r.GetJSON(path+"?page_token="+url.QueryEscape(token), &page); err != nil {
			return nil, err
		}
		items = append(items, page.Items...)
		if token = page.Next; token == "" {
			return items, nil
		}
	}
}

// Metrics returns the families of /metrics by name.
func (r *Relay) Metrics() (map[string]*dto.MetricFamily, error) {
	body, err := r.Get("/metrics")
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(strings.NewReader(string(body)))
}

// Metric returns the sum of the series of xdsrelay_<name> that have these
// labels, given as name and value in turn. A histogram counts its samples. A
// metric that does not exist is 0.
func (r *Relay) Metric(name string, labels ...string) float64 {
	r.t.Helper()
	families, err := r.Metrics()
	if err != nil {
		r.t.Fatalf("/metrics: %v", err)
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

// WaitMetric waits until a metric is at least so large.
func (r *Relay) WaitMetric(least float64, name string, labels ...string) {
	r.t.Helper()
	Eventually(r.t, name, func() error {
		if v := r.Metric(name, labels...); v < least {
			return fmt.Errorf("%v is %v, want at least %v", labels, v, least)
		}
		return nil
	})
}
