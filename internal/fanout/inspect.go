package fanout

import (
	"cmp"
	"iter"
	"slices"

	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// Inspected is a stream, or who polls, to be looked at resource by resource.
type Inspected struct {
	Stream  uint64
	Node    *xds.Node
	Peer    string
	Variant string
	// Conn is the same for streams of one connection, and says nothing else.
	Conn any

	types func() []InspectedType
}

// Inspect returns all streams that have said whose they are, and all that polls, by
// node and stream. It locks one stream at a time, for a few words.
func (s *Server) Inspect() []Inspected {
	streams := s.all()
	out := make([]Inspected, 0, len(streams))
	for _, st := range streams {
		if i, known := st.inspect(); known {
			out = append(out, i)
		}
	}
	out = append(out, s.pollers.inspect()...)
	slices.SortFunc(out, func(a, b Inspected) int {
		return cmp.Or(cmp.Compare(a.Node.ID, b.Node.ID), cmp.Compare(a.Stream, b.Stream))
	})
	return out
}

func (st *stream) inspect() (Inspected, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	return Inspected{Stream: st.id, Node: st.node, Peer: st.from, Variant: st.variant.String(), Conn: st.conn, types: st.stills}, st.node != nil
}

// Types returns what the client has of each type, as it is at the moment. It locks
// the stream for as long as it takes to copy what is out of step.
func (i *Inspected) Types() []InspectedType { return i.types() }

func (st *stream) stills() []InspectedType {
	st.mu.Lock()
	defer st.mu.Unlock()
	var out []InspectedType
	for _, sl := range st.order {
		if sl.member == nil || !sl.Began() {
			continue // P5, P6: nothing is known of what it asks for
		}
		t := InspectedType{URL: sl.Type.URL, session: sl.Copy(), now: sl.member.Newest(), took: sl.counts.acks > 0}
		if sl.nack != nil {
			t.nack = *sl.nack
		}
		out = append(out, t)
	}
	return out
}

// Stance is how a client stands to a name that it asked for, as far as it told.
type Stance = session.Stance

// The stances.
const (
	Untold   = session.Untold
	Missing  = session.Missing
	Taken    = session.Taken
	Declined = session.Declined
	Failed   = session.Failed
	Unsure   = session.Unsure
)

// ResourceStatus is one name that a client asked for.
type ResourceStatus struct {
	session.Resource
	// Nack is the client's words, where it refused the resource.
	Nack *Nack
}

// InspectedType is a type that a client asked for, at one moment. What it points to
// stays alive with it.
type InspectedType struct {
	URL xds.TypeURL

	session *session.Session // nil: polled
	now     *xds.Snapshot    // the newest; nil: nothing is known
	took    bool             // it acknowledged something
	nack    Nack             // the last one

	poll *pollLook
}

// Resources are all names that the client asked for, and all that it has, by name.
// A handle is there by the resources that it leads to. It costs as much as there
// is, and holds no lock.
func (t *InspectedType) Resources() iter.Seq[ResourceStatus] {
	return func(yield func(ResourceStatus) bool) {
		if t.poll != nil {
			t.poll.resources(t.now, yield)
			return
		}
		for _, name := range t.session.Known(t.now) {
			if r, is := t.resource(name); is && !yield(r) {
				return
			}
		}
	}
}

// resource is how the client stands to name; false: to nothing of that name.
func (t *InspectedType) resource(name string) (ResourceStatus, bool) {
	r, is := t.session.Resource(name, t.now, t.took)
	out := ResourceStatus{Resource: r}
	if is && r.Stance == Declined {
		out.Nack = t.refusal(&r)
	}
	return out, is
}

// refusal has the client's words, which are kept of its last refusal alone.
func (t *InspectedType) refusal(r *session.Resource) *Nack {
	n := t.nack
	if r.RefusedIn != "" && r.RefusedIn != n.Version {
		n = Nack{Version: r.RefusedIn, Node: n.Node, Message: "(refused before the last refusal, of which alone the message is kept)"}
	}
	if r.RefusedVersion != "" {
		n.Version = r.RefusedVersion
	}
	return &n
}

// pollLook is what is known of a poller, at one moment: of all that it asks for
// together.
type pollLook struct {
	sub     *xds.Subscription
	acked   string
	sent    bool
	refuses bool
	behind  bool
	state   string
	nack    *Nack
}

// inspect are all pollers, each as a stream of one type.
func (ps *pollers) inspect() []Inspected {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var out []Inspected
	for _, same := range ps.table {
		for _, p := range same {
			out = append(out, Inspected{
				Stream: p.id, Node: p.node, Peer: p.address, Variant: telemetry.REST.String(), Conn: [2]string{p.account, p.address}, types: p.still,
			})
		}
	}
	return out
}

func (p *poller) still() []InspectedType {
	at := p.reads()
	ps := p.srv.pollers
	ps.mu.Lock()
	defer ps.mu.Unlock()
	t := p.status(&at)
	state := t.State
	if state == NotSent && p.sent != "" {
		state = Synced // but for what it awaits
	}
	return []InspectedType{{URL: p.typ.URL, now: at.newest, poll: &pollLook{
		sub: p.sub, acked: p.acked, sent: p.sent != "", refuses: p.refuses, behind: t.State == Unanswered, state: state, nack: t.Nack,
	}}}
}

// resources are those that a poll would be given, with what is known of the client
// that was given them last.
func (p *pollLook) resources(now *xds.Snapshot, yield func(ResourceStatus) bool) {
	names := slices.Collect(p.sub.Names.All())
	now.Covered(p.sub, func(r *xds.Resource) bool {
		names = append(names, r.Name)
		return true
	})
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names {
		has, is := now.Look(p.sub, name)
		if is == xds.Elsewhere {
			continue
		}
		r := ResourceStatus{Resource: session.Resource{Name: name, State: p.state, Error: now.Error(p.sub, name)}}
		switch {
		case is == xds.Present && !p.sent:
			r.State = NotSent
		case is == xds.Present && p.refuses:
			r.Stance, r.Version, r.Refused, r.Nack, r.Updated = Declined, p.acked, has, p.nack, now.Received
		case is == xds.Present && p.behind && p.acked == "":
			r.Updated = now.Received
		case is == xds.Present && p.behind:
			r.Stance, r.Updated = Unsure, now.Received
		case is == xds.Present && p.acked != "":
			r.Stance, r.Version, r.Has, r.Updated = Taken, p.acked, has, now.Received
		case r.Error != nil && !r.Error.Absent():
			r.Stance = Failed
		case is == xds.Absent, is == xds.Unresolvable:
			if r.Stance = Missing; !now.Type.FullState {
				r.State = Synced // P31: it is told by silence
			}
		case is == xds.Pending, is == xds.Lapsed:
			r.State = NotSent
		}
		if !yield(r) {
			return
		}
	}
}
