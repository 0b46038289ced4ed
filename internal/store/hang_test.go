package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/xds"
)

// hang has uses of the disk not come back until they are let.
func (d *disk) hang(ops ...string) (let func()) {
	over := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.look = func(op, _ string) {
		if slices.Contains(ops, op) {
			<-over
		}
	}
	return func() { close(over) }
}

// told counts the lines of the log that have a text.
func (r *rig) told(text string) int { return strings.Count(r.log.String(), text) }

// A disk that hangs is told of once, and once more when it does no more; what was to be
// written is then.
func TestADiskThatHangs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := new(disk)
		r := running(t, dir, d.option)
		old := clusters(t, "one", 20, 100)
		src := r.put(t, old)
		let := d.hang("create", "read")
		rec := clusters(t, "one", 20, 200)
		r.Touch(rec.Key, rec.Type, src.set(rec))
		time.Sleep(hangsAfter - time.Second)
		count(t, "told", r.told("the disk hangs"), 0)
		time.Sleep(10 * time.Minute)
		other := clusters(t, "two", 20, 100)
		r.Touch(other.Key, other.Type, new(source).set(other))
		time.Sleep(10 * time.Minute)
		count(t, "told", r.told("the disk hangs: what it is asked for"), 1)
		count(t, "told that it is over", r.told("hangs no more"), 0)
		if st := r.Status(); !strings.Contains(st.LastError, "the disk hangs") || st.Waiting != 2 || !st.Failing {
			t.Errorf("status is %+v", st)
		}
		let()
		time.Sleep(time.Minute)
		synctest.Wait()
		count(t, "told that it is over", r.told("hangs no more"), 1)
		r.loads(t, rec)
		r.loads(t, other)
		r.stop()
	})
}

// A reading that does not end is told of as well, and counts as one that failed.
func TestAReadingThatHangs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := new(disk)
		r := running(t, dir, d.option)
		rec := clusters(t, "one", 20, 100)
		r.put(t, rec)
		let := d.hang("open")
		read := make(chan struct{})
		go func() { r.loads(t, rec); close(read) }()
		time.Sleep(hangsAfter + time.Second)
		count(t, "told", r.told("the disk hangs: what it is asked for"), 1)
		if st := r.Status(); !strings.Contains(st.LastError, "reading") || !st.Failing {
			t.Errorf("status is %+v", st)
		}
		let()
		<-read
		count(t, "told that it is over", r.told("hangs no more"), 1)
		if r.Status().Failing {
			t.Error("it fails though it hangs no more")
		}
		r.stop()
	})
}

// Wherever the disk hangs, the end does not wait for it for long, and for a moment if it
// is to be at once; what was stored before stays.
func TestTheEndThoughTheDiskHangs(t *testing.T) {
	for _, op := range []string{"create", "write", "sync", "rename", "syncdir"} {
		for _, atOnce := range []bool{false, true} {
			t.Run(op, func(t *testing.T) {
				dir := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					d := new(disk)
					r := running(t, dir, d.option)
					old := clusters(t, "one", 20, 100)
					src := r.put(t, old)
					let := d.hang(op)
					rec := clusters(t, "one", 20, 200)
					r.Touch(rec.Key, rec.Type, src.set(rec))
					time.Sleep(time.Minute)
					most := lastWords + lastBreath
					if atOnce {
						time.AfterFunc(time.Second, r.hurry)
						most = time.Second + noBreath
					}
					began := time.Now()
					r.stop()
					if took := time.Since(began); took > most {
						t.Errorf("the end took %v", took)
					}
					count(t, "told", r.told("reason=\"the relay ends, and the disk hangs\""), 1)
					r.Release(rec.Key, rec.Type, src) // waits for nobody
					if o, err := Open(Options{Path: dir, Metrics: r.o.Metrics, Log: r.o.Log}); err == nil {
						t.Errorf("the directory is given away though something may be written to it yet")
						_ = o.Close()
					}
					let()
					synctest.Wait()
				})
			})
		}
	}
}

func count(t *testing.T, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}

// Keys that come and go while the disk hangs, and of which nothing is good, leave nothing
// behind.
func TestKeysThatGoWhileTheDiskHangs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := new(disk)
		r := running(t, dir, d.option)
		let := d.hang("create")
		rec := clusters(t, "one", 1, 100)
		r.Touch(rec.Key, rec.Type, new(source).set(rec))
		time.Sleep(time.Minute)
		for i := range 100 {
			key, src := xds.NewKey(fmt.Sprint(i)), new(source)
			r.Touch(key, rec.Type, src)
			r.Release(key, rec.Type, src)
		}
		count(t, "waiting", r.Status().Waiting, 1)
		r.mu.Lock()
		count(t, "items", len(r.items), 1)
		r.mu.Unlock()
		let()
		time.Sleep(time.Minute)
		synctest.Wait()
		count(t, "waiting", r.Status().Waiting, 0)
		r.loads(t, rec)
		r.stop()
	})
}
