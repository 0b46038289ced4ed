package orchestrator

import (
	"time"

	"xdsrelay/internal/xds"
)

// place decides which of its streams the group asks for what. There is one, home,
// until wildcard and names of one type are both asked for: then the part that
// came last is asked for on a second stream, for one cannot tell which of the
// two a response answers (P50). The other part stays where it is, and nothing of
// it is asked again: which of the streams carries the wildcard is all the same.
//
// Once no type needs two streams, what is on the second moves home, and the
// second is closed; if there is nothing else at home, the second is home.
func (g *Group) place(now time.Time) {
	apart := false
	for _, v := range g.views {
		apart = v.place(g) || apart
	}
	for _, v := range g.views {
		if v.moved(now, g.opts.AbsentAfter, g.gen+1) {
			g.stale(now)
		}
	}
	if len(g.lines()) < 2 || apart {
		return
	}
	home, second := g.home(), g.lines()[1]
	switch {
	case !g.carries(second):
		g.close(second)
	case !g.carries(home):
		for _, v := range g.views {
			v.move.Store(nil)
		}
		g.close(home)
	default:
		departed := false
		for _, v := range g.views {
			for _, wild := range []bool{true, false} {
				if v.at(wild) == second && v.move.Load() == nil {
					v.depart(wild, home, now)
					departed = true
				}
			}
		}
		if departed {
			g.place(now) // what has nothing to bring has arrived
		}
	}
}

// carries reports whether anything is asked for on l, other than on its way
// there.
func (g *Group) carries(l *link) bool {
	for _, v := range g.views {
		if v.wildAt == l || v.namesAt == l {
			return true
		}
	}
	return false
}

// place says where the parts of the type are asked for, and reports whether they
// have to be apart.
func (v *view) place(g *Group) (apart bool) {
	names := v.names.Len() > 0
	apart = v.wildcard && names
	if !v.wildcard {
		v.wildAt = nil
	}
	if !names {
		v.namesAt = nil
	}
	if m := v.move.Load(); m != nil && (apart || m.from(v) == nil) {
		v.move.Store(nil) // it stays where it is
	}
	if v.wildcard && v.wildAt == nil {
		v.wildAt = g.besides(v.namesAt)
	}
	if names && v.namesAt == nil {
		v.namesAt = g.besides(v.wildAt)
	}
	return apart
}

// besides returns the link for a part of a type whose other part is on l.
func (g *Group) besides(l *link) *link {
	switch {
	case l != g.home():
		return g.home()
	case len(g.lines()) > 1:
		return g.lines()[1]
	}
	return g.open()
}

// asked is what is asked for on l. Of types that nobody wants there is nothing in
// it (P64).
func asked(views []*view, l *link) *xds.Interest {
	out := new(xds.Interest)
	for _, v := range views {
		m := v.move.Load()
		to := func(wild bool) bool { return m != nil && m.wild == wild && m.to == l }
		switch {
		case v.wildAt == l || to(true):
			out.Types = append(out.Types, xds.TypeInterest{Type: v.typ.URL, Wildcard: true})
		case v.namesAt == l || to(false):
			out.Types = append(out.Types, xds.TypeInterest{Type: v.typ.URL, Names: v.names, Written: v.written, Again: v.again})
		}
	}
	return out
}
