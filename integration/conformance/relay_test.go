package conformance

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
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

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// settings are keys of the relay's configuration, dotted.
type settings map[string]any

// profile is a configuration that several tests share.
type profile struct {
	name string
	more settings
}

// unmapped and onlyClusters are what the rules of all profiles look for in a
// node's metadata, sharded in its dynamic parameters.
const (
	unmapped     = "unmapped"      // no rule matches
	onlyClusters = "only_clusters" // a rule matches for Cluster alone
	sharded      = "sharded"       // the key has a dynamic parameter
)

var rules = []any{
	map[string]any{"match": "has(node.metadata." + sharded + ")",
		"key": []string{"node.cluster", `type in node.dynamic_parameters ? node.dynamic_parameters[type].params["shard"] : "none"`}},
	map[string]any{"match": "has(node.metadata." + onlyClusters + ")", "types": []string{"CDS"}, "key": "node.cluster"},
	map[string]any{"match": "!has(node.metadata." + unmapped + ") && !has(node.metadata." + onlyClusters + ")", "key": "node.cluster"},
}

// long is a time that no test lives to see.
const long = "1h"

var (
	// patient relays wait for everything: what a test sees there, no timeout
	// has caused.
	patient = profile{"patient", settings{
		"downstream.ack_timeout": long, "upstream.linger": long,
		"upstream.idle_ttl": long, "upstream.first_answer_timeout": long,
	}}
	// hasty relays wait for nothing longer than a busy machine needs to answer.
	hasty = profile{"hasty", settings{
		"downstream.ack_timeout": "500ms", "upstream.linger": "100ms",
		"upstream.idle_ttl": "100ms", "upstream.first_answer_timeout": "500ms",
	}}
)

// relay is a running relay.
type relay struct {
	cmd    *exec.Cmd
	conn   *grpc.ClientConn // shared by clients
	addr   string           // downstream
	admin  string
	exited chan struct{}
	err    error // of the process, once exited

	mu  sync.Mutex
	log []string
}

// relays are those that are shared: one a profile and upstream variant.
var relays struct {
	sync.Mutex
	running map[string]*relay
	control *control // the origin of all of them
}

// shared returns the relay of a profile and an upstream variant, and its origin.
func shared(t testing.TB, p profile, variant string) (*relay, *control) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	relays.Lock()
	defer relays.Unlock()
	if relays.control == nil {
		if relays.control, err = newControl(); err != nil {
			t.Fatal(err)
		}
	}
	name := p.name + "-" + variant
	r := relays.running[name]
	if r == nil {
		if relays.running == nil {
			relays.running = make(map[string]*relay)
		}
		s := settings{"upstream.variant": variant, "upstream.origins": origins(relays.control.addr)}
		maps.Copy(s, p.more)
		if r, err = launch(path, name, s); err != nil {
			t.Fatal(err)
		}
		relays.running[name] = r
	}
	return r, relays.control
}

// own starts a relay for one test, in front of these origins.
func own(t testing.TB, variant string, more settings, addresses ...string) *relay {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	s := settings{"upstream.variant": variant, "upstream.origins": origins(addresses...)}
	maps.Copy(s, patient.more)
	maps.Copy(s, more)
	r, err := launch(path, newKey(t), s) // a test may have several
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// stopAll stops what tests shared. A relay has to exit 0.
func stopAll() error {
	relays.Lock()
	defer relays.Unlock()
	var errs []error
	for _, r := range relays.running {
		errs = append(errs, r.stop())
	}
	if relays.control != nil {
		relays.control.stop()
	}
	return errors.Join(errs...)
}

func origins(addresses ...string) []any {
	var list []any
	for _, a := range addresses {
		list = append(list, map[string]any{"address": a})
	}
	return list
}

// file writes the settings as a configuration file.
func (s settings) file(name string) (string, error) {
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
		return "", err
	}
	path := filepath.Join(scratch, name+".yaml")
	return path, os.WriteFile(path, text, 0o600)
}

var serving = regexp.MustCompile(`msg=serving .*?downstream=(\S+) admin=(\S+)`)

// launch starts a relay and waits until it serves.
func launch(path, name string, more settings) (*relay, error) {
	s := settings{
		"name": "judged", "downstream.address": "127.0.0.1:0", "admin.address": "127.0.0.1:0",
		"downstream.drain": "100ms", "downstream.max_connection_age": "0s",
		"downstream.limits.streams_per_connection": 0, "downstream.secrets": "allow",
		"upstream.backoff.base": "20ms", "upstream.backoff.max": "100ms", "upstream.max_idle": 100000,
		"aggregation.rules": rules,
	}
	maps.Copy(s, more)
	config, err := s.file(name)
	if err != nil {
		return nil, err
	}
	r := &relay{cmd: exec.Command(path, "serve", "--config", config), exited: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1 exitcode=66")
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	addresses := make(chan []string, 1)
	go r.watch(stderr, addresses)
	select {
	case a := <-addresses:
		r.addr, r.admin = a[0], a[1]
	case <-r.exited:
		return nil, fmt.Errorf("the relay %s exited at its start: %w\n%s", name, r.err, r.said(""))
	case <-time.After(patience):
		return nil, fmt.Errorf("the relay %s did not start:\n%s", name, r.said(""))
	}
	r.conn, err = grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	return r, err
}

// watch reads the relay's log to its end.
func (r *relay) watch(stderr io.Reader, addresses chan<- []string) {
	defer close(r.exited)
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		r.mu.Lock()
		r.log = append(r.log, lines.Text())
		r.mu.Unlock()
		if m := serving.FindStringSubmatch(lines.Text()); m != nil {
			select {
			case addresses <- m[1:]:
			default:
			}
		}
	}
	r.err = r.cmd.Wait()
}

// said is what the log has of something; of everything if it is empty.
func (r *relay) said(of string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, line := range r.log {
		if strings.Contains(line, of) {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// stop has the relay drain, and waits for its end.
func (r *relay) stop() error {
	if r.conn != nil {
		_ = r.conn.Close() // nothing is left to be said on it
	}
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // it may have exited
	select {
	case <-r.exited:
	case <-time.After(patience):
		_ = r.cmd.Process.Kill()
		<-r.exited
		return fmt.Errorf("the relay did not end after SIGTERM:\n%s", r.said(""))
	}
	if r.err != nil {
		return fmt.Errorf("the relay's exit: %w\n%s", r.err, r.said(""))
	}
	return nil
}

var http1 = &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}

// get reads a path of the admin address.
func (r *relay) get(t testing.TB, path string) string {
	t.Helper()
	resp, err := http1.Get("http://" + r.admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s: %s", path, resp.Status, body)
	}
	return string(body)
}
