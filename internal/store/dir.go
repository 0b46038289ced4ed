package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile is locked by the process that uses the directory, and holds its process id.
const lockFile = "lock"

// file is a file of the directory.
type file struct {
	name      string
	size      int64
	confirmed time.Time // its modification time
	damaged   bool      // it was set aside
}

// dir is a directory that this process has locked.
type dir struct {
	lock  *os.File
	files map[string]*file    // by name
	ofKey map[string][]string // names of good files, by the prefix that stands for the key
	bytes int64
}

// openDir makes the directory if it is missing, locks it and lists its files.
func openDir(path string, log *slog.Logger) (d *dir, err error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	if err := usable(path); err != nil {
		return nil, err
	}
	d = &dir{files: make(map[string]*file), ofKey: make(map[string][]string)}
	if d.lock, err = lockDir(path); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, errors.Join(err, d.lock.Close())
	}
	for _, e := range entries {
		name := e.Name()
		if tempName.MatchString(name) {
			_ = os.Remove(filepath.Join(path, name)) // otherwise the next start tries again
			continue
		}
		is, err := e.Info()
		if err != nil || !is.Mode().IsRegular() {
			continue
		}
		f := &file{name: name, size: is.Size(), confirmed: is.ModTime()}
		switch {
		case goodName.MatchString(name):
			d.add(f)
		case damagedName.MatchString(name):
			f.damaged = true
			d.add(f)
		}
	}
	if may, mode := openToOthers(path); may != "" {
		log.Warn("store: other users may "+may+" the directory", "path", path, "mode", mode.String(), "files", "0600", "should_be", "0700")
	}
	return d, nil
}

// add replaces the file of that name.
func (d *dir) add(f *file) {
	d.forget(d.files[f.name])
	d.files[f.name] = f
	d.bytes += f.size
	if !f.damaged {
		d.ofKey[f.name[:prefixSize]] = append(d.ofKey[f.name[:prefixSize]], f.name)
	}
}

// forget removes a file from the list, if it is there.
func (d *dir) forget(f *file) {
	if f == nil || d.files[f.name] != f {
		return
	}
	delete(d.files, f.name)
	d.bytes -= f.size
	if f.damaged {
		return
	}
	of := f.name[:prefixSize]
	var left []string
	for _, n := range d.ofKey[of] {
		if n != f.name {
			left = append(left, n)
		}
	}
	if d.ofKey[of] = left; len(left) == 0 {
		delete(d.ofKey, of)
	}
}

// oldest returns the file that was confirmed longest ago, except for one; nil: there is none.
func (d *dir) oldest(except string) (out *file) {
	for _, f := range d.files {
		if f.name != except && (out == nil || f.confirmed.Before(out.confirmed)) {
			out = f
		}
	}
	return out
}

// errInUse: another process has locked the directory.
var errInUse = errors.New("in use by another relay")

// lockDir locks the directory for this process. The lock ends with the process; the file
// stays.
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
		b, _ := io.ReadAll(io.LimitReader(f, 32)) // best effort: it is only shown in the error
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			return nil, fmt.Errorf("%w: process %d", errInUse, pid)
		}
		return nil, errInUse
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0) // best effort, as above
	}
	return f, nil
}

// ErrHangs: the disk made no progress for 5 s.
var ErrHangs = fmt.Errorf("the disk hangs: no progress for %v", hangsAfter)

// Check reports what keeps Open from using a directory, and what other users may do with the
// directory although they should not. It creates and locks nothing.
func Check(path string) (othersMay string, err error) {
	is, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		up := filepath.Dir(path)
		if _, there := os.Lstat(path); up == path || there == nil { // a link to nothing
			return "", err
		}
		_, err = Check(up) // it would be created in there
		return "", err
	}
	switch {
	case err != nil:
		return "", err
	case !is.IsDir():
		return "", fmt.Errorf("%s is not a directory", path)
	}
	may, _ := openToOthers(path)
	return may, usable(path)
}

// openToOthers returns what other users may do with a directory; empty: nothing, or it does
// not exist.
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
		return fmt.Errorf("cannot read and write %s: %w", dir, err)
	}
	return nil
}
