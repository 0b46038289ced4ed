package orchestrator

import (
	"slices"
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
//
// If the other part is wanted again meanwhile, both streams are asked for the one
// that moves. To call the move off would open the first anew, for all types, so it
// goes on, and the other part is asked for on a third stream: the second, once
// that is closed.
func (g *Group) place(now time.Time) {
	apart := false
	for _, v := range g.views {
		apart = v.place(g) || apart
	}
	for _, v := range g.views {
		if v.moved(now, g.opts.FirstAnswerTimeout, g.gen+1) {
			g.stale(now)
		}
	}
	for _, l := range slices.Backward(g.lines()) {
		if len(g.lines()) > 1 && !g.needs(l) {
			g.close(l)
		}
	}
	departed := false
	for _, v := range g.views {
		for _, wild := range []bool{true, false} {
			if to := g.goal(v, wild, apart); to != nil && v.move.Load() == nil {
				v.depart(wild, to, now)
				departed = true
			}
		}
	}
	if departed {
		g.place(now) // what has nothing to bring has arrived
	}
}

// goal is the stream to which a part is to move; nil: it stays where it is.
func (g *Group) goal(v *view, wild, apart bool) *link {
	lines := g.lines()
	at := slices.Index(lines, v.at(wild))
	switch {
	case at <= 0:
		return nil
	case !apart:
		return g.home()
	case at > 1 && lines[1] != v.at(!wild):
		return lines[1]
	}
	return nil
}

// needs reports whether l carries anything, or, though that moves there yet, is
// ahead in anything: what clients were told is not to be taken back.
func (g *Group) needs(l *link) bool {
	return slices.ContainsFunc(g.views, func(v *view) bool {
		m := v.move.Load()
		return v.wildAt == l || v.namesAt == l || m != nil && m.to == l && len(m.ahead.names) > 0
	})
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
	if m := v.move.Load(); m != nil && m.from(v) == nil {
		v.move.Store(nil) // nobody wants it any more
	}
	if v.wildcard && v.wildAt == nil {
		v.wildAt = g.besides(v, v.namesAt)
	}
	if names && v.namesAt == nil {
		v.namesAt = g.besides(v, v.wildAt)
	}
	return apart
}

// besides returns the link for a part of a type whose other part is on l, and may
// move to another: home, or else one that is not about to be closed.
func (g *Group) besides(v *view, l *link) *link {
	m, lines := v.move.Load(), g.lines()
	free := func(o *link) bool { return o != l && (m == nil || o != m.to) }
	if free(lines[0]) {
		return lines[0]
	}
	for _, o := range slices.Backward(lines[1:]) {
		if free(o) {
			return o
		}
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
			out.Types = append(out.Types, xds.TypeInterest{Type: v.typ.URL, Names: v.names, Again: v.again})
		}
	}
	return out
}
