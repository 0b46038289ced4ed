package orchestrator

import (
	"strings"
	"testing"
	"testing/synctest"
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

// What silence has ended is as unconfirmed as before: that it is not stale any more is
// no word of the origin's.
func TestP57_SilenceEndsWhatIsStaleAndConfirmsNothing(t *testing.T) {
	dir := t.TempDir()
	kept(t, dir, "x=1")
	life(t, dir, func(w *world) {
		w.join("web", eds).want("x")
		f := w.feed("web")
		f.failed()
		f.reached()
		v := f.sink.(*link).group.views[0]
		equal(t, "stale types", strings.Join(w.stale("web"), " "), "EDS")
		f.hand(t, xds.Update{Type: eds, Origin: "first", TakesOver: true, Unspoken: []string{"x"}, Received: time.Now()})
		pass(time.Second)
		equal(t, "stale types", strings.Join(w.stale("web"), " "), "")
		equal(t, "silence is a word", v.keeper.heard.Load(), false)
		f.update(t, eds, false, "x=1")
		equal(t, "a word is one, of what is equal too", v.keeper.heard.Load(), true)
	})
}

// Nor where a part moves to another stream meanwhile: of what the origin does not
// speak of there either, it stays, and is stale no more (P50).
func TestP50_P57_WhatMovesUnspokenIsNotStaleForEver(t *testing.T) {
	dir := t.TempDir()
	life(t, dir, func(w *world) {
		b := w.join("web", cds).want("x", "y", "z")
		f := w.feed("web")
		f.reached()
		f.update(t, cds, false, "x=1", "y=1", "z=1")
		b.takes("x", "y", "z")
	})
	life(t, dir, func(w *world) {
		w.join("web", eds).want("e")
		wild := w.join("web", cds).want("*")
		synctest.Wait()
		b := w.join("web", cds).want("x", "y", "z")
		first, second := w.feed("web"), w.second("web")
		first.failed()
		second.failed()
		equal(t, "x", b.sees(subscription("x", "y", "z"), "x"), "1")
		connect(first, second)
		first.update(t, cds, true)
		wild.leave()
		time.Sleep(11 * time.Second) // until its wildcard is forgotten, and the names move
		synctest.Wait()
		w.asks(t, "x y z", "x y z")
		equal(t, "stale types", strings.Join(w.stale("web"), " "), "CDS")
		first.update(t, cds, false, "y=1")
		equal(t, "stale types", strings.Join(w.stale("web"), " "), "CDS")
		_ = b.woken()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		equal(t, "streams", len(w.streams("web")), 1)
		equal(t, "stale types", strings.Join(w.stale("web"), " "), "")
		equal(t, "told what is equal", b.woken(), 0)
		for _, n := range []string{"x", "y", "z"} {
			equal(t, n, b.sees(subscription("x", "y", "z"), n), "1")
		}
	})
}
