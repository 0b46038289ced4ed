package integration

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// kept returns the files below a directory, without the lock file.
func kept(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "lock" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// Secrets are not written to disk. Only the relay's user can read its files.
func TestP6_SecretsAreInNoFile(t *testing.T) {
	t.Parallel()
	for _, up := range upstreams {
		t.Run(up, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "kept")
			o := origin(t, xdstest.Linear)
			o.Put("mesh", secret("s"), xdstest.Cluster("c", 1))
			r := serve(t, o.Address, xdstest.Config{"downstream.secrets": "allow", "upstream.variant": up,
				"store": map[string]any{"path": dir, "interval": "20ms"}})
			for _, v := range variants {
				s := xdstest.OpenStream(t, r.Address, methods[v])
				s.Ask(node("n", "mesh"), resource.SecretType, "s")
				gets(t, s, secret("s"))
				waitFor(t, client(t, r.Address, fleet.ClientConfig{Node: node("n", "mesh"), Variant: v, Behaviour: fleet.Raw,
					Subscribe: []fleet.Subscription{{Type: resource.ClusterType}, {Type: resource.SecretType, Names: []string{"s"}}}}), "both", hasAll(xdstest.Cluster("c", 1), secret("s")))
			}
			r.written(t, dir, 1)
			r.Stop()
			is, err := os.Stat(dir)
			if err != nil || is.Mode().Perm() != 0o700 {
				t.Errorf("%v, %v", is, err)
			}
			found := kept(t, dir)
			if len(found) == 0 {
				t.Error("nothing is kept")
			}
			for _, path := range found {
				is, err := os.Stat(path)
				if err != nil || is.Mode().Perm() != 0o600 {
					t.Errorf("%s: %v, %v", path, is, err)
				}
				b, err := os.ReadFile(path)
				if err != nil || bytes.Contains(b, []byte(hidden)) {
					t.Errorf("%s has a Secret, or %v", path, err)
				}
			}
		})
	}
}

// However a relay ends while it writes, its files are complete. Each start finds no damaged or
// partial file, and has resources to serve.
func TestKilledWhileItWrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := origin(t, xdstest.Linear)
	o.Put("edge", xdstest.Web(1)...)
	// A SotW origin's answer is complete at once, and stored. A delta origin's is complete after 1
	// s (P67).
	conf := xdstest.Config{"store": map[string]any{"path": dir, "interval": "0s"}, "upstream.variant": "sotw"}
	n := 1
	for round := range 5 {
		r := serve(t, o.Address, conf)
		clients := envoys(t, r.Address, "edge")
		waitAll(t, clients, "what the origin has", hasAll(xdstest.Web(n)...))
		xdstest.Eventually(t, "some writes", func() error { // continuous changes, and each time more of them
			n++
			o.Put("edge", xdstest.Web(n)...)
			waitFor(t, clients[0], fmt.Sprintf("change %d", n), hasAll(xdstest.Web(n)...))
			if r.Metric("store_writes_total", "result", "written") < float64(4+3*round) {
				return xdstest.ErrNotYet
			}
			return nil
		})
		if d := r.Metric("store_damaged_total"); d > 0 {
			t.Errorf("%v files are damaged:\n%s", d, r.Tail(20))
		}
		r.Kill()
	}
	o.Stop()
	r := serve(t, o.Address, conf)
	for _, path := range kept(t, dir) {
		if base := filepath.Base(path); base[0] == '.' || filepath.Dir(path) != dir {
			t.Errorf("%s is left", path)
		}
	}
	for _, c := range envoys(t, r.Address, "edge") {
		waitFor(t, c, "clusters of before", func(c *fleet.Client) bool {
			_, held := c.Get(resource.ClusterType, "web")
			return held
		})
	}
	if d := r.Metric("store_damaged_total"); d > 0 {
		t.Errorf("%v files are damaged:\n%s", d, r.Tail(20))
	}
}
