package filewatch

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// watchedFiles are followed: a file that is reached through the symlinks of a Kubernetes mount, and a plain
// file.
type watchedFiles struct {
	t     *testing.T
	dir   string
	paths atomic.Pointer[[]string]
	calls chan struct{}
}

func (r *watchedFiles) in(name string) string { return filepath.Join(r.dir, name) }

func (r *watchedFiles) write(name, text string) {
	r.t.Helper()
	must(r.t, os.WriteFile(r.in(name), []byte(text), 0o600))
}

func newWatchedFiles(t *testing.T) *watchedFiles {
	r := &watchedFiles{t: t, dir: t.TempDir(), calls: make(chan struct{}, 100)}
	must(t, os.Mkdir(r.in("..v1"), 0o700))
	must(t, os.Symlink("..v1", r.in("..data")))
	must(t, os.Symlink("..data/mounted", r.in("mounted")))
	r.write("..v1/mounted", "1")
	r.write("plain", "1")
	r.paths.Store(&[]string{r.in("mounted"), r.in("plain")})
	xdstest.Run(t, func(ctx context.Context) error {
		return Run(ctx, slog.New(slog.DiscardHandler), func() []string { return *r.paths.Load() }, func() bool { r.calls <- struct{}{}; return true })
	})
	r.changed("the start")
	return r
}

// changed waits for one call. It waits for less time than a poll takes.
func (r *watchedFiles) changed(what string) {
	r.t.Helper()
	select {
	case <-r.calls:
	case <-time.After(pollEvery / 2):
		r.t.Fatalf("no call after %s", what)
	}
}

// There is one call for each change, however it is made.
func TestChanges(t *testing.T) {
	r := newWatchedFiles(t)
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"a write in place", func() { r.write("plain", "2") }},
		{"a rename", func() {
			r.write("new", "2")
			must(t, os.Rename(r.in("new"), r.in("plain")))
		}},
		{"a swap of the symlink", func() {
			must(t, os.Mkdir(r.in("..v2"), 0o700))
			r.write("..v2/mounted", "1")
			must(t, os.Symlink("..v2", r.in("..data_tmp")))
			must(t, os.Rename(r.in("..data_tmp"), r.in("..data")))
		}},
		{"a write behind the symlink", func() { r.write("..v2/mounted", "22") }},
		{"other permissions", func() { must(t, os.Chmod(r.in("plain"), 0o640)) }},
		{"a write that keeps size and time", func() {
			is, err := os.Stat(r.in("plain"))
			must(t, err)
			r.write("plain", "5")
			must(t, os.Chtimes(r.in("plain"), time.Time{}, is.ModTime()))
		}},
		{"another group", func() {
			if os.Geteuid() != 0 {
				r.write("plain", "by a user who may not change it")
				return
			}
			must(t, os.Chown(r.in("plain"), -1, 1))
		}},
		{"a removal", func() { must(t, os.Remove(r.in("plain"))) }},
		{"a return", func() { r.write("plain", "3") }},
		{"two writes", func() { r.write("plain", "4"); r.write("..v2/mounted", "4") }},
		{"another path", func() {
			r.paths.Store(&[]string{r.in("later")})
			r.write("later", "x")
		}},
		{"a write to it", func() { r.write("later", "y") }},
		{"a directory", func() {
			must(t, os.Mkdir(r.in("dir"), 0o700))
			r.paths.Store(&[]string{r.in("dir")})
			r.write("later", "z") // an event, so that the new path is looked at
		}},
		{"a file in it", func() { r.write("dir/file", "1") }},
	} {
		step.do()
		r.changed(step.what)
	}
	r.write("beside", "1")
	r.write("dir/other", "1")
	r.changed("the last write")
	if n := len(r.calls); n > 0 {
		t.Errorf("%d more calls", n)
	}
}

// A callback that could not use the files is called again at each poll, although they do not change.
func TestFailureIsRepeated(t *testing.T) {
	calls := make(chan struct{})
	n := 0
	xdstest.Run(t, func(ctx context.Context) error {
		return run(ctx, time.Millisecond, slog.New(slog.DiscardHandler), func() []string { return []string{"/none"} }, func() bool {
			if n++; n <= 3 {
				calls <- struct{}{}
			}
			if n > 4 {
				t.Error("called again after a success")
			}
			return n > 3
		})
	})
	for range 3 {
		<-calls
	}
	xdstest.Pause(t, 50*time.Millisecond) // many polls
}

// The trail of a path has its symlinks, and what it leads to.
func TestP80_Trail(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	in := func(name string) string { return filepath.Join(base, name) }
	must(t, os.MkdirAll(in("real/dir"), 0o755))
	must(t, os.Symlink("real", in("one")))
	must(t, os.Symlink(in("one"), in("two")))
	must(t, os.Symlink("loop", in("loop")))
	for path, want := range map[string][]string{
		"real/dir/x": {"real/dir/x"},
		"one/dir/x":  {"one", "real/dir/x"},
		"two/dir":    {"two", "one", "real/dir"},
		"none/x":     {"none/x"},
	} {
		for i := range want {
			want[i] = in(want[i])
		}
		if got := trail(in(path)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	if got := trail(in("loop")); len(got) != maxLinks {
		t.Errorf("a loop: %d", len(got))
	}
}

// A symlink to a directory may be swapped, and then not be followed any more: fsnotify's Remove
// would panic (fsnotify#652).
func TestP80_DirectoryIsSwapped(t *testing.T) {
	dir := t.TempDir()
	version := func(v string) {
		must(t, os.Mkdir(filepath.Join(dir, v), 0o700))
		must(t, os.Symlink(v, filepath.Join(dir, "tmp")))
		must(t, os.Rename(filepath.Join(dir, "tmp"), filepath.Join(dir, "current")))
	}
	w := watcher{log: slog.New(slog.DiscardHandler)}
	defer w.close()
	for _, v := range []string{"v1", "v2"} {
		version(v)
		w.watch([]string{filepath.Join(dir, "current")})
		want := []string{dir, filepath.Join(dir, v)}
		if got := slices.Sorted(slices.Values(w.fs.WatchList())); !slices.Equal(got, want) {
			t.Errorf("watches %v, want %v", got, want)
		}
	}
	w.watch(nil)
}
