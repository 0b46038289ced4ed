package filewatch

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// Quiet is how long no event may come before the files are looked at: a file that is
	// written in place is not complete before, and several files are often replaced together.
	Quiet = 200 * time.Millisecond
	// quietAtMost bounds the wait for Quiet if events never stop.
	quietAtMost = 10 * Quiet
	// pollEvery is how often the files are looked at without an event.
	pollEvery = 10 * time.Second
)

// Run calls changed at once, and then after each change of a file of paths(): another file, size,
// modification time, permissions, or what else State compares. A path may be a directory: its
// modification time changes with the names in it. If changed returns false, it could not use the
// files, and Run calls it again each time that it polls: the cause may be outside of the files. Run
// calls changed on its own goroutine. It returns nil when ctx ends.
func Run(ctx context.Context, log *slog.Logger, paths func() []string, changed func() (ok bool)) error {
	return run(ctx, pollEvery, log, paths, changed)
}

func run(ctx context.Context, pollEvery time.Duration, log *slog.Logger, paths func() []string, changed func() (ok bool)) error {
	w := watcher{log: log}
	defer w.close()
	poll := time.Tick(pollEvery)

	var seen State
	var quiet <-chan time.Time // nil: no event since the last look
	var first time.Time        // the first event since then
	settled := false           // quiet is over
	ok, retry := true, false   // changed has to be called again
	for {
		if quiet == nil {
			w.watch(paths()) // before the look: what comes later is an event
			now := Look(paths())
			switch same := seen != nil && now.Equal(seen); {
			case seen == nil || !same && settled || same && retry:
				seen, settled, retry = now, false, false
				ok = changed()
				continue // the call may have changed paths()
			case !same: // found without an event: a file may be incomplete
				quiet, first = time.After(Quiet), time.Now()
			}
			settled = false
		}
		select {
		case <-ctx.Done():
			return nil
		case <-poll: // while events come, the files may be incomplete
			retry = !ok
		case <-quiet:
			quiet, settled = nil, true
		case <-w.errors(): // an overflow of events, for example
			quiet, first = time.After(Quiet), time.Now()
		case <-w.events():
			if quiet == nil {
				first = time.Now()
			}
			quiet = time.After(min(Quiet, time.Until(first.Add(quietAtMost))))
		}
	}
}

// watcher watches the directories of some paths.
type watcher struct {
	log    *slog.Logger
	fs     *fsnotify.Watcher // nil: nothing is watched, and only the poll finds changes
	dirs   map[string]bool   // that fs watches
	logged string            // the last error
}

func (w *watcher) watch(paths []string) {
	dirs := make(map[string]bool)
	for _, path := range paths {
		for _, step := range trail(path) {
			dirs[filepath.Dir(step)] = true
			if is, err := os.Lstat(step); err == nil && is.IsDir() {
				dirs[step] = true
			}
		}
	}
	var err error
	if w.fs == nil || !maps.Equal(dirs, w.dirs) {
		// A new watcher, because fsnotify's Remove panics if two watched paths lead to one
		// directory (fsnotify#652).
		w.close()
		w.fs, err = fsnotify.NewWatcher()
		w.dirs = dirs
	}
	if err != nil {
		w.fs = nil
	} else {
		for dir := range dirs {
			// It is added again each time, because another directory may have taken its place.
			if e := w.fs.Add(dir); e != nil && !errors.Is(e, fs.ErrNotExist) {
				err = e
			}
		}
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != w.logged {
		w.log.Warn("cannot watch files; the relay notices changes later", "every", pollEvery.String(), "error", text)
	}
	w.logged = text
}

func (w *watcher) close() {
	if w.fs != nil {
		_ = w.fs.Close() // it always succeeds
		w.fs = nil
	}
}

func (w *watcher) events() chan fsnotify.Event {
	if w.fs == nil {
		return nil
	}
	return w.fs.Events
}

func (w *watcher) errors() chan error {
	if w.fs == nil {
		return nil
	}
	return w.fs.Errors
}

// State is what a look at files found, by path; nil for a file that is not there.
type State map[string]os.FileInfo

// Look looks at files. It follows symlinks.
func Look(paths []string) State {
	out := make(State, len(paths))
	for _, path := range paths {
		out[path], _ = os.Stat(path)
	}
	return out
}

// Equal reports whether two looks found the same files, with the same sizes, times, permissions and
// owners. The time of a file's last change in any way also shows other changes, as of an ACL.
func (s State) Equal(o State) bool {
	return maps.EqualFunc(s, o, func(x, y os.FileInfo) bool {
		if x == nil || y == nil {
			return x == y
		}
		return os.SameFile(x, y) && x.Size() == y.Size() && x.Mode() == y.Mode() && x.ModTime().Equal(y.ModTime()) && inodeOf(x) == inodeOf(y)
	})
}

// maxLinks is how many symlinks a path may lead through, as in Linux.
const maxLinks = 40

// trail returns the symlinks that a path leads through, and then the file or directory that it
// leads to. No returned path has a symlink above its last element.
func trail(path string) []string {
	var out []string
	for range maxLinks {
		link, target := firstLink(path)
		if link == "" {
			return append(out, path)
		}
		out = append(out, link)
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(link), target)
		}
		path = filepath.Join(target, path[len(link):])
	}
	return out
}

// firstLink returns the first symlink in a path, and what it contains.
func firstLink(path string) (link, target string) {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != filepath.Separator {
			continue
		}
		if target, err := os.Readlink(path[:i]); err == nil {
			return path[:i], target
		}
	}
	return "", ""
}
