package fanout

import (
	"iter"
	"slices"
	"time"

	"xdsrelay/internal/xds"
)

// Untaken is what a client refused, or does not have yet, of a type.
type Untaken struct {
	Stream uint64
	Node   string
	Key    xds.Key
	Type   xds.Type
	State  string
	Since  time.Time
	Sub    *xds.Subscription
	// Lineage has the generations: Has of which the client took all, 0 for none, and Of
	// what it refused or is to take. AckedVersion and Version are what they are called.
	Lineage, Has, Of      uint64
	AckedVersion, Version string
	// Names are those that are concerned, if that is known and is not just what differs
	// between the two generations.
	Names []string
	Nack  *Nack // the refusal; nil: nothing is refused
	// Unsent: it was not sent yet. Else, without a refusal, it is not answered.
	Unsent bool
	// Awaits are names of which the origin has said nothing yet, "*" for the wildcard,
	// at most so many as Names; then there is nothing to take.
	Awaits []string
}

// maxUntaken bounds the names of one type.
const maxUntaken = 10_000

// Untaken is that of all streams of a node, in order.
func (s *Server) Untaken(node string) (out []Untaken) {
	look := newSurvey()
	streams := s.all()
	slices.SortFunc(streams, func(a, b *stream) int { return int(int64(a.id) - int64(b.id)) })
	for _, st := range streams {
		if st.nodeID() == node {
			out = st.appendUntaken(look, out)
		}
	}
	for _, p := range s.pollers.all() {
		if p.node.ID == node {
			out = s.pollers.appendUntaken(p, out)
		}
	}
	return out
}

func (st *stream) appendUntaken(look *survey, to []Untaken) []Untaken {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, sl := range st.order {
		at := sl.stands(look)
		newest := sl.coming()
		if sl.member == nil || at.state == Synced || !sl.Session.began {
			continue
		}
		u := Untaken{
			Stream: st.id, Node: st.node.ID, Key: sl.member.Key(), Type: sl.typ, State: at.state, Since: at.since, Sub: sl.sub,
			Lineage: at.lineage, Has: sl.has, AckedVersion: sl.acked,
		}
		switch {
		case at.state == Refused && sl.nack != nil:
			n := *sl.nack
			u.Nack, u.Of, u.Version = &n, n.Gen, n.Version
			for _, r := range sl.refused {
				u.Of = max(u.Of, r.gen)
				for _, name := range r.names {
					if r.has(sl.sub, name) && len(u.Names) < maxUntaken {
						u.Names = append(u.Names, name)
					}
				}
			}
			sortUnique(&u.Names)
		case len(sl.flights) > 0:
			f := &sl.flights[len(sl.flights)-1]
			u.Of, u.Version = f.gen, f.frame.version
			if !sl.full() {
				u.Names = f.frame.names[:min(len(f.frame.names), maxUntaken)] // which nobody changes
			}
		case at.unsent:
			u.Of, u.Version, u.Unsent = newest.Gen, newest.Version, true
		default:
			u.Awaits = someOf(awaits(sl.sub, newest))
		}
		to = append(to, u)
	}
	return to
}

// someOf are the first names, sorted.
func someOf(names iter.Seq[string]) []string {
	out := []string{}
	for n := range names {
		if len(out) == maxUntaken {
			break
		}
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// appendUntaken: of a poller it is known what it was given or refused, and not what
// it has.
func (ps *pollers) appendUntaken(p *poller, to []Untaken) []Untaken {
	at := p.reads()
	ps.mu.Lock()
	t := p.status(&at)
	u := Untaken{
		Stream: p.id, Node: p.node.ID, Key: p.member.Key(), Type: p.typ, State: t.State, Since: t.Since, Sub: p.sub,
		AckedVersion: p.acked, Version: p.sent, Nack: t.Nack, Names: []string{},
	}
	ps.mu.Unlock()
	if at.newest != nil {
		u.Lineage, u.Of = at.newest.Lineage, at.newest.Gen
	}
	switch {
	case t.State == Synced:
		return to
	case t.State == Refused:
		u.Version, u.Names = t.Nack.Version, nil
		return append(to, u)
	}
	u.Nack = nil
	switch {
	case t.Unsent:
		u.Version, u.Unsent = at.version, true
	case t.State == NotSent:
		u.Awaits = someOf(awaits(p.sub, at.newest))
	}
	return append(to, u)
}
