package store

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/xds"
)

// clock is a wall clock that tests set.
type clock struct {
	mu   sync.Mutex
	at   time.Time
	from time.Time // if it runs: since when
}

func newClock() *clock { return &clock{at: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)} }

func (c *clock) option(o *Options) { o.Now = c.now }

func (c *clock) now() time.Time { return c.jump(0) }

// runs has it go on from here as time does.
func (c *clock) runs() *clock {
	c.from = time.Now()
	return c
}

func (c *clock) jump(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
	if !c.from.IsZero() {
		return c.at.Add(time.Since(c.from))
	}
	return c.at
}

func maxAge(d time.Duration) func(*Options) { return func(o *Options) { o.MaxAge = d } }

// nothing is what a store has to give of rec.
func (r *rig) nothing(t *testing.T, rec *Record, why string) {
	t.Helper()
	if got, err := r.Load(rec.Key, rec.Type); got != nil || err != nil {
		t.Errorf("%s: %+v, %v", why, got, err)
	}
}

// What was not confirmed for longer than max_age is not served, from the disk and
// on its way there; and may be again under another max_age.
func TestMaxAge(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { // else the clock, which stands still, is set back all the while
		c := newClock()
		rec := clusters(t, "one", 3, 10)
		rec.Confirmed = c.now()
		r := running(t, dir, c.option, maxAge(time.Hour))
		r.Touch(rec.Key, rec.Type, new(source).set(rec))
		synctest.Wait()
		tooOld := func(rec *Record, want bool) {
			t.Helper()
			if r.TooOld(rec.Key, rec.Type) != want {
				t.Errorf("%s too old is %v", rec.Key, !want)
			}
		}
		c.jump(time.Hour)
		r.loads(t, rec)
		tooOld(rec, false)
		c.jump(time.Nanosecond)
		r.nothing(t, rec, "too old")
		tooOld(rec, true)
		r.stop()
		r = opened(t, dir, c.option, maxAge(time.Hour))
		r.nothing(t, rec, "too old after a restart")
		tooOld(rec, true)
		tooOld(clusters(t, "none", 1, 10), false)
		waits := clusters(t, "two", 3, 10)
		waits.Confirmed = rec.Confirmed
		src := new(source).set(waits)
		r.Touch(waits.Key, waits.Type, src)
		r.Release(waits.Key, waits.Type, src)
		r.nothing(t, waits, "too old on its way to the disk")
		tooOld(waits, true)
		r.counts(t, map[string]float64{`store_loads_total{result="too_old"}`: 2})
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		opened(t, dir, c.option).loads(t, rec)
	})
}

// When a record gets too old is told in time of the monotonic clock.
func TestExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		rec := clusters(t, "one", 1, 10)
		rec.Confirmed = c.now()
		r := opened(t, t.TempDir(), c.option, maxAge(time.Hour))
		for _, test := range []struct {
			name       string
			jump, want time.Duration
		}{
			{"as it is confirmed", 0, time.Hour},
			{"later", 20 * time.Minute, 40 * time.Minute},
			{"at the end", 40 * time.Minute, 0},
			{"too old", time.Hour, -time.Hour},
			{"from the future", -10 * 365 * 24 * time.Hour, time.Hour},
		} {
			c.jump(test.jump)
			at, guess := r.Expires(rec)
			if got := time.Until(at); got != test.want || guess != (test.jump < 0) {
				t.Errorf("%s: in %v, guess %v, and should be in %v", test.name, got, guess, test.want)
			}
		}
		if at, _ := r.Expires(&Record{}); !at.Before(time.Now()) {
			t.Errorf("what was never confirmed lasts until %v", at)
		}
		if at, _ := opened(t, t.TempDir(), c.option).Expires(rec); !at.IsZero() {
			t.Errorf("without max_age it lasts until %v", at)
		}
	})
}

// What does not change is not written again, and is as old as the source says all
// the same: after an end and after a crash at any time.
func TestWhatIsConfirmedIsNotWrittenAgain(t *testing.T) {
	dir, copies := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now
		d := new(disk)
		r := running(t, dir, d.option, maxAge(80*time.Minute))
		rec := clusters(t, "one", 3, 10)
		src := r.put(t, rec)
		quiet := clusters(t, "two", 3, 10) // its source goes, and it is not confirmed any more
		r.Release(quiet.Key, quiet.Type, r.put(t, quiet))
		// This one's source has less to say by now, and has not said so.
		less := clusters(t, "three", 3, 10)
		lessSrc := r.put(t, less)
		less = clusters(t, "three", 2, 10)
		lessSrc.set(less)
		nilSrc := r.put(t, clusters(t, "four", 3, 10))
		nilSrc.set(nil)
		writes := d.counted("create")
		for i := range 50 {
			again := *rec
			again.Confirmed = now()
			src.set(&again)
			time.Sleep(7 * time.Minute)
			synctest.Wait()
			said := *less
			said.Confirmed = now()
			lessSrc.set(&said)
			if n := d.counted("create") - writes; n > i+2 {
				t.Fatalf("%d writes in %v", n, time.Duration(i+1)*7*time.Minute)
			}
			// The process dies, and another one starts.
			crashed := filepath.Join(copies, "crashed")
			if err := os.RemoveAll(crashed); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(crashed, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			o := opened(t, crashed, maxAge(80*time.Minute))
			got, err := o.Load(rec.Key, rec.Type)
			if err != nil || got == nil || now().Sub(got.Confirmed) > 7*time.Minute+11*time.Minute {
				t.Fatalf("after %v: %+v, %v", time.Duration(i+1)*7*time.Minute, got, err)
			}
			if err := o.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if st := r.Status(); st.Written != 5 || st.Files != 4 {
			t.Errorf("status is %+v", st)
		}
		last := *rec
		last.Confirmed = now()
		src.set(&last)
		r.stop()
		o := opened(t, dir, maxAge(80*time.Minute))
		o.loads(t, &last)
		o.nothing(t, quiet, "it was not confirmed")
		less.Confirmed = now()
		o.loads(t, less)
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// When it is not known when files were confirmed, they are as old as they say.
func TestADamagedConfirmedFile(t *testing.T) {
	dir := t.TempDir()
	c := newClock()
	rec := clusters(t, "one", 3, 10)
	rec.Confirmed = c.now()
	r := running(t, dir, c.option, maxAge(time.Hour))
	src := r.put(t, rec)
	again := *rec
	again.Confirmed = c.jump(50 * time.Minute)
	r.Touch(rec.Key, rec.Type, src.set(&again))
	r.settled(t)
	r.stop()
	r = opened(t, dir, c.option, maxAge(time.Hour))
	r.loads(t, &again)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, confirmedFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var bad [][]byte
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 0x04
		bad = append(bad, b, good[:i])
	}
	for _, b := range append(bad, append(bytes.Clone(good), good...)) {
		if at, err := decodeConfirmed(bytes.NewReader(b), int64(len(b))); at != nil || !isDamage(err) {
			t.Fatalf("%v, %v", at, err)
		}
	}
	if err := os.WriteFile(path, bad[len(bad)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	r = running(t, dir, c.option, maxAge(time.Hour))
	r.loads(t, rec)
	if st := r.Status(); st.SetAside != 1 || st.Damaged != 1 || st.Files != 1 || !strings.Contains(r.log.String(), path) {
		t.Errorf("status is %+v; %s", st, r.log)
	}
	// It is made anew.
	r.Touch(rec.Key, rec.Type, src)
	r.settled(t)
	r.stop()
	opened(t, dir, c.option, maxAge(time.Hour)).loads(t, &again)
}

// A clock that jumps stops nobody, makes nobody hurry, and what was confirmed in this
// life is as old as it is: but for one that leaps forth, which may have slept.
func TestTheClockJumps(t *testing.T) {
	for name, jump := range map[string]time.Duration{"back": -10 * 365 * 24 * time.Hour, "forth": 10 * 365 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				c := newClock().runs()
				d := new(disk)
				r := running(t, dir, c.option, d.option, maxAge(time.Hour), func(o *Options) { o.Interval = 5 * time.Second })
				rec := clusters(t, "one", 3, 10)
				rec.Confirmed = c.now()
				src := r.put(t, rec)
				kept := clusters(t, "kept", 3, 10)
				kept.Confirmed = c.now()
				r.put(t, kept)
				c.jump(jump)
				if jump < 0 { // it is as old as it is
					back := *kept
					back.Confirmed = kept.Confirmed.Add(jump)
					r.loads(t, &back)
				} else {
					r.nothing(t, kept, "too old by the clock")
				}
				before := d.counted("create")
				for i := range 100 { // ten seconds of changes
					newer := clusters(t, "one", 3, 10+i)
					newer.Confirmed = c.now()
					r.Touch(rec.Key, rec.Type, src.set(newer))
					rec = newer
					time.Sleep(100 * time.Millisecond)
				}
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if n := d.counted("create") - before; n < 2 || n > 4 {
					t.Errorf("%d writes in 15 s", n)
				}
				r.loads(t, rec)
				last := *rec
				last.Confirmed = rec.Confirmed.Add(-jump)
				c.jump(-jump)
				r.loads(t, &last)
				if r.loads(t, kept); strings.Contains(r.log.String(), "from the future") {
					t.Errorf("log: %s", r.log)
				}
				// Once the clock is right the source says so, and it is as old as it is.
				right := *rec
				right.Confirmed = c.now()
				src.set(&right)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				r.loads(t, &right)
				before = d.counted("create")
				time.Sleep(time.Hour)
				if n := d.counted("create") - before; n > 8 {
					t.Errorf("%d writes in an hour without changes", n)
				}
				r.stop()
			})
		})
	}
}

// However often it changes, a key's type is written once in an interval, and what
// is written last is the newest.
func TestInterval(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := new(disk)
		r := running(t, dir, d.option, func(o *Options) { o.Interval = 5 * time.Second })
		src := new(source)
		var last *Record
		began := time.Now()
		d.look = func(op, _ string) {
			if op == "create" {
				if age := r.metrics.Store.UnwrittenAge(); age > 5*time.Second+10*time.Millisecond {
					t.Errorf("at %v a change had waited for %v", time.Since(began), age)
				}
			}
		}
		for i := range 600 { // a minute
			last = clusters(t, "one", 2, i)
			r.Touch(last.Key, last.Type, src.set(last))
			if i%50 == 0 { // keys that come and go do not get around it
				r.Release(last.Key, last.Type, src)
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := d.counted("create"); n < 12 || n > 14 {
			t.Errorf("%d writes in 65 s", n)
		}
		r.loads(t, last)
		r.counts(t, map[string]float64{"store_unwritten_age_seconds": 0})
		r.stop()
	})
}

// Of two sources of one key's type the newest counts, whatever the older one does.
func TestTheNewestSourceCounts(t *testing.T) {
	r := running(t, t.TempDir())
	old, rec := clusters(t, "one", 2, 10), clusters(t, "one", 2, 20)
	before := r.put(t, old)
	now := r.put(t, rec)
	asked := before.asked
	r.Release(rec.Key, rec.Type, before)
	r.loads(t, rec)
	r.Touch(rec.Key, rec.Type, now)
	r.settled(t)
	if before.asked != asked {
		t.Error("the older one is asked")
	}
	r.loads(t, rec)
}

// Release waits for a source that is being asked, and only for that.
func TestReleaseWaitsUntilTheSourceIsNotAsked(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := running(t, dir)
		src := &slowSource{rec: clusters(t, "one", 2, 10), takes: time.Minute}
		r.Touch(src.rec.Key, src.rec.Type, src)
		synctest.Wait() // it is being asked
		began := time.Now()
		r.Release(src.rec.Key, src.rec.Type, src)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it took %v", took)
		}
		r.Touch(src.rec.Key, src.rec.Type, src)
		time.Sleep(2 * maxRest)
		synctest.Wait()
		r.Touch(src.rec.Key, src.rec.Type, src) // there is more to ask
		began = time.Now()
		r.Release(src.rec.Key, src.rec.Type, src)
		if took := time.Since(began); took < 2*time.Minute-2*maxRest || took > 2*time.Minute {
			t.Errorf("with more to ask it took %v", took)
		}
		n := src.asked.Load()
		time.Sleep(3 * time.Hour)
		if src.asked.Load() != n {
			t.Error("it is asked after Release")
		}
		r.loads(t, src.rec)
		r.stop()
	})
}

// Nothing of a type that nobody stored is there.
func TestUnknown(t *testing.T) {
	r := opened(t, t.TempDir())
	r.Touch(xds.Key{}, xds.ClusterType, new(source))
	r.Touch(xds.NewKey("one"), xds.ClusterType, nil)
	r.Release(xds.NewKey("one"), xds.ClusterType, new(source))
	if st := r.Status(); st.Waiting != 0 {
		t.Errorf("status is %+v", st)
	}
}
