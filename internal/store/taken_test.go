package store

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// first has f done at the first use of the disk of this kind for the path, before
// what the disk says to it.
func (d *disk) first(op, path string, f func()) {
	once := sync.OnceFunc(f)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.look = func(o, p string) {
		if o == op && p == path {
			once()
		}
	}
}

// What a source that cannot tell leaves open, the one before has told: that is
// written, and not kept in memory any longer.
func TestASourceThatCannotTellLosesNothing(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := new(disk)
		r := running(t, dir, d.option)
		rec := clusters(t, "one", 2, 100)
		d.fail(syscall.ENOSPC, "create")
		before := new(source).set(rec)
		r.Touch(rec.Key, rec.Type, before)
		r.Release(rec.Key, rec.Type, before)
		synctest.Wait()
		twice := *rec
		twice.Entries = append(twice.Entries, twice.Entries...)
		now := new(source).set(&twice)
		r.Touch(rec.Key, rec.Type, now)
		time.Sleep(time.Minute) // it is tried, and fails
		d.fail(nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if st := r.Status(); st.Written != 1 || st.Waiting != 0 {
			t.Errorf("status is %+v", st)
		}
		r.loads(t, rec)
		r.Release(rec.Key, rec.Type, now)
		r.mu.Lock()
		if r.taken != 0 || len(r.items) != 0 {
			t.Errorf("%d bytes of %d items wait", r.taken, len(r.items))
		}
		r.mu.Unlock()
		r.stop()
		opened(t, dir).loads(t, rec)
	})
}

// What another source had, that came and went while what the first had was written,
// is newer.
func TestWhatIsTakenDuringAWriteIsWritten(t *testing.T) {
	dir := t.TempDir()
	d := new(disk)
	r := running(t, dir, d.option)
	rec, newer := clusters(t, "one", 2, 100), clusters(t, "one", 3, 100)
	d.first("rename", filepath.Join(dir, slot{rec.Key, rec.Type}.name()), func() {
		src := new(source).set(newer)
		r.Touch(newer.Key, newer.Type, src)
		r.Release(newer.Key, newer.Type, src)
	})
	first := new(source).set(rec)
	r.Touch(rec.Key, rec.Type, first)
	r.Release(rec.Key, rec.Type, first)
	r.settled(t)
	if st := r.Status(); st.Written != 2 {
		t.Errorf("status is %+v", st)
	}
	r.stop()
	opened(t, dir).loads(t, newer)
}

// A file that could not be removed for a source that went meanwhile is not removed
// later, when another one has written it.
func TestWhatIsToBeRemovedMayBeAnothersByThen(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := new(disk)
		r := running(t, dir, d.option)
		rec := clusters(t, "one", 2, 100)
		src := r.put(t, rec)
		d.fail(syscall.EIO, "remove")
		d.first("remove", filepath.Join(dir, slot{rec.Key, rec.Type}.name()), func() { r.Release(rec.Key, rec.Type, src) })
		r.Touch(rec.Key, rec.Type, src.set(nil))
		synctest.Wait()
		newer := clusters(t, "one", 3, 100)
		r.Touch(newer.Key, newer.Type, new(source).set(newer))
		time.Sleep(maxBackoff)
		d.fail(nil)
		time.Sleep(5 * maxBackoff)
		synctest.Wait()
		r.loads(t, newer)
		r.stop()
		opened(t, dir).loads(t, newer)
	})
}

// The confirmed file needs no room beside the one that it replaces.
func TestTheConfirmedFileTakesItsOwnPlace(t *testing.T) {
	dir := t.TempDir()
	d := new(disk)
	one, two := clusters(t, "one", 1, 1000), clusters(t, "two", 1, 1000)
	bound := written1(t, one) + written1(t, two) + leastConfirmed + int64(confirmedSize)
	r := running(t, dir, d.option, func(o *Options) { o.MaxBytes = bound })
	src := r.put(t, one)
	r.put(t, two)
	for i := range 3 {
		again := *one
		again.Confirmed = one.Confirmed.Add(time.Duration(i+1) * time.Second)
		r.Touch(one.Key, one.Type, src.set(&again))
		r.settled(t)
		r.stop()
		if n := used(t, dir); n != bound {
			t.Errorf("%d bytes are used of %d", n, bound)
		}
		if _, err := os.Stat(filepath.Join(dir, confirmedFile)); err != nil || r.Status().Evicted != 0 {
			t.Fatalf("%v, %+v", err, r.Status())
		}
		r = running(t, dir, d.option, func(o *Options) { o.MaxBytes = bound })
		r.loads(t, &again)
		r.loads(t, two)
	}
}

// A source that does not know yet what is good takes nothing from the disk, and is
// asked again until it does.
func TestASourceThatDoesNotKnowYetIsAskedAgain(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := running(t, dir)
		rec := clusters(t, "one", 2, 100)
		r.Release(rec.Key, rec.Type, r.put(t, rec))
		next := &source{unknown: true}
		r.Touch(rec.Key, rec.Type, next)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		r.loads(t, rec)
		next.mu.Lock()
		if next.asked < 5 || next.asked > 30 {
			t.Errorf("it was asked %d times in ten minutes", next.asked)
		}
		next.unknown, next.rec = false, clusters(t, "one", 3, 100)
		next.mu.Unlock()
		time.Sleep(2 * time.Minute)
		r.loads(t, next.rec)
		r.stop()
	})
}
