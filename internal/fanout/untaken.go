package fanout

import (
	"iter"
	"slices"
	"time"

	"xdsrelay/internal/fanout/session"
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

	awaits iter.Seq[string] // until it is known which
}

// maxUntaken bounds the names of one type.
const maxUntaken = 10_000

// Untaken yields the numbers of a node's streams, and of what polls, that are higher
// than after, in order, each with what the client has not taken there. It looks at one
// at a time, as they are asked for. What it yields is overwritten by the next.
func (s *Server) Untaken(node string, after uint64) iter.Seq2[uint64, []Untaken] {
	return func(yield func(uint64, []Untaken) bool) {
		look := newSurvey()
		streams := slices.DeleteFunc(s.all(), func(st *stream) bool { return st.id <= after || st.nodeID() != node })
		polls := slices.DeleteFunc(s.pollers.all(), func(p *poller) bool { return p.id <= after || p.node.ID != node })
		var found []Untaken
		inOrder(streams, polls, func(st *stream) bool {
			found = st.appendUntaken(look, found[:0])
			for i := range found { // not under the lock: it may ask for many
				if u := &found[i]; u.awaits != nil {
					u.Awaits = someOf(u.awaits)
				}
			}
			return yield(st.id, found)
		}, func(p *poller) bool {
			found = s.pollers.appendUntaken(p, found[:0])
			return yield(p.id, found)
		})
	}
}

func (st *stream) appendUntaken(look *survey, to []Untaken) []Untaken {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, sl := range st.order {
		at := sl.stands(look)
		newest := sl.coming()
		if sl.member == nil || at.state == Synced || !sl.Began() {
			continue
		}
		u := Untaken{
			Stream: st.id, Node: st.node.ID, Key: sl.member.Key(), Type: sl.Type, State: at.state, Since: at.since, Sub: sl.Subscription(),
			Lineage: at.lineage, Has: at.has, AckedVersion: sl.AckedVersion(),
		}
		switch {
		case at.state == Refused && sl.nack != nil:
			n := *sl.nack
			u.Nack, u.Of, u.Version = &n, n.Gen, n.Version
			of, names := sl.RefusedNames(maxUntaken)
			u.Of, u.Names = max(u.Of, of), names
		case sl.AwaitsAnswer():
			u.Of, u.Version, u.Names = sl.NewestUnanswered()
			u.Names = u.Names[:min(len(u.Names), maxUntaken)]
		case at.unsent:
			u.Of, u.Version, u.Unsent = newest.Gen, newest.Version, true
		default:
			u.awaits = sl.Copy().UnansweredNames(newest)
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
		u.Awaits = someOf(session.Awaits(p.sub, at.newest))
	}
	return append(to, u)
}
