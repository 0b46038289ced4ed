package filesource

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// A key with the wildcard and a key with names get each change, whichever way the files are
// replaced.
func TestP80_EveryWayOfReplacing(t *testing.T) {
	over := func(r *directoryOrigin, name, text string) {
		tmp := filepath.Join(r.t.TempDir(), "tmp")
		must(r.t, os.WriteFile(tmp, []byte(text), 0o644))
		must(r.t, os.Rename(tmp, r.path(name)))
	}
	editor := func(r *directoryOrigin, name, text string) { // as vi does
		_ = os.Rename(r.path(name), r.path(name+"~"))
		r.write(name, text)
		_ = os.Remove(r.path(name + "~"))
	}
	link := func(r *directoryOrigin, name, text string) {
		tmp := r.t.TempDir()
		must(r.t, os.WriteFile(filepath.Join(tmp, "x"), []byte(text), 0o644))
		must(r.t, os.Symlink(filepath.Join(tmp, "x"), filepath.Join(tmp, "l")))
		must(r.t, os.Rename(filepath.Join(tmp, "l"), r.path(name)))
	}
	for what, put := range map[string]func(*directoryOrigin, string, string){
		"in place": (*directoryOrigin).write, "renamed over": over, "by an editor": editor, "a symlink": link,
	} {
		t.Run(what, func(t *testing.T) {
			r := newDirectoryOrigin(t, t.TempDir())
			put(r, "c.yaml", clustersFile("1", "a=1", "b=1", "other=1"))
			r.run()
			wild, _ := r.key(all(cds))
			byName, _ := r.key(named(cds, "a", "b", "c"))
			holds(t, wild, "a=1", "b=1", "other=1")
			holds(t, byName, "a=1", "b=1")
			absent(t, byName, "c")
			for _, s := range []*testSink{wild, byName} {
				s.Mu.Lock()
				if len(s.Updates) != 1 {
					t.Errorf("answered by %d updates", len(s.Updates))
				}
				s.Mu.Unlock()
			}

			put(r, "c.yaml", clustersFile("2", "a=2", "c=1", "other=1"))
			holds(t, wild, "a=2", "c=1", "other=1")
			holds(t, byName, "a=2", "c=1")
			absent(t, byName, "b")

			put(r, "d.json", `{"resources":[{"@type":"`+clusterURL+`","name":"b"}]}`) // added
			holds(t, wild, "a=2", "b", "c=1", "other=1")
			holds(t, byName, "a=2", "b", "c=1")

			must(t, os.Remove(r.path("c.yaml")))
			holds(t, wild, "b")
			holds(t, byName, "b")
			absent(t, byName, "a", "c")

			must(t, os.Rename(r.path("d.json"), r.path("e.json"))) // nothing new
			put(r, "c.yaml", clustersFile("3", "a=3"))
			holds(t, wild, "a=3", "b")
			holds(t, byName, "a=3", "b")
			gone := 0
			for _, n := range removedEver(wild) {
				if n == "b" {
					gone++
				}
			}
			if gone != 1 {
				t.Errorf("b was removed %d times; renaming its file must not remove it", gone)
			}
			for _, s := range []*testSink{wild, byName} {
				s.Mu.Lock()
				for _, u := range s.Updates[1:] {
					if what != "by an editor" && len(u.Changed) > 2 {
						t.Errorf("%s: more than the differences: %+v", what, u)
					}
				}
				s.Mu.Unlock()
			}
		})
	}
}

// Kubernetes mounts a ConfigMap as links through ..data, which is swapped. All files change at
// once, and a resource that moves between files is never removed.
func TestP80_DataSymlinkSwap(t *testing.T) {
	r := newDirectoryOrigin(t, t.TempDir())
	generation := 0
	swap := func(files map[string]string) {
		old := fmt.Sprintf("..gen%d", generation-1) // it is removed with the next one, so that it gives no event
		generation++
		gen := fmt.Sprintf("..gen%d", generation)
		must(t, os.Mkdir(r.path(gen), 0o755))
		for name, text := range files {
			must(t, os.WriteFile(filepath.Join(r.path(gen), name), []byte(text), 0o644))
		}
		must(t, os.Symlink(gen, r.path("..data_tmp")))
		must(t, os.Rename(r.path("..data_tmp"), r.path("..data")))
		for name := range files {
			_ = os.Symlink(filepath.Join("..data", name), r.path(name))
		}
		must(t, os.RemoveAll(r.path(old)))
	}
	swap(map[string]string{"a.yaml": clustersFile("1", "x", "one=1"), "b.yaml": clustersFile("1", "y", "two=1")})
	r.run()
	wild, _ := r.key(all(cds))
	byName, _ := r.key(named(cds, "x", "y"))
	holds(t, wild, "one=1", "two=1", "x", "y")
	holds(t, byName, "x", "y")
	swap(map[string]string{"a.yaml": clustersFile("1", "y", "one=2"), "b.yaml": clustersFile("1", "x", "two=2")})
	holds(t, wild, "one=2", "two=2", "x", "y")
	swap(map[string]string{"a.yaml": clustersFile("1", "x", "y=2"), "b.yaml": clustersFile("1", "two=2")})
	holds(t, wild, "two=2", "x", "y=2")
	holds(t, byName, "x", "y=2")
	if got := removedEver(wild); !slices.Equal(got, []string{"one"}) {
		t.Errorf("the wildcard received the removal of %v", got)
	}
	if got := removedEver(byName); len(got) > 0 {
		t.Errorf("told that %v are gone", got)
	}
}

// The directory itself may be a link that is swapped. It may be removed, and may appear late.
func TestP80_DirectoryIsSwapped(t *testing.T) {
	base := t.TempDir()
	r := newDirectoryOrigin(t, filepath.Join(base, "current"))
	version := func(v string, names ...string) {
		must(t, os.Mkdir(filepath.Join(base, v), 0o755))
		must(t, os.WriteFile(filepath.Join(base, v, "c.yaml"), []byte(clustersFile(v, names...)), 0o644))
		must(t, os.Symlink(v, filepath.Join(base, "tmp")))
		must(t, os.Rename(filepath.Join(base, "tmp"), r.dir))
	}
	r.run()
	wild, _ := r.key(all(cds))
	wild.Until(t, "a failure", func() bool { st := wild.lastStatus(); return st.Failed && st.Err != nil && !st.Connected })
	if n := r.directory.origin.Connected.Value(); n != 0 {
		t.Errorf("%d connections to a directory that is missing", n)
	}

	version("v1", "a=1")
	holds(t, wild, "a=1")
	version("v2", "a=2")
	holds(t, wild, "a=2")
	must(t, os.WriteFile(filepath.Join(base, "v2", "c.yaml"), []byte(clustersFile("3", "a=3")), 0o644))
	holds(t, wild, "a=3")
	wild.Until(t, "to be connected", func() bool { return wild.lastStatus().Connected })
	if n := r.directory.origin.Connected.Value(); n != 1 {
		t.Errorf("%d connections", n)
	}

	// The directory and its files are removed at once. The content that was read stays.
	must(t, os.Remove(r.dir))
	at := r.log.Until(t, 0, "not readable", "current")
	holds(t, wild, "a=3")
	late, _ := r.key(named(cds, "a")) // other keys get it too
	holds(t, late, "a=3")
	must(t, os.Mkdir(r.dir, 0o755)) // it exists and is empty, like a mount point without a mount
	r.log.Until(t, at, "the previous resources stay in force", "the directory has no file of resources")
	holds(t, wild, "a=3")
	must(t, os.WriteFile(r.path("README.md"), nil, 0o644))
	later, _ := r.key(named(cds, "a"))
	holds(t, later, "a=3")
	at = r.log.Until(t, 0, "the previous resources stay in force", "the directory has no file of resources")
	r.write("c.yaml", clustersFile("4", "a=4"))
	r.log.Until(t, at, "readable again", "current")
	holds(t, wild, "a=4")
	holds(t, late, "a=4")
	// An origin without resources needs a file that says so.
	r.write("c.yaml", "type_url: "+string(cds)+"\n")
	holds(t, wild)
}

// A file that cannot be read keeps its last valid content and is reported once. It counts again
// once it is repaired. Other files are not affected.
func TestP80_BrokenAndMended(t *testing.T) {
	r := newDirectoryOrigin(t, t.TempDir())
	r.write("a.yaml", clustersFile("1", "a=1"))
	r.write("b.yaml", clustersFile("1", "b=1"))
	r.run()
	wild, _ := r.key(all(cds))
	byName, _ := r.key(named(cds, "a"))
	holds(t, wild, "a=1", "b=1")
	holds(t, byName, "a=1")

	at := 0
	for _, c := range []struct{ text, place, says string }{
		{clustersFile("2", "a=2") + "  nonsense: 1\n", "a.yaml", "line 4"},
		{strings.Replace(clustersFile("2", "a=2"), "alt_stat_name", "alt_stat_nam", 1), "a.yaml", `resources[0]: unknown field`},
		{"", "a.yaml", "neither type_url nor resources"},
		{clustersFile("2", "a=2", "a=3"), "a.yaml", "duplicate resource name"},
		{strings.Replace(clustersFile("2", "a=2"), "type_url: "+clusterURL, "type_url: some/thing", 1), "a.yaml", "another type"},
	} {
		r.write("a.yaml", c.text)
		at = r.log.Until(t, at, "rejected", c.place, c.says, "level=WARN", "origin=files")
		// Changes of the other file are still followed, and show when the broken one was read.
		b := fmt.Sprintf("b=%d", at)
		r.write("b.yaml", clustersFile("2", b))
		holds(t, wild, "a=1", b)
	}
	if n := r.log.Count("another type"); n != 1 {
		t.Errorf("one fault was reported %d times", n)
	}
	if len(removedEver(wild))+len(removedEver(byName)) > 0 {
		t.Error("something was removed")
	}
	r.write("a.yaml", clustersFile("3", "a=3"))
	r.log.Until(t, at, "readable again", "a.yaml")
	holds(t, byName, "a=3")

	// A file that was never valid has no content to keep, and does not affect others.
	r.write("c.json", "{")
	r.log.Until(t, at, "rejected", "c.json")
	must(t, os.Symlink("nowhere", r.path("d.yaml")))
	r.log.Until(t, at, "rejected", "d.yaml")
	must(t, syscall.Mkfifo(r.path("e.yaml"), 0o644))
	r.log.Until(t, at, "rejected", "e.yaml", "not a regular file")
	r.write("a.yaml", clustersFile("4", "a=4"))
	holds(t, byName, "a=4")
}

// If a name is in two files, the first file keeps it. The other file keeps its last valid content
// until they agree.
func TestP80_SameNameInTwoFiles(t *testing.T) {
	r := newDirectoryOrigin(t, t.TempDir())
	r.write("b.yaml", clustersFile("1", "x=b", "b=1"))
	r.run()
	wild, _ := r.key(all(cds))
	holds(t, wild, "b=1", "x=b")
	r.write("a.yaml", clustersFile("1", "a=1"))
	holds(t, wild, "a=1", "b=1", "x=b")

	r.write("a.yaml", clustersFile("2", "a=2", "x=a")) // conflicts with b.yaml, though earlier by name
	at := r.log.Until(t, 0, "rejected", "a.yaml", "duplicate resource name", "b.yaml")
	r.write("b.yaml", clustersFile("2", "x=b", "b=2"))
	holds(t, wild, "a=1", "b=2", "x=b")
	r.write("b.yaml", clustersFile("3", "b=3")) // drops x: no fault any more
	holds(t, wild, "a=2", "b=3", "x=a")
	r.log.Until(t, at, "readable again", "a.yaml")
	r.write("b.yaml", clustersFile("3", "b=3", "x=b"))
	r.log.Until(t, at, "rejected", "b.yaml", "duplicate resource name", "a.yaml")
	must(t, os.Remove(r.path("a.yaml")))
	holds(t, wild, "b=3", "x=b")
	if slices.Contains(removedEver(wild), "x") {
		t.Error("x was gone in between")
	}
}

// A key receives the content of several types in the order of types. Types without a file are
// answered too: empty, with names as absent.
func TestP80_Types(t *testing.T) {
	r := newDirectoryOrigin(t, t.TempDir())
	r.write("eds.json", `{"resources":[{"@type":"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment","cluster_name":"a"}]}`)
	r.write("cds.yaml", clustersFile("7", "a"))
	r.run()
	sink, _ := r.key(named(rds, "r"), named(eds, "a", "b"), all(xds.ListenerType), all(cds))
	sink.Until(t, "all types", func() bool {
		return sink.Presence(rds, "r") == snapshot.Absent && sink.Presence(eds, "a") == snapshot.Present && sink.Presence(eds, "b") == snapshot.Absent &&
			sink.Snapshots[xds.ListenerType] != nil && sink.Snapshots[xds.ListenerType].Answered && sink.Snapshots[cds].Len() == 1
	})
	sink.Mu.Lock()
	defer sink.Mu.Unlock()
	var order []xds.TypeURL
	for _, u := range sink.Updates {
		order = append(order, u.Type)
		if u.Origin != "files" || u.Received.IsZero() {
			t.Errorf("%+v", u)
		}
	}
	if !slices.Equal(order, []xds.TypeURL{cds, eds, xds.ListenerType, rds}) {
		t.Errorf("in the order %v", order)
	}
	if v := sink.Snapshots[cds].Version; v != "7" {
		t.Errorf("version %s", v)
	}
}

// The origin's version of a type is that of the only file with the type.
func TestP61_VersionsOfFiles(t *testing.T) {
	r := newDirectoryOrigin(t, t.TempDir())
	r.write("a.yaml", clustersFile("7", "a"))
	r.write("b.yaml", clustersFile("8", "b"))
	r.run()
	both, _ := r.key(all(cds))
	holds(t, both, "a", "b")
	must(t, os.Remove(r.path("b.yaml")))
	holds(t, both, "a")
	r.write("a.yaml", clustersFile("9", "a")) // a new version of the same content
	both.Until(t, "version 9", func() bool { return both.Snapshots[cds].Version == "9" })
	r.write("a.yaml", clustersFile("", "a")) // no version
	both.Until(t, "the content's version", func() bool { return both.Snapshots[cds].Version != "9" && both.Snapshots[cds].OriginVersion() == "" })
	both.Mu.Lock()
	defer both.Mu.Unlock()
	if v := both.Updates[0].Version; v != "" {
		t.Errorf("two files together have the version %s", v)
	}
	if last := both.Updates[len(both.Updates)-1]; len(last.Changed)+len(last.Removed) > 0 {
		t.Errorf("only the version changed, yet %+v", last)
	}
}

// Interest changes. While it is empty the stream is closed.
func TestP80_InterestChanges(t *testing.T) {
	r := newDirectoryOrigin(t, t.TempDir())
	r.write("c.yaml", clustersFile("1", "a", "b"))
	r.run()
	sink, s := r.key(named(cds, "a"))
	holds(t, sink, "a")
	s.SetInterest(sink.Want(named(cds, "a", "b", "x")))
	holds(t, sink, "a", "b")
	absent(t, sink, "x")
	s.SetInterest(sink.Want(named(cds, "b")))
	s.SetInterest(sink.Want(named(cds, "b", "a"))) // forgotten in between
	holds(t, sink, "a", "b")
	s.SetInterest(sink.Want(all(cds)))
	sink.Until(t, "the wildcard's answer", func() bool { return sink.Snapshots[cds].Answered })
	holds(t, sink, "a", "b")
	s.SetInterest(sink.Want())
	sink.Until(t, "the end", func() bool { return !sink.lastStatus().Connected && sink.lastStatus().Err == nil })
	r.write("c.yaml", clustersFile("2", "c"))
	s.SetInterest(sink.Want(all(cds)))
	holds(t, sink, "c")
}

// There is one watch whatever the number of keys. Files that the origin does not serve are ignored.
func TestP80_OneWatchForAllKeys(t *testing.T) {
	watches := func() (n int) {
		fds, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		for _, fd := range fds {
			if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.Contains(to, "inotify") {
				n++
			}
		}
		return n
	}
	before := watches()
	r := newDirectoryOrigin(t, t.TempDir())
	must(t, os.Mkdir(r.path("dir.yaml"), 0o755))
	r.write("README", "no response")
	r.write(".hidden.yaml", clustersFile("1", "hidden"))
	r.write("c.yaml~", clustersFile("1", "backup"))
	r.write("c.yaml", clustersFile("1", "a=1"))
	r.run()
	var sinks []*testSink
	for range 5 {
		s, _ := r.key(all(cds))
		sinks = append(sinks, s)
	}
	for _, s := range sinks {
		holds(t, s, "a=1")
	}
	if n := watches() - before; n != 1 {
		t.Errorf("%d watches", n)
	}
	r.write("c.yaml", clustersFile("1", "a=2"))
	for _, s := range sinks {
		holds(t, s, "a=2")
	}
	// All keys share one copy of the resource.
	for _, s := range sinks[1:] {
		if s.Newest(cds).Resource("a") != sinks[0].Newest(cds).Resource("a") {
			t.Error("keys have copies of their own")
		}
	}
	if r.log.Count("rejected") > 0 {
		t.Error(&r.log)
	}
}

// New reports an invalid address.
func TestP80_Addresses(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o644))
	m, err := telemetry.New(telemetry.Options{})
	must(t, err)
	for path, ok := range map[string]bool{
		"//" + dir: true, dir: true, "//" + dir + "/missing": true, "//" + dir + "/": true,
		"relative": false, "//host/dir": false, "": false, "//" + dir + "/file": false,
	} {
		_, err := New(Options{Name: "files", Path: path, Log: slog.New(slog.DiscardHandler), Metrics: m, Origin: m.Origin("files")})
		if (err == nil) != ok {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// An error of the group ends its own stream only.
func TestP80_ErrorOfTheGroup(t *testing.T) {
	r := newDirectoryOrigin(t, t.TempDir())
	r.write("c.yaml", clustersFile("1", "a=1"))
	r.run()
	other, _ := r.key(all(cds))
	s := r.newStream()
	s.sink.Fail = io.ErrClosedPipe
	s.SetInterest(s.sink.Want(all(cds)))
	if err := s.run(r.ctx); err == nil || !strings.Contains(err.Error(), io.ErrClosedPipe.Error()) {
		t.Errorf("run: %v", err)
	}
	r.write("c.yaml", clustersFile("1", "a=2"))
	holds(t, other, "a=2")
}
