package store

import (
	"container/heap"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"xdsrelay/internal/xds"
)

// slot is what a file is of.
type slot struct {
	key xds.Key
	typ xds.TypeURL
}

// name is that of the slot's file: a hash, since keys may hold anything and be of
// any length. What the file is of stands in it.
func (s slot) name() string {
	b := binary.AppendUvarint(nil, uint64(len(s.typ)))
	b = append(b, s.typ...)
	for _, e := range s.key.Elements() {
		b = binary.AppendUvarint(b, uint64(len(e)))
		b = append(b, e...)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16]) + suffix
}

const suffix = ".good"

// Files of the directory that are the store's; all others it leaves alone.
var (
	goodFile = regexp.MustCompile(`^[0-9a-f]{32}\.good$`)
	// What was being written when the process died.
	tempFile = regexp.MustCompile(`^\.([0-9a-f]{32}\.good|confirmed)[0-9]+$`)
)

// state of a file.
type state uint8

const (
	whole   state = iota // as far as is known
	foreign              // of another version of the program: left where it is
	unread               // its beginning could not be read, maybe later
	broken               // found damaged, and about to be set aside
)

// file is what the index has of one. The store's mu protects it.
type file struct {
	name  string
	state state
	// secret: it is to be removed and not set aside.
	secret bool
	size   int64
	// Of its header; zero if that could not be read.
	id  fileID
	sum [sha256.Size]byte
	// confirmed is that of the header, or later.
	confirmed time.Time
	// wrote is when this process wrote it, by the monotonic clock.
	wrote time.Time
	// aside is when it was set aside: its order among those (damaged.go).
	aside int64
	at    int // in ages
	// of is what it is of, where it was found damaged and that is known.
	of *slot
}

// add and forget keep the index. After Open only Run's goroutine calls them. mu is
// held.
func (s *Store) add(f *file) {
	s.index[f.name] = f
	s.bytes += f.size
	heap.Push(&s.ages, f)
}

func (s *Store) forget(f *file) {
	if s.index[f.name] == f {
		delete(s.index, f.name)
		s.bytes -= f.size
		heap.Remove(&s.ages, f.at)
	}
}

// readIndex reads the beginning of each file, in Open: what is damaged there is
// set aside, and what was left half written is removed.
func (s *Store) readIndex() error {
	entries, err := os.ReadDir(s.o.Path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch {
		case tempFile.MatchString(e.Name()):
			if err := os.Remove(filepath.Join(s.o.Path, e.Name())); err != nil {
				return fmt.Errorf("left half written: %w", err)
			}
		case goodFile.MatchString(e.Name()):
			f := &file{name: e.Name()}
			err := s.readBeginning(f)
			if errors.Is(err, fs.ErrNotExist) {
				continue // someone tidies up
			}
			s.add(f)
			if err != nil {
				s.fault(f, f.of, err)
			}
		}
	}
	return nil
}

// readBeginning fills in f from its file.
func (s *Store) readBeginning(f *file) error {
	r, size, err := s.openFile(f.name)
	if err != nil {
		f.state = unread
		return err
	}
	defer r.Close()
	f.size = size
	h, err := newOpener(r, size, 4<<10).header()
	switch {
	case err == nil && slot{h.key, h.typ}.name() != f.name:
		err = damaged("it is of key %s and type %s, and should be called %s", h.key, h.typ, slot{h.key, h.typ}.name())
	case err == nil && xds.TypeOf(h.typ).Secret:
		f.secret, f.of = true, &slot{h.key, h.typ}
		err = damaged("it is of Secrets, which are never stored")
	}
	switch {
	case errors.Is(err, errFormat):
		f.state = foreign
		if is, err := r.Stat(); err == nil {
			f.confirmed = is.ModTime()
		}
		return err
	case isDamage(err):
		f.state = broken
		return err
	case err != nil:
		f.state = unread
		return err
	}
	f.id, f.sum, f.confirmed = h.id, h.sum, h.confirmed
	return nil
}

// openFile opens a file of the directory to read.
func (s *Store) openFile(name string) (*os.File, int64, error) {
	path := filepath.Join(s.o.Path, name)
	if err := s.hook("open", path); err != nil {
		return nil, 0, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	is, err := f.Stat()
	if err == nil && !is.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", path)
	}
	if err != nil {
		_ = f.Close() // only read
		return nil, 0, err
	}
	return f, is.Size(), nil
}

// tellTooOld tells of files that are not served, in Open: else nothing would say why
// clients of their keys are sent away.
func (s *Store) tellTooOld() {
	if s.o.MaxAge == 0 {
		return
	}
	n, now := 0, s.o.Now()
	var newest time.Time
	for _, f := range s.index {
		if f.state != whole || now.Sub(f.confirmed) <= s.o.MaxAge {
			continue
		}
		n++
		newest = later(newest, f.confirmed)
	}
	if n > 0 {
		s.o.Log.Warn("store: files are older than store.max_age, and are not served", "path", s.o.Path, "files", n, "of", len(s.index), "max_age", s.o.MaxAge, "newest_confirmed", newest)
	}
}
