package conformance

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"xdsrelay/internal/xdstest"

	"google.golang.org/grpc"
)

// profile is a configuration that several tests share.
type profile struct {
	name string
	more xdstest.Config
}

// unmapped and onlyClusters are keys in a node's metadata that the rules of all profiles use;
// sharded is one in its dynamic parameters.
const (
	unmapped     = "unmapped"      // no rule matches
	onlyClusters = "only_clusters" // only a rule for Cluster matches
	sharded      = "sharded"       // the key has a dynamic parameter
)

var rules = []any{
	map[string]any{"match": "has(node.metadata." + sharded + ")",
		"key": []string{"node.cluster", `type in node.dynamic_parameters ? node.dynamic_parameters[type].params["shard"] : "none"`}},
	map[string]any{"match": "has(node.metadata." + onlyClusters + ")", "types": []string{"CDS"}, "key": "node.cluster"},
	map[string]any{"match": "!has(node.metadata." + unmapped + ") && !has(node.metadata." + onlyClusters + ")", "key": "node.cluster"},
}

// long is longer than any test.
const long = "1h"

var (
	// patient relays have timeouts that never expire during a test.
	patient = profile{"patient", xdstest.Config{
		"downstream.ack_timeout": long, "upstream.linger": long,
		"upstream.idle_ttl": long, "upstream.first_answer_timeout": long,
	}}
	// hasty relays have timeouts just long enough for a busy machine.
	hasty = profile{"hasty", xdstest.Config{
		"downstream.ack_timeout": "500ms", "upstream.linger": "100ms",
		"upstream.idle_ttl": "100ms", "upstream.first_answer_timeout": "500ms",
	}}
)

// relay is a running relay.
type relay struct {
	*xdstest.Relay
	conn *grpc.ClientConn // shared by the clients of a test
}

// sharedControl is the origin of all relays that tests share.
var sharedControl = sync.OnceValues(newControl)

// shared returns the relay of a profile and an upstream variant, and its origin.
func shared(t testing.TB, p profile, variant string) (*relay, *control) {
	t.Helper()
	control, err := sharedControl()
	if err != nil {
		t.Fatal(err)
	}
	r := xdstest.SharedRelay(t, p.name+"-"+variant, config(variant, control.addr).With(p.more))
	return &relay{r, xdstest.Dial(t, r.Address, nil)}, control
}

// own starts a relay for one test, in front of these origins.
func own(t testing.TB, variant string, more xdstest.Config, addresses ...string) *relay {
	t.Helper()
	r := xdstest.StartRelay(t, config(variant, addresses...).With(patient.more).With(more))
	return &relay{r, xdstest.Dial(t, r.Address, nil)}
}

// stopStored stops the trial's relay once its store has a file.
func (c *trial) stopStored(dir string) {
	c.Helper()
	xdstest.Eventually(c, "what was acknowledged on disk", func() error {
		if files, err := filepath.Glob(filepath.Join(dir, "*.good")); len(files) == 0 {
			return errorf("%d files, %v", len(files), err)
		}
		return nil
	})
	if err := c.relay.Terminate(); err != nil {
		c.Fatal(err)
	}
}

// config is the common configuration of the relays.
func config(variant string, origins ...string) xdstest.Config {
	return xdstest.Config{
		"name": "judged", "downstream.address": "127.0.0.1:0", "admin.address": "127.0.0.1:0",
		"downstream.drain": "100ms", "downstream.max_connection_age": "0s",
		"downstream.limits.streams_per_connection": 0, "downstream.secrets": "allow",
		"upstream.backoff.base": "20ms", "upstream.backoff.max": "100ms", "upstream.max_idle": 100000,
		"upstream.variant": variant, "upstream.origins": xdstest.Origins(origins...),
		"aggregation.rules": rules,
	}
}

// said returns the lines of the log that contain a text.
func (r *relay) said(text string) string {
	var b strings.Builder
	for line := range strings.Lines(r.Log()) {
		if strings.Contains(line, text) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// get reads a path of the admin API.
func (r *relay) get(t testing.TB, path string) string {
	t.Helper()
	body, err := r.Get(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
