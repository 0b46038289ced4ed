package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// The newest generation that was put is written at most once in the interval, and read by
// the next process.
func TestP66_NewestGenerationIsStored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "new")
		r := opened(t, dir, func(o *Options) { o.Interval = 5 * time.Second })
		c, e := newView(t, cds), newView(t, eds)
		r.Put(web, cds, c.snapshot(true, "a=1", "b=1"))
		r.Put(web, eds, e.snapshot(false, "x=1"))
		pass(time.Second)
		for i := range 4 {
			r.Put(web, cds, c.snapshot(true, fmt.Sprint("a=", i+2), "-b"))
			pass(time.Second / 2)
		}
		old := c.now
		r.Put(web, cds, c.snapshot(false, "n=1"))
		r.Put(web, cds, old) // by a slower goroutine
		equal(t, "before it is written", r.holds(web, cds), "*a=5 n=1 *")
		pass(5 * time.Second)
		equal(t, "written", r.Status().Written, 3)
		equal(t, "files", r.Status().Files, 2)
		r.Put(web, cds, c.snapshot(true, "a=9"))
		r.stop() // writes the rest
		info, err := os.Stat(r.path(cds))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}

		r = opened(t, dir, nil)
		defer r.stop()
		equal(t, "clusters", r.holds(web, cds), "*a=9 n=1 *")
		equal(t, "endpoints", r.holds(web, eds), "x=1")
		equal(t, "another key", len(r.Load(context.Background(), xds.NewKey("db"))), 0)
		if s := r.Load(context.Background(), web)[cds].Snapshot; !s.Stale {
			t.Error("it is not marked as stored")
		}
	})
}

// One changed resource makes the store write its whole type. So the pause after a pass grows with what
// the pass wrote: a second for each 256 KiB, and a minute at most.
func TestP66_LargeTypesAreWrittenSeldom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := opened(t, t.TempDir(), func(o *Options) { o.Interval = time.Second })
		defer r.stop()
		c := newView(t, cds)
		r.Put(web, cds, c.snapshot(true, "large="+strings.Repeat("x", 3<<20)))
		pass(time.Millisecond)
		for i := range 60 {
			r.Put(web, cds, c.snapshot(true, fmt.Sprint("small=", i)))
			pass(time.Second)
		}
		if got := r.Status().Written; got < 5 || got > 6 { // without the longer pause 61
			t.Errorf("3 MiB were written %d times in a minute", got)
		}
		pass(13 * time.Second)
		equal(t, "waiting", r.Status().Waiting, 0)
		for bytes, want := range map[int64]time.Duration{0: time.Second, 3 << 20: 12 * time.Second, 1 << 30: time.Minute} {
			equal(t, "the pause", (&Store{o: r.o, wroteBytes: bytes}).pause(), want)
		}
	})
}

// A crash at any byte of a write leaves the file that was there.
func TestP66_CrashWhileWriting(t *testing.T) {
	o, _, _ := options(t, t.TempDir())
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	c, path := newView(t, cds), filepath.Join(o.Path, slot{web, cds}.name())
	var files [2][]byte
	for i := range files {
		if _, err := s.write(slot{web, cds}, c.snapshot(true, fmt.Sprint("a=", i))); err != nil {
			t.Fatal(err)
		}
		if files[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, files[0], 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range files[1] {
		if err := os.WriteFile(filepath.Join(o.Path, "."+filepath.Base(path)+"123"), files[1][:i], 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err = Open(o); err != nil {
			t.Fatal(err)
		}
		got := s.Load(t.Context(), web)[cds]
		if got == nil || spell(got.Snapshot) != "*a=0 *" {
			t.Errorf("after a crash at byte %d: %v", i, got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// An empty answer to the wildcard is stored. A type without resources and answer has no file.
func TestP66_EmptyAnswerIsStored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		r := opened(t, dir, nil)
		c, e := newView(t, cds), newView(t, eds)
		r.Put(web, cds, c.snapshot(true))
		r.Put(web, eds, e.snapshot(false, "x=1"))
		pass(time.Second)
		r.Put(web, eds, e.snapshot(false, "-x"))
		pass(time.Second)
		r.stop()
		r = opened(t, dir, nil)
		defer r.stop()
		equal(t, "clusters", r.holds(web, cds), "*")
		equal(t, "endpoints", r.holds(web, eds), "")
		equal(t, "files", r.Status().Files, 1)
	})
}

// Secrets, resources with a TTL and uncacheable resources are in no file.
func TestP6_P62_P63_UnstorableResources(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := opened(t, t.TempDir(), nil)
		secrets := newView(t, xds.SecretType)
		r.Put(web, xds.SecretType, secrets.snapshot(false, "s=hidden"))
		c := newView(t, cds)
		c.snapshot(true, "a=1")
		c.b.Apply(snapshot.Update{Type: cds, Origin: "origin", Version: "v7", Wildcard: true, Received: time.Unix(5, 6),
			Changed: []*xds.Resource{resource(t, cds, "t", "1").RenewTTL(time.Hour, time.Now())}})
		r.Put(web, cds, c.snapshot(true))
		r.stop()
		r = opened(t, r.o.Path, nil)
		defer r.stop()
		equal(t, "clusters", r.holds(web, cds), "*a=1 *")
		equal(t, "files", r.Status().Files, 1)
	})
}

// A file is older than max_age unless it was confirmed since; then it is not read.
func TestP66_FileAgeIsSinceConfirmation(t *testing.T) {
	for _, confirmed := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			dir := t.TempDir()
			aged := func(o *Options) { o.MaxAge = 10 * time.Hour }
			r := opened(t, dir, aged)
			r.mu.Lock()
			r.confirmed = confirmed
			r.mu.Unlock()
			r.Put(web, cds, newView(t, cds).snapshot(true, "a=1"))
			pass(time.Second)
			wrote := time.Now()
			pass(9*time.Hour + time.Minute)
			info, err := os.Stat(r.path(cds))
			if err != nil {
				t.Fatal(err)
			}
			age := info.ModTime().Sub(wrote)
			if confirmed && (age < 7*time.Hour || age > 9*time.Hour) || !confirmed && age > time.Second {
				t.Errorf("confirmed %v: the file was touched after %v", confirmed, age)
			}
			r.stop()
			pass(2 * time.Hour)
			r = opened(t, dir, aged)
			defer r.stop()
			got := r.Load(context.Background(), web)[cds]
			equal(t, "served", got != nil, confirmed)
			if got != nil && !got.Until.Equal(info.ModTime().Add(10*time.Hour)) {
				t.Errorf("until %v", got.Until)
			}
		})
	}
}

// A damaged file (a flipped bit, cut, or longer) is set aside and counted, and not served.
func TestP66_DamagedFilesAreSetAside(t *testing.T) {
	o, _, _ := options(t, t.TempDir())
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.write(slot{web, cds}, newView(t, cds).snapshot(true, "a=1")); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(filepath.Join(o.Path, slot{web, cds}.name()))
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 1
		if rec, err := decode(bad); rec != nil || !errors.Is(err, errDamaged) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
		if rec, err := decode(good[:i]); rec != nil || !errors.Is(err, errDamaged) {
			t.Fatalf("cut off at %d: %v", i, err)
		}
	}
	if _, err := decode(append(good, 0)); !errors.Is(err, errDamaged) {
		t.Errorf("a byte appended: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	bubble(t, func(t *testing.T) {
		path := filepath.Join(o.Path, slot{web, cds}.name())
		good[len(good)/2] ^= 1
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
		temp := filepath.Join(o.Path, "."+filepath.Base(path)+"123")
		if err := os.WriteFile(temp, good, 0o600); err != nil {
			t.Fatal(err)
		}
		r := opened(t, o.Path, nil)
		defer r.stop()
		equal(t, "served", r.holds(web, cds), "")
		pass(time.Second)
		if _, err := os.Stat(path + damagedSuffix); err != nil {
			t.Error(err)
		}
		if !strings.Contains(r.log.String(), path) {
			t.Errorf("%s is not in the log", path)
		}
		if _, err := os.Stat(temp); err == nil {
			t.Error("what a crash left is still there")
		}
		st := r.Status()
		equal(t, "damaged", st.Damaged, 1)
		equal(t, "set aside", st.SetAside, 1)
		equal(t, "files", st.Files, 0)
		r.Put(web, cds, newView(t, cds).snapshot(true, "a=2"))
		pass(time.Second)
		equal(t, "written anew", r.holds(web, cds), "*a=2 *")
	})
}

// Above max_bytes the files confirmed longest ago are removed.
func TestP66_MaxBytes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		body := "=" + strings.Repeat("x", 1000)
		r := opened(t, t.TempDir(), func(o *Options) { o.MaxBytes = 4000 })
		defer r.stop()
		for i := range 5 {
			r.Put(xds.NewKey(fmt.Sprint(i)), cds, newView(t, cds).snapshot(true, "a"+body))
			pass(time.Second)
		}
		r.Put(web, cds, newView(t, cds).snapshot(true, "a"+strings.Repeat(body, 4)))
		pass(time.Second)
		st := r.Status()
		if st.Files != 3 || st.Evicted != 2 || st.Bytes > 4000 || st.Off {
			t.Errorf("%+v", st)
		}
		for i := range 5 {
			equal(t, fmt.Sprint("key ", i), r.holds(xds.NewKey(fmt.Sprint(i)), cds) != "", i >= 2)
		}
		if !strings.Contains(r.log.String(), "larger than store.max_bytes") {
			t.Error(r.log.String())
		}
	})
}

// At the bound of files, a file that is written again needs no room.
func TestP66_MaxFiles(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := opened(t, t.TempDir(), nil)
		defer r.stop()
		v := newView(t, cds)
		db := xds.NewKey("db")
		r.Put(db, cds, newView(t, cds).snapshot(true, "a=1")) // confirmed longest ago
		pass(time.Second)
		r.Put(web, cds, v.snapshot(true, "a=1"))
		pass(time.Second)
		r.mu.Lock()
		for i := len(r.dir.files); i < maxFiles; i++ {
			name := fmt.Sprint("other-", i)
			r.dir.files[name] = &file{name: name, confirmed: time.Now()}
		}
		r.mu.Unlock()
		r.Put(web, cds, v.snapshot(true, "a=2"))
		pass(time.Second)
		equal(t, "evicted by a file that is written again", r.Status().Evicted, 0)
		r.Put(xds.NewKey("new"), cds, newView(t, cds).snapshot(true, "a=1"))
		pass(time.Second)
		equal(t, "evicted by a new file", r.Status().Evicted, 1)
		equal(t, "the file that was confirmed longest ago", r.holds(db, cds), "")
	})
}

// An unwritable directory switches the store off. It retries each minute, and then writes all
// generations again, as the directory may be new.
func TestP66_UnwritableDirectory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var full atomic.Bool
		dir := t.TempDir()
		r := opened(t, dir, func(o *Options) {
			o.fault = func(op, _ string) error {
				if full.Load() && (op == "write" || op == "open") {
					return errors.New("no space left on device")
				}
				return nil
			}
		})
		defer r.stop()
		c, e := newView(t, cds), newView(t, eds)
		r.Put(web, eds, e.snapshot(false, "x=1"))
		pass(time.Second)
		full.Store(true)
		r.Put(web, cds, c.snapshot(true, "a=1"))
		pass(time.Second)
		st := r.Status()
		if !st.Off || st.LastError != "no space left on device" || st.Waiting != 0 || r.metrics.Store.Off.Value() != 1 {
			t.Errorf("%+v", st)
		}
		equal(t, "endpoints while it is off", r.holds(web, eds), "")
		r.Put(web, cds, c.snapshot(true, "a=2"))
		pass(10 * time.Minute)
		if n := r.Status().Failed; n < 9 || n > 12 {
			t.Errorf("%d failures in ten minutes", n)
		}
		full.Store(false)
		if err := os.Remove(r.path(eds)); err != nil { // as of another disk
			t.Fatal(err)
		}
		pass(time.Minute)
		equal(t, "off", r.Status().Off, false)
		equal(t, "gauge", r.metrics.Store.Off.Value(), 0)
		equal(t, "clusters", r.holds(web, cds), "*a=2 *")
		equal(t, "endpoints", r.holds(web, eds), "x=1")
		if log := r.log.String(); strings.Count(log, "switched off") != 1 || strings.Count(log, "switched on again") != 1 {
			t.Error(log)
		}
	})
}

// hanging is a disk that hangs in an operation until it is released.
type hanging struct {
	op   atomic.Value
	open chan struct{}
}

func (h *hanging) fault(op, _ string) error {
	if op == h.op.Load() {
		<-h.open
	}
	return nil
}

// A disk that hangs for 5 s switches the store off, and delays a reader no longer than that. No
// other operation begins meanwhile.
func TestP66_HangingDisk(t *testing.T) {
	for _, op := range []string{"read", "write", "open"} {
		bubble(t, func(t *testing.T) {
			dir := t.TempDir()
			r := opened(t, dir, nil)
			r.Put(web, eds, newView(t, eds).snapshot(false, "x=1"))
			r.stop()
			h := &hanging{open: make(chan struct{})}
			h.op.Store(op)
			began := time.Now()
			r = opened(t, dir, func(o *Options) { o.fault = h.fault })
			r.Put(web, cds, newView(t, cds).snapshot(true, "a=1"))
			equal(t, "read while it hangs", r.holds(web, eds) != "", op == "write")
			pass(5 * time.Second)
			if d := time.Since(began); d > 11*time.Second {
				t.Errorf("%s: it took %v", op, d)
			}
			st := r.Status()
			if !st.Off || !strings.Contains(st.LastError, "hangs") {
				t.Errorf("%s: %+v", op, st)
			}
			equal(t, "read while it is off", r.holds(web, eds), "")
			pass(5 * time.Minute)
			equal(t, "operations that hang", r.hung, 1)
			h.op.Store("")
			close(h.open)
			pass(time.Minute)
			equal(t, op+": off", r.Status().Off, false)
			equal(t, "endpoints", r.holds(web, eds), "x=1")
			pass(time.Minute)
			equal(t, "clusters", r.holds(web, cds), "*a=1 *")
			r.stop()
		})
	}
}

// Two processes cannot use one directory.
func TestStoreIsLocked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		r := opened(t, dir, nil)
		o, _, _ := options(t, dir)
		if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "in use by another relay") {
			t.Errorf("%v", err)
		}
		r.Put(web, cds, newView(t, cds).snapshot(true, "a=1"))
		pass(time.Second)
		equal(t, "clusters", r.holds(web, cds), "*a=1 *")
		r.stop()
		s, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Check finds what keeps Open from using a directory, and creates nothing.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	if _, err := Check(filepath.Join(dir, "a", "b")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "a")); err == nil {
		t.Error("it was made")
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(file); err == nil {
		t.Error("a file is no directory")
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if may, err := Check(dir); err != nil || may != "look into" {
		t.Errorf("%q, %v", may, err)
	}
}

// A key can be read while its files are touched; the race detector checks it.
func TestLoadWhileTouched(t *testing.T) {
	o, _, _ := options(t, t.TempDir())
	o.MaxAge = time.Hour
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	g := Entry{web, cds, newView(t, cds).snapshot(true, "a=1"), true}
	s.Put(g.Key, g.Type, g.Snapshot)
	s.writeAll(t.Context())
	var reads sync.WaitGroup
	reads.Go(func() {
		for range 100 {
			if s.Load(t.Context(), web)[cds] == nil {
				t.Error("it is not there")
			}
		}
	})
	for range 100 {
		s.touchAll(t.Context(), slices.Values([]Entry{g}))
	}
	reads.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Reading a file with any content does not crash.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("xdsrelay\x00\x00\x00\x02"))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = decode(b) })
}

// Operators read times in UTC and whole seconds.
func TestTimesOfStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := opened(t, t.TempDir(), nil)
		defer r.stop()
		pass(time.Second / 4)
		r.Put(web, cds, newView(t, cds).snapshot(true, "a=1"))
		pass(time.Minute)
		r.turnOff(errDamaged)
		st := r.Status()
		for name, at := range map[string]time.Time{"oldest": st.Oldest, "last_error_at": st.LastErrorAt} {
			if at.IsZero() || at.Location() != time.UTC || at.Nanosecond() != 0 {
				t.Errorf("%s is %v", name, at)
			}
		}
	})
}

// The relay starts and serves without a store that cannot be used.
func TestP66_UnusableDirectoryAtTheStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "store")
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		r := opened(t, dir, nil)
		defer r.stop()
		if st := r.Status(); !st.Off || st.LastError == "" {
			t.Errorf("%+v", st)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		r.Put(web, cds, newView(t, cds).snapshot(true, "a=1"))
		pass(time.Second)
		equal(t, "clusters", r.holds(web, cds), "*a=1 *")
	})
}

// A store that is off at the end, because a retry failed, ends without an error.
func TestCloseAfterAFailedRetry(t *testing.T) {
	o, _, _ := options(t, t.TempDir())
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	s.failed(errors.New("read-only file system"))
	s.o.Path = "/dev/null/none"
	if err := s.open(); err == nil {
		t.Fatal("it was opened")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// What one changed resource of 20,000 costs: the bytes of the type are written again.
func BenchmarkWrite(b *testing.B) {
	o, _, _ := options(b, b.TempDir())
	s, err := Open(o)
	if err != nil {
		b.Fatal(err)
	}
	c, what := newView(b, cds), make([]string, 20_000)
	for i := range what {
		what[i] = fmt.Sprint("cluster-", i, "=", strings.Repeat("x", 500))
	}
	snap := c.snapshot(true, what...)
	for b.Loop() {
		if _, err := s.write(slot{web, cds}, snap); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(s.Status().Bytes)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}
