package store

import (
	"container/heap"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

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
			return nil, fmt.Errorf("in use by another relay, process %d", pid)
		}
		return nil, errors.New("in use by another relay")
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0) // as above
	}
	return f, nil
}

// present has the directory be there, and be this process'. If somebody took it away it
// is made again, and all that is good is written anew. If there is another in its place,
// as when a disk is mounted, what is in that is read. Of Run's goroutine.
func (s *Store) present() error {
	is, err := os.Lstat(filepath.Join(s.o.Path, lockFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		// If that cannot be told, as where the disk that was is gone for good, it is another.
		if mine, err := s.lock.Stat(); err == nil && os.SameFile(is, mine) {
			return nil
		}
	}
	other, err := open(s.o)
	if err != nil {
		return err
	}
	lost, found := s.replaceBy(other)
	s.o.Log.Error("store: the directory was taken away; what is good of keys that are held is written anew", "path", s.o.Path, "files_lost", lost, "files_there", found)
	_ = other.Close() // the lock of the one before, which nothing was written to
	return nil
}

// replaceBy has what is in the directory now take the place of what was known, and what
// is good be written. It returns how many files are not there any more, and how many are.
func (s *Store) replaceBy(other *Store) (lost, found int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lock, other.lock = other.lock, s.lock
	n := 0
	for name, was := range s.index { // nobody else changes it
		s.breathe(&n)
		if f := other.index[name]; f == nil || f.id != was.id || f.state != was.state {
			lost++
		} else if f.state == whole {
			f.confirmed, f.wrote = later(f.confirmed, was.confirmed), was.wrote
		}
	}
	heap.Init(&other.ages)
	s.adopt(other)
	s.clock.newest, s.stale = later(s.clock.newest, other.clock.newest), true
	for _, it := range s.items {
		s.breathe(&n)
		if it.src != nil {
			s.touch(it)
		}
	}
	return lost, len(s.index)
}

// ErrHangs: the disk neither says what it is asked for nor fails.
var ErrHangs = errors.New("the disk hangs")

// maxChecking is for how long Check waits.
const maxChecking = 5 * time.Second

// Check reports what would keep Open from using a directory, without making or
// locking anything, and what others may do with it who should not, if they may. Of a disk
// that hangs it returns ErrHangs.
func Check(path string) (othersMay string, err error) {
	return checkBy(path, check)
}

func checkBy(path string, check func(string) error) (othersMay string, err error) {
	type result struct {
		may string
		err error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		if r.err = check(path); r.err == nil {
			r.may, _ = openToOthers(path)
		}
		done <- r
	}()
	t := time.NewTimer(maxChecking)
	defer t.Stop()
	select {
	case r := <-done:
		return r.may, r.err
	case <-t.C:
		return "", fmt.Errorf("%s: %w", path, ErrHangs)
	}
}

func check(path string) error {
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

// openToOthers says what others may do with a directory; empty: nothing, or it is not there.
func openToOthers(dir string) (may string, mode fs.FileMode) {
	is, err := os.Stat(dir)
	switch {
	case err != nil:
		return "", 0
	case is.Mode().Perm()&0o022 != 0:
		may = "write into"
	case is.Mode().Perm()&0o077 != 0:
		may = "look into"
	}
	return may, is.Mode()
}

// usable reports whether files can be made in a directory.
func usable(dir string) error {
	if err := unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("%s cannot be read and written: %w", dir, err)
	}
	return nil
}
