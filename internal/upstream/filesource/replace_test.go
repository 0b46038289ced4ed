package filesource

import (
	"errors"
	"os"
	"path/filepath"
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

// A file may be a link, and changes of its target are followed.
func TestP80_TargetOfALink(t *testing.T) {
	base := t.TempDir()
	in := func(name string) string { return filepath.Join(base, name) }
	must(t, os.Mkdir(in("elsewhere"), 0o755))
	must(t, os.WriteFile(in("elsewhere/x.yaml"), []byte(clustersFile("1", "a=1")), 0o644))
	must(t, os.Symlink("elsewhere", in("by")))
	must(t, os.Mkdir(in("xds"), 0o755))
	must(t, os.Symlink("../by/x.yaml", in("xds/c.yaml")))
	r := newDirectoryOrigin(t, in("xds"))
	r.run()
	wild, _ := r.key(all(cds))
	holds(t, wild, "a=1")
	must(t, os.WriteFile(in("elsewhere/x.yaml"), []byte(clustersFile("2", "a=2")), 0o644))
	holds(t, wild, "a=2")
	must(t, os.WriteFile(in("elsewhere/.new"), []byte(clustersFile("3", "a=3")), 0o644))
	must(t, os.Rename(in("elsewhere/.new"), in("elsewhere/x.yaml")))
	holds(t, wild, "a=3")
	// A link within the path.
	must(t, os.Mkdir(in("other"), 0o755))
	must(t, os.WriteFile(in("other/x.yaml"), []byte(clustersFile("4", "a=4")), 0o644))
	must(t, os.Symlink("other", in("new")))
	must(t, os.Rename(in("new"), in("by")))
	holds(t, wild, "a=4")
	must(t, os.WriteFile(in("other/x.yaml"), []byte(clustersFile("5", "a=5")), 0o644))
	holds(t, wild, "a=5")
}

// A link above the directory may be swapped, as deployments do.
func TestP80_LinkAboveTheDirectory(t *testing.T) {
	base := t.TempDir()
	put := func(v string) {
		must(t, os.MkdirAll(filepath.Join(base, v, "config", "xds"), 0o755))
		must(t, os.WriteFile(filepath.Join(base, v, "config", "xds", "c.yaml"), []byte(clustersFile(v, "a="+v)), 0o644))
		must(t, os.Symlink(v, filepath.Join(base, "new")))
		must(t, os.Rename(filepath.Join(base, "new"), filepath.Join(base, "current")))
	}
	put("1")
	r := newDirectoryOrigin(t, filepath.Join(base, "current", "config", "xds"))
	r.run()
	wild, _ := r.key(all(cds))
	for _, v := range []string{"1", "2", "3"} {
		if v != "1" {
			put(v)
		}
		holds(t, wild, "a="+v)
		r.write("c.yaml", clustersFile(v, "a="+v, "b="+v))
		holds(t, wild, "a="+v, "b="+v)
	}
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

// A dangling symlink is an unreadable file. Its content stays and it is reported, until the link is
// removed too.
func TestP80_DanglingLinks(t *testing.T) {
	r := newDirectoryOrigin(t, t.TempDir())
	must(t, os.Mkdir(r.path("..1"), 0o755))
	for _, name := range []string{"a", "b"} {
		must(t, os.WriteFile(filepath.Join(r.path("..1"), name+".yaml"), []byte(clustersFile("1", name+"=1")), 0o644))
		must(t, os.Symlink(filepath.Join("..1", name+".yaml"), r.path(name+".yaml")))
	}
	r.run()
	wild, _ := r.key(all(cds))
	holds(t, wild, "a=1", "b=1")
	must(t, os.Remove(filepath.Join(r.path("..1"), "b.yaml")))
	at := r.log.Until(t, 0, "level=WARN", "rejected; its last valid content stays", "b.yaml")
	holds(t, wild, "a=1", "b=1")
	must(t, os.Remove(r.path("b.yaml")))
	r.log.Until(t, at, "level=INFO", "origin file removed", "b.yaml")
	holds(t, wild, "a=1")
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
