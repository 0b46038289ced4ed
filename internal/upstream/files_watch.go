package upstream

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"xdsrelay/internal/filewatch"
)

const (
	// quietFor is how long nothing may happen before a change is read, and
	// quietAtMost how long that may take: several files are often written
	// together.
	quietFor    = 10 * time.Millisecond
	quietAtMost = 100 * time.Millisecond
	// writtenFor is how long a file that is written in place may not have been
	// written to: what is there of it before may be valid, and would remove the
	// rest. No event tells that the writer is done; a rename needs none.
	writtenFor = 300 * time.Millisecond
	// retryEvery is for a directory that cannot be watched or read.
	retryEvery = time.Second
)

// watch is the inotify watch of a directory, and of those through which it and
// its files are reached: where a symlink on the way can be swapped, and where a
// file is to which one leads. It has one owner.
type watch struct {
	dir     string
	watcher *fsnotify.Watcher
	real    string                 // the directory without symlinks; "" if there is none
	dirs    map[string]fs.FileInfo // that are watched, by their paths without symlinks
	leads   map[string]string      // paths on such a way -> the file's name, "" for the directory
	written map[string]time.Time   // when files were written to in place last, by name
}

// renew makes the watch one of what is there now.
func (w *watch) renew() error {
	if w.watcher == nil {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			return fmt.Errorf("watch %s: %w", w.dir, err)
		}
		w.watcher, w.dirs, w.written = watcher, make(map[string]fs.FileInfo), make(map[string]time.Time)
	}
	err := w.resolve()
	want := make(map[string]bool)
	if w.real != "" {
		want[w.real] = true
	}
	for path := range w.leads {
		want[filepath.Dir(path)] = true
	}
	for dir := range w.dirs {
		if !want[dir] {
			_ = w.watcher.Remove(dir) // if it is still there
			delete(w.dirs, dir)
		}
	}
	for dir := range want {
		// One beside the directory that cannot be watched is nothing to refuse: a
		// swap there is noticed late, or not at all.
		if failed := w.add(dir); failed != nil && dir == w.real {
			err = failed
		}
	}
	return err
}

// resolve finds the way to the directory and to its files.
func (w *watch) resolve() error {
	w.real, w.leads = "", make(map[string]string)
	for _, path := range filewatch.Trail(w.dir) {
		w.leads[path] = ""
	}
	is, err := os.Stat(w.dir)
	switch {
	case err != nil:
		return err
	case !is.IsDir():
		return fmt.Errorf("%s is no directory", w.dir)
	}
	if w.real, err = filepath.EvalSymlinks(w.dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(w.real)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 || !served(e.Name()) {
			continue
		}
		for _, path := range filewatch.Trail(filepath.Join(w.real, e.Name())) {
			if filepath.Dir(path) != w.real {
				w.leads[path] = e.Name()
			}
		}
	}
	return nil
}

// add watches a directory, unless it does already.
func (w *watch) add(dir string) error {
	is, err := os.Stat(dir)
	if err != nil {
		delete(w.dirs, dir)
		return err
	}
	if was := w.dirs[dir]; was != nil && os.SameFile(was, is) {
		return nil
	}
	_ = w.watcher.Remove(dir) // the old one, if it is still there
	if err := w.watcher.Add(dir); err != nil {
		delete(w.dirs, dir)
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	w.dirs[dir] = is
	return nil
}

func (w *watch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close()
		w.watcher = nil
	}
}

// concerns reports whether an event can have changed what the files say.
func (w *watch) concerns(e fsnotify.Event) bool {
	if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
		delete(w.dirs, e.Name) // the kernel has dropped the watch, or watches what is elsewhere now
	}
	if name, leads := w.leads[e.Name]; leads {
		w.note(name, e)
		return e.Op != fsnotify.Chmod
	}
	if filepath.Dir(e.Name) != w.real {
		return false // beside the directory
	}
	// Anything can be the symlink that files go through, but then it is not
	// written to.
	name := filepath.Base(e.Name)
	if !served(name) {
		return e.Op != fsnotify.Write
	}
	w.note(name, e)
	return true
}

// note keeps when a file was written to in place.
func (w *watch) note(name string, e fsnotify.Event) {
	switch {
	case e.Has(fsnotify.Write):
		w.written[name] = time.Now()
	case e.Has(fsnotify.Create), e.Has(fsnotify.Remove), e.Has(fsnotify.Rename):
		delete(w.written, name) // it is another file
	}
}

// writing reports whether a file may not be whole yet.
func (w *watch) writing(name string) bool {
	at, is := w.written[name]
	if is && time.Since(at) >= writtenFor {
		delete(w.written, name)
		return false
	}
	return is
}

// whole is how long it takes until all files may be whole, if nothing happens.
func (w *watch) whole() time.Duration {
	left := quietFor
	for _, at := range w.written {
		left = max(left, time.Until(at.Add(writtenFor)))
	}
	return left
}

// served reports whether a file of this name is the origin's.
func served(name string) bool {
	return !strings.HasPrefix(name, ".") && decoders[filepath.Ext(name)] != nil
}

// wait returns once something has happened that may have changed the files and
// is over, or after d, if that is not 0. It returns false if ctx ended.
func (w *watch) wait(ctx context.Context, d time.Duration) bool {
	var late, quiet, enough <-chan time.Time
	if d > 0 {
		late = time.After(d)
	}
	var events chan fsnotify.Event
	var errs chan error
	if w.watcher != nil {
		events, errs = w.watcher.Events, w.watcher.Errors
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-late:
			return true
		case <-quiet:
			return true
		case <-enough:
			return true
		case e, ok := <-events:
			if !ok {
				w.close()
				return true
			}
			if !w.concerns(e) {
				continue
			}
		case err := <-errs:
			// After an overflow nobody knows what happened; other errors leave the
			// watch in doubt, and it is made anew.
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				w.close()
				return true
			}
		}
		quiet = time.After(quietFor)
		if enough == nil {
			enough = time.After(quietAtMost)
		}
	}
}
