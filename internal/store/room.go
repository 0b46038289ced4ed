package store

import (
	"os"
	"path/filepath"
	"time"
)

// room makes room for a file of this size under name, in the place of the one that
// is there. It is called when the new file is on the disk beside the others and
// needs but its name: so nobody's file goes for one that cannot be written, and what
// is replaced stays until then. That is why the files may be larger than max_bytes
// while one is written, by that one. Damaged files go first, then those that
// were confirmed longest ago. One that went is written again when something of its
// key's type is touched, and not before: if it were written as soon as there is
// room, keys that do not fit beside each other would take turns for ever.
func (s *Store) room(size int64, name string) error {
	for {
		full, damaged, oldest := s.victim(size, name)
		var err error
		switch {
		case damaged != nil:
			err = s.dropAside(damaged)
		case oldest != nil:
			if err = s.remove(oldest); err == nil {
				s.evict()
			}
		case full && name != confirmedFile && s.journal > 0:
			// All whom it speaks of went, or are said anew in what is to be written.
			err = s.dropConfirmed()
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// victim reports whether there is no room, and which file is to go, if one can.
func (s *Store) victim(size int64, name string) (full bool, damaged, oldest *file) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.index[name]
	if own != nil {
		size -= own.size
	}
	many := false
	if name == confirmedFile {
		size -= s.journal
	} else {
		many = own == nil && len(s.index) >= maxFiles
	}
	full = s.o.MaxBytes > 0 && s.total()+size > s.o.MaxBytes
	switch {
	case full && len(s.aside) > 0:
		damaged = s.aside[0]
	case full || many:
		oldest = s.ages.but(own)
	}
	return full, damaged, oldest
}

// evict counts that a file went, and tells so now and then.
func (s *Store) evict() {
	s.o.Metrics.Evicted.Inc()
	s.mu.Lock()
	s.stats.Evicted++
	s.mu.Unlock()
	s.evicted++
	if now := time.Now(); s.told.IsZero() || now.Sub(s.told) >= tellEvery {
		s.o.Log.Warn("store: files went for want of room: those confirmed longest ago", "path", s.o.Path, "files", s.evicted, "max_bytes", s.o.MaxBytes)
		s.told, s.evicted = now, 0
	}
}

const tellEvery = 10 * time.Minute

// dropAside removes a damaged file.
func (s *Store) dropAside(f *file) error {
	path := filepath.Join(s.o.Path, asideDir, f.name)
	if err := s.hook("remove", path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	s.mu.Lock()
	for i, o := range s.aside {
		if o == f {
			s.aside = append(s.aside[:i:i], s.aside[i+1:]...)
			s.spare -= f.size
			break
		}
	}
	s.show()
	s.mu.Unlock()
	return nil
}
