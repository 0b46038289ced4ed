package store

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// What its source has said is good no more is not served, though the disk does not let
// its file go: clients would be given what the origin has removed.
func TestWhatIsGoodNoMoreIsNotServed(t *testing.T) {
	for _, released := range []bool{true, false} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			d := new(disk)
			r := running(t, dir, d.option)
			rec := clusters(t, "one", 2, 100)
			src := r.put(t, rec)
			d.fail(syscall.EROFS, "remove")
			r.Touch(rec.Key, rec.Type, src.set(nil))
			if released {
				r.Release(rec.Key, rec.Type, src)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if !released {
				if got, err := r.Load(rec.Key, rec.Type); got != nil || err != nil || r.Has(rec.Key, rec.Type) {
					t.Errorf("served while its source lives: %v, %v", got, err)
				}
				r.Release(rec.Key, rec.Type, src)
			}
			if got, err := r.Load(rec.Key, rec.Type); got != nil || err != nil {
				t.Errorf("released at once %t: served: %v, %v", released, got, err)
			}
			if r.Has(rec.Key, rec.Type) {
				t.Errorf("released at once %t: it is there", released)
			}
			d.fail(nil)
			time.Sleep(time.Hour)
			synctest.Wait()
			if st := r.Status(); st.Files != 0 || st.Waiting != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}
