package fanout

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"xdsrelay/internal/xds"
)

// parted is a world whose responses have room for so many resources.
func parted(t *testing.T, url xds.TypeURL, v xds.Variant, room int) *world {
	w := newWorld(t, url, v)
	w.s.limit = w.room(room)
	return w
}

func TestP38_APartForEachACK(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			w := parted(t, xds.EndpointType, v, 2)
			names := []string{"a", "b", "c", "d", "e"}
			w.named(names...)
			w.sub(names...)
			w.want("a b")
			w.want("") // not before the ACK
			w.ack(names...)
			w.want("c d")
			w.pass(ackTimeout - 1)
			w.want("")
			w.pass(1) // or ack_timeout
			w.want("e")
			w.ack(names...)
			w.want("")
			if w.s.parts != nil || w.s.sent != w.cur {
				t.Error("not in step after the last part")
			}
			seen := map[uint64]bool{}
			for _, n := range w.nonces {
				if seen[n] {
					t.Errorf("nonce %d twice", n)
				}
				seen[n] = true
			}
		})
	}
}

// Also under the wildcard, and of a full-state type, in incremental; the first
// answer is in the parts (P11), and what goes is in them (P32).
func TestP38_DeltaWildcard(t *testing.T) {
	w := parted(t, xds.ClusterType, xds.Delta, 2)
	w.wild("a", "b", "c")
	w.sub()
	w.want("a b")
	if want := []string{"a", "b"}; !slices.Equal(w.follow, want) { // P37
		t.Errorf("%v follow, want %v", w.follow, want)
	}
	w.ack()
	w.want("c")
	if want := []string{"c"}; !slices.Equal(w.follow, want) {
		t.Errorf("%v follow, want %v", w.follow, want)
	}
	w.ack()
	w.want("")
	w.wild("-a", "b=2", "-c", "d")
	w.want("b=2 d -a -c") // removals take little room
	w.ack()
	w.want("")
	// Gone before it was sent: nothing is sent of it.
	w.wild("a", "b", "c", "d")
	w.want("a b")
	w.wild("-c", "-d")
	w.ack()
	w.want("-d")
	w.ack()
	w.want("")
}

func TestP38_FullStateIsNotSplit(t *testing.T) {
	for _, url := range []xds.TypeURL{xds.ClusterType, xds.EndpointType} {
		w := parted(t, url, xds.SotW, 2)
		w.wild("a", "b")
		w.sub("*")
		w.want("a b")
		w.ack("*")
		w.wild("c")
		w.want("")
		if w.s.stuck == nil || w.s.sent == w.cur {
			t.Errorf("%s: taken for sent", url)
		}
		if w.s.Next(w.cur, w.moment()).do != nothing {
			t.Errorf("%s: made again", url)
		}
		w.sub("*") // also for who asks
		w.want("")
		w.wild("-b")
		w.want("a c")
		if w.s.stuck != nil {
			t.Errorf("%s: still stuck", url)
		}
		w.ack("*")
		w.want("")
	}
	// By names, fewer of them fit.
	w := parted(t, xds.ClusterType, xds.SotW, 2)
	w.named("a", "b", "c")
	w.sub("a", "b", "c")
	w.want("")
	w.sub("a", "b")
	w.want("a b")
}

// P15: a part that is refused is not sent again by itself, nor does it hold up
// the others; a change of anything in it sends all of it, and if that takes
// parts again, once.
func TestP38_RefusedParts(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			w := parted(t, xds.EndpointType, v, 2)
			names := []string{"a", "b", "c", "d"}
			w.named(names...)
			w.sub(names...)
			w.want("a b")
			w.nack(names...)
			w.want("c d")
			w.ack(names...)
			w.want("")
			w.named("c=2")
			w.want("c=2") // without it
			w.ack(names...)
			w.s.limit = w.room(1)
			w.named("b=2")
			w.want("a")
			w.ack(names...)
			w.want("b=2")
			w.ack(names...)
			w.want("")
			w.named("b=33") // what was refused is behind us
			w.want("b=33")
			w.nack(names...)
			w.want("")
			w.s.limit = w.room(4)
			w.named("a=2", "b")
			w.want("a=2 b")
			w.nack(names...)
			w.s.limit = w.room(1)
			w.named("a") // of which b is a part, though it did not change
			w.want("a")
			w.ack(names...)
			w.want("b")
			w.ack(names...)
			w.want("")
		})
	}
}

// P24: names are given up between the parts, under the wildcard and without it.
func TestP38_UnsubscribedBetweenParts(t *testing.T) {
	w := parted(t, xds.EndpointType, xds.Delta, 1)
	w.named("a", "b", "c", "d")
	w.sub("a", "b", "c", "d")
	w.want("a")
	w.send(request{ack: -1, unsub: []string{"b", "a"}})
	w.want("c")
	w.send(request{ack: -1, names: []string{"a"}}) // again: answered, though a part had it
	w.want("d")
	w.ack()
	w.want("a")
	w.ack()
	w.want("")

	w = parted(t, xds.EndpointType, xds.Delta, 1)
	w.wild("a", "b", "c")
	w.sub("*", "b", "c")
	w.want("a")
	w.send(request{ack: -1, unsub: []string{"c"}})
	w.want("b")
	w.ack()
	w.want("c") // once, by its part and for being given up
	w.ack()
	w.want("")

	w = parted(t, xds.EndpointType, xds.SotW, 1)
	w.named("a", "b", "c")
	w.sub("a", "b", "c")
	w.want("a")
	w.ack("a", "c")
	w.want("c")
	w.ack("a", "c")
	w.want("")
}

// P19, P25: what is asked for anew, or first heard of, does not wait for the
// parts; unless that were too much for one response.
func TestP38_NewNamesDoNotWait(t *testing.T) {
	w := parted(t, xds.EndpointType, xds.Delta, 2)
	w.named("a", "b", "c", "x")
	w.sub("a", "b", "c", "late")
	w.want("a b")
	w.sub("x")
	w.want("x")
	w.named("late")
	w.want("late")
	w.want("") // c has its turn
	w.named("c=2")
	w.want("")
	w.named("f", "g", "h")
	w.sub("f", "g", "h")
	w.want("")
	w.send(request{ack: 3})
	w.want("c=2 f")
	w.ack()
	w.want("g h")
	w.ack()
	w.want("")
}

// P27: a client that comes back with versions is sent what it does not have, in
// parts, and what it has in none.
func TestP38_Reconnect(t *testing.T) {
	w := parted(t, xds.ListenerType, xds.Delta, 2)
	w.s.limit += 20 // for what is gone
	w.wild("a", "b=2", "c=2", "d=2", "e")
	have := map[string]string{"again": "", "gone": "x", "zone": "y"}
	for _, n := range []string{"a", "b", "c", "d", "e"} {
		have[n] = w.resource(n).Version.String()
	}
	w.send(request{names: []string{"*"}, initial: have})
	w.want("b=2 c=2 -again")
	w.ack()
	w.want("d=2 -gone -zone")
	w.ack()
	w.want("")
	if w.s.initial != nil {
		t.Errorf("still in mind: %v", w.s.initial)
	}
}

// What alone is larger than a response is passed over, and told of.
func TestP38_AResourceThatFitsNowhere(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.Delta)
	long := strings.Repeat("l", 100)
	w.s.limit = w.room(2) - len(w.resource("a").Any())
	w.named("a", "b", long, "z")
	w.sub("a", "b", long, "z")
	w.want("a")
	w.ack()
	w.want("b")
	w.ack()
	w.want("z")
	if o := w.plan.oversized; o == nil || o.Resource != long || o.Bytes < 100 || o.Version == "" {
		t.Errorf("reported: %+v", o)
	}
	w.ack()
	w.want("")
	if w.s.sent != w.cur {
		t.Error("it is waited for")
	}
}

// Clients in the same situation get the same bytes, and it is worked out once.
func TestP38_PartsAreShared(t *testing.T) {
	w := parted(t, xds.EndpointType, xds.Delta, 2)
	names := []string{"a", "b", "c", "d", "e"}
	w.named(names...)
	limit := w.s.limit
	var bodies [][]*byte
	for range 3 {
		w.s = NewSession(w.typ, xds.Delta)
		w.s.limit = limit
		w.sub(names...)
		var mine []*byte
		for range 3 {
			p := w.s.Next(w.cur, w.moment())
			f := framesOf(p.to).frame(nil, &p, "id")
			w.seq++
			w.s.Sent(&p, f.manifest, w.seq, w.now)
			w.nonces = append(w.nonces, w.seq)
			mine = append(mine, &f.body[0])
			w.ack()
		}
		w.want("")
		bodies = append(bodies, mine)
	}
	if !slices.Equal(bodies[0], bodies[1]) || !slices.Equal(bodies[0], bodies[2]) {
		t.Error("sessions alike got bodies of their own")
	}
	if n := framesOf(w.cur).byKey.all(); len(n) != 3 {
		t.Errorf("%d parts were worked out", len(n))
	}
}

// The spans of a progress are what a plain map would say.
func TestProgressIsAMap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		all := strings.Split("abcdefgh", "")
		var p *progress
		snaps := make([]*xds.Snapshot, 4)
		for i := range snaps {
			snaps[i] = &xds.Snapshot{Gen: uint64(i)}
		}
		want := make(map[string]*xds.Snapshot)
		for _, n := range all {
			want[n] = snaps[0]
		}
		for range rapid.IntRange(1, 12).Draw(rt, "parts") {
			bounds := rapid.SliceOfNDistinct(rapid.SampledFrom(append(all, "")), 2, 2, rapid.ID[string]).Draw(rt, "bounds")
			slices.Sort(bounds)
			c := cut{lo: bounds[0], hi: bounds[1], end: rapid.Bool().Draw(rt, "end")}
			to := rapid.SampledFrom(snaps[1:]).Draw(rt, "to")
			p = p.advance(base{at: snaps[0]}, base{at: to}, c)
			for _, n := range all {
				if n > c.lo && (c.end || n <= c.hi) {
					want[n] = to
					if !p.spoke(n) {
						rt.Fatalf("%s was spoken for", n)
					}
				} else if p.spoke(n) {
					rt.Fatalf("%s was not spoken for", n)
				}
			}
			got := make(map[string]*xds.Snapshot)
			for _, n := range all {
				got[n] = p.at(base{at: snaps[0]}, n).at
			}
			if !maps.Equal(got, want) {
				rt.Fatalf("after %+v: %+v", c, p.spans)
			}
			for i := 1; i < len(p.spans); i++ {
				if p.spans[i].at == p.spans[i-1].at || i < len(p.spans)-1 && p.spans[i].upto <= p.spans[i-1].upto {
					rt.Fatalf("spans %+v", p.spans)
				}
			}
		}
	})
}

func TestP38_Divide(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.Delta)
	w.named("x")
	plan := Plan{to: w.cur, key: frameKey{form: w.s.form}}
	empty := new(content).body(&plan, "id")
	one := empty.Cost(w.resource("a"))
	for _, c := range []struct {
		changed, removed string
		after            string
		room             int // in resources
		want             string
	}{
		{"a b c", "", "", 3, "a b c (,c] end all"},
		{"a b c", "", "", 2, "a b (,b]"},
		{"a b c", "", "b", 2, "c (b,c] end"},
		{"a b c", "", "c", 2, "a b (,b]"},
		{"a b c", "", "x", 3, "a b c (,c] end all"},
		{"a c", "b d", "", 1, "a -b (,b]"},
		{"a c", "b d", "b", 1, "c -d (b,d] end"},
		{"", "b d", "", 1, "-b -d (,d] end all"},
		{"", "", "", 1, "(,] end all"},
	} {
		whole := content{removed: strings.Fields(c.removed)}
		for _, n := range strings.Fields(c.changed) {
			whole.changed = append(whole.changed, w.resource(n))
		}
		body := whole.body(&plan, "id")
		part, got := whole.divide(body, c.after, empty.Size()+c.room*one+2*body.CostOfRemoval("x"))
		var out []string
		for _, r := range part.changed {
			out = append(out, r.Name)
		}
		for _, n := range part.removed {
			out = append(out, "-"+n)
		}
		out = append(out, fmt.Sprintf("(%s,%s]", got.lo, got.hi))
		if got.end {
			out = append(out, "end")
		}
		if got.all {
			out = append(out, "all")
		}
		if text := strings.Join(out, " "); text != c.want {
			t.Errorf("%+v: %s", c, text)
		}
	}
}

// Whatever a response is made of is divided, and what is of one name is not.
func TestP38_DivideEverything(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.Delta)
	w.named("x")
	plan := Plan{to: w.cur, key: frameKey{form: w.s.form}}
	whole := content{removed: []string{"d", "a"}, later: []string{"b"}}
	for _, n := range []string{"e", "b", "a"} {
		whole.changed = append(whole.changed, w.resource(n))
		whole.beats = append(whole.beats, w.resource(n))
		whole.errors = append(whole.errors, &xds.ResourceError{Name: n})
	}
	body := whole.body(&plan, "id")
	for room := body.Size(); room > body.Size()/2; room-- {
		var sum content
		after := ""
		for parts := 1; ; parts++ {
			part, at := whole.divide(body, after, room)
			if size := part.body(&plan, "id").Size(); size > room {
				t.Fatalf("a part of %d bytes, more than %d", size, room)
			}
			sum.changed, sum.beats = append(sum.changed, part.changed...), append(sum.beats, part.beats...)
			sum.removed, sum.errors = append(sum.removed, part.removed...), append(sum.errors, part.errors...)
			sum.later = append(sum.later, part.later...)
			if after = at.hi; at.end {
				break
			}
			if parts > 4 {
				t.Fatalf("%d parts", parts)
			}
		}
		if len(sum.changed) != 3 || len(sum.beats) != 3 || len(sum.errors) != 3 || len(sum.removed) != 2 || len(sum.later) != 1 {
			t.Fatalf("altogether %+v", sum)
		}
	}
}
