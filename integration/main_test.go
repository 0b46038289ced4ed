// Package integration tests the built binary from outside, with real origins and real clients on
// loopback.
//
// RELAY_RACE builds the binary with the race detector.
package integration

import (
	"os"
	"testing"

	"google.golang.org/grpc"

	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) { os.Exit(xdstest.Main(m)) }

// origin starts an origin with one kind of cache.
func origin(t testing.TB, cache string, opts ...grpc.ServerOption) *xdstest.Origin {
	t.Helper()
	return xdstest.StartOrigin(t, xdstest.OriginOptions{Cache: cache, Server: opts})
}

// relay is a running relay.
type relay struct {
	*xdstest.Relay
	t testing.TB
}

// serve starts a relay in front of an origin, with xdstest.QuickConfig and more.
func serve(t testing.TB, origin string, more xdstest.Config) *relay {
	t.Helper()
	c := xdstest.QuickConfig().With(xdstest.Config{"upstream.origins": xdstest.Origins(origin)})
	return &relay{xdstest.StartRelay(t, c.With(more)), t}
}

// start runs the binary in a directory with more environment, and waits until it is ready.
func start(t testing.TB, dir string, env []string, args ...string) *relay {
	t.Helper()
	cmd := xdstest.Command(t, args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Env, env...)
	return &relay{xdstest.StartRelayCommand(t, cmd), t}
}

// keyStatus is the part of /keys that the tests read.
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

// clientStatus is the part of /clients that the tests read.
type clientStatus struct {
	Node  string `json:"node"`
	Types []struct {
		Type  string `json:"type"`
		State string `json:"state"`
	} `json:"types"`
}

func (r *relay) clients() []clientStatus { return list[clientStatus](r, "/clients") }

func list[T any](r *relay, path string) []T {
	r.t.Helper()
	out, err := xdstest.List[T](r.Relay, path)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}
