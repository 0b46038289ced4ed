package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/xds"
)

// late opens a store on a disk that hangs as it is opened, and runs it.
func late(t *testing.T, dir string, d *disk) *rig {
	t.Helper()
	began := time.Now()
	r := running(t, dir, d.option)
	if took := time.Since(began); took != hangsAfter {
		t.Errorf("it took %v to start", took)
	}
	synctest.Wait()
	return r
}

// A relay starts though the disk hangs, which is told once; what is on it is as what is
// being read. When the disk comes back that is there, and what is new is written.
func TestADiskThatHangsAtTheStart(t *testing.T) {
	for _, op := range []string{"opendir", "open"} {
		t.Run(op, func(t *testing.T) {
			dir := t.TempDir()
			old, other := clusters(t, "old", 3, 100), clusters(t, "other", 3, 100)
			synctest.Test(t, func(t *testing.T) {
				old.Confirmed, other.Confirmed = time.Now(), time.Now()
				plant(t, dir, old)
				d := new(disk)
				let := d.hang(op)
				r := late(t, dir, d)
				if !r.Has(old.Key, old.Type) || !r.Has(other.Key, other.Type) || r.Has(old.Key, xds.SecretType) {
					t.Error("it is known what is there")
				}
				src := new(source).set(other)
				r.Touch(other.Key, other.Type, src)
				read := make(chan struct{})
				go func() { r.loads(t, old); close(read) }()
				time.Sleep(time.Hour)
				count(t, "told", r.told("the disk hangs: what it is asked for"), 1)
				if st := r.Status(); !st.Failing || st.Waiting != 1 || !strings.Contains(st.LastError, "opening") {
					t.Errorf("status is %+v", st)
				}
				r.counts(t, map[string]float64{`store_writes_total{result="failed"}`: 1})
				select {
				case <-read:
					t.Error("something is read")
				default:
				}
				let()
				<-read
				time.Sleep(time.Second)
				synctest.Wait()
				count(t, "told that it is over", r.told("hangs no more"), 1)
				r.loads(t, other)
				if st := r.Status(); st.Failing || st.Waiting != 0 || st.Files != 2 || st.Bytes != used(t, dir) {
					t.Errorf("status is %+v", st)
				}
				r.stop()
				again := opened(t, dir)
				again.loads(t, old)
				again.loads(t, other)
			})
		})
	}
}

// Where the disk comes back with an error, it is tried again.
func TestADiskThatHangsAtTheStartAndFails(t *testing.T) {
	dir := t.TempDir()
	old := clusters(t, "old", 3, 100)
	synctest.Test(t, func(t *testing.T) {
		old.Confirmed = time.Now()
		plant(t, dir, old)
		d := new(disk)
		let := d.hang("opendir")
		r := late(t, dir, d)
		d.fail(syscall.EIO, "opendir")
		let()
		// That one was asked before it failed.
		time.Sleep(time.Second)
		synctest.Wait()
		r.loads(t, old)
		r.stop()

		d = new(disk)
		d.fail(syscall.EIO, "opendir")
		let = d.hang("opendir")
		r = late(t, dir, d)
		let()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if st := r.Status(); !st.Failing || !strings.Contains(st.LastError, "input/output") {
			t.Errorf("status is %+v", st)
		}
		count(t, "told", r.told("cannot write"), 1)
		d.fail(nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		r.loads(t, old)
		if st := r.Status(); st.Failing {
			t.Errorf("status is %+v", st)
		}
		r.stop()
	})
}

// A relay that ends while the disk still hangs as at its start does not wait for it, nor
// does who reads; and the directory is given back when it has come to be opened.
func TestTheEndThoughTheDiskHangsSinceTheStart(t *testing.T) {
	for _, ran := range []bool{true, false} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			d := new(disk)
			let := d.hang("opendir")
			var r *rig
			if ran {
				r = late(t, dir, d)
			} else {
				r = opened(t, dir, d.option)
			}
			rec := clusters(t, "one", 3, 100)
			r.Touch(rec.Key, rec.Type, new(source).set(rec))
			read := make(chan error, 1)
			go func() { _, err := r.Load(rec.Key, xds.EndpointType); read <- err }()
			synctest.Wait()
			began := time.Now()
			if ran {
				r.stop()
				count(t, "told", r.told("reason=\"the relay ends, and the disk hangs\""), 1)
			} else if err := r.Close(); err != nil {
				t.Error(err)
			}
			if err := <-read; !errors.Is(err, errNotOpen) {
				t.Errorf("read: %v", err)
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("the end took %v", took)
			}
			let()
			synctest.Wait()
			opened(t, dir)
		})
	}
}

// What a directory cannot be used for is told at the start, as before.
func TestOpenFails(t *testing.T) {
	d := new(disk)
	d.fail(syscall.EACCES, "opendir")
	o, _, _ := options(t, t.TempDir())
	d.option(&o)
	if _, err := Open(o); !errors.Is(err, syscall.EACCES) || !strings.Contains(err.Error(), "store "+o.Path) {
		t.Errorf("%v", err)
	}
}

// Check waits for a disk that hangs no longer than it says.
func TestCheckOfADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		began := time.Now()
		if _, err := checkBy("here", func(string) error { <-let; return nil }); !errors.Is(err, ErrHangs) || !strings.Contains(err.Error(), "here") {
			t.Errorf("%v", err)
		}
		if took := time.Since(began); took != maxChecking {
			t.Errorf("it took %v", took)
		}
		close(let)
	})
}

// Another directory in the place of the one that was, as when a disk is mounted, is read:
// what is in it is served if nothing newer is known, counts for max_bytes, and is not
// taken for what was written to the other.
func TestAnotherDirectory(t *testing.T) {
	up := t.TempDir()
	path, other := filepath.Join(up, "store"), filepath.Join(up, "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		const bound = 20000
		r := running(t, path, func(o *Options) { o.MaxBytes = bound })
		mine, gone := clusters(t, "mine", 1, 3000), clusters(t, "gone", 1, 3000)
		r.put(t, mine)
		src := r.put(t, gone)
		r.Release(gone.Key, gone.Type, src)
		// There: the same key with something older, of the same size; a damaged file, and
		// more than there is room for together with what is good.
		older := *mine
		older.Entries = []Entry{{resource(t, mine.Type, mine.Entries[0].Resource.Name, "0", strings.Repeat("z", 3007)), true}}
		older.Confirmed = mine.Confirmed.Add(-time.Hour)
		a, b := written(t, &older), written(t, mine)
		if len(a) != len(b) {
			t.Fatalf("%d bytes, and %d", len(a), len(b))
		}
		plant(t, other, &older)
		theirs := clusters(t, "theirs", 1, 3000)
		theirs.Confirmed = theirs.Confirmed.Add(-time.Minute)
		plant(t, other, theirs)
		bad := plant(t, other, clusters(t, "bad", 1, 30))
		if err := os.WriteFile(bad, []byte("no file of ours"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"c", "d", "e", "f"} {
			rec := clusters(t, key, 1, 3000)
			rec.Confirmed = rec.Confirmed.Add(-2 * time.Hour)
			plant(t, other, rec)
		}
		if err := errors.Join(os.Rename(path, path+".was"), os.Rename(other, path)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		r.loads(t, theirs)
		r.loads(t, mine)
		r.nothing(t, gone, "it is on the other disk")
		if st := r.Status(); st.Damaged != 1 || st.Evicted == 0 || st.Waiting != 0 || st.Failing || st.Bytes+st.SetAsideBytes+r.journal != used(t, path) || used(t, path) > bound {
			t.Errorf("status is %+v, and %d bytes are used", st, used(t, path))
		}
		count(t, "told", r.told("was taken away"), 1)
		r.stop()
		again := opened(t, path)
		again.loads(t, mine)
	})
}

// While another directory cannot be read, that is tried again, and nothing is taken for
// known of it.
func TestAnotherDirectoryThatCannotBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	synctest.Test(t, func(t *testing.T) {
		d := new(disk)
		r := running(t, path, d.option)
		one := clusters(t, "one", 1, 100)
		r.put(t, one)
		d.fail(syscall.EIO, "opendir")
		if err := os.Rename(path, path+".was"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if !r.Status().Failing {
			t.Errorf("status is %+v", r.Status())
		}
		d.fail(nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		r.loads(t, one)
		if r.Status().Failing {
			t.Errorf("status is %+v", r.Status())
		}
		r.stop()
	})
}

// Where the disk that was is gone for good, so that nothing can be asked of it, what is in
// its place is used.
func TestAnotherDirectoryForOneThatIsGoneForGood(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	synctest.Test(t, func(t *testing.T) {
		r := running(t, path)
		one := clusters(t, "one", 3, 100)
		r.put(t, one)
		synctest.Wait()
		r.mu.Lock()
		was := r.lock
		r.mu.Unlock()
		if err := errors.Join(was.Close(), os.Rename(path, path+".was")); err != nil {
			t.Fatal(err)
		}
		if err := opened(t, path).Close(); err != nil { // so that there is another lock
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if st := r.Status(); st.Failing || st.Files != 1 || used(t, path) != st.Bytes {
			t.Errorf("status is %+v, and %d bytes are used", st, used(t, path))
		}
		o, _, _ := options(t, path)
		if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "in use by another relay") {
			t.Errorf("another opens it: %v", err)
		}
		count(t, "told that it fails", r.told("cannot write"), 0)
		r.stop()
	})
}

// A relay that ends writes nothing into a directory that another has by then.
func TestTheEndWhereAnotherRelayHasTheDirectory(t *testing.T) {
	up := t.TempDir()
	path, other := filepath.Join(up, "store"), filepath.Join(up, "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := running(t, path)
		one := clusters(t, "one", 3, 100)
		src := r.put(t, one)
		theirs := clusters(t, "one", 3, 50)
		plant(t, other, theirs)
		if err := errors.Join(os.Rename(path, path+".was"), os.Rename(other, path)); err != nil {
			t.Fatal(err)
		}
		o := opened(t, path)
		time.Sleep(time.Second) // it was not looked at since
		newer := clusters(t, "one", 3, 200)
		r.Touch(newer.Key, newer.Type, src.set(newer))
		r.stop()
		o.loads(t, theirs)
		if _, err := os.Stat(filepath.Join(path, confirmedFile)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("when files were confirmed is written: %v", err)
		}
		count(t, "told why", r.told("in use by another relay"), 1)
		count(t, "told", r.told("records=1 reason=\"the relay ends\""), 1)
	})
}

// Nobody waits for a disk that hangs again as it is given back.
func TestADiskThatHangsAsItIsGivenBack(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := new(disk)
		let := d.hang("opendir")
		r := late(t, dir, d)
		r.stop()
		again := d.hang("closedir")
		let()
		synctest.Wait()
		if r.mu.TryLock() {
			r.mu.Unlock()
		} else {
			t.Error("all wait for it")
		}
		again()
		synctest.Wait()
		opened(t, dir)
	})
}

// What is wrong with another directory is told once, however often it cannot be used.
func TestAnotherDirectoryThatCannotBeReadIsToldOnce(t *testing.T) {
	up := t.TempDir()
	path, other := filepath.Join(up, "store"), filepath.Join(up, "other")
	if err := errors.Join(os.Mkdir(other, 0o750), os.WriteFile(filepath.Join(other, asideDir), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := running(t, path)
		if err := os.WriteFile(plant(t, other, clusters(t, "bad", 1, 30)), []byte("no file of ours"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Rename(path, path+".was"), os.Rename(other, path)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if st := r.Status(); !st.Failing || st.Damaged != 0 {
			t.Errorf("status is %+v", st)
		}
		if err := os.Remove(filepath.Join(path, asideDir)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if st := r.Status(); st.Failing || st.Damaged != 1 || st.SetAside != 1 {
			t.Errorf("status is %+v", st)
		}
		r.counts(t, map[string]float64{"store_damaged_total": 1})
		count(t, "told that a file is damaged", r.told("a file is not served"), 1)
		count(t, "told that others may look into it", r.told("others may look into"), 1)
		r.stop()
	})
}
