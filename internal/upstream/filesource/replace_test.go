package filesource

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/filewatch"
)

// A file that is being written in place may be valid before it is complete. The relay does not take
// it for the whole, and removes nothing meanwhile.
func TestP80_WrittenInSteps(t *testing.T) {
	r := newDirectoryOrigin(t, t.TempDir())
	before := []string{"a=1", "b=1", "c=1"}
	r.write("c.yaml", clustersFile("1", before...))
	r.run()
	wild, _ := r.key(all(cds))
	holds(t, wild, before...)
	after := append(before, "d=1")
	f, err := os.Create(r.path("c.yaml"))
	must(t, err)
	pace := time.NewTicker(filewatch.Quiet / 4)
	defer pace.Stop()
	for line := range strings.Lines(clustersFile("1", after...)) {
		_, err := f.WriteString(line)
		must(t, err)
		<-pace.C
	}
	must(t, f.Close())
	holds(t, wild, after...)
	if got := removedEver(wild); len(got) > 0 {
		t.Errorf("while it was written %v were removed", got)
	}
	// A renamed file is complete at once.
	f, err = os.Create(r.path("c.yaml"))
	must(t, err)
	must(t, f.Close())
	must(t, os.WriteFile(r.path(".new"), []byte(clustersFile("2", "a=2")), 0o644))
	began := time.Now()
	must(t, os.Rename(r.path(".new"), r.path("c.yaml")))
	holds(t, wild, "a=2")
	t.Logf("renamed and held after %s", time.Since(began))
}

// A file that was never valid may contain anything. Until all files are valid, the directory is an
// unreachable origin, and missing resources do not count as removed.
func TestP80_BrokenFromTheStart(t *testing.T) {
	for what, bad := range map[string]string{
		"unreadable":  "x: [",
		"not a file":  "",
		"a name too":  clustersFile("1", "a=other", "b"),
		"wrong place": "name: a",
	} {
		t.Run(what, func(t *testing.T) {
			r := newDirectoryOrigin(t, t.TempDir())
			r.write("c.yaml", clustersFile("1", "a=1"))
			if bad == "" {
				must(t, os.Symlink("missing", r.path("d.yaml")))
			} else {
				r.write("d.yaml", bad)
			}
			r.run()
			wild, _ := r.key(all(cds))
			at := r.log.Until(t, 0, "level=WARN", "rejected", "serves nothing of it", "d.yaml")
			r.log.Until(t, 0, "not served", "d.yaml")
			wild.Mu.Lock()
			if n := len(wild.Updates); n > 0 {
				t.Errorf("answered by %d updates", n)
			}
			wild.Mu.Unlock()
			must(t, os.Remove(r.path("d.yaml")))
			holds(t, wild, "a=1")
			r.log.Until(t, at, "level=INFO", r.dir)
			// Later, a broken file removes nothing.
			r.write("d.yaml", "x: [")
			r.log.Until(t, at, "rejected", "serves nothing of it", "d.yaml")
			r.write("c.yaml", clustersFile("1", "a=2"))
			holds(t, wild, "a=2")
			if got := removedEver(wild); len(got) > 0 {
				t.Errorf("%v were removed", got)
			}
		})
	}
}

// A directory without files from the start is an unreachable origin, not an empty one. So the last
// known good is served.
func TestP80_P53_DirectoryWithoutFilesIsAway(t *testing.T) {
	r := newDirectoryOrigin(t, t.TempDir())
	r.run()
	wild, _ := r.key(all(cds))
	wild.Until(t, "a failure", func() bool {
		st := wild.lastStatus()
		return st.Failed && errors.Is(st.Err, ErrNoFiles) && !st.Connected
	})
	r.write("c.yaml", clustersFile("1", "a=1"))
	holds(t, wild, "a=1")
}

// A directory that was emptied removes nothing while it is filled again, until one of its files is
// valid.
func TestP80_InvalidFilesRemoveNothing(t *testing.T) {
	r := newDirectoryOrigin(t, t.TempDir())
	r.write("a.yaml", clustersFile("1", "a=1"))
	r.run()
	wild, _ := r.key(all(cds))
	holds(t, wild, "a=1")
	must(t, os.Rename(r.path("a.yaml"), r.path("b.gone")))
	at := r.log.Until(t, 0, "the previous resources stay in force", "the directory has no file of resources")
	r.write("b.yaml", "type_url: [\n")
	r.log.Until(t, at, "the previous resources stay in force", "b.yaml")
	holds(t, wild, "a=1")
	late, _ := r.key(all(cds))
	holds(t, late, "a=1")
	r.write("b.yaml", clustersFile("2", "b=2"))
	holds(t, wild, "b=2")
	holds(t, late, "b=2")
}
