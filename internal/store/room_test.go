package store

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/xds"
)

// used is the size of all files under dir.
func used(t testing.TB, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // it went while we looked
		}
		if err != nil || d.IsDir() || d.Name() == lockFile {
			return err
		}
		is, err := d.Info()
		if err == nil {
			n += is.Size()
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return n
}

// All files together stay within max_bytes, damaged ones included, but for the one
// that is being written. Those go first that were confirmed longest ago.
func TestMaxBytes(t *testing.T) {
	dir := t.TempDir()
	spoiled := append(written(t, clusters(t, "spoiled", 1, 500)), 0)
	if err := os.WriteFile(filepath.Join(dir, slot{xds.NewKey("spoiled"), xds.ClusterType}.name()), spoiled, 0o600); err != nil {
		t.Fatal(err)
	}
	const bound = 20_000
	d := new(disk)
	r := running(t, dir, d.option, func(o *Options) { o.MaxBytes = bound })
	d.mu.Lock()
	one := written1(t, clusters(t, "0", 1, 3000))
	d.look = func(op, _ string) {
		most := int64(bound)
		switch op {
		case "write", "sync", "remove", "rename":
			most += one
		}
		if n := used(t, dir); n > most {
			t.Errorf("%d bytes before %s", n, op)
		}
	}
	d.mu.Unlock()
	if r.Status().SetAside != 1 {
		t.Fatalf("status is %+v", r.Status())
	}
	began := time.Now()
	var recs []*Record
	for i := range 10 { // the odd ones were confirmed longest ago
		rec := clusters(t, fmt.Sprint(i), 1, 3000)
		rec.Confirmed = began.Add(time.Duration(i-20*(i%2)) * time.Second)
		r.put(t, rec)
		recs = append(recs, rec)
	}
	if st := r.Status(); st.SetAside != 0 || st.Files != 5 || st.Evicted != 5 || st.Bytes > bound || st.Bytes != used(t, dir) {
		t.Errorf("status is %+v, and %d bytes are used", st, used(t, dir))
	}
	for i, rec := range recs {
		// The last stays, since nothing needed its room.
		if want := i == 9 || i%2 == 0 && i > 0; r.Has(rec.Key, rec.Type) != want {
			t.Errorf("%d is there: %t", i, !want)
		}
	}
	r.counts(t, map[string]float64{"store_evicted_total": 5, "store_files": 5, "store_bytes": float64(used(t, dir))})
	if n := strings.Count(r.log.String(), "want of room"); n != 1 {
		t.Errorf("it was told %d times: %s", n, r.log)
	}
	// The index is held against it at the next start as well.
	r.stop()
	r = running(t, dir, d.option, func(o *Options) { o.MaxBytes = bound })
	r.put(t, clusters(t, "ten", 1, 3000))
	if st := r.Status(); st.Files != 5 || st.Evicted != 1 {
		t.Errorf("status is %+v", st)
	}
}

// Where there is room for one of the two only, the old one stays all the same until
// the new one is there; and nobody else goes for what is only replaced.
func TestMaxBytesOfOneFile(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const bound = 5000
		d := new(disk)
		r := running(t, dir, d.option, func(o *Options) { o.MaxBytes = bound })
		old := clusters(t, "one", 1, 3000)
		src := r.put(t, old)
		other := clusters(t, "other", 1, 500)
		other.Confirmed = old.Confirmed.Add(-time.Hour) // it would be the first to go
		r.put(t, other)
		path := filepath.Join(dir, slot{old.Key, old.Type}.name())
		d.mu.Lock()
		d.look = func(op, _ string) {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("before %s: %v", op, err)
			}
			if n := used(t, dir); n > bound+written1(t, clusters(t, "one", 1, 4300)) {
				t.Errorf("%d bytes before %s", n, op)
			}
		}
		d.mu.Unlock()
		for _, op := range []string{"create", "write", "sync", "rename"} { // the disk is full
			d.fail(syscall.ENOSPC, op)
			r.Touch(old.Key, old.Type, src.set(clusters(t, "one", 1, 3100)))
			until(t, "it fails", func() bool { return r.Status().Failing })
			r.loads(t, old)
			r.loads(t, other)
			d.fail(nil)
			r.Touch(old.Key, old.Type, src.set(old))
			until(t, "it goes on", func() bool { return !r.Status().Failing })
		}
		rec := clusters(t, "one", 1, 3100)
		r.Touch(rec.Key, rec.Type, src.set(rec))
		r.settled(t)
		r.loads(t, rec)
		r.loads(t, other)
		if n := used(t, dir); n > bound || r.Status().Evicted != 0 {
			t.Errorf("%d bytes are used, %+v", n, r.Status())
		}
		// A larger one needs the other's room, and no more.
		rec = clusters(t, "one", 1, 4300)
		r.Touch(rec.Key, rec.Type, src.set(rec))
		r.settled(t)
		r.loads(t, rec)
		if n := used(t, dir); n > bound || r.Status().Evicted != 1 || r.Has(other.Key, other.Type) {
			t.Errorf("%d bytes are used, %+v", n, r.Status())
		}
		// One that has no room by itself is not written, and what was stays.
		r.Touch(rec.Key, rec.Type, src.set(clusters(t, "one", 1, 6000)))
		r.settled(t)
		r.Touch(rec.Key, rec.Type, src)
		r.settled(t)
		r.loads(t, rec)
		if n := strings.Count(r.log.String(), "larger than store.max_bytes"); n != 1 {
			t.Errorf("it was told %d times: %s", n, r.log)
		}
		r.counts(t, map[string]float64{`store_writes_total{result="too_large"}`: 2})
		r.stop()
	})
}

func written1(t *testing.T, rec *Record) int64 { return int64(len(written(t, rec))) }

// Whose room a new file needs goes when that file is on the disk, and not for one
// that cannot be written, at whatever step.
func TestNobodyGoesForWhatIsNotWritten(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := new(disk)
		r := running(t, dir, d.option, func(o *Options) { o.MaxBytes = 5000 })
		old := clusters(t, "one", 1, 3000)
		r.put(t, old)
		path := filepath.Join(dir, slot{old.Key, old.Type}.name())
		d.mu.Lock()
		d.look = func(op, _ string) {
			if _, err := os.Stat(path); err != nil && slices.Contains([]string{"create", "write", "sync", "remove"}, op) {
				t.Errorf("before %s: %v", op, err)
			}
		}
		d.mu.Unlock()
		rec := clusters(t, "two", 1, 3000)
		src := new(source).set(rec)
		for _, op := range []string{"create", "write", "sync"} {
			d.fail(syscall.ENOSPC, op)
			r.Touch(rec.Key, rec.Type, src)
			until(t, "it fails", func() bool { return r.Status().Failing })
			r.loads(t, old)
			if st := r.Status(); st.Files != 1 || st.Evicted != 0 || len(temps(t, dir)) > 0 {
				t.Errorf("%s: status is %+v, and left lying about: %v", op, st, temps(t, dir))
			}
			d.fail(nil)
			r.Touch(rec.Key, rec.Type, src.set(nil))
			until(t, "it goes on", func() bool { return !r.Status().Failing })
			src.set(rec)
		}
		r.Touch(rec.Key, rec.Type, src)
		r.settled(t)
		r.loads(t, rec)
		r.nothing(t, old, "its room was needed")
		if n := used(t, dir); n > 5000 {
			t.Errorf("%d bytes are used", n)
		}
		r.stop()
	})
}

// The confirmed file gives way to a record, and never takes its room.
func TestTheConfirmedFileGivesWay(t *testing.T) {
	dir := t.TempDir()
	var recs []*Record
	for i := range 20 {
		recs = append(recs, clusters(t, fmt.Sprint(i), 1, 10))
	}
	big := clusters(t, "big", 1, 20_000)
	bound := written1(t, big) + leastConfirmed
	o := func(o *Options) { o.MaxBytes = bound }
	r := running(t, dir, o)
	for _, rec := range recs {
		src := r.put(t, rec)
		again := *rec
		again.Confirmed = rec.Confirmed.Add(time.Second)
		r.Touch(rec.Key, rec.Type, src.set(&again))
		r.settled(t)
	}
	r.stop()
	if _, err := os.Stat(filepath.Join(dir, confirmedFile)); err != nil {
		t.Fatal(err)
	}
	r = running(t, dir, o)
	src := r.put(t, big)
	if n := used(t, dir); n > bound || r.Status().Files != 1 || r.Status().Evicted != 20 {
		t.Errorf("%d bytes are used, %+v", n, r.Status())
	}
	again := *big
	again.Confirmed = big.Confirmed.Add(time.Second)
	r.Touch(big.Key, big.Type, src.set(&again))
	r.settled(t)
	r.stop()
	if n := used(t, dir); n != bound {
		t.Errorf("%d bytes are used of %d", n, bound)
	}
	opened(t, dir, o).loads(t, &again)
	// A byte more, and it is not written.
	dir = t.TempDir()
	r = running(t, dir, func(o *Options) { o.MaxBytes = bound - 1 })
	r.put(t, big)
	r.nothing(t, big, "it does not fit")
}

// The order in which files go is right whatever is confirmed, comes and goes.
func TestTheOldestGoesFirst(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	s := &Store{index: make(map[string]*file)}
	began := time.Now()
	for i := range 3000 {
		var own *file
		for _, f := range s.index {
			own = f
			break
		}
		switch n := rnd.IntN(4); {
		case own == nil || n < 2 && len(s.index) < 50:
			s.add(&file{name: fmt.Sprint(i), size: 1, confirmed: began.Add(time.Duration(rnd.IntN(100)))})
		case n == 2:
			s.confirm(own, began.Add(time.Duration(rnd.IntN(100))))
		default:
			s.forget(own)
			s.forget(own) // changes nothing
		}
		var want *file
		for _, f := range s.index {
			if f != own && (want == nil || f.confirmed.Before(want.confirmed)) {
				want = f
			}
		}
		got := s.ages.but(own)
		if (got == nil) != (want == nil) || got != nil && (got == own || !got.confirmed.Equal(want.confirmed)) {
			t.Fatalf("%d: %+v, and should be %+v", i, got, want)
		}
		if len(s.ages) != len(s.index) || s.bytes != int64(len(s.index)) {
			t.Fatalf("%d: %d of %d files, %d bytes", i, len(s.ages), len(s.index), s.bytes)
		}
	}
}

// What cannot be removed to make room is not gone over: nothing is written then.
func TestRoomThatCannotBeMade(t *testing.T) {
	dir := t.TempDir()
	d := new(disk)
	r := running(t, dir, d.option, func(o *Options) { o.MaxBytes = 5000 })
	rec := clusters(t, "one", 1, 3000)
	r.put(t, rec)
	d.fail(fs.ErrPermission, "remove")
	src := new(source).set(clusters(t, "two", 1, 3000))
	r.Touch(xds.NewKey("two"), rec.Type, src)
	until(t, "it fails", func() bool { return r.Status().Failing })
	if n := used(t, dir); n > 5000 {
		t.Errorf("%d bytes are used", n)
	}
	r.loads(t, rec)
}

// Equal content is not written again, not after a restart either; what someone
// removed is.
func TestNothingIsWrittenTwice(t *testing.T) {
	dir := t.TempDir()
	d := new(disk)
	r := running(t, dir, d.option)
	rec := clusters(t, "one", 5, 100)
	src := r.put(t, rec)
	for range 3 {
		r.Touch(rec.Key, rec.Type, src)
		r.settled(t)
	}
	r.stop()
	r = running(t, dir, d.option)
	r.put(t, rec)
	if n := d.counted("create"); n != 1 {
		t.Errorf("%d writes", n)
	}
	r.counts(t, map[string]float64{`store_writes_total{result="unchanged"}`: 1, `store_writes_total{result="written"}`: 0})
	if err := os.Remove(filepath.Join(dir, slot{rec.Key, rec.Type}.name())); err != nil {
		t.Fatal(err)
	}
	r.nothing(t, rec, "someone removed it")
	r.put(t, rec)
	r.loads(t, rec)
	// Whatever differs, it is written: a byte, a name's spelling, a version, a node.
	n := d.counted("create")
	for what, change := range map[string]func(*Record){
		"node":     func(r *Record) { r.Node = []byte("another") },
		"origin":   func(r *Record) { r.Origin = "another" },
		"version":  func(r *Record) { r.Version = "another" },
		"wildcard": func(r *Record) { r.Wildcard = false },
		"entry":    func(r *Record) { r.Entries = r.Entries[1:] },
		"part":     func(r *Record) { r.Entries = bothWays(r.Entries) },
		"resource": func(r *Record) { r.Entries = []Entry{{resource(t, r.Type, "a", "1", "x"), true}} },
		"its own version": func(r *Record) {
			r.Entries = []Entry{{resource(t, r.Type, "a", "2", "x"), true}}
		},
	} {
		other := *rec
		change(&other)
		r.put(t, &other)
		if n++; d.counted("create") != n {
			t.Errorf("another %s is not written", what)
		}
		r.loads(t, &other)
	}
}

func bothWays(in []Entry) (out []Entry) {
	for _, e := range in {
		out = append(out, e, Entry{e.Resource, !e.Wild})
	}
	return out
}

// Entries in any order are stored in theirs; the same twice is a fault of who says
// so, and leaves what was.
func TestOrderOfEntries(t *testing.T) {
	r := running(t, t.TempDir())
	rec := clusters(t, "one", 5, 10)
	turned := *rec
	turned.Entries = nil
	for _, e := range rec.Entries {
		turned.Entries = append([]Entry{e}, turned.Entries...)
	}
	src := r.put(t, &turned)
	r.loads(t, rec)
	twice := *rec
	twice.Entries = append(slices.Clone(rec.Entries), rec.Entries[4])
	r.Touch(rec.Key, rec.Type, src.set(&twice))
	r.settled(t)
	r.loads(t, rec)
	if !strings.Contains(r.log.String(), "twice") {
		t.Errorf("it is not told: %s", r.log)
	}
	if !bytes.Equal(turned.Node, rec.Node) {
		t.Error("the source's record was changed")
	}
}
