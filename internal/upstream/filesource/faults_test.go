package filesource

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"xdsrelay/internal/telemetry"
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

// A file that cannot be opened is read again at each poll, because its permissions may change. A
// file with a fault is not: it has to change first.
func TestP80_UnreadableFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	r := newDirectoryOrigin(t, dir)
	r.write("good.yaml", clustersFile("1", "a=1"))
	m, err := telemetry.New(telemetry.Options{})
	must(t, err)
	d, err := New(Options{Name: "files", Path: dir, Log: r.log.Logger(), Metrics: m, Origin: m.Origin("files")})
	must(t, err)
	reads := func(what string, want bool) {
		t.Helper()
		if d.Reload() != want {
			t.Errorf("%s: Reload is %t, and not %t", what, !want, want)
		}
	}
	reads("a good file", true)
	r.write("bad.yaml", "nonsense: [")
	reads("a fault", true)
	must(t, os.Symlink("none", r.path("unreadable.yaml")))
	reads("a file that cannot be opened", false)
	must(t, os.RemoveAll(dir))
	reads("no directory", false)
}
