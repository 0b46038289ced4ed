package fanout

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"xdsrelay/internal/xds"
)

// answerOf is the first response of a key of its own that holds this.
func answerOf(t *testing.T, url xds.TypeURL, v xds.Variant, replica string, later time.Duration, specs ...string) (*world, *Frame) {
	t.Helper()
	w := newWorld(t, url, v)
	w.now = w.now.Add(later)
	w.wild(specs...)
	w.sub()
	p := w.s.Next(w.cur, w.moment())
	return w, framesOf(w.cur).frame(nil, &p, replica)
}

// Keys of equal resources send the same bytes, held once; a byte that differs, a
// version or who says it, and they are others.
func TestEqualKeysShareBytes(t *testing.T) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		t.Run(v.String(), func(t *testing.T) {
			type answer struct {
				replica string
				later   time.Duration
				url     xds.TypeURL
				specs   []string
			}
			first := answer{replica: "id", url: xds.ClusterType, specs: []string{"a=1", "b=2"}}
			one, f := answerOf(t, first.url, v, first.replica, 0, first.specs...)
			for name, a := range map[string]struct {
				answer
				same bool
			}{
				"equal":         {first, true},
				"later":         {answer{"id", time.Hour, first.url, first.specs}, true},
				"other replica": {answer{"other", 0, first.url, first.specs}, false},
				"other content": {answer{"id", 0, first.url, []string{"a=1", "b=3"}}, false},
				"more":          {answer{"id", 0, first.url, []string{"a=1", "b=2", "c=3"}}, false},
				"nothing":       {answer{"id", 0, first.url, nil}, false},
			} {
				w, g := answerOf(t, a.url, v, a.replica, a.later, a.specs...)
				if same := &g.body[0] == &f.body[0]; same != a.same {
					t.Errorf("%s: shared: %v", name, same)
				}
				if !g.received.Equal(w.cur.Received) {
					t.Errorf("%s: received at %v, not %v", name, g.received, w.cur.Received)
				}
			}
			// What holds no resource is known by its type.
			clusters, none := answerOf(t, xds.ClusterType, v, "id", 0)
			listeners, other := answerOf(t, xds.ListenerType, v, "id", 0)
			if &none.body[0] == &other.body[0] {
				t.Error("two types share an empty answer")
			}
			runtime.KeepAlive([]any{one, clusters, listeners})
		})
	}
}

// What keys share goes with the last of them, whoever made it.
func TestSharedBytesGoWithTheLast(t *testing.T) {
	one, f := answerOf(t, xds.ClusterType, xds.SotW, "id", 0, "mine", "yours")
	two, _ := answerOf(t, xds.ClusterType, xds.SotW, "id", time.Hour, "mine", "yours")
	body := weak.Make(&f.body[0])
	f = nil
	one.cur.Release()
	runtime.GC()
	runtime.GC()
	_, again := answerOf(t, xds.ClusterType, xds.SotW, "id", 2*time.Hour, "mine", "yours")
	if body.Value() != &again.body[0] {
		t.Error("a third key does not find what the second has of the first")
	}
	again = nil // nobody has it but its key
	two.cur.Release()
	for body.Value() != nil {
		runtime.GC()
		runtime.Gosched()
	}
	runtime.KeepAlive([]any{one, two})
}
