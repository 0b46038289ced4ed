//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) {
	originMain()
	os.Exit(xdstest.Main(m))
}

// lines writes to a test's log.
type lines struct{ t *testing.T }

func (l lines) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSuffix(string(b), "\n"))
	return len(b), nil
}

// TestRobust is the short form of `make robust`: two rounds of one seed.
func TestRobust(t *testing.T) {
	dir := t.TempDir()
	set := settings{seed: 1, last: 12 * time.Second, binary: xdstest.Binary(t), dir: dir, out: lines{t},
		keys: 2, scale: scale{relays: 2, origins: 2, clients: 16, faults: 14, longest: 3 * time.Second}}
	kept, err := play(t.Context(), set)
	if err != nil {
		// The directory is removed with the test's.
		where := filepath.Join(os.TempDir(), filepath.Base(kept))
		if moved := os.Rename(kept, where); moved != nil {
			err = errors.Join(err, moved)
		}
		t.Fatalf("%v\nkept in %s", err, where)
	}
}
