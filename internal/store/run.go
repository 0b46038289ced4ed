package store

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

const (
	// touchEvery is how often Run sets the modification times of confirmed files.
	touchEvery = time.Hour
	// writeAtEnd is how long Run may write after ctx has ended.
	writeAtEnd = 5 * time.Second
	// bytesPerSecond is what Run writes on average, because one changed resource makes it write the
	// whole type. maxPause bounds the changes that are lost by a crash because of that.
	bytesPerSecond = 256 << 10
	maxPause       = time.Minute
)

// Run writes what Put queued until ctx ends. Then it writes the rest, until that takes too long or
// abort ends. It unlocks the directory when it returns. all yields the generations that belong into
// the store: Run confirms their files, and writes all of them after the store was off.
func (s *Store) Run(ctx, abort context.Context, all func() iter.Seq[Entry]) error {
	every := touchEvery
	if s.o.MaxAge > 0 {
		every = min(every, s.o.MaxAge/4)
	}
	touch := time.Now().Add(every)
	for ctx.Err() == nil {
		if s.isOff() {
			if sleep(ctx, retryEvery) {
				s.reopen(all)
			}
			continue
		}
		began := time.Now()
		s.setAside()
		wrote := s.writeAll(ctx)
		if !time.Now().Before(touch) {
			s.touchAll(ctx, all())
			touch = time.Now().Add(every)
		}
		if wrote && !sleep(ctx, time.Until(began.Add(s.pause()))) {
			break
		}
		s.await(ctx, time.Until(touch))
	}
	s.finish(abort)
	if err := s.Close(); err != nil { // the drain of the streams goes on
		s.o.Log.Warn("store: cannot close the directory", "path", s.o.Path, "error", err)
	}
	return nil
}

// pause returns the least time between the begins of the last pass that wrote and the next one.
func (s *Store) pause() time.Duration {
	seconds := s.wroteBytes / bytesPerSecond
	s.wroteBytes = 0
	return max(s.o.Interval, min(time.Duration(seconds)*time.Second, maxPause))
}

// sleep waits for d; false: ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(max(d, 0)):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// await waits until there is something to do, at most for d.
func (s *Store) await(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(max(d, 0)):
	case <-s.wake:
	case <-ctx.Done():
	}
}

func (s *Store) reopen(all func() iter.Seq[Entry]) {
	if err := s.open(); err != nil {
		s.failed(err)
		return
	}
	for g := range all() { // the directory may have been replaced
		s.Put(g.Key, g.Type, g.Snapshot)
	}
}

// finish writes what is left.
func (s *Store) finish(abort context.Context) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(abort, writeAtEnd)
	defer cancel()
	s.writeAll(ctx)
	s.mu.Lock()
	left := len(s.queue)
	s.clearQueue()
	s.mu.Unlock()
	if left > 0 {
		for range left {
			s.o.Metrics.Wrote(telemetry.GivenUp)
		}
		s.o.Log.Warn("store: some changes are not written because the relay ends", "types_of_keys", left)
	}
}

// writeAll writes what is in the queue, until ctx ends or the store is off. It reports
// whether the queue had anything.
func (s *Store) writeAll(ctx context.Context) bool {
	s.mu.Lock()
	n := len(s.queue)
	s.mu.Unlock()
	for range n {
		if ctx.Err() != nil || s.isOff() {
			break
		}
		s.writeNext()
	}
	return n > 0
}

// clearQueue empties the queue. The caller holds mu.
func (s *Store) clearQueue() {
	s.queue = nil
	clear(s.waiting)
	s.showQueue()
}

// writeNext writes the first element of the queue.
func (s *Store) writeNext() {
	s.mu.Lock()
	if len(s.queue) == 0 { // the store was switched off
		s.mu.Unlock()
		return
	}
	at := s.queue[0]
	snapshot := s.waiting[at].snapshot
	s.queue = s.queue[1:]
	delete(s.waiting, at)
	s.showQueue()
	s.mu.Unlock()
	result, err := s.write(at, snapshot)
	if err != nil {
		s.failed(err)
		return
	}
	s.o.Metrics.Wrote(result)
}

// write replaces the file of a slot.
func (s *Store) write(at slot, snapshot *snapshot.Snapshot) (telemetry.Stored, error) {
	left, kept := map[telemetry.Unstorable]int{}, 0
	skip := func(r *xds.Resource) bool {
		switch {
		case xds.TypeOf(r.TypeURL()).Secret:
			left[telemetry.StoreSecret]++
		case r.Storable():
			kept++
			return false
		case r.Uncacheable:
			left[telemetry.StoreUncached]++
		default:
			left[telemetry.StoreTimed]++
		}
		return true
	}
	path, now := filepath.Join(s.o.Path, at.name()), time.Now()
	var size int64
	err := s.disk("write", path, func(step func()) error {
		f, err := renameio.NewPendingFile(path, renameio.WithTempDir(s.o.Path), renameio.WithStaticPermissions(0o600))
		if err != nil {
			return err
		}
		defer func() { _ = f.Cleanup() }() // does nothing once the file is in place
		if size, err = encode(stepper{f, step}, at, snapshot, s.o.MaxBytes, skip); err != nil {
			return err
		}
		step()
		if kept == 0 && !snapshot.Answered {
			size = 0
			return removed(path)
		}
		if err := s.makeRoom(at.name(), size); err != nil {
			return err
		}
		if err := os.Chtimes(f.Name(), time.Time{}, now); err != nil {
			return err
		}
		if err := f.CloseAtomicallyReplace(); err != nil {
			return err
		}
		step()
		return syncDir(s.o.Path)
	})
	switch {
	case errors.Is(err, errTooLarge):
		s.o.Log.Warn("store: type not stored: it is larger than store.max_bytes", "key", at.key, "type", at.typ)
		return telemetry.TooBig, nil
	case err != nil:
		return "", err
	}
	for u, n := range left {
		s.o.Metrics.LeftOut(u, n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir == nil {
		return telemetry.Written, nil
	}
	if size == 0 {
		s.dir.forget(s.dir.files[at.name()])
		s.showFiles()
		return telemetry.RemovedFromDisk, nil
	}
	s.dir.add(&file{name: at.name(), size: size, confirmed: now})
	s.wroteBytes += size
	s.stats.Written++
	s.showFiles()
	return telemetry.Written, nil
}

// stepper is a writer that reports progress.
type stepper struct {
	w    io.Writer
	step func()
}

func (s stepper) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.step()
	return n, err
}

// makeRoom removes the files that were confirmed longest ago until there is room for the file of
// this name. It runs within an operation on the disk.
func (s *Store) makeRoom(name string, size int64) error {
	for {
		s.mu.Lock()
		d := s.dir
		var f *file
		if d != nil && (s.o.MaxBytes > 0 && d.bytes-d.size(name)+size > s.o.MaxBytes || d.files[name] == nil && len(d.files) >= maxFiles) {
			f = d.oldest(name)
		}
		s.mu.Unlock()
		if f == nil {
			return nil
		}
		if err := removed(filepath.Join(s.o.Path, f.name)); err != nil {
			return err
		}
		s.mu.Lock()
		d.forget(f)
		s.stats.Evicted++
		s.mu.Unlock()
		s.o.Metrics.Evicted.Inc()
		s.o.Log.Warn("store: file removed to make room (store.max_bytes)", "path", filepath.Join(s.o.Path, f.name), "confirmed", f.confirmed)
	}
}

// size returns the size of the file of this name; 0: there is none.
func (d *dir) size(name string) int64 {
	if f := d.files[name]; f != nil {
		return f.size
	}
	return 0
}

func removed(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncDir makes renames and removals survive a loss of power.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// setAside renames damaged files, so that an operator can look at them. They count like
// other files, and are removed to make room.
func (s *Store) setAside() {
	s.mu.Lock()
	found := s.damaged
	s.damaged = nil
	s.mu.Unlock()
	for _, f := range found {
		s.mu.Lock()
		known := s.dir != nil && s.dir.files[f.name] == f // otherwise it was replaced
		s.mu.Unlock()
		if !known {
			continue
		}
		path := filepath.Join(s.o.Path, f.name)
		if err := s.disk("rename", path, func(func()) error { return os.Rename(path, path+damagedSuffix) }); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				s.failed(err)
				return
			}
			continue
		}
		s.mu.Lock()
		if s.dir != nil {
			s.dir.forget(f)
			s.dir.add(&file{name: f.name + damagedSuffix, size: f.size, confirmed: f.confirmed, damaged: true})
			s.showFiles()
		}
		s.stats.Damaged++
		s.mu.Unlock()
		s.o.Metrics.Damaged.Inc()
	}
}

// touchAll sets the modification times of the files that are confirmed.
func (s *Store) touchAll(ctx context.Context, all iter.Seq[Entry]) {
	for g := range all {
		if ctx.Err() != nil {
			return
		}
		at := slot{g.Key, g.Type}
		var f *file
		s.mu.Lock()
		if _, waits := s.waiting[at]; s.dir != nil && !waits && g.Confirmed {
			f = s.dir.files[at.name()]
		}
		s.mu.Unlock()
		if f == nil {
			continue
		}
		now := time.Now()
		path := filepath.Join(s.o.Path, f.name)
		err := s.disk("touch", path, func(func()) error { return os.Chtimes(path, time.Time{}, now) })
		if errors.Is(err, fs.ErrNotExist) {
			continue // evicted
		}
		if err != nil {
			s.failed(err)
			return
		}
		s.mu.Lock()
		if s.dir != nil && s.dir.files[f.name] == f {
			s.dir.add(&file{name: f.name, size: f.size, confirmed: now}) // Load may be reading f
		}
		s.mu.Unlock()
	}
}
