package upstream

import (
	"math/rand/v2"
	"testing"
	"time"
)

// What each sign does to a name whose time is over, and when it is looked at again.
func TestP57_Doubt(t *testing.T) {
	const after = 15 * time.Second
	now := time.Unix(1000, 0)
	in := now.Add
	for what, c := range map[string]struct {
		was   doubt
		signs signs
		want  decision
		next  time.Time // of a name that is due now
		lost  bool
	}{
		"an origin that lives":                     {signs: signs{lively: true, known: true, unanswered: true}, want: isGone, next: now},
		"it has just shown life":                   {signs: signs{lively: true, from: in(-time.Second), known: true, unanswered: true}, want: waitOn, next: in(2 * time.Second)},
		"it has shown life for a while":            {signs: signs{lively: true, from: in(-3 * time.Second), known: true, unanswered: true}, want: isGone, next: now},
		"due soon":                                 {signs: signs{due: in(time.Second), known: true, unanswered: true}, want: askLife, next: in(time.Second)},
		"due soon, and it lives":                   {signs: signs{due: in(time.Second), lively: true, lasts: true, known: true, unanswered: true}, want: waitOn, next: in(time.Second)},
		"due soon, and its sign will be old":       {signs: signs{due: in(time.Second), lively: true, known: true, unanswered: true}, want: askLife, next: in(time.Second)},
		"due in a while":                           {signs: signs{due: in(10 * time.Second), lively: true, known: true, unanswered: true}, want: waitOn, next: in(10*time.Second - after/4)},
		"due soon, and all is answered":            {signs: signs{due: in(time.Second), known: true}, want: waitOn, next: in(time.Second)},
		"due soon, and it never spoke":             {signs: signs{due: in(time.Second), mute: true, unanswered: true}, want: waitOn, next: in(after)},
		"one of which nobody knows":                {signs: signs{known: true, unanswered: true}, want: askLife, next: now},
		"nothing depends on it":                    {signs: signs{known: true}, want: isGone, next: now},
		"one that is lost":                         {signs: signs{known: true, lost: true}, want: askLife, next: now},
		"one that never spoke":                     {signs: signs{mute: true, lively: true, unanswered: true}, want: waitOn, next: in(after)},
		"it has just begun to speak":               {signs: signs{early: in(5 * time.Second), lively: true}, want: waitOn, next: in(5 * time.Second)},
		"to others":                                {signs: signs{early: in(5 * time.Second), lively: true, known: true}, want: isGone, next: now},
		"to others, and was waited for":            {was: doubt{until: now}, signs: signs{early: in(5 * time.Second), lively: true, known: true}, want: waitOn, next: in(5 * time.Second)},
		"it lives again":                           {signs: signs{grace: in(7 * time.Second), lively: true, known: true}, want: waitOn, next: in(7 * time.Second)},
		"for the last time that counts":            {was: doubt{graces: maxGraces - 1}, signs: signs{grace: in(7 * time.Second), lively: true, known: true}, want: waitOn, next: in(7 * time.Second)},
		"once too often":                           {was: doubt{graces: maxGraces}, signs: signs{grace: in(7 * time.Second), lively: true, known: true}, want: isGone, next: now},
		"the last time that counts goes on":        {was: doubt{graces: maxGraces, again: in(7 * time.Second)}, signs: signs{grace: in(7 * time.Second), lively: true, known: true}, want: waitOn, next: in(7 * time.Second)},
		"it lives again, and was lost since":       {signs: signs{grace: in(7 * time.Second), lost: true, known: true}, want: askLife, next: now},
		"the relay was stopped":                    {signs: signs{listens: in(9 * time.Second), lively: true, known: true}, want: waitOn, next: in(9 * time.Second)},
		"it was, and the origin was asked in vain": {was: doubt{until: in(12 * time.Second), look: in(-time.Second)}, lost: true, signs: signs{listens: in(9 * time.Second), lost: true, known: true, unanswered: true}, want: waitOn, next: in(9 * time.Second)},
		"it has yet to read what came":             {was: doubt{heard: in(time.Second)}, signs: signs{lively: true, known: true}, want: waitOn, next: in(time.Second)},
		"it was asked in vain, and is so":          {was: doubt{until: in(9 * time.Second), look: now}, signs: signs{lost: true, known: true, unanswered: true}, want: waitOn, next: in(after / 6)},
		"it was asked in vain, and lives":          {was: doubt{until: in(9 * time.Second), look: now}, signs: signs{lively: true, known: true, unanswered: true}, want: isGone, next: in(9 * time.Second)},
		"it was asked in vain, a while ago":        {was: doubt{until: now, look: now}, signs: signs{lost: true, known: true, unanswered: true}, want: askLife, next: now},
		"lost, and nothing is due":                 {was: doubt{until: in(9 * time.Second), look: in(time.Second)}, lost: true, signs: signs{lost: true, known: true}, want: waitOn, next: in(after / 6)},
		"lost, and it was long ago":                {was: doubt{until: in(-time.Second)}, lost: true, signs: signs{lost: true, known: true}, want: askLife, next: in(-time.Second)},
		"a response was applied for a second":      {was: applied(now, time.Second), signs: signs{lively: true, known: true}, want: waitOn, next: in(time.Second)},
		"for longer than it may":                   {was: applied(now, time.Hour), signs: signs{lively: true, known: true}, want: waitOn, next: in(after)},
	} {
		t.Run(what, func(t *testing.T) {
			d := c.was
			d.absentAfter = after
			if d.ahead.IsZero() {
				d.ahead = now
			}
			if got := d.decide(now, c.signs); got != c.want {
				t.Errorf("decision %d, want %d", got, c.want)
			}
			due := c.signs.due
			if due.IsZero() {
				due = now
			}
			if got := d.next(due, c.lost); !got.Equal(c.next) {
				t.Errorf("next after %v, want %v", got.Sub(now), c.next.Sub(now))
			}
		})
	}
}

// applied is a doubt that is told that what came so long ago is applied now.
func applied(now time.Time, lasted time.Duration) doubt {
	d := doubt{absentAfter: 15 * time.Second}
	d.busy(now.Add(-lasted), now, now)
	return d
}

// What came behind what was applied has as long again, but no longer than a name, and of what is due
// but once.
func TestP57_DoubtHearsWhatWaits(t *testing.T) {
	var d doubt
	began := time.Unix(1000, 0)
	in := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	type apply struct{ since, now, due, heard int }
	for _, all := range [][]apply{
		{{-200, -150, 0, -135}, {-2, -1, 0, 0}, {-1, 40, 0, 55}, {40, 50, 0, 55}, {50, 60, 0, 55}, {60, 110, 100, 125}},
		{{10, 16, 15, 22}, {25, 45, 27, 60}}, // of a name that was asked for while the other waited
	} {
		d = doubt{absentAfter: 15 * time.Second}
		for _, c := range all {
			if d.busy(in(c.since), in(c.now), in(c.due)); !d.heard.Equal(in(c.heard)) {
				t.Errorf("%+v: until %v", c, d.heard.Sub(began))
			}
		}
	}
}

// A sign counts from before the name's time was over, however late it is asked, and not from what is to come.
func TestP57_DoubtCountsSigns(t *testing.T) {
	d := doubt{absentAfter: 15 * time.Second}
	now := time.Unix(1000, 0)
	for due, want := range map[time.Time]time.Time{
		{}:                  now.Add(-5 * time.Second),
		now.Add(-time.Hour): now.Add(-time.Hour - 5*time.Second),
		now.Add(time.Hour):  now.Add(-5 * time.Second),
	} {
		if got := d.since(now, due); !got.Equal(want) {
			t.Errorf("due in %v: since %v", due.Sub(now), got.Sub(now))
		}
	}
}

// It is asked once ahead, so that there is a sign when the time is over.
func TestP57_DoubtAsksAhead(t *testing.T) {
	d := doubt{absentAfter: 16 * time.Second}
	due := time.Unix(1000, 0)
	now := d.next(due, false)
	if want := due.Add(-4 * time.Second); !now.Equal(want) {
		t.Fatalf("%v before", due.Sub(now))
	}
	s := signs{due: due, known: true, unanswered: true}
	if got := d.decide(now, s); got != askLife {
		t.Fatalf("decision %d", got)
	}
	d.lives()
	s.lively, s.from = true, now
	if now = d.next(due, false); !now.Equal(due) {
		t.Fatalf("%v before", due.Sub(now))
	}
	if got := d.decide(now, s); got != isGone {
		t.Errorf("decision %d", got)
	}
}

// It is asked in vain, waits, and looks more often than it asks.
func TestP57_DoubtLooksMoreOftenThanItAsks(t *testing.T) {
	const after = 15 * time.Second
	began := time.Unix(1000, 0)
	d := doubt{absentAfter: after}
	asked, looked := 0, 0
	for now := began; now.Sub(began) < time.Minute; now = d.next(began, true) {
		switch d.decide(now, signs{known: true, lost: true, unanswered: true}) {
		case askLife:
			asked++
			d.lifeless(now)
		case waitOn:
			looked++
		case isGone:
			t.Fatalf("gone after %v", now.Sub(began))
		}
	}
	if asked != 4 || looked != 4*5 {
		t.Errorf("asked %d times, looked %d times", asked, looked)
	}
	d.lives()
	if at := d.next(began, false); at.Before(began.Add(time.Minute - after)) {
		t.Errorf("next after %v", at.Sub(began))
	}
}

// Who has a decision to wait for it is not asked again at once, whatever is so: a
// process that was stopped would find all its streams at it.
func TestP57_DoubtDoesNotSpin(t *testing.T) {
	const after = 15 * time.Second
	r := rand.New(rand.NewPCG(1, 2))
	now := time.Unix(1000, 0)
	when := func() time.Time {
		if r.IntN(3) == 0 {
			return time.Time{}
		}
		return now.Add(time.Duration(r.IntN(41)-20) * time.Second)
	}
	is := func() bool { return r.IntN(2) == 0 }
	for range 1_000_000 {
		d := doubt{absentAfter: after, until: when(), heard: when(), ahead: when(), look: when(), again: when(), graces: r.IntN(maxGraces + 1)}
		due, lost := when(), is()
		if lost && d.until.IsZero() || due.IsZero() && !lost || d.next(due, lost).After(now) {
			continue
		}
		s := signs{due: due, listens: when(), lively: is(), from: when(), lasts: is(), lost: lost, mute: is(), known: is(), early: when(), grace: when(), unanswered: is()}
		if s.lively && !now.Before(s.listens) {
			s.lost = false
		}
		was := d
		if d.decide(now, s) != waitOn || due.IsZero() && !s.lost {
			continue
		}
		if next := d.next(due, s.lost); !next.After(now) {
			t.Fatalf("at %v, %+v waits until %v with %+v", now, was, next, s)
		}
	}
}
