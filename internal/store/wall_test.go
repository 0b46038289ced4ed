package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const years = 10 * 365 * 24 * time.Hour

// confirmed makes a record of which that is said.
func confirmed(t *testing.T, key string, at time.Time) *Record {
	t.Helper()
	rec := clusters(t, key, 2, 10)
	rec.Confirmed = at
	return rec
}

// moved is a record that was confirmed so much later, or earlier.
func moved(rec *Record, by time.Duration) *Record {
	out := *rec
	out.Confirmed = rec.Confirmed.Add(by)
	return &out
}

// crashed is the directory as the next process finds it, if this one dies now.
func crashed(t *testing.T, dir string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "crashed")
	if err := os.CopyFS(out, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return out
}

// wrongAtBoot runs a store whose clock is wrong by so much and is set right later. In
// its life before, before was written, and in this one recs are, of the last of which
// the source goes. Then f, with the clock as it is right.
func wrongAtBoot(t *testing.T, by time.Duration, f func(t *testing.T, c *clock, r *rig, dir string, before *Record, recs []*Record)) {
	dir := t.TempDir()
	t.TempDir() // made here, and not in the bubble
	synctest.Test(t, func(t *testing.T) {
		c := newClock().runs()
		r := running(t, dir, c.option, maxAge(time.Hour))
		before := confirmed(t, "before", c.now())
		r.put(t, before)
		r.stop()
		time.Sleep(10 * time.Minute)
		c.jump(by)
		r = running(t, dir, c.option, maxAge(time.Hour))
		switch got, err := r.Seed(before.Key, before.Type); {
		case err != nil || equal(got, before) != "":
			t.Errorf("what is to be written anew is %+v, %v", got, err)
		case by > 0:
			r.nothing(t, before, "too old, as far as anybody can tell")
		default:
			for range 3 {
				r.loads(t, before)
			}
			if n := strings.Count(r.log.String(), "from the future"); n != 1 {
				t.Errorf("it was told %d times: %s", n, r.log)
			}
		}
		var recs []*Record
		var src *source
		for _, key := range []string{"one", "two", "gone"} {
			rec := confirmed(t, key, c.now())
			src = r.put(t, rec)
			recs = append(recs, rec)
		}
		r.Release(recs[2].Key, recs[2].Type, src)
		time.Sleep(time.Minute)
		c.jump(-by)
		time.Sleep(watch)
		synctest.Wait()
		f(t, c, r, dir, before, recs)
		if n := strings.Count(r.log.String(), "the clock was set"); n != 1 {
			t.Errorf("that it was set was told %d times: %s", n, r.log)
		}
		r.stop()
	})
}

// With a clock that is years behind when the process starts, or ahead, what is on disk
// is not lost; and once the clock is right, neither is what was written until then: in
// this life and the next, also of whom nobody confirms it any more.
func TestAClockThatIsWrongAtBoot(t *testing.T) {
	for name, by := range map[string]time.Duration{"behind": -years, "ahead": years} {
		t.Run(name, func(t *testing.T) {
			wrongAtBoot(t, by, func(t *testing.T, c *clock, r *rig, dir string, before *Record, recs []*Record) {
				same := func(r *rig) {
					t.Helper()
					r.loads(t, before)
					for _, rec := range recs {
						r.loads(t, moved(rec, -by))
					}
				}
				same(r)
				next := opened(t, crashed(t, dir), c.option, maxAge(time.Hour))
				same(next)
				if err := next.Close(); err != nil {
					t.Fatal(err)
				}
				c.jump(time.Hour - 11*time.Minute) // and all gets too old in its time
				next = opened(t, crashed(t, dir), c.option, maxAge(time.Hour))
				next.nothing(t, before, "too old")
				next.loads(t, moved(recs[2], -by))
				c.jump(12 * time.Minute)
				next.nothing(t, recs[2], "too old")
			})
		})
	}
}

// A source that has lost its origin says when that was, by the clock of then. That
// takes nothing back.
func TestWhatWasConfirmedByAWrongClockIsNoNews(t *testing.T) {
	for name, by := range map[string]time.Duration{"behind": -years, "ahead": years} {
		t.Run(name, func(t *testing.T) {
			wrongAtBoot(t, by, func(t *testing.T, c *clock, r *rig, dir string, _ *Record, recs []*Record) {
				time.Sleep(30 * time.Minute) // they are asked, and say what they said
				synctest.Wait()
				for _, rec := range recs {
					r.loads(t, moved(rec, -by))
				}
				newer := clusters(t, "one", 3, 10)
				newer.Confirmed = recs[0].Confirmed
				r.put(t, newer)
				r.loads(t, moved(newer, -by))
				r.loads(t, moved(recs[1], -by))
			})
		})
	}
}

// When the machine sleeps, time passes: what was confirmed before is as old as it is,
// though the monotonic clock has stood still.
func TestASleepIsNoClockSet(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := newClock().runs()
		r := running(t, dir, c.option, maxAge(time.Hour))
		rec := confirmed(t, "one", c.now())
		src := r.put(t, rec)
		r.Release(rec.Key, rec.Type, src)
		c.jump(50 * time.Minute)
		time.Sleep(watch)
		r.loads(t, rec)
		// Of a clock that is ahead from here on it would be the same; what is confirmed
		// by it moves when it is set back, and what was before does not.
		wrong := confirmed(t, "two", c.now())
		r.put(t, wrong)
		c.jump(-50 * time.Minute)
		r.loads(t, moved(wrong, -50*time.Minute))
		r.loads(t, rec)
		r.stop()
	})
}
