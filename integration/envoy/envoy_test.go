package envoy

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"xdsrelay/internal/xdstest"
)

// envoy is a running Envoy.
type envoy struct {
	*xdstest.Process
	t     testing.TB
	node  string
	admin string // address of its admin API
}

// bootstrap is an Envoy bootstrap as a YAML tree.
type bootstrap map[string]any

// readBootstrap reads a file of config/clients.
func readBootstrap(t testing.TB, file string) bootstrap {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "clients", file))
	if err != nil {
		t.Fatal(err)
	}
	b := bootstrap{}
	if err := yaml.Unmarshal(text, &b); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return b
}

// at returns the mapping at a path, which it creates if it is not there.
func (b bootstrap) at(path ...string) bootstrap {
	for _, p := range path {
		child, ok := b[p].(bootstrap)
		if !ok {
			child = bootstrap{}
			b[p] = child
		}
		b = child
	}
	return b
}

// cluster returns the static cluster of that name.
func (b bootstrap) cluster(name string) bootstrap {
	list, _ := b.at("static_resources")["clusters"].([]any)
	for _, c := range list {
		if c, ok := c.(bootstrap); ok && c["name"] == name {
			return c
		}
	}
	panic("the bootstrap has no static cluster " + name)
}

// connectTo makes these addresses the endpoints of the cluster "relay".
func (b bootstrap) connectTo(addresses ...string) {
	var endpoints []any
	for _, a := range addresses {
		host, port, err := net.SplitHostPort(a)
		if err != nil {
			panic(err) // a test passed it
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			panic(err)
		}
		endpoints = append(endpoints, bootstrap{"endpoint": bootstrap{"address": bootstrap{
			"socket_address": bootstrap{"address": host, "port_value": n}}}})
	}
	b.cluster("relay").at("load_assignment")["endpoints"] = []any{bootstrap{"lb_endpoints": endpoints}}
}

// startEnvoy starts an Envoy and waits until its admin API answers. It does
// not wait for configuration. At the end of the test it is killed.
func startEnvoy(t testing.TB, node, cluster string, b bootstrap) *envoy {
	t.Helper()
	dir := t.TempDir()
	b.at("node")["id"], b.at("node")["cluster"] = node, cluster
	b.at("admin", "address", "socket_address")["port_value"] = 0
	text, err := yaml.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	config, adminFile := filepath.Join(dir, "bootstrap.yaml"), filepath.Join(dir, "admin")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(xdstest.Envoy(t), "-c", config, "--admin-address-path", adminFile,
		"--concurrency", "1", "--disable-hot-restart", "--log-level", logLevel(), "--drain-time-s", "2",
		"--file-flush-interval-msec", "1000")
	e := &envoy{t: t, node: node, Process: xdstest.StartProcess(t, "envoy "+node, cmd, nil)}
	xdstest.Eventually(t, node+"'s admin API", func() error {
		select {
		case <-e.Exited():
			t.Fatalf("%s exited at its start:\n%s", e.Name, e.Log())
		default:
		}
		text, err := os.ReadFile(adminFile)
		if err != nil {
			return err
		}
		e.admin = strings.TrimSpace(string(text))
		_, err = xdstest.HTTPGet("http://" + e.admin + "/server_info")
		return err
	})
	return e
}

// logLevel is that of Envoy's log: ENVOY_LOG_LEVEL, or warning.
func logLevel() string {
	if level := os.Getenv("ENVOY_LOG_LEVEL"); level != "" {
		return level
	}
	return "warning"
}

// getJSON reads a path of Envoy's admin API into a value.
func (e *envoy) getJSON(path string, into any) error {
	return xdstest.HTTPGetJSON("http://"+e.admin+path, into)
}

// stats returns the counters and gauges that match a regular expression.
func (e *envoy) stats(filter string) (map[string]int, error) {
	all, err := e.allStats(filter)
	if err != nil {
		return nil, err
	}
	out := make(map[string]int)
	for name, value := range all {
		if v, ok := value.(float64); ok {
			out[name] = int(v)
		}
	}
	return out, nil
}

// stat returns a counter or gauge. One that Envoy does not have is 0.
func (e *envoy) stat(name string) int {
	e.t.Helper()
	all, err := e.stats("^" + strings.ReplaceAll(name, ".", `\.`) + "$")
	if err != nil {
		e.t.Fatal(err)
	}
	return all[name]
}

// waitStat waits until a counter or gauge has this value.
func (e *envoy) waitStat(name string, want int) {
	e.t.Helper()
	xdstest.Eventually(e.t, e.node, func() error {
		if got := e.stat(name); got != want {
			return fmt.Errorf("%s is %d, want %d", name, got, want)
		}
		return nil
	})
}

// listenerAddress returns where a listener listens, or an error while it does
// not.
func (e *envoy) listenerAddress(name string) (string, error) {
	var list struct {
		Statuses []struct {
			Name  string `json:"name"`
			Local struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := e.getJSON("/listeners?format=json", &list); err != nil {
		return "", err
	}
	for _, l := range list.Statuses {
		if l.Name == name && l.Local.Socket.Port != 0 {
			return net.JoinHostPort(l.Local.Socket.Address, strconv.Itoa(l.Local.Socket.Port)), nil
		}
	}
	return "", fmt.Errorf("%s has no listener %q", e.node, name)
}

// warming returns the names of the clusters and listeners that warm.
func (e *envoy) warming() ([]string, error) {
	entries, err := e.resources()
	var out []string
	for key, entry := range entries {
		field, name, _ := strings.Cut(key, " ")
		if field == "dynamic_warming_clusters" {
			out = append(out, "cluster "+name)
		} else if body, _ := entry.(map[string]any); field == "dynamic_listeners" && body["warming_state"] != nil {
			out = append(out, "listener "+name)
		}
	}
	return out, err
}

// rejected returns the update_rejected counters that are not 0.
func (e *envoy) rejected() (map[string]int, error) {
	all, err := e.stats(`update_rejected$`)
	for name, v := range all {
		if v == 0 {
			delete(all, name)
		}
	}
	return all, err
}

// mustBeClean fails the test if this Envoy ever rejected an update, or still
// warms something after a while.
func (e *envoy) mustBeClean() {
	e.t.Helper()
	rejected, err := e.rejected()
	if err != nil {
		e.t.Fatal(err)
	}
	if len(rejected) > 0 {
		e.t.Errorf("%s rejected updates: %v\n%s", e.node, rejected, e.Tail(40))
	}
	xdstest.Eventually(e.t, "nothing warming in "+e.node, func() error {
		w, err := e.warming()
		if err == nil && len(w) > 0 {
			err = fmt.Errorf("still warming: %v", w)
		}
		return err
	})
}
