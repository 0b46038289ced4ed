package fanout

import "xdsrelay/internal/xds"

// good is what an ACK says of what is good (xds.Good).
type good struct {
	in  *xds.Good     // where it is to be noted; nil: nothing is
	all *xds.Snapshot // the client has all of its wildcard; nil: not so, or known
	of  *xds.Receipt  // nil: nothing that was not known

	gen     uint64
	took    []xds.Took
	removed bool
}

// good is what the answer to a response says, that was just given. Under the lock.
func (st *stream) good(sl *slot, out *Outcome) good {
	if out.Verdict != Acked {
		return good{}
	}
	in := sl.member.Good()
	if in == nil {
		return good{}
	}
	return sl.improves(in, out.answered, sl.counts.acks == 1)
}

// improves tells what is good since the client acknowledged the response, as far as
// it is not known; first: it acknowledged none before.
func (s *Session) improves(in *xds.Good, m *manifest, first bool) (g good) {
	all := s.hasAll()
	if all && !in.KnowsAll(s.sent) {
		g.in, g.all = in, s.sent
	}
	switch {
	case all && s.sub.Names.Len() == 0:
	case first && s.inStep && s.brings: // with what it brought (P27)
		g.in = in
		s.acceptedAll(&g, m)
	case !in.Knows(&m.receipt):
		g.in = in
		s.accepted(&g, m)
	}
	return g
}

// hasAll reports whether the client has all that the wildcard brought in sent: it
// answered everything, and refused nothing of it.
func (s *Session) hasAll() bool {
	return s.sub.Wildcard && s.inStep && s.sent != nil && s.sent.Answered &&
		s.early == nil && s.fresh == nil && s.refused == nil && s.initial == nil
}

// accepted tells which of the resources of a response, that the client acknowledged, are
// what it has now. What it was sent something else of since, nobody took yet.
func (s *Session) accepted(g *good, m *manifest) {
	s.begin(g, m)
	for i, name := range m.names {
		if m.versions[i] == (xds.Version{}) {
			g.removed = true
			continue
		}
		if r, is := s.had(name); is == xds.Present && r.Version == m.versions[i] {
			g.add(s.newest(), r)
		}
	}
}

// acceptedAll tells of all that a client has by names, which is in step.
func (s *Session) acceptedAll(g *good, m *manifest) {
	s.begin(g, m)
	s.sent.Covered(s.sub, func(r *xds.Resource) bool {
		g.add(s.sent, r)
		return true
	})
}

func (s *Session) begin(g *good, m *manifest) {
	g.of = &m.receipt
	if at := s.newest(); at != nil {
		g.gen = at.Gen
	}
}

// add notes a resource in each part that has it: where both are equal they may be
// one, and clients of either kind may be sent the same response.
func (g *good) add(at *xds.Snapshot, r *xds.Resource) {
	wild := r.Same(at.Part(true).Held(r.Name))
	if wild {
		g.took = append(g.took, xds.Took{Resource: r, Wild: true})
	}
	if !wild || r.Same(at.Part(false).Held(r.Name)) {
		g.took = append(g.took, xds.Took{Resource: r})
	}
}

// note notes it, and reports whether something else is good by it.
func (g *good) note() (news bool) {
	if g.all != nil {
		news = g.in.TakeAll(g.all)
	}
	if g.of != nil {
		news = g.in.Take(g.of, g.gen, g.took, g.removed) || news
	}
	return news
}

// took notes that a poll came with the version of a document: its client has all
// of it.
func (p *poller) took(s *xds.Snapshot, a *document) {
	in := p.member.Good()
	if in == nil {
		return
	}
	news := false
	if p.sub.Wildcard && s.Answered && !in.KnowsAll(s) {
		news = in.TakeAll(s)
	}
	if p.sub.Names.Len() > 0 && !in.Knows(&a.receipt) {
		g := good{of: &a.receipt, gen: s.Gen}
		s.Covered(p.sub, func(r *xds.Resource) bool {
			g.add(s, r)
			return true
		})
		news = in.Take(g.of, g.gen, g.took, false) || news
	}
	if news {
		p.member.Improved()
	}
}
