package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/xds"
)

// disk is where tests let the disk fail.
type disk struct {
	mu    sync.Mutex
	fails map[string]error // by operation
	after int              // so many operations go well
	count map[string]int
	look  func(op, path string)
}

func (d *disk) option(o *Options) { o.fault = d.fault }

func (d *disk) fault(op, path string) error {
	d.mu.Lock()
	if d.count == nil {
		d.count = make(map[string]int)
	}
	d.count[op]++
	err := d.fails[op]
	if err != nil && d.after > 0 {
		d.after--
		err = nil
	}
	look := d.look
	d.mu.Unlock()
	if look != nil {
		look(op, path)
	}
	if err != nil {
		return &os.PathError{Op: op, Path: path, Err: err}
	}
	return nil
}

func (d *disk) fail(err error, ops ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails = make(map[string]error)
	for _, op := range ops {
		d.fails[op] = err
	}
}

func (d *disk) counted(op string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count[op]
}

// At whatever step the disk fails, what was stored before stays and is served,
// nothing is left lying about, it is told once, tried again ever less often, and
// told once more when it is over.
func TestAFullDisk(t *testing.T) {
	for _, op := range []string{"create", "write", "sync", "rename", "syncdir"} {
		t.Run(op, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				d := new(disk)
				r := running(t, dir, d.option, func(o *Options) { o.Interval = 5 * time.Second })
				old := clusters(t, "one", 20, 100)
				src := r.put(t, old)
				d.fail(syscall.ENOSPC, op)
				rec := clusters(t, "one", 20, 200)
				other := clusters(t, "two", 20, 100)
				r.Touch(rec.Key, rec.Type, src.set(rec))
				src2 := new(source).set(other)
				r.Touch(other.Key, other.Type, src2)
				before := d.counted("create")
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if n := d.counted("create") - before; n < 10 || n > 40 {
					t.Errorf("it was tried %d times in ten minutes", n)
				}
				st := r.Status()
				if !st.Failing || st.Failed == 0 || !strings.Contains(st.LastError, "no space") || st.Waiting == 0 && op != "syncdir" {
					t.Errorf("status is %+v", st)
				}
				if n := strings.Count(r.log.String(), "cannot write"); n != 1 {
					t.Errorf("it was told %d times: %s", n, r.log)
				}
				if left := temps(t, dir); len(left) > 0 {
					t.Errorf("left lying about: %v", left)
				}
				if op != "syncdir" { // where only that fails, the new one is there
					r.loads(t, old)
					if age := r.metrics.Store.UnwrittenAge(); age < 9*time.Minute {
						t.Errorf("the oldest change has waited for %v", age)
					}
				}
				d.fail(nil)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				r.loads(t, rec)
				r.loads(t, other)
				if st := r.Status(); st.Failing || st.Waiting != 0 || r.metrics.Store.UnwrittenAge() != 0 {
					t.Errorf("status is %+v", st)
				}
				if n := strings.Count(r.log.String(), "written again"); n != 1 {
					t.Errorf("that it is over was told %d times: %s", n, r.log)
				}
				r.stop()
			})
		})
	}
}

func temps(t *testing.T, dir string) (left []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			left = append(left, e.Name())
		}
	}
	return left
}

// While nothing can be written, what waits of sources that are gone has a bound.
func TestWhatWaitsForAFullDiskIsBounded(t *testing.T) {
	d := new(disk)
	d.fail(syscall.ENOSPC, "create")
	r := running(t, t.TempDir(), d.option)
	one := clusters(t, "big", 1, 1<<20)
	const keys = maxTaken>>20 + 20
	for i := range keys {
		rec := *one
		rec.Key = xds.NewKey(fmt.Sprint(i))
		src := new(source).set(&rec)
		r.Touch(rec.Key, rec.Type, src)
		r.Release(rec.Key, rec.Type, src)
		r.mu.Lock()
		taken, items := r.taken, len(r.items)
		r.mu.Unlock()
		if taken > maxTaken || items > maxTaken>>20+1 {
			t.Fatalf("%d bytes of %d keys wait", taken, items)
		}
	}
	served := 0
	for i := range keys {
		if got, err := r.Load(xds.NewKey(fmt.Sprint(i)), one.Type); err == nil && got != nil {
			served++
		}
	}
	if served < 60 || served >= keys {
		t.Errorf("%d of %d are served from memory", served, keys)
	}
	r.counts(t, map[string]float64{`store_writes_total{result="given_up"}`: float64(keys - served)})
}

// A file that cannot be read now is as none, and may be read later.
func TestAFileThatCannotBeRead(t *testing.T) {
	for _, op := range []string{"open", "read"} {
		t.Run(op, func(t *testing.T) {
			dir := t.TempDir()
			rec := clusters(t, "one", 3, 100)
			path := plant(t, dir, rec)
			d := new(disk)
			r := opened(t, dir, d.option)
			d.fail(syscall.EIO, op)
			got, err := r.Load(rec.Key, rec.Type)
			if got != nil || !errors.Is(err, syscall.EIO) || isDamage(err) {
				t.Errorf("%+v, %v", got, err)
			}
			if !strings.Contains(r.log.String(), path) || !strings.Contains(r.log.String(), "input/output") {
				t.Errorf("it is not told: %s", r.log)
			}
			r.counts(t, map[string]float64{`store_loads_total{result="error"}`: 1, "store_damaged_total": 0})
			d.fail(nil)
			r.loads(t, rec)
		})
	}
	t.Run("at start", func(t *testing.T) {
		dir := t.TempDir()
		rec := clusters(t, "one", 3, 100)
		path := plant(t, dir, rec)
		d := new(disk)
		d.fail(syscall.EACCES, "open")
		r := opened(t, dir, d.option)
		if !r.Has(rec.Key, rec.Type) || !strings.Contains(r.log.String(), path) {
			t.Errorf("it is forgotten, or not told: %s", r.log)
		}
		d.fail(nil)
		r.loads(t, rec)
	})
}

// What is found damaged is set aside by its own name, told once, and never served;
// what comes next takes its place.
func TestDamagedFilesAreSetAside(t *testing.T) {
	for _, when := range []string{"at start", "when it is read"} {
		t.Run(when, func(t *testing.T) {
			dir := t.TempDir()
			rec := clusters(t, "one", 30, 1000)
			path := plant(t, dir, rec)
			spoil := func() {
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				at := len(b) / 2
				if when == "at start" {
					at = preambleSize + 10
				}
				b[at] ^= 0x10
				if err := os.WriteFile(path, b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			spoil()
			r := running(t, dir)
			for range 3 {
				if got, _ := r.Load(rec.Key, rec.Type); got != nil {
					t.Fatal("it is served")
				}
				if r.Has(rec.Key, rec.Type) {
					t.Error("it is said to be there")
				}
			}
			until(t, "it is set aside", func() bool { return r.Status().SetAside == 1 })
			is, err := os.Stat(filepath.Join(dir, asideDir))
			if err != nil || is.Mode().Perm() != 0o700 {
				t.Errorf("%v, %v", is, err)
			}
			aside, err := os.ReadFile(filepath.Join(dir, asideDir, filepath.Base(path)+".1"))
			if err != nil || len(aside) < 30_000 {
				t.Errorf("%d bytes, %v", len(aside), err)
			}
			if n := strings.Count(r.log.String(), path); n != 1 || !strings.Contains(r.log.String(), "sum") {
				t.Errorf("it is told %d times: %s", n, r.log)
			}
			r.counts(t, map[string]float64{"store_damaged_total": 1, "store_files": 0, "store_bytes": float64(len(aside))})
			r.put(t, rec)
			r.loads(t, rec)
			r.stop()
			r = opened(t, dir)
			r.loads(t, rec)
			if st := r.Status(); st.SetAside != 1 || st.SetAsideBytes != int64(len(aside)) || st.Damaged != 0 {
				t.Errorf("status is %+v", st)
			}
		})
	}
}

// What a writer replaced meanwhile is not set aside for what was read before.
func TestWhatWasReplacedIsNotSetAside(t *testing.T) {
	dir := t.TempDir()
	rec := clusters(t, "one", 30, 1000)
	path := plant(t, dir, rec)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	d := new(disk)
	r := running(t, dir, d.option)
	newer := clusters(t, "one", 30, 900)
	once := sync.OnceFunc(func() { r.put(t, newer) })
	d.look = func(op, _ string) {
		if op == "read" {
			once()
		}
	}
	if got, err := r.Load(rec.Key, rec.Type); got != nil || !isDamage(err) {
		t.Errorf("%v, %v", got, err)
	}
	r.put(t, clusters(t, "other", 1, 1)) // so that Run has looked
	r.loads(t, newer)
	if st := r.Status(); st.Damaged != 0 || st.SetAside != 0 {
		t.Errorf("status is %+v", st)
	}
}

// Of damaged files a bounded number is kept: the newest.
func TestDamagedFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	rec := clusters(t, "one", 1, 10)
	for i := range maxAside + 10 {
		path := plant(t, dir, rec)
		b := append(written(t, rec)[:40+i], bytes.Repeat([]byte("x"), 10)...)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		r := opened(t, dir)
		if st := r.Status(); st.SetAside != min(i+1, maxAside) || st.Files != 0 {
			t.Fatalf("after %d: %+v", i, st)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, asideDir))
	if err != nil || len(entries) != maxAside {
		t.Errorf("%d files, %v", len(entries), err)
	}
	newest := filepath.Join(dir, asideDir, fmt.Sprintf("%s.%d", slot{rec.Key, rec.Type}.name(), maxAside+10))
	if _, err := os.Stat(newest); err != nil {
		t.Error(err)
	}
	// By their size as well.
	r := opened(t, dir, func(o *Options) { o.MaxBytes = 10_000 })
	plant(t, dir, rec)
	big := append(written(t, clusters(t, "two", 1, 500)), 0)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, slot{xds.NewKey("two"), rec.Type}.name()), big, 0o600); err != nil {
		t.Fatal(err)
	}
	r = opened(t, dir, func(o *Options) { o.MaxBytes = 10_000 })
	if st := r.Status(); st.SetAsideBytes > 1000 || st.SetAside == 0 {
		t.Errorf("status is %+v", st)
	}
}

// What needs no writing says nothing of whether the disk takes what is written.
func TestAFullDiskAndWhatNeedsNoWriting(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := new(disk)
		r := running(t, dir, d.option, func(o *Options) { o.MaxAge = time.Hour })
		same := clusters(t, "same", 3, 100)
		src := r.put(t, same)
		d.fail(syscall.ENOSPC, "create")
		rec := clusters(t, "new", 3, 100)
		r.Touch(rec.Key, rec.Type, new(source).set(rec))
		for range 20 {
			time.Sleep(time.Minute)
			r.Touch(same.Key, same.Type, src)
			none := clusters(t, "none", 0, 0)
			r.Touch(none.Key, none.Type, new(source))
		}
		synctest.Wait()
		if n := r.told("cannot write"); n != 1 || r.told("written again") != 0 || !r.Status().Failing {
			t.Errorf("it is told %d times: %s", n, r.log)
		}
		d.fail(nil)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if r.told("written again") != 1 || r.Status().Failing {
			t.Errorf("it is not told that it is over: %s", r.log)
		}
		r.stop()
	})
}

// Nor does what failed and needs no writing any more, while anything else waits. When
// nothing does, nothing fails.
func TestAFullDiskAndWhatNeedsNoWritingAnyMore(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := new(disk)
		r := running(t, dir, d.option)
		one, two := clusters(t, "one", 3, 100), clusters(t, "two", 3, 100)
		src1, src2 := r.put(t, one), r.put(t, two)
		d.fail(syscall.ENOSPC, "create")
		r.Touch(two.Key, two.Type, src2.set(clusters(t, "two", 3, 200)))
		for range 5 { // the origin cannot make up its mind
			r.Touch(one.Key, one.Type, src1.set(clusters(t, "one", 3, 200)))
			time.Sleep(5 * time.Minute)
			r.Touch(one.Key, one.Type, src1.set(one))
			time.Sleep(5 * time.Minute)
		}
		synctest.Wait()
		if n := r.told("cannot write"); n != 1 || r.told("written again") != 0 || !r.Status().Failing {
			t.Errorf("it is told %d times: %s", n, r.log)
		}
		r.Touch(two.Key, two.Type, src2.set(two))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if st := r.Status(); st.Failing || st.Waiting != 0 || r.told("written again") != 1 {
			t.Errorf("status is %+v: %s", st, r.log)
		}
		r.stop()
	})
}
