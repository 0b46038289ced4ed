package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// One relay uses a directory: the second is told who does, and may have it once
// that has ended.
func TestOneRelayUsesADirectory(t *testing.T) {
	dir := t.TempDir()
	r := running(t, dir)
	o, _, _ := options(t, dir)
	_, err := Open(o)
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("the second is told: %v", err)
	}
	r.put(t, clusters(t, "one", 1, 1)) // the first goes on
	r.stop()
	r = opened(t, dir)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	opened(t, dir)
}

// What cannot be used is told at the start, and by Check, which makes nothing.
func TestPathsThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "nowhere"), link); err != nil {
		t.Fatal(err)
	}
	bad := map[string]string{file: "directory", filepath.Join(file, "below"): "directory", link: "link"}
	if os.Geteuid() != 0 { // root may write anywhere
		closed := filepath.Join(dir, "closed")
		if err := os.Mkdir(closed, 0o500); err != nil {
			t.Fatal(err)
		}
		bad[closed], bad[filepath.Join(closed, "below")] = "permission", "permission"
	}
	for path, why := range bad {
		o, _, _ := options(t, path)
		_, err := Open(o)
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := Check(path); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s is checked: %v", path, err)
		}
	}
	for _, path := range []string{dir, filepath.Join(dir, "a", "b"), "relative/to/here"} {
		if _, err := Check(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "a")); err == nil {
			t.Error("Check makes directories")
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 3 {
		t.Errorf("%v, %v", entries, err)
	}
}

// What a process that died was writing is removed, and what is not ours is left.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	rec := clusters(t, "one", 3, 10)
	name := filepath.Base(plant(t, dir, rec))
	ours := []string{"." + name + "123456789", "." + confirmedFile + "42"}
	others := []string{"README", "." + name, "." + name + "x", name + ".bak", ".hidden123", "0123.good"}
	for _, n := range append(ours, others...) {
		if err := os.WriteFile(filepath.Join(dir, n), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	// By the name of a file: not to be waited for, and not to be followed.
	pipe, link := filepath.Join(dir, strings.Repeat("0", 32)+suffix), filepath.Join(dir, strings.Repeat("1", 32)+suffix)
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("README", link); err != nil {
		t.Fatal(err)
	}
	r := running(t, dir)
	r.loads(t, rec)
	r.put(t, clusters(t, "two", 1, 1))
	r.stop()
	for _, n := range ours {
		if _, err := os.Lstat(filepath.Join(dir, n)); err == nil {
			t.Errorf("%s is still there", n)
		}
	}
	for _, n := range append(others, "lost+found", filepath.Base(pipe), filepath.Base(link)) {
		if _, err := os.Lstat(filepath.Join(dir, n)); err != nil {
			t.Error(err)
		}
	}
}

// The way to a file begins at the link, if its directory is one.
func TestADirectoryBehindALink(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	r := running(t, link)
	rec := clusters(t, "one", 3, 10)
	r.put(t, rec)
	r.stop()
	opened(t, dir).loads(t, rec)
}
