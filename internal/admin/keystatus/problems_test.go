package keystatus

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/upstream/timing"
	"xdsrelay/internal/xds"
)

// While clients wait for more than 30 s, the names without an answer are shown, at most five. They
// are not shown if another problem explains them.
func TestP57_PendingNamesOfAKey(t *testing.T) {
	bubble(t, func(w *fixture) {
		w.join("web", eds, "a", "b", "c", "d", "e", "f")
		w.join("web", cds, "*")
		f := w.feed("web")
		key := xds.NewKey("web")
		pending := func(want string) {
			t.Helper()
			k, _ := w.Key(key)
			got := ""
			for _, typ := range k.Types {
				if typ.Unanswered != nil {
					got += fmt.Sprint(typ.Unanswered, ". ")
				}
			}
			equal(t, "pending", got, want)
		}
		f.sink.Status(upstream.Status{Connected: true, Origin: "origin"})
		f.sink.Status(upstream.Status{Connected: true, Origin: "origin", Responded: true})
		w.later(time.Second)
		pending("")
		since := time.Now()
		w.waiting[inspect.KeyType{Key: key, Type: eds}] = inspect.Waiting{Clients: 2, Since: since}
		w.waiting[inspect.KeyType{Key: key, Type: cds}] = inspect.Waiting{Clients: 1, Since: since}
		pending("the origin has not answered EDS a, b, c, d, e and more; 2 clients wait. the origin has not answered CDS (wildcard); 1 client waits. ")
		f.give("1", "c=1")
		f.names(eds, "b", "d")
		pending("the origin has not answered EDS a, c, e, f; 2 clients wait. ")

		f.suspended = []upstream.Suspended{{Type: eds, Names: []string{"c"}, Count: 1, Since: since, Err: errors.New("no c")}}
		pending("the origin has not answered EDS a, e, f; 2 clients wait. ")
		f.suspended[0].Count = 2
		pending("")
		f.suspended = nil
		for _, other := range []upstream.Status{{Connected: true, SilentSince: since}, {Err: errors.New("refused"), Failed: true}} {
			f.sink.Status(other)
			pending("")
		}
		f.sink.Status(upstream.Status{Connected: true, Origin: "origin"})
		f.names(eds, "a", "c", "e", "f")
		pending("")
	})
}

// What the origin ends each stream with, and streams that end often, are shown with the origin's words,
// without secrets.
func TestP68_SuspendedSubscriptionsOfAKey(t *testing.T) {
	bubble(t, func(w *fixture) {
		w.join("web", eds, "a")
		f := w.feed("web")
		since := time.Now()
		f.suspended = []upstream.Suspended{
			{Type: eds, Names: []string{"a", "b"}, Count: 9, Since: since, Err: errors.New("no a, Bearer abcdefghijkl")},
			{Type: "acme.Thing", Since: since, Err: errors.New("unknown type")},
		}
		f.ends = &timing.Ends{Origin: "one", Count: 7, Since: since, Err: errors.New("EOF")}
		k := w.Keys()[0]
		equal(t, "suspended", len(k.Suspended), 2)
		equal(t, "names", k.Suspended[0].String(), "the origin ends each stream with EDS a, b and more: no a, Bearer [redacted]")
		equal(t, "type", k.Suspended[1].String(), "the origin ends each stream with acme.Thing (wildcard): unknown type")
		equal(t, "ends", len(k.FrequentEnds), 1)
		equal(t, "ends", k.FrequentEnds[0].String(), "origin one ended the stream 7 times in a row: EOF")
	})
}
