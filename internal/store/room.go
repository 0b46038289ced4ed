package store

import (
	"os"
	"path/filepath"
	"time"
)

// room makes room for a file of this size under name, beside the one that it
// replaces. Damaged files go first, then those that were confirmed longest ago,
// and last the one that is to be replaced.
func (s *Store) room(size int64, name string) error {
	went := false
	for {
		f, damaged := s.victim(size, name)
		switch {
		case f == nil && went:
			return s.syncDir()
		case f == nil:
			return nil
		case damaged:
			if err := s.dropAside(f); err != nil {
				return err
			}
			continue
		}
		if err := s.remove(f); err != nil {
			return err
		}
		went = true
		if f.name != name {
			s.evict()
		}
	}
}

// victim is the next file to go, nil if there is room.
func (s *Store) victim(size int64, name string) (f *file, damaged bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.index[name]
	full := s.o.MaxBytes > 0 && s.total()+size > s.o.MaxBytes
	if full && len(s.aside) > 0 {
		return s.aside[0], true
	}
	if !full && (own != nil || len(s.index) < maxFiles) {
		return nil, false
	}
	for _, o := range s.index {
		if o != own && (f == nil || o.confirmed.Before(f.confirmed)) {
			f = o
		}
	}
	if f == nil {
		f = own // or nil: what is left is the confirmed file
	}
	return f, false
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
