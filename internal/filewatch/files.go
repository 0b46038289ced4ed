package filewatch

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// rest is how long files have to stay as they are before they are said to have
	// changed: one that is written in place is not whole before, and several are
	// often replaced together.
	rest = 200 * time.Millisecond
	// restAtMost is for files that never are at rest.
	restAtMost = 10 * rest
	// lookEvery is how often they are looked at without an event.
	lookEvery = 10 * time.Second
)

// Files are followed.
type Files struct {
	paths   func() []string
	changed func()
	log     *slog.Logger
	look    chan struct{} // one slot

	// Run's.
	seen    map[string]os.FileInfo // as changed was told last; nil for one that is not there
	watcher *fsnotify.Watcher      // nil: there is none
	dirs    map[string]os.FileInfo // that are watched
	steps   map[string]bool        // paths at which an event counts
	failed  string                 // why something is not, as was logged last
}

// New makes Files of what paths returns each time, of which changed is told. It is
// told once at the beginning as well: nobody knows what happened before.
func New(paths func() []string, changed func(), log *slog.Logger) *Files {
	return &Files{paths: paths, changed: changed, log: log, look: make(chan struct{}, 1)}
}

// Look has Run look at once, as when paths returns others.
func (f *Files) Look() {
	select {
	case f.look <- struct{}{}:
	default:
	}
}

// Run follows until ctx ends.
func (f *Files) Run(ctx context.Context) error {
	defer func() {
		if f.watcher != nil {
			_ = f.watcher.Close()
		}
	}()
	for {
		f.watch() // before they are looked at: what comes after is an event
		if now := f.stat(); f.seen == nil || !same(now, f.seen) {
			if now = f.settle(ctx, now); now == nil {
				return nil
			}
			f.seen = now
			f.changed()
		}
		if !f.wait(ctx) {
			return nil
		}
	}
}

// settle returns the files once they are at rest; nil if ctx ended.
func (f *Files) settle(ctx context.Context, now map[string]os.FileInfo) map[string]os.FileInfo {
	if f.seen == nil {
		return now // nothing is known to be written
	}
	tick := time.NewTicker(rest)
	defer tick.Stop()
	for range restAtMost / rest {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		was := now
		if now = f.stat(); same(was, now) {
			break
		}
	}
	return now
}

// wait returns when it is time to look; false if ctx ended.
func (f *Files) wait(ctx context.Context) bool {
	var events chan fsnotify.Event
	var errs chan error
	if f.watcher != nil {
		events, errs = f.watcher.Events, f.watcher.Errors
	}
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
		case <-f.look:
		case e, ok := <-events:
			if ok && !f.steps[filepath.Clean(e.Name)] {
				continue // beside the files
			}
			if !ok {
				f.watcher, f.dirs = nil, nil
			}
		case <-errs: // of an overflow nobody knows what happened
		}
		return true
	}
}

// stat looks at the files. Symlinks are followed.
func (f *Files) stat() map[string]os.FileInfo {
	out := make(map[string]os.FileInfo)
	for _, path := range f.paths() {
		out[path], _ = os.Stat(path) // nil: not there
	}
	return out
}

func same(a, b map[string]os.FileInfo) bool {
	return maps.EqualFunc(a, b, func(x, y os.FileInfo) bool {
		if x == nil || y == nil {
			return x == y
		}
		return os.SameFile(x, y) && x.Size() == y.Size() && x.ModTime().Equal(y.ModTime())
	})
}

// watch makes the watches those of what is there now.
func (f *Files) watch() {
	if f.watcher == nil {
		var err error
		if f.watcher, err = fsnotify.NewWatcher(); err != nil {
			f.watcher = nil
			f.cannot(fmt.Errorf("watch files: %w", err))
			return
		}
		f.dirs = make(map[string]os.FileInfo)
	}
	want := make(map[string]bool)
	f.steps = make(map[string]bool)
	for _, path := range f.paths() {
		for _, step := range Trail(path) {
			dir := filepath.Dir(step)
			want[dir], f.steps[dir], f.steps[filepath.Clean(step)] = true, true, true
		}
	}
	for dir := range f.dirs {
		if !want[dir] {
			_ = f.watcher.Remove(dir) // if it is still there
			delete(f.dirs, dir)
		}
	}
	var failed error
	for _, dir := range slices.Sorted(maps.Keys(want)) {
		if err := f.add(dir); err != nil && failed == nil {
			failed = err
		}
	}
	f.cannot(failed)
}

// add watches a directory, unless it does already.
func (f *Files) add(dir string) error {
	is, err := os.Stat(dir)
	if err == nil {
		if was := f.dirs[dir]; was != nil && os.SameFile(was, is) {
			return nil
		}
		_ = f.watcher.Remove(dir) // the old one, if it is still there
		err = f.watcher.Add(dir)
	}
	if err != nil {
		delete(f.dirs, dir)
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	f.dirs[dir] = is
	return nil
}

// cannot says, once, that a change will be seen late.
func (f *Files) cannot(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != f.failed && err != nil {
		f.log.Warn("a change of files may be noticed late", "every", lookEvery.String(), "error", err)
	}
	f.failed = text
}
