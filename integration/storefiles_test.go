package integration

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/credentials/insecure"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
)

// kept are the files below a directory, but for the lock.
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

// Of all that clients are given, Secrets are on no disk; and what is there, nobody
// else can read.
func TestP6_SecretsAreInNoFile(t *testing.T) {
	for _, up := range upstreams {
		t.Run(up, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "kept")
			o := newOrigin(t, linear)
			o.put("mesh", secret("s"), cluster("c", 1))
			r := serve(t, o.addr, settings{"downstream.secrets": "allow", "upstream.variant": up,
				"store": map[string]any{"path": dir, "interval": "20ms"}})
			for _, v := range variants {
				s := open(t, dial(t, r.addr, insecure.NewCredentials()), methods[v])
				send(t, s, ask(v, node("n", "mesh"), xds.SecretType, "s"))
				gets(t, s, v, secret("s"))
				waitFor(t, client(t, r.addr, fleet.ClientConfig{Node: node("n", "mesh"), Variant: v, Behaviour: fleet.Raw,
					Subscribe: []fleet.Subscription{{Type: xds.ClusterType}, {Type: xds.SecretType, Names: []string{"s"}}}}), "both", hasAll(cluster("c", 1), secret("s")))
			}
			r.written(t, dir, 1)
			r.stop()
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

// However a relay ends while it writes, its files are whole: each start finds none
// damaged, nothing half written, and something to serve.
func TestKilledWhileItWrites(t *testing.T) {
	dir := t.TempDir()
	o := newOrigin(t, linear)
	o.put("edge", web(1)...)
	conf := settings{"store": map[string]any{"path": dir, "interval": "0s"}}
	n := 1
	for round := range 5 {
		r := serve(t, o.addr, conf)
		clients := envoys(t, r.addr, "edge")
		waitAll(t, clients, "what the origin has", hasAll(web(n)...))
		until(t, "some writes", func() error { // changes without a pause, and each time more of them
			n++
			o.put("edge", web(n)...)
			waitFor(t, clients[0], fmt.Sprintf("change %d", n), hasAll(web(n)...))
			if r.metric(t, "store_writes_total", "result", "written") < float64(4+3*round) {
				return errNotYet
			}
			return nil
		})
		if d := r.metric(t, "store_damaged_total"); d > 0 {
			t.Errorf("%v files are damaged:\n%s", d, tail(r.log.String(), 20))
		}
		r.kill()
	}
	o.stop()
	r := serve(t, o.addr, conf)
	for _, path := range kept(t, dir) {
		if base := filepath.Base(path); base[0] == '.' || filepath.Dir(path) != dir {
			t.Errorf("%s is left", path)
		}
	}
	for _, c := range envoys(t, r.addr, "edge") {
		waitFor(t, c, "clusters of before", func(c *fleet.Client) bool {
			_, held := c.Get(xds.ClusterType, "web")
			return held
		})
	}
	if d := r.metric(t, "store_damaged_total"); d > 0 {
		t.Errorf("%v files are damaged:\n%s", d, tail(r.log.String(), 20))
	}
}
