package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A directory that is taken away while the relay runs is made again, which is told,
// and what is good is written anew, without anything new.
func TestADirectoryThatIsTakenAway(t *testing.T) {
	for name, take := range map[string]func(dir string) error{
		"all of it": os.RemoveAll,
		"what is in it": func(dir string) error {
			entries, err := os.ReadDir(dir)
			for _, e := range entries {
				if err == nil {
					err = os.RemoveAll(filepath.Join(dir, e.Name()))
				}
			}
			return err
		},
		"another has its name": func(dir string) error {
			if err := os.Rename(dir, dir+".was"); err != nil {
				return err
			}
			return os.Mkdir(dir, 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store")
			synctest.Test(t, func(t *testing.T) {
				r := running(t, path)
				one, two := clusters(t, "one", 3, 100), clusters(t, "two", 3, 100)
				r.put(t, one)
				src := r.put(t, two)
				if err := take(path); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				r.loads(t, one)
				r.loads(t, two)
				if st := r.Status(); st.Files != 2 || st.Failing || st.Waiting != 0 || st.Bytes != used(t, path) {
					t.Errorf("status is %+v, and %d bytes are used", st, used(t, path))
				}
				if n := strings.Count(r.log.String(), "was taken away"); n != 1 || !strings.Contains(r.log.String(), "files_lost=2") {
					t.Errorf("it is told %d times: %s", n, r.log)
				}
				if is, err := os.Stat(path); err != nil || is.Mode().Perm() != 0o700 {
					t.Errorf("%v, %v", is, err)
				}
				// It is this process' again.
				o, _, _ := options(t, path)
				if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "in use by another relay") {
					t.Errorf("another opens it: %v", err)
				}
				newer := clusters(t, "two", 3, 200)
				r.Touch(newer.Key, newer.Type, src.set(newer))
				r.settled(t)
				r.stop()
				opened(t, path).loads(t, newer)
			})
		})
	}
}

// While it cannot be made again, that is told once, and tried again.
func TestADirectoryThatStaysAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "up", "store")
	synctest.Test(t, func(t *testing.T) {
		r := running(t, path)
		one := clusters(t, "one", 3, 100)
		r.put(t, one)
		if err := os.RemoveAll(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Dir(path), nil, 0o600); err != nil { // in its place
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := strings.Count(r.log.String(), "cannot write"); n != 1 || !r.Status().Failing {
			t.Errorf("it is told %d times: %s", n, r.log)
		}
		if err := os.Remove(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		r.loads(t, one)
		if r.Status().Failing {
			t.Errorf("status is %+v", r.Status())
		}
		r.stop()
	})
}

// A directory that others may look into, or write into, is used, and told of.
func TestADirectoryThatIsOpenToOthers(t *testing.T) {
	for mode, want := range map[os.FileMode]string{0o700: "", 0o755: "others may look into", 0o750: "others may look into", 0o770: "others may write into"} {
		dir := t.TempDir()
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		r := opened(t, dir)
		if got := r.log.String(); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%v: the log says %q", mode, got)
		}
	}
}

// Files that are too old to be served are told of at the start, in one line.
func TestTooOldFilesAreTold(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for i, key := range []string{"a", "b", "c"} {
		rec := clusters(t, key, 1, 10)
		rec.Confirmed = rec.Confirmed.Add(-time.Duration(i) * time.Hour)
		plant(t, dir, rec)
	}
	for bound, want := range map[time.Duration]string{0: "", 24 * time.Hour: "", 30 * time.Minute: "files=2 of=3", time.Minute + time.Hour: "files=1 of=3"} {
		r := opened(t, dir, func(o *Options) { o.MaxAge = bound })
		got := r.log.String()
		if (want == "") != (got == "") || !strings.Contains(got, want) || strings.Count(got, "\n") > 1 {
			t.Errorf("%v: the log says %q", bound, got)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
