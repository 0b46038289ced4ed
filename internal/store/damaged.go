package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// asideDir has the files that were found damaged, to be looked at. They count, and
// are the first to go.
const asideDir = "damaged"

// Bounds of what is kept of them.
const (
	maxAside      = 32
	maxAsideBytes = 1 << 30
)

// asideFile is how they are called: as before, with a number after it that grows.
var asideFile = regexp.MustCompile(`^([0-9a-f]{32}\.good|confirmed)\.([0-9]{1,18})$`)

// asideBytes is how much is kept of damaged files.
func (s *Store) asideBytes() int64 {
	if s.o.MaxBytes > 0 {
		return min(s.o.MaxBytes/10, maxAsideBytes)
	}
	return maxAsideBytes
}

// readAside reads what was set aside before, in Open.
func (s *Store) readAside() error {
	entries, err := os.ReadDir(filepath.Join(s.o.Path, asideDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		m := asideFile.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		is, err := e.Info()
		if err != nil {
			continue // it went
		}
		n, _ := strconv.ParseInt(m[2], 10, 64) // digits, and not too many
		s.aside = append(s.aside, &file{name: e.Name(), size: is.Size(), aside: n})
		s.spare += is.Size()
	}
	slices.SortFunc(s.aside, func(a, b *file) int { return int(min(max(a.aside-b.aside, -1), 1)) })
	return nil
}

// about says of which file a line of the log is, and what it is of, if that is known.
func (s *Store) about(f *file, of *slot, more ...any) []any {
	out := []any{"path", filepath.Join(s.o.Path, f.name)}
	if of != nil {
		out = append(out, "key", of.key, "type", of.typ)
	}
	return append(out, more...)
}

// fault notes what was found wrong with a file, and tells so. of is what it is of,
// if that is known: when it is damaged, that is written anew.
func (s *Store) fault(f *file, of *slot, err error) {
	path := filepath.Join(s.o.Path, f.name)
	s.mu.Lock()
	known := s.index[f.name] == f // else it was replaced meanwhile
	switch {
	case !known, isDamage(err) && slices.Contains(s.wrong, f):
		known = false
	case isDamage(err):
		f.state, f.of = broken, of
		s.wrong = append(s.wrong, f)
		s.stats.Damaged++
	}
	if known {
		s.stats.LastError, s.stats.LastErrorAt = fmt.Sprintf("%s: %v", path, err), s.o.Now()
	}
	s.mu.Unlock()
	switch {
	case !known:
	case isDamage(err):
		s.o.Metrics.Damaged.Inc()
		s.o.Log.Error("store: a file is not served, and set aside", s.about(f, of, "error", err)...)
		s.stir()
	case errors.Is(err, errFormat):
		s.o.Log.Warn("store: a file is not served, and left where it is", s.about(f, of, "error", err)...)
	default:
		s.o.Log.Error("store: a file cannot be read", s.about(f, of, "error", err)...)
	}
}

// setAside moves what was found damaged out of the way.
func (s *Store) setAside() {
	for {
		s.mu.Lock()
		var f *file
		if len(s.wrong) > 0 {
			f = s.wrong[0]
			s.wrong = s.wrong[1:]
		}
		known := f != nil && s.index[f.name] == f
		s.mu.Unlock()
		if f == nil {
			return
		}
		switch {
		case !known: // it was replaced
		case f.secret:
			if err := s.remove(f); err != nil {
				s.o.Log.Error("store: a file of Secrets cannot be removed", s.about(f, f.of, "error", err)...)
			}
		default:
			s.moveAside(f)
		}
	}
}

func (s *Store) moveAside(f *file) {
	n := int64(1)
	s.mu.Lock()
	if len(s.aside) > 0 {
		n = s.aside[len(s.aside)-1].aside + 1
	}
	s.mu.Unlock()
	to := &file{name: fmt.Sprintf("%s.%d", f.name, n), size: f.size, aside: n}
	err := s.rename(f.name, filepath.Join(asideDir, to.name))
	if err != nil { // it stays in the index, where it is not served
		s.o.Log.Error("store: a damaged file cannot be set aside", s.about(f, f.of, "error", err)...)
		return
	}
	s.mu.Lock()
	s.forget(f)
	s.aside = append(s.aside, to)
	s.spare += to.size
	if f.of != nil {
		if it := s.items[*f.of]; it != nil && it.src != nil {
			s.touch(it)
		}
	}
	s.show()
	var old []*file
	for n, bytes := len(s.aside), s.spare; n > maxAside || bytes > s.asideBytes(); n-- {
		old = append(old, s.aside[len(old)])
		bytes -= old[len(old)-1].size
	}
	s.mu.Unlock()
	for _, f := range old {
		if err := s.dropAside(f); err != nil {
			s.o.Log.Error("store: a damaged file cannot be removed", "path", filepath.Join(s.o.Path, asideDir, f.name), "error", err)
		}
	}
}

// rename moves a file within the store's directory.
func (s *Store) rename(from, to string) error {
	to = filepath.Join(s.o.Path, to)
	if err := s.hook("rename", to); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(s.o.Path, from), to); err != nil {
		return err
	}
	return s.syncDir()
}
