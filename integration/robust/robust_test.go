//go:build linux

package main

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"xdsrelay/integration/robust/check"
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

// TestRobust is the short form of `make robust`: two rounds of one seed. The checker must accept
// the resulting history, and reject it after each alteration.
func TestRobust(t *testing.T) {
	dir := t.TempDir()
	set := settings{seed: 1, last: 12 * time.Second, binary: xdstest.Binary(t), dir: dir, out: lines{t}, keep: true,
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
	f, err := os.Open(filepath.Join(kept, "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // the file was only read
	events, err := check.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	placed := 0
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 1))
			const tries = 10
			done := 0
			for range 1000 {
				x := newIndex(slices.Clone(events))
				if !m.change(rng, x) {
					continue
				}
				found := slices.DeleteFunc(check.Check(x.events), func(v check.Violation) bool { return v.Known })
				switch {
				case m.rule == "" && len(found) > 0:
					t.Errorf("found %v", found)
				case m.rule != "" && !slices.ContainsFunc(found, func(v check.Violation) bool { return v.Rule == m.rule }):
					t.Errorf("want a violation of %q, got %v", m.rule, found)
				}
				if done++; done == tries {
					break
				}
			}
			if done == 0 {
				t.Skip("this run's history has no event that the alteration applies to")
			}
			placed++
		})
	}
	if placed < len(mutations)*2/3 {
		t.Errorf("only %d of %d alterations apply to the history", placed, len(mutations))
	}
}
