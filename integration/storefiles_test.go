package integration

import (
	"bytes"
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

// written waits until everything that the clients accepted is on disk: this many files.
func (r *relay) written(t *testing.T, dir string, files int) {
	t.Helper()
	xdstest.Eventually(t, "the last known good on disk", func() error {
		found, err := filepath.Glob(filepath.Join(dir, "*.good"))
		if err != nil || len(found) < files || r.Metric("store_unwritten_age_seconds") > 0 {
			return xdstest.ErrNotYet
		}
		return err
	})
}
