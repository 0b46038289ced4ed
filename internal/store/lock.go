package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// lockFile is locked by the process that uses the directory, whose number is in
// it. It stays when the process has ended, and the lock does not.
const lockFile = "lock"

// lockDir takes the directory for this process.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		b, _ := io.ReadAll(io.LimitReader(f, 32)) // the number is a help, no more
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			return nil, fmt.Errorf("%s is in use by another relay, process %d", dir, pid)
		}
		return nil, fmt.Errorf("%s is in use by another relay", dir)
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0) // as above
	}
	return f, nil
}

// present has the directory be there, and be this process'. If somebody took it away it
// is made again, and all that is good is written anew. Of Run's goroutine.
func (s *Store) present() error {
	is, err := os.Lstat(filepath.Join(s.o.Path, lockFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		if mine, err := s.lock.Stat(); err != nil || os.SameFile(is, mine) {
			return err
		}
	}
	if err := os.MkdirAll(s.o.Path, 0o700); err != nil {
		return err
	}
	lock, err := lockDir(s.o.Path)
	if err != nil {
		return err
	}
	s.mu.Lock()
	old := s.lock
	s.lock = lock
	s.mu.Unlock()
	lost := s.lose()
	s.o.Log.Error("store: the directory was taken away; what is good of keys that are held is written anew", "path", s.o.Path, "files_lost", lost)
	return old.Close()
}

// lose forgets the files that are not there any more, and has what is good be written
// anew.
func (s *Store) lose() int {
	var gone []*file // nobody else changes the index
	for _, f := range s.index {
		if !s.there(f) {
			gone = append(gone, f)
		}
	}
	missing := func(name string) bool {
		_, err := os.Lstat(filepath.Join(s.o.Path, name))
		return errors.Is(err, fs.ErrNotExist)
	}
	noAside, noJournal := missing(asideDir), missing(confirmedFile)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, f := range gone {
		s.breathe(&n)
		s.forget(f)
	}
	if noAside {
		s.aside, s.spare = nil, 0
	}
	if noJournal {
		s.journal, s.stale = 0, true
	}
	for _, it := range s.items {
		s.breathe(&n)
		if it.src != nil {
			s.touch(it)
		}
	}
	s.show()
	return len(gone)
}

// Check reports what would keep Open from using a directory, without making or
// locking anything.
func Check(path string) error {
	is, err := os.Stat(path)
	for at := path; errors.Is(err, fs.ErrNotExist); is, err = os.Stat(at) {
		up := filepath.Dir(at)
		if _, there := os.Lstat(at); up == at || there == nil { // a link to nothing
			return err
		}
		at = up
		path = at // it would be made in there
	}
	switch {
	case err != nil:
		return err
	case !is.IsDir():
		return fmt.Errorf("%s is no directory", path)
	}
	return usable(path)
}

// usable reports whether files can be made in a directory.
func usable(dir string) error {
	if err := unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("%s cannot be read and written: %w", dir, err)
	}
	return nil
}
