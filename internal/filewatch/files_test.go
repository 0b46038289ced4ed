package filewatch

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// rig follows a file through the links of a Kubernetes mount, and one beside it.
type rig struct {
	t     *testing.T
	dir   string
	paths atomic.Pointer[[]string]
	told  chan struct{}
	files *Files
}

func (r *rig) in(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) write(name, text string) {
	r.t.Helper()
	must(r.t, os.WriteFile(r.in(name), []byte(text), 0o600))
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, dir: t.TempDir(), told: make(chan struct{}, 100)}
	must(t, os.Mkdir(r.in("..v1"), 0o700))
	must(t, os.Symlink("..v1", r.in("..data")))
	must(t, os.Symlink("..data/mounted", r.in("mounted")))
	r.write("..v1/mounted", "1")
	r.write("plain", "1")
	r.paths.Store(&[]string{r.in("mounted"), r.in("plain")})
	r.files = New(func() []string { return *r.paths.Load() }, func() { r.told <- struct{}{} }, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.files.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	r.changed("the beginning")
	return r
}

// changed waits for one change: long before files are looked at without an event.
func (r *rig) changed(what string) {
	r.t.Helper()
	select {
	case <-r.told:
	case <-time.After(lookEvery / 2):
		r.t.Fatalf("%s is not noticed", what)
	}
}

// A change is noticed however it is made, once each.
func TestChanges(t *testing.T) {
	r := newRig(t)
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
		{"that it is gone", func() { must(t, os.Remove(r.in("plain"))) }},
		{"that it is back", func() { r.write("plain", "3") }},
		{"several at once", func() { r.write("plain", "4"); r.write("..v2/mounted", "4") }},
		{"another file", func() {
			r.write("later", "x")
			r.paths.Store(&[]string{r.in("later")})
			r.files.Look()
		}},
		{"a write to it", func() { r.write("later", "y") }},
	} {
		step.do()
		r.changed(step.what)
	}
	// What is beside it is nothing.
	r.write("beside", "1")
	r.write("plain", "5")
	r.write("..v2/mounted", "5")
	r.files.Look()
	r.write("later", "z")
	r.changed("the last write")
	if n := len(r.told); n > 0 {
		t.Errorf("%d more are told", n)
	}
}

// A directory that is not there yet is watched once it is, at the latest when the
// files are looked at again.
func TestDirectoryComesLater(t *testing.T) {
	r := newRig(t)
	r.paths.Store(&[]string{r.in("dir/file")})
	r.files.Look()
	r.changed("that there is nothing")
	must(t, os.Mkdir(r.in("dir"), 0o700))
	r.write("dir/file", "1")
	r.files.Look()
	r.changed("the file")
	r.write("dir/file", "2")
	r.changed("a write to it")
}
