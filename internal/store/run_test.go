package store

import (
	"bufio"
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/xds"
)

// Ten thousand keys at once: telling the store of them takes no time, one goroutine
// writes them one after the other, each once, and takes half of the time at most.
func TestManyAtOnce(t *testing.T) {
	const keys = 10_000
	d := new(disk)
	var writing atomic.Int32
	d.look = func(op, _ string) {
		switch op {
		case "create":
			if writing.Add(1) > 1 {
				t.Error("two are written at a time")
			}
		case "syncdir":
			writing.Add(-1)
		}
	}
	dir := t.TempDir()
	r := running(t, dir, d.option, func(o *Options) { o.Interval = time.Hour })
	one := clusters(t, "x", 1, 100)
	began := time.Now()
	for i := range keys {
		rec := *one
		rec.Key = xds.NewKey(fmt.Sprint(i))
		r.Touch(rec.Key, rec.Type, new(source).set(&rec))
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("telling of %d keys took %v", keys, took)
	}
	until(t, "some are written", func() bool { return r.Status().Written > 200 })
	writing.Store(-1000)
	d.fail(syscall.ENOSPC, "create") // so that it does not take its time in the end
	r.stop()
	st := r.Status()
	if n := uint64(d.counted("create")); st.Written+st.Failed != n {
		t.Errorf("%d files were begun, %+v", n, st)
	}
	if r := opened(t, dir); r.Status().Files != int(st.Written) {
		t.Errorf("%d files, and %d were written", r.Status().Files, st.Written)
	}
}

// When it is to end, what is new is written, if the disk lets it in time; what is
// not is told.
func TestTheEnd(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := new(disk)
		r := running(t, dir, d.option, func(o *Options) { o.Interval = time.Hour })
		var recs []*Record
		var sources []*source
		for i := range 20 {
			recs = append(recs, clusters(t, fmt.Sprint(i), 2, 10))
			sources = append(sources, r.put(t, recs[i]))
		}
		for i, src := range sources {
			recs[i] = clusters(t, fmt.Sprint(i), 2, 20)
			r.Touch(recs[i].Key, recs[i].Type, src.set(recs[i]))
		}
		began := time.Now()
		r.stop()
		if took := time.Since(began); took > time.Second {
			t.Errorf("the end took %v", took)
		}
		r.Touch(recs[0].Key, recs[0].Type, sources[0]) // changes nothing any more
		o := opened(t, dir)
		for _, rec := range recs {
			o.loads(t, rec)
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
		// A disk that takes a second for each.
		r = running(t, dir, d.option, func(o *Options) { o.Interval = time.Hour })
		d.mu.Lock()
		d.look = func(op, _ string) {
			if op == "sync" {
				time.Sleep(time.Second)
			}
		}
		d.mu.Unlock()
		for i, src := range sources {
			r.Touch(recs[i].Key, recs[i].Type, src.set(clusters(t, fmt.Sprint(i), 2, 30)))
		}
		began = time.Now()
		r.stop()
		if took := time.Since(began); took < time.Second || took > lastWords+2*time.Second {
			t.Errorf("the end took %v", took)
		}
		if !strings.Contains(r.log.String(), "the relay ends") {
			t.Errorf("it is not told: %s", r.log)
		}
		o = opened(t, dir)
		for _, rec := range recs {
			if got, err := o.Load(rec.Key, rec.Type); got == nil || err != nil {
				t.Errorf("%s: %v, %v", rec.Key, got, err)
			}
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// Who is told to end at once writes nothing more, and leaves what was: also of what
// it is about to write.
func TestTheEndAtOnce(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := new(disk)
		r := running(t, dir, d.option, func(o *Options) { o.Interval = time.Hour })
		var recs []*Record
		var sources []*source
		for i := range 4 {
			recs = append(recs, clusters(t, fmt.Sprint(i), 20, 100_000))
			sources = append(sources, r.put(t, recs[i]))
		}
		for i, src := range sources {
			r.Touch(recs[i].Key, recs[i].Type, src.set(clusters(t, fmt.Sprint(i), 20, 110_000)))
		}
		d.mu.Lock()
		d.look = func(op, _ string) {
			if op == "write" { // a slow disk
				time.Sleep(100 * time.Millisecond)
			}
		}
		d.mu.Unlock()
		began := time.Now()
		time.AfterFunc(time.Second, r.hurry)
		r.stop()
		if took := time.Since(began); took < time.Second || took > time.Second+500*time.Millisecond {
			t.Errorf("the end took %v", took)
		}
		if !strings.Contains(r.log.String(), "the relay ends") {
			t.Errorf("it is not told: %s", r.log)
		}
		if left := temps(t, dir); len(left) > 0 {
			t.Errorf("left lying about: %v", left)
		}
		o := opened(t, dir)
		for _, rec := range recs {
			if got, err := o.Load(rec.Key, rec.Type); got == nil || err != nil {
				t.Errorf("%s: %v, %v", rec.Key, got, err)
			}
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// Who releases while the relay ends takes nothing from the disk: what it has then
// is written if there is time, and else what was stays.
func TestReleaseAtTheEnd(t *testing.T) {
	for name, late := range map[string]bool{"in time": false, "too late": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				const keys = 50
				d := new(disk)
				r := running(t, dir, d.option, func(o *Options) { o.Interval = time.Hour })
				old, newer, sources := make([]*Record, keys), make([]*Record, keys), make([]*source, keys)
				for i := range keys {
					old[i], newer[i] = clusters(t, fmt.Sprint(i), 2, 10), clusters(t, fmt.Sprint(i), 2, 20)
					sources[i] = r.put(t, old[i])
				}
				for i, src := range sources {
					r.Touch(old[i].Key, old[i].Type, src.set(newer[i]))
				}
				first, goOn := make(chan struct{}), make(chan struct{})
				once := sync.OnceFunc(func() { close(first); <-goOn })
				d.mu.Lock()
				d.look = func(op, _ string) {
					if op == "sync" {
						once()
					}
				}
				d.mu.Unlock()
				done := make(chan struct{})
				go func() { defer close(done); r.stop() }()
				<-first // it is being written, and the others wait
				for i, src := range sources {
					r.Release(old[i].Key, old[i].Type, src)
					src.set(nil)
				}
				if late {
					time.Sleep(lastWords + time.Second)
				}
				close(goOn)
				<-done
				o := opened(t, dir)
				written := 0
				for i := range keys {
					got, err := o.Load(old[i].Key, old[i].Type)
					switch {
					case err != nil || got == nil:
						t.Errorf("%d is gone: %v, %v", i, got, err)
					case equal(got, newer[i]) == "":
						written++
					case equal(got, old[i]) != "":
						t.Errorf("%d is neither the old nor the new", i)
					}
				}
				if want := map[bool]int{false: keys, true: 1}[late]; written != want {
					t.Errorf("%d are written, and should be %d", written, want)
				}
				if err := o.Close(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// What a source had is written though the next one cannot say what is good; and that
// nothing is good counts when it was said at the end as well.
func TestWhatWasTakenIsWritten(t *testing.T) {
	dir := t.TempDir()
	d := new(disk)
	r := running(t, dir, d.option, func(o *Options) { o.Interval = time.Hour })
	rec := clusters(t, "one", 2, 10)
	gone := clusters(t, "gone", 2, 10)
	src, goneSrc := r.put(t, rec), r.put(t, gone)
	newer := clusters(t, "one", 2, 20)
	r.Touch(rec.Key, rec.Type, src.set(newer))
	r.Release(rec.Key, rec.Type, src)
	twice := *newer
	twice.Entries = bothWays(newer.Entries[:1])
	twice.Entries[1].Wild = true
	bad := new(source).set(&twice)
	r.Touch(rec.Key, rec.Type, bad)
	r.Release(rec.Key, rec.Type, bad)
	r.Touch(gone.Key, gone.Type, goneSrc.set(nil))
	r.Release(gone.Key, gone.Type, goneSrc)
	r.stop()
	r.mu.Lock()
	if len(r.items) != 0 || r.taken != 0 {
		t.Errorf("left: %d items, %d bytes", len(r.items), r.taken)
	}
	r.mu.Unlock()
	o := opened(t, dir)
	o.loads(t, newer)
	o.nothing(t, gone, "nothing was good")
}

// Whoever calls whatever at the same time: in the end there is what was said last.
func TestAllAtOnce(t *testing.T) {
	dir := t.TempDir()
	r := running(t, dir)
	const keys, groups, rounds = 4, 4, 60
	var recs [3]*Record
	for i := range recs {
		recs[i] = clusters(t, "x", 1+i, 50)
	}
	var all sync.WaitGroup
	for k := range keys {
		for g := range groups { // groups of one key that overlap
			all.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(k), uint64(g)))
				src := new(source)
				for range rounds {
					rec := *recs[rnd.IntN(len(recs))]
					rec.Key = xds.NewKey(fmt.Sprint(k))
					switch rnd.IntN(6) {
					case 0:
						r.Release(rec.Key, rec.Type, src)
					case 1:
						if got, err := r.Load(rec.Key, rec.Type); err != nil || got != nil && (got.Key != rec.Key || len(got.Entries) > 3) {
							t.Errorf("%+v, %v", got, err)
						}
					case 2:
						r.Has(rec.Key, rec.Type)
						r.Status()
					case 3:
						r.Touch(rec.Key, rec.Type, src.set(nil))
					default:
						r.Touch(rec.Key, rec.Type, src.set(&rec))
					}
				}
				r.Release(xds.NewKey(fmt.Sprint(k)), xds.ClusterType, src)
			})
		}
	}
	all.Wait()
	last := make([]*Record, keys)
	for k := range last {
		rec := *recs[k%len(recs)]
		rec.Key = xds.NewKey(fmt.Sprint(k))
		src := new(source).set(&rec)
		r.Touch(rec.Key, rec.Type, src)
		r.Release(rec.Key, rec.Type, src)
		last[k] = &rec
	}
	r.stop()
	r.mu.Lock()
	if len(r.items) != 0 || r.taken != 0 || r.agains != 0 || len(r.queue) != 0 || r.unwritten.Len() != 0 {
		t.Errorf("left: %d items, %d bytes, %d to be confirmed, %d queued, %d unwritten", len(r.items), r.taken, r.agains, len(r.queue), r.unwritten.Len())
	}
	r.mu.Unlock()
	o := opened(t, dir)
	for _, rec := range last {
		o.loads(t, rec)
	}
}

// killedDir is where the process that TestKilledWhileWriting starts writes.
const killedDir = "STORE_TEST_KILLED_DIR"

// A process that is killed while it writes leaves whole files, of before or after.
func TestKilledWhileWriting(t *testing.T) {
	if dir := os.Getenv(killedDir); dir != "" {
		writeForEver(t, dir)
	}
	dir := t.TempDir()
	for round := range 4 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWhileWriting$")
		cmd.Env = append(os.Environ(), killedDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 3+7*round && lines.Scan(); n++ { // at another moment each time
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // Wait closes the pipe
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("it ended by itself")
		}
		r := opened(t, dir)
		for k := range 4 {
			got, err := r.Load(xds.NewKey(fmt.Sprint(k)), xds.ClusterType)
			if err != nil {
				t.Error(err)
			}
			if got == nil {
				continue // not written yet
			}
			for _, e := range got.Entries { // all of one writing
				if e.Resource.OriginVersion != got.Version {
					t.Errorf("version %q in version %q", e.Resource.OriginVersion, got.Version)
				}
			}
		}
		if st := r.Status(); st.Files == 0 || st.Damaged > 0 || st.SetAside > 0 {
			t.Errorf("status is %+v; %s", st, r.log)
		}
		if left := temps(t, dir); len(left) > 0 {
			t.Errorf("left lying about: %v", left)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// writeForEver writes until it is killed, and prints a line for each file.
func writeForEver(t *testing.T, dir string) {
	r := running(t, dir)
	for i := 0; ; i++ {
		rec := &Record{Key: xds.NewKey(fmt.Sprint(i % 4)), Type: xds.ClusterType, Version: fmt.Sprint(i)}
		for n := range 50 {
			rec.Entries = append(rec.Entries, Entry{resource(t, rec.Type, fmt.Sprintf("c%03d", n), rec.Version, strings.Repeat("x", 1000)), false})
		}
		r.put(t, rec)
		fmt.Println(i)
	}
}

// A disk that is really full: what was there stays, and there is no more of it.
func TestARealFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("store", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v; TestAFullDisk has faults put in", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "store")
	r := running(t, path)
	rec := clusters(t, "one", 10, 10_000)
	src := r.put(t, rec)
	newer := clusters(t, "one", 20, 10_000)
	r.Touch(rec.Key, rec.Type, src.set(newer))
	until(t, "it fails", func() bool { return r.Status().Failing })
	r.loads(t, rec)
	if st := r.Status(); !strings.Contains(st.LastError, syscall.ENOSPC.Error()) {
		t.Errorf("status is %+v", st)
	}
	if left := temps(t, path); len(left) > 0 {
		t.Errorf("left lying about: %v", left)
	}
	// Less fits.
	less := clusters(t, "one", 1, 10_000)
	r.Touch(rec.Key, rec.Type, src.set(less))
	until(t, "it can be written", func() bool { return !r.Status().Failing })
	r.settled(t)
	r.loads(t, less)
	r.stop()
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// Of what nobody speaks for the file stays.
func TestNobodySpeaks(t *testing.T) {
	dir := t.TempDir()
	rec := clusters(t, "one", 2, 10)
	plant(t, dir, rec)
	r := opened(t, dir)
	r.mu.Lock()
	it := r.item(slot{rec.Key, rec.Type})
	r.touch(it)
	heap.Remove(&r.queue, it.at)
	r.mu.Unlock()
	r.do(it, func() error { return nil })
	r.loads(t, rec)
	if st := r.Status(); st.Waiting != 0 || len(r.items) != 0 {
		t.Errorf("%d items are left, %+v", len(r.items), st)
	}
}

// What is found damaged is written anew by its source, though nothing changed.
func TestDamagedIsWrittenAnew(t *testing.T) {
	dir := t.TempDir()
	r := running(t, dir)
	rec := clusters(t, "one", 2, 1000)
	r.put(t, rec)
	path := filepath.Join(dir, slot{rec.Key, rec.Type}.name())
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Load(rec.Key, rec.Type); got != nil || !isDamage(err) {
		t.Fatalf("%v, %v", got, err)
	}
	until(t, "it is written anew", func() bool { return r.Status().Written == 2 })
	r.settled(t)
	r.loads(t, rec)
}
