package orchestrator

import (
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/xds"
)

// What was recalled and an origin says nothing of is not stale for ever: it stays,
// nobody is told anything, and silence confirms nothing. Also where another origin takes
// over that had been tried out.
func TestP57_SilenceEndsWhatIsStale(t *testing.T) {
	dir := t.TempDir()
	kept(t, dir, "x=1", "y=1", "z=1")
	life(t, dir, func(w *world) {
		b := w.join("web", eds).want("x", "y", "z")
		f := w.feed("web")
		f.failed()
		equal(t, "x", b.sees(subscription("x", "y", "z"), "x"), "1")
		f.reached()
		_ = b.woken()
		f.hand(t, xds.Update{Type: eds, Origin: "second", Unspoken: []string{"z"}, Received: time.Now()})
		equal(t, "stale types", strings.Join(w.stale("web"), " "), "EDS")
		if v := f.sink.(*link).group.views[0]; v.keeper.heard.Load() {
			t.Error("silence counts as a word")
		}
		f.hand(t, xds.Update{Type: eds, Origin: "first", TakesOver: true, Changed: []*xds.Resource{resource(t, eds, "y", "1")}, Received: time.Now()})
		equal(t, "stale types", strings.Join(w.stale("web"), " "), "EDS")
		f.hand(t, xds.Update{Type: eds, Origin: "first", Unspoken: []string{"x"}, Received: time.Now()})
		pass(time.Second)
		equal(t, "stale types", strings.Join(w.stale("web"), " "), "")
		equal(t, "stale types, counted", w.reg.opts.Metrics.Stale.Value(), 0)
		equal(t, "told what is equal", b.woken(), 0)
		for _, n := range []string{"x", "y", "z"} {
			equal(t, n, b.sees(subscription("x", "y", "z"), n), "1")
		}
	})
}
