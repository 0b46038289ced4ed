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
)

const (
	// quietFor is how long nothing may happen before a change is read, and
	// quietAtMost how long that may take: several files are often written
	// together, and one in several steps.
	quietFor    = 10 * time.Millisecond
	quietAtMost = 100 * time.Millisecond
	// retryEvery is for a directory that cannot be watched or read.
	retryEvery = time.Second
)

// watch is the inotify watch of a directory and of its parent: the latter tells
// when the directory itself is made, or is a symlink that is swapped. It has
// one owner.
type watch struct {
	dir     string
	watcher *fsnotify.Watcher
	of      fs.FileInfo // the directory that is watched; nil if none is
}

// renew makes the watch one of the directory that is there now.
func (w *watch) renew() error {
	if w.watcher == nil {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			return fmt.Errorf("watch %s: %w", w.dir, err)
		}
		w.watcher, w.of = watcher, nil
		if parent := filepath.Dir(w.dir); parent != w.dir {
			// Without it a directory that is swapped is noticed late, and one whose
			// events go on coming not at all; one below a parent that cannot be
			// watched is nothing to refuse, though.
			_ = watcher.Add(parent)
		}
	}
	is, err := os.Stat(w.dir)
	switch {
	case err != nil:
		w.of = nil
		return err
	case !is.IsDir():
		w.of = nil
		return fmt.Errorf("%s is no directory", w.dir)
	case w.of != nil && os.SameFile(w.of, is):
		return nil
	}
	_ = w.watcher.Remove(w.dir) // the old one, if it is still there
	if err := w.watcher.Add(w.dir); err != nil {
		w.of = nil
		return fmt.Errorf("watch %s: %w", w.dir, err)
	}
	w.of = is
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
	if e.Name == w.dir { // told by the parent, or of the directory itself
		if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
			w.of = nil // the kernel has dropped the watch, or watches what is elsewhere now
		}
		return e.Op != fsnotify.Chmod
	}
	if filepath.Dir(e.Name) != w.dir {
		return false // beside the directory
	}
	// Anything can be the symlink that files go through, but then it is not
	// written to.
	return served(filepath.Base(e.Name)) || e.Op != fsnotify.Write
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
