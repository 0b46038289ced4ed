package suspects

import (
	"maps"
	"slices"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Trial is about a stream that carries suspects alone.
type Trial struct {
	exclusion *exclusion
	suspects  []Suspect            // of the exclusion when the trial began
	open      map[Suspect]struct{} // those that the origin has not answered
}

func newTrial(e *exclusion) *Trial {
	t := &Trial{exclusion: e, suspects: e.suspects, open: make(map[Suspect]struct{})}
	for _, s := range t.suspects {
		t.open[s] = struct{}{}
	}
	return t
}

// Carried is what the trial carries of the interest.
func (t *Trial) Carried(i *snapshot.Interest) *snapshot.Interest {
	out := new(snapshot.Interest)
	names := make(map[xds.TypeURL][]string)
	for _, s := range t.suspects {
		switch {
		case !s.wantedBy(i):
		case s.Wildcard:
			out.Types = append(out.Types, i.Of(s.Type))
		default:
			names[s.Type] = append(names[s.Type], s.Name)
		}
	}
	for _, typ := range slices.Sorted(maps.Keys(names)) {
		out.Types = append(out.Types, snapshot.TypeInterest{Type: typ, Names: xds.NewNameSet(names[typ]...)})
	}
	return out
}

// Responded records an update that the trial brought. It reports whether everything is answered.
func (t *Trial) Responded(u *snapshot.Update) (all bool) {
	drop := func(name string) { delete(t.open, Suspect{u.Type, u.Wildcard, name}) }
	if u.Wildcard {
		drop("")
	}
	for _, r := range u.Changed {
		drop(r.Name)
		for _, alias := range r.AliasesAndGlob() {
			drop(alias)
		}
	}
	for _, name := range u.Removed {
		drop(name)
	}
	for _, e := range u.Errors {
		drop(e.Name)
	}
	return len(t.open) == 0
}
