package suspects

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

const eds, srds = xds.EndpointType, xds.ScopedType

var errEnded = errors.New("ended")

func interest(names ...string) *snapshot.Interest {
	return &snapshot.Interest{Types: []snapshot.TypeInterest{{Type: srds, Wildcard: true}, {Type: eds, Names: xds.NewNameSet(names...)}}}
}

func all(i *snapshot.Interest) (out []Suspect) {
	for _, t := range i.Types {
		if t.Wildcard {
			out = append(out, Suspect{Type: t.Type, Wildcard: true})
		}
		for name := range t.Names.All() {
			out = append(out, Suspect{Type: t.Type, Name: name})
		}
	}
	return out
}

func later(int) time.Duration { return time.Hour }

// Trials find the culprits among any suspects, in a number that grows with the culprits. All others
// return to the key's stream.
func TestP68_TrialsFindTheCulprits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var names []string
		for i := range rapid.IntRange(0, 100).Draw(t, "names") {
			names = append(names, fmt.Sprintf("n%03d", i))
		}
		want := interest(names...)
		culprits := make(map[Suspect]bool)
		for _, s := range rapid.SliceOfNDistinct(rapid.SampledFrom(all(want)), 0, 5, rapid.ID).Draw(t, "culprits") {
			culprits[s] = true
		}
		var l List
		l.Exclude(all(want))
		now, trials, found := time.Now(), 0, make(map[Suspect]bool)
		for ; ; trials++ {
			next, _ := l.Next(time.Time{}, now)
			if next == nil {
				break
			}
			r := Result{Passed: true}
			for _, s := range all(next.Carried(want)) {
				if culprits[s] {
					r = Result{Ended: true, Err: errEnded}
				}
			}
			if _, culprit := l.Settle(next, r, now, later); culprit != nil {
				found[*culprit] = true
			}
		}
		if most := 1 + 2*7*len(culprits); trials > most {
			t.Errorf("%d trials for %d culprits, want at most %d", trials, len(culprits), most)
		}
		for _, s := range all(want) {
			if found[s] != culprits[s] || l.Passed(s) == culprits[s] || slices.Contains(all(l.Without(want)), s) == culprits[s] {
				t.Errorf("%+v: culprit %v, found %v, passed %v", s, culprits[s], found[s], l.Passed(s))
			}
		}
		if l.Empty() != (len(culprits) == 0) {
			t.Error("the list is empty, or is not")
		}
		l.Forget(interest())
		l.Forget(new(snapshot.Interest))
		if !l.Empty() {
			t.Errorf("excluded although nobody wants it: %+v", l.Suspended())
		}
	})
}

// What the origin answers in a trial leaves the list, even if the origin then ends the trial.
func TestP68_AnswersOfATrialThatEnds(t *testing.T) {
	var l List
	l.Exclude(all(interest("a", "b")))
	next, _ := l.Next(time.Time{}, time.Now())
	if next.Responded(&snapshot.Update{Type: eds, Removed: []string{"a"}}) || next.Responded(&snapshot.Update{Type: srds, Wildcard: true}) {
		t.Error("b is answered")
	}
	left, culprit := l.Settle(next, Result{Ended: true, Err: errEnded}, time.Now(), later)
	if want := (Suspect{Type: eds, Name: "b"}); !left || culprit == nil || *culprit != want {
		t.Errorf("left %v, culprit %v", left, culprit)
	}
}

// A culprit is tried again after its delay, or once the origin is back. So is a trial that a lost
// connection ended, which makes nothing a culprit.
func TestP68_WhenAnotherTrialIsDue(t *testing.T) {
	for _, r := range []Result{{Ended: true, Err: errEnded}, {Err: errEnded}} {
		var l List
		l.Exclude([]Suspect{{Type: eds, Name: "a"}})
		now := time.Now()
		next, _ := l.Next(time.Time{}, now)
		l.Settle(next, r, now, func(failures int) time.Duration { return time.Duration(failures) * time.Minute })
		if again, wait := l.Next(now.Add(-time.Second), now.Add(20*time.Second)); again != nil || wait != 40*time.Second {
			t.Errorf("%+v: trial %v, wait %v", r, again, wait)
		}
		if again, _ := l.Next(now.Add(time.Second), now.Add(20*time.Second)); again == nil {
			t.Errorf("%+v: no trial although the origin is back", r)
		}
		if next, _ = l.Next(time.Time{}, now.Add(time.Minute)); next == nil {
			t.Fatalf("%+v: no trial after the delay", r)
		}
		if _, culprit := l.Settle(next, r, now, later); culprit != nil {
			t.Errorf("%+v: the culprit is reported again", r)
		}
		if n := len(l.Suspended()); (n == 1) != r.Ended {
			t.Errorf("%+v: %d are suspended", r, n)
		}
	}
}

// The culprits are shown by type, with the first names.
func TestP68_Suspended(t *testing.T) {
	var names []string
	for i := range 2 * maxNames {
		names = append(names, fmt.Sprint(i))
	}
	var l List
	begin := time.Now()
	for i, s := range all(interest(names...)) {
		l.Exclude([]Suspect{s})
		now := begin.Add(time.Duration(i) * time.Second)
		next, _ := l.Next(time.Time{}, now)
		l.Settle(next, Result{Ended: true, Err: errEnded}, now, later)
	}
	got := l.Suspended()
	if len(got) != 2 || got[0].Type != eds || got[0].Count != len(names) || !slices.Equal(got[0].Names, names[:maxNames]) ||
		got[1].Type != srds || got[1].Count != 0 || !got[1].Since.Equal(begin) || !errors.Is(got[0].Err, errEnded) {
		t.Errorf("%+v", got)
	}
}
