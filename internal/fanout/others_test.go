package fanout

import (
	"slices"
	"strings"
	"testing"

	"xdsrelay/internal/xds"
)

// What the origin says of a name to who asked for it is nothing to who has the
// wildcard alone: else each name that one client asks for in vain would send all
// others the whole state (P51, P16).
func TestP51_ErrorsOfOthersAreNoWordToTheWildcard(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			w := newWorld(t, xds.ClusterType, v)
			w.wild("a", "b")
			w.sub()
			w.want("a b")
			w.ack()
			w.fail(false, "x", "-y", "a")
			w.want("")
			w.joins()
			w.sub()
			w.want("a b")
			w.ack()
			w.joins()
			w.sub("*", "x")
			w.want("a b !x")
			w.ack("*", "x")
			// What is said of what the wildcard brings is for all.
			w.fail(true, "b")
			if v == xds.SotW {
				w.want("a b !b !x")
			} else {
				w.want("!b")
			}
		})
	}
}

// Answers to a glob or an alias that are too large to go ahead of an unanswered
// response wait for their parts, and are not tried again and again.
func TestP38_AGlobTooLargeToGoAhead(t *testing.T) {
	for name, specs := range map[string][]string{
		collection: {"xdstp://o/T/c/x", "xdstp://o/T/c/y", "xdstp://o/T/c/z"},
		"alias":    {"xxxxxxxx|alias", "yyyyyyyy|alias", "zzzzzzzz|alias"},
	} {
		w := parted(t, xds.ClusterType, xds.Delta, 2)
		w.s.limit += 60 // room for one of them, and not for three
		w.named(append(specs, "a")...)
		w.sub("a")
		w.want("a")
		w.sub(name)
		p := w.s.Next(w.cur, w.moment())
		framesOf(p.to).frame(nil, &p, "id")
		if !p.early || p.oversized == nil {
			t.Fatalf("%s: it is not too large", name)
		}
		w.s.Postpone(&p)
		if p = w.s.Next(w.cur, w.moment()); p.do != hold {
			t.Fatalf("%s: it does not wait: %d", name, p.do)
		}
		var got []string
		for range specs {
			w.ack()
			got = append(got, strings.Fields(w.next())...)
		}
		if want := []string{specs[0], specs[1], specs[2]}; name == collection && !slices.Equal(got, want) || len(got) != len(want) {
			t.Errorf("%s: sends %q, want %q", name, got, want)
		}
	}
}
