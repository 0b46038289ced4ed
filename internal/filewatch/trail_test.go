package filewatch

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What a path means changes at its links, and at what it leads to.
func TestP80_TheWayOfAPath(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(base, name) }
	must(t, os.MkdirAll(in("real/dir"), 0o755))
	must(t, os.Symlink("real", in("one")))
	must(t, os.Symlink(in("one"), in("two")))
	must(t, os.Symlink("loop", in("loop")))
	for path, want := range map[string][]string{
		"real/dir/x": {"real/dir/x"},
		"one/dir/x":  {"one", "real/dir/x"},
		"two/dir":    {"two", "one", "real/dir"},
		"none/x":     {"none/x"},
	} {
		for i := range want {
			want[i] = in(want[i])
		}
		if got := Trail(in(path)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	if got := Trail(in("loop")); len(got) != maxLinks {
		t.Errorf("a loop: %d", len(got))
	}
}
