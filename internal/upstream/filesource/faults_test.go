package filesource

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"xdsrelay/internal/xdstest"
)

// Faults of files, and a missing directory, are shown until they are repaired. A key that was
// served notices neither.
func TestP80_FaultsAreShown(t *testing.T) {
	r := newDirectoryOrigin(t, filepath.Join(t.TempDir(), "origin"))
	must(t, os.Mkdir(r.dir, 0o755))
	r.write("good.yaml", clustersFile("1", "a=1"))
	r.run()
	sink, _ := r.key(all(cds))
	holds(t, sink, "a=1")
	shown := func(want ...string) {
		t.Helper()
		xdstest.Eventually(t, "what is shown", func() error {
			got := r.directory.Faults()
			same := len(got) == len(want)
			for i := range min(len(got), len(want)) {
				same = same && strings.Contains(fmt.Sprintf("%s: %v", got[i].File, got[i].Err), want[i])
			}
			if !same {
				return fmt.Errorf("%v, want %q", got, want)
			}
			return nil
		})
	}
	shown()
	r.write("bad.yaml", "version_info: 1\nresources: [\n")
	shown(r.path("bad.yaml") + ":")
	r.write("bad.yaml", clustersFile("1", "b=1"))
	holds(t, sink, "a=1", "b=1")
	shown()
	must(t, os.Rename(r.dir, r.dir+".was"))
	shown(r.dir + ": open " + r.dir + ": no such file or directory")
	must(t, os.Rename(r.dir+".was", r.dir))
	shown()
	holds(t, sink, "a=1", "b=1")
	for i := range maxFaults + 5 {
		r.write(fmt.Sprintf("x%d.yaml", i), "nonsense: [")
	}
	shown(make([]string, maxFaults)...)
}
