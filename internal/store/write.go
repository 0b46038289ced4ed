package store

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"xdsrelay/internal/telemetry"
)

// store has a record take the place of the file; nil: the file goes. dirty says
// that it may be new; else it is to be confirmed, for which it is written if it is
// another than the file's all the same: who has less to say than before, or says it in
// the name of another version, says that of what is good. It reports whether there was
// anything to do on the disk: else nothing is known of that.
func (s *Store) store(it *item, rec *Record, dirty bool, enough func() error) (used bool, err error) {
	name := it.file
	s.mu.Lock()
	f := s.index[name]
	if rec != nil {
		if at := s.when(f, rec.Confirmed); !at.Equal(rec.Confirmed) {
			own := *rec
			own.Confirmed = at
			rec = &own
		}
	}
	s.mu.Unlock()
	switch {
	case !dirty && (rec == nil || f == nil): // nothing to confirm, or it went for want of room
		return false, nil
	case rec == nil && (f == nil || f.state == foreign):
		return false, nil
	case rec == nil:
		if err := s.remove(f); err != nil {
			return true, err
		}
		s.o.Metrics.Wrote(telemetry.GoneFromDisk)
		return true, s.syncDir()
	}
	h := newHeader(rec)
	if f != nil && f.state == whole && f.sum == h.sum && s.there(f) {
		s.mu.Lock()
		s.confirm(f, rec.Confirmed)
		s.mu.Unlock()
		if dirty {
			s.o.Metrics.Wrote(telemetry.SameAsWrote)
		}
		return false, nil
	}
	if s.o.MaxBytes > 0 && h.size+leastConfirmed > s.o.MaxBytes {
		s.o.Metrics.Wrote(telemetry.TooBig)
		if !it.tooLarge {
			it.tooLarge = true
			s.o.Log.Warn("store: a record is larger than store.max_bytes and is not stored", "key", it.key, "type", it.typ, "bytes", h.size)
		}
		return false, nil
	}
	if err := s.replace(name, h.size, func(w io.Writer) error { return encode(w, h, rec, enough) }); err != nil {
		return true, err
	}
	s.mu.Lock()
	if f = s.index[name]; f != nil { // the one that was replaced
		s.forget(f)
	}
	made := &file{name: name, size: h.size, id: h.id, sum: h.sum, confirmed: h.confirmed.Round(0), wrote: time.Now()}
	s.add(made)
	s.stats.Written++
	s.show()
	s.mu.Unlock()
	s.o.Metrics.Wrote(telemetry.Written)
	if err := s.syncDir(); err != nil {
		s.mu.Lock()
		clear(made.sum[:]) // so that it is written again
		s.mu.Unlock()
		return true, err
	}
	return true, nil
}

// there reports whether a file is still in the directory as it was written.
func (s *Store) there(f *file) bool {
	is, err := os.Lstat(filepath.Join(s.o.Path, f.name))
	return err == nil && is.Mode().IsRegular() && is.Size() == f.size
}

// show has the metrics show the index. mu is held.
func (s *Store) show() {
	s.o.Metrics.Files.Set(len(s.index))
	s.o.Metrics.Bytes.Set(int(s.total()))
}

// total is the size of all files. mu is held.
func (s *Store) total() int64 { return s.bytes + s.spare + s.journal }

// replace writes a file of this size beside the one of that name, and has it take
// its place when it is on the disk and there is room for it. The caller syncs the
// directory.
func (s *Store) replace(name string, size int64, fill func(io.Writer) error) (err error) {
	path := filepath.Join(s.o.Path, name)
	if err := s.hook("create", path); err != nil {
		return err
	}
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(s.o.Path), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Cleanup())
		}
	}()
	if err := fill(hooked{s, path, f, nil}); err != nil {
		return err
	}
	// A disk may say only now that it is full.
	if err := errors.Join(s.hook("sync", path), f.Sync()); err != nil {
		return err
	}
	if err := s.room(size, name); err != nil {
		return err
	}
	if err := s.hook("rename", path); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// syncDir has what was renamed and removed survive a loss of power.
func (s *Store) syncDir() error {
	if err := s.hook("syncdir", s.o.Path); err != nil {
		return err
	}
	d, err := os.Open(s.o.Path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// remove takes a file away.
func (s *Store) remove(f *file) error {
	path := filepath.Join(s.o.Path, f.name)
	if err := s.hook("remove", path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.mu.Lock()
	s.forget(f)
	s.show()
	s.mu.Unlock()
	return nil
}

// hooked is a file that tests can let fail.
type hooked struct {
	s    *Store
	path string
	w    io.Writer
	r    io.Reader
}

func (h hooked) Write(p []byte) (int, error) {
	if err := h.s.hook("write", h.path); err != nil {
		return 0, err
	}
	return h.w.Write(p)
}

func (h hooked) Read(p []byte) (int, error) {
	if err := h.s.hook("read", h.path); err != nil {
		return 0, err
	}
	return h.r.Read(p)
}

func (s *Store) reading(f *os.File) io.Reader { return hooked{s, f.Name(), nil, f} }
