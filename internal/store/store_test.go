package store

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"xdsrelay/internal/xds"
)

// What was good is good after a restart, as it was.
func TestWhatIsGoodOutlivesTheProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	r := running(t, dir)
	recs := []*Record{clusters(t, "one", 10, 100), clusters(t, "two", 0, 0), clusters(t, "three", 1, 1<<20)}
	for _, rec := range recs {
		r.put(t, rec)
	}
	for _, rec := range recs {
		r.loads(t, rec)
	}
	r.stop()
	r = running(t, dir)
	for _, rec := range recs {
		if !r.Has(rec.Key, rec.Type) {
			t.Errorf("%s is not there", rec.Key)
		}
		r.loads(t, rec)
	}
	for _, none := range []struct {
		key xds.Key
		typ xds.TypeURL
	}{{xds.NewKey("one"), xds.ListenerType}, {xds.NewKey("one", ""), xds.ClusterType}, {xds.NewKey("four"), xds.ClusterType}} {
		if got, err := r.Load(none.key, none.typ); got != nil || err != nil || r.Has(none.key, none.typ) {
			t.Errorf("%s %s: %v, %v", none.key, none.typ, got, err)
		}
	}
	if st := r.Status(); st.Files != 3 || st.Bytes < 1<<20 || st.Oldest.IsZero() {
		t.Errorf("status is %+v", st)
	}
}

// Nobody but the relay's user can read what it keeps.
func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	r := running(t, dir)
	r.put(t, clusters(t, "one", 3, 10))
	r.stop()
	if is, err := os.Stat(dir); err != nil || is.Mode().Perm() != 0o700 {
		t.Errorf("the directory is %v, %v", is.Mode(), err)
	}
	n := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		is, err := d.Info()
		if err == nil && is.Mode().Perm() != 0o600 {
			t.Errorf("%s is %v", path, is.Mode())
		}
		n++
		return err
	})
	if err != nil || n < 2 {
		t.Errorf("%d files, %v", n, err)
	}
}

// When nothing is good any more, nothing is kept.
func TestWhatIsNotGoodGoes(t *testing.T) {
	r := running(t, t.TempDir())
	rec := clusters(t, "one", 3, 10)
	src := r.put(t, rec)
	src.set(nil)
	r.Touch(rec.Key, rec.Type, src)
	r.settled(t)
	if r.Has(rec.Key, rec.Type) {
		t.Error("it is still there")
	}
	if got, err := r.Load(rec.Key, rec.Type); got != nil || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if st := r.Status(); st.Files != 0 {
		t.Errorf("status is %+v", st)
	}
}

// A source that is released is asked once more and then never; what was new of it
// is there before it is written, and after.
func TestReleaseTakesWhatIsNew(t *testing.T) {
	dir := t.TempDir()
	r := opened(t, dir) // nobody writes
	rec := clusters(t, "one", 3, 10)
	src := new(source).set(rec)
	r.Touch(rec.Key, rec.Type, src)
	r.Release(rec.Key, rec.Type, src)
	src.set(nil)
	r.loads(t, rec)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r = running(t, dir)
	r.Touch(rec.Key, rec.Type, src.set(rec))
	r.Release(rec.Key, rec.Type, src)
	asked := src.set(nil).asked
	r.settled(t)
	r.loads(t, rec)
	r.stop()
	if src.asked != asked {
		t.Errorf("it was asked %d times after it was released", src.asked-asked)
	}
	opened(t, dir).loads(t, rec)
}

// A source that loads what was good before it begins, as groups do, finds what was
// taken of the one before it, though that is on no disk yet.
func TestASourceMayLoadWhatWasTaken(t *testing.T) {
	dir := t.TempDir()
	r := opened(t, dir)
	rec := clusters(t, "one", 3, 10)
	before := new(source).set(rec)
	r.Touch(rec.Key, rec.Type, before)
	r.Release(rec.Key, rec.Type, before)
	src := &loadingSource{store: r.Store, key: rec.Key, typ: rec.Type}
	r.Touch(rec.Key, rec.Type, src)
	r.Release(rec.Key, rec.Type, src)
	if diff := equal(rec, src.found); diff != "" {
		t.Errorf("it found something else: %s", diff)
	}
	r.loads(t, rec)
}

// loadingSource says what it loads.
type loadingSource struct {
	store *Store
	key   xds.Key
	typ   xds.TypeURL
	found *Record
}

func (s *loadingSource) Good() (*Record, bool) {
	s.found, _ = s.store.Load(s.key, s.typ)
	return s.found, true
}
