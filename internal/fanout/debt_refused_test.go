package fanout

import (
	"testing"

	"xdsrelay/internal/xds"
)

// hasAll fails unless the client has all that there is, and refuses nothing.
func (w *world) hasAll() {
	w.t.Helper()
	if has, owes, refusing, since := stand(w); has != w.cur.Gen || refusing || !owes.None() {
		w.t.Errorf("has %d of %d but for %v, refusing %v since %d: it has all that it asks for", has, w.cur.Gen, owes, refusing, since)
	}
}

// refusesAll fails unless the client refuses the newest generation.
func (w *world) refusesAll() {
	w.t.Helper()
	if has, owes, refusing, _ := stand(w); !refusing || has >= w.cur.Gen {
		w.t.Errorf("has %d of %d but for %v, refusing %v: it refused what it asks for", has, w.cur.Gen, owes, refusing)
	}
}

// Who gave up what it then refuses has all that it asks for.
func TestP24_WhatIsGivenUpAndRefusedKeepsNothingBack(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			w := newWorld(t, xds.EndpointType, v)
			w.named("a", "b", "c")
			w.sub("a", "b")
			w.want("a b")
			w.ack("a", "b")
			w.named("b=2")
			w.want("b=2")
			if v == xds.Delta {
				w.unsub("b")
			} else {
				w.sub("a") // stale (P12)
			}
			w.nack("a")
			w.want("")
			w.hasAll()
			w.named("c=2")
			w.want("")
			w.hasAll()
			w.named("a=2")
			w.want("a=2")
			if _, _, refusing, _ := stand(w); refusing {
				t.Error("it refuses what is on its way to it")
			}
		})
	}
}

// Who refused the wildcard, and asks for a name instead that nobody holds, refuses nothing.
func TestP21_TheWildcardIsRefusedAndGivenUp(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			w := newWorld(t, xds.EndpointType, v)
			w.wild("a", "b")
			w.sub("*")
			w.want("a b")
			w.nack("*")
			w.refusesAll()
			w.sub("x")
			if v == xds.Delta {
				w.unsub("*")
			}
			w.named("-x")
			if w.next() != "" {
				w.ack("x")
			}
			w.hasAll()
		})
	}
}

// Who refused the wildcard, and goes on to ask by an alias for what was in it, refuses that.
func TestP26_WhatIsRefusedUnderTheWildcardAndAskedForByAnAlias(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			w := newWorld(t, xds.EndpointType, v)
			w.sub("alias", "*")
			w.wild("x|alias", "y")
			w.named("x|alias")
			w.want("x y")
			w.nack("alias", "*")
			if v == xds.Delta {
				w.unsub("*")
			} else {
				w.sub("alias")
			}
			w.want("")
			w.refusesAll()
			w.named("x|alias=2")
			w.want("x=2")
			w.ack("alias")
			w.hasAll()
		})
	}
}

// Who gives up the name of what it refused, and goes on to ask for it by an alias, refuses it.
func TestP26_WhatIsRefusedByItsNameAndAskedForByAnAlias(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			w := newWorld(t, xds.EndpointType, v)
			w.sub("alias", "x")
			w.named("x|alias")
			w.want("x")
			w.ack("alias", "x")
			w.named("x|alias=2")
			w.want("x=2")
			w.nack("alias", "x")
			if v == xds.Delta {
				w.unsub("x")
			} else {
				w.sub("alias")
			}
			w.want("")
			w.refusesAll()
		})
	}
}

// Who gives up the alias by which it was sent what it refused refuses nothing, also
// once nobody asks for that any more.
func TestP26_TheAliasOfWhatIsRefusedIsGivenUp(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			w := newWorld(t, xds.EndpointType, v)
			w.named("a", "x|alias")
			w.sub("a", "alias")
			w.want("a x")
			w.ack("a", "alias")
			w.named("x|alias=2")
			w.want("x=2")
			w.nack("a", "alias")
			w.refusesAll()
			if v == xds.Delta {
				w.unsub("alias")
			} else {
				w.sub("a")
			}
			w.want("")
			w.hasAll()
			w.builder.ForgetBut(nil, "x", "alias")
			w.named("c")
			w.want("")
			w.hasAll()
			w.named("a=2")
			w.want("a=2")
			w.ack("a")
			w.hasAll()
		})
	}
}

// What comes of a name that nobody spoke of before, and is answered ahead, keeps its client
// from no version that was before.
func TestP19_WhatComesAheadIsOfWhatCameSince(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.Delta)
	w.named("z")
	w.named("a")
	w.sub("a", "b")
	w.want("a")
	w.ack()
	was := w.cur.Gen
	w.named("a=2")
	w.want("a=2")
	w.named("b")
	w.want("b")
	w.nack()
	_, owes, _, _ := stand(w)
	for gen := uint64(1); gen <= was; gen++ {
		if owes.Of(Span{gen, gen}) {
			t.Errorf("it does not have %d for %v: b came in %d", gen, owes, w.cur.Gen)
		}
	}
}

// Who refused the word that an alias leads nowhere has all of what that leads to since.
func TestP26_ARefusedAliasLeadsSomewhere(t *testing.T) {
	w := newWorld(t, xds.VHostType, xds.Delta)
	w.named("e", "-r")
	w.sub("r")
	w.want("-r")
	w.nack()
	w.refusesAll()
	w.named("e|r=2")
	w.want("e=2 -r")
	w.nack()
	w.refusesAll()
	w.want("")
	w.named("e|r=33")
	w.want("e=33 -r")
	w.ack()
	w.hasAll()
	w.named("e|r=2")
	w.want("e=2")
	w.ack()
	w.hasAll()
}

// What was sent ahead for an alias, and went since, is had when that is taken.
func TestP19_WhatWasSentAheadForAnAliasAndWent(t *testing.T) {
	w := newWorld(t, xds.VHostType, xds.Delta)
	w.named("a|p")
	w.sub("p")
	w.want("a")
	w.named("b|p")
	w.want("b")
	has := w.cur.Gen
	w.named("-b")
	w.want("")
	w.ack()
	if got := w.owns(); got > has {
		t.Errorf("has %d of %d: it holds b, which went in that", got, w.cur.Gen)
	}
	w.want("-b")
	if got := w.owns(); got > has {
		t.Errorf("has %d of %d: that b went is on its way", got, w.cur.Gen)
	}
	w.ack()
	w.hasAll()
}

// What was refused and is to be said again is, also where its name is given up, and it is
// asked for by an alias as well.
func TestP26_WhatIsToBeSaidAgainAndAskedForByAnAlias(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.Delta)
	w.named("a", "c|q")
	w.sub("a", "c", "q")
	w.want("a c")
	w.named("a=2")
	w.pass(ackTimeout)
	w.want("a=2")
	w.send(request{nack: 1})
	w.unsub("c")
	w.ack()
	w.want("c")
	w.ack()
	w.hasAll()
}

// Who refuses what was sent ahead for an alias refuses it, also before anything else is sent.
func TestP26_WhatIsSentAheadForAnAliasIsRefused(t *testing.T) {
	w := newWorld(t, xds.VHostType, xds.Delta)
	w.named("a|p")
	w.sub("p")
	w.want("a")
	w.named("b|p")
	w.want("b")
	w.nack()
	w.refusesAll()
	w.want("")
	w.refusesAll()
}
