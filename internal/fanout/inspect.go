package fanout

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

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
		if sl.member == nil || !sl.Session.began {
			continue // P5, P6: nothing is known of what it asks for
		}
		t := InspectedType{URL: sl.typ.URL, session: sl.still(), now: sl.member.Newest(), took: sl.counts.acks > 0}
		if sl.nack != nil {
			t.nack = *sl.nack
		}
		out = append(out, t)
	}
	return out
}

// still is a copy of a session that stays as it is. What is out of step is copied,
// all else shared: snapshots, sets and manifests do not change.
func (s *Session) still() *Session {
	c := *s
	c.early, c.warned, c.fresh, c.awaits = maps.Clone(s.early), maps.Clone(s.warned), maps.Clone(s.fresh), maps.Clone(s.awaits)
	c.flights, c.refused = slices.Clone(s.flights), slices.Clone(s.refused)
	c.brought = nil
	return &c
}

// Stance is how a client stands to a name that it asked for, as far as it told.
type Stance uint8

const (
	// Untold: it was sent nothing of it, or has not answered its first response.
	Untold Stance = iota
	// Missing: there is no such resource, and the client knows, as far as its
	// variant has a way to tell it.
	Missing
	// Taken: it acknowledged it, or brought it from another stream.
	Taken
	// Declined: it refused the response that it came with.
	Declined
	// Failed: it was told of an error in its place (P39).
	Failed
	// Unsure: it has not answered yet, and may have an older one; or the TTL of
	// what it had is over.
	Unsure
)

// ResourceStatus is one name that a client asked for.
type ResourceStatus struct {
	Name string // as the client is told
	Stance
	// State is that of the name, by the words for types: Refused or NotSent, also if
	// there is nothing to send; Unanswered also if there is something newer.
	State string
	// Has is what the client has, and Version the one that it knows it by: its own
	// in incremental, that of the last response taken in state of the world. Of what
	// it refused, what it has instead is not known.
	Has     *xds.Resource
	Version string
	// Updated is when the newest came of what it was sent the resource with.
	Updated time.Time
	// Refused is what it refused, nil where that is not known, with the version and
	// the client's words.
	Refused *xds.Resource
	Nack    *Nack
	// Error is what the origin said instead (P39).
	Error *xds.ResourceError
}

// InspectedType is a type that a client asked for, at one moment. What it points to
// stays alive with it.
type InspectedType struct {
	URL xds.TypeURL

	session *Session      // nil: polled
	now     *xds.Snapshot // the newest; nil: nothing is known
	took    bool          // it acknowledged something
	nack    Nack          // the last one

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
		for _, name := range t.session.known(t.now) {
			if r, is := t.resource(name); is && !yield(r) {
				return
			}
		}
	}
}

// known are all names that the client asked for, and of all that it has or is to
// have, sorted.
func (s *Session) known(now *xds.Snapshot) []string {
	names := slices.Collect(s.want.Names.All())
	add := func(r *xds.Resource) bool {
		names = append(names, r.Name)
		return true
	}
	s.sent.Covered(s.sentBy(), add)
	for name := range s.early {
		names = append(names, name)
	}
	now.Covered(s.want, add)
	sortUnique(&names)
	return names
}

// resource is how the client stands to name; false: to nothing of that name.
func (t *InspectedType) resource(name string) (ResourceStatus, bool) {
	s := t.session
	had, was := s.had(name)
	if s.unspoken(name) || was == xds.Absent && !s.sub.Names.Has(name) {
		had, was = nil, xds.Pending // what a wildcard's answer left out, nobody spoke of
	}
	has, is := s.see(name, t.now, had, was)
	if is == xds.Pending && !s.sub.Covers(name) {
		has, is = t.now.Look(s.want, name) // asked for by a request that was stale (P12)
	}
	switch {
	case was != xds.Present && (is == xds.Elsewhere || was == xds.Elsewhere):
		return ResourceStatus{}, false
	case was == xds.Pending && is == xds.Pending && !s.want.Covers(name):
		return ResourceStatus{}, false
	}
	if s.variant == xds.SotW && !s.full() && was == xds.Pending && (is == xds.Absent || is == xds.Unresolvable) {
		was = is // P31: it is told by silence, and there is no other answer to come
	}
	r := ResourceStatus{Name: name}
	flies, refused := s.flies(name), false
	if at := s.sent; at != nil && was != xds.Pending {
		r.Updated = at.Received
	}
	if was == xds.Present {
		refused = t.refused(name, had, flies, &r)
	}
	told := s.told(name)
	if s.unspoken(name) {
		told = nil
	}
	r.Error = told
	switch {
	case refused:
		r.Stance = Declined
	case told != nil && !told.Absent():
		r.Stance = Failed
	case was == xds.Present && flies && t.took:
		r.Stance = Unsure
	case was == xds.Present && !flies:
		r.Stance = Taken
	case was == xds.Absent, was == xds.Unresolvable, told != nil:
		r.Stance = Missing
	case was == xds.Lapsed:
		r.Stance = Unsure
	}
	if was == xds.Present && !flies && !refused {
		r.Has = had
	}
	if r.Has != nil || refused && s.variant == xds.SotW {
		r.Version = t.version(had)
	}
	switch {
	case flies:
		r.State = Unanswered
	case refused:
		r.State = Refused
	case was == xds.Pending && told == nil, was == xds.Lapsed:
		r.State = NotSent
	case differs(s.form, s.full(), s.sub.Names.Has(name), had, was, has, is):
		r.State = Unanswered
	default:
		r.State = Synced
	}
	return r, true
}

// unspoken reports whether a name is to be answered that was not, though what the
// client was sent has something by it.
func (s *Session) unspoken(name string) bool {
	why, waits := s.fresh[name]
	return waits && why == asked && s.want.Names.Has(name)
}

// flies reports whether a response that is not answered yet speaks of name.
func (s *Session) flies(name string) bool {
	return slices.ContainsFunc(s.flights, func(f flight) bool {
		_, says := f.frame.says(name)
		return says
	})
}

// refused reports whether the client refused what it was sent last of name, and
// notes what that was. Of a full set nobody can tell which of it was at fault.
func (t *InspectedType) refused(name string, had *xds.Resource, flies bool, r *ResourceStatus) bool {
	s := t.session
	if s.full() {
		if !s.refuses {
			return false
		}
		t.noteRefusal(t.nack.Version, r)
		if !flies {
			r.Refused = had
		}
		return true
	}
	for _, ref := range slices.Backward(s.refused) {
		if _, is := slices.BinarySearch(ref.names, name); !is {
			continue
		}
		version, same := "", ref.said == nil
		if ref.said != nil {
			var v xds.Version
			v, same = ref.said.says(name)
			same = same && v == had.Version
			version = ref.said.version
		}
		t.noteRefusal(version, r)
		if same && !flies {
			r.Refused = had
			if s.variant == xds.Delta {
				r.Nack.Version = s.form.Version(had)
			}
		}
		return true
	}
	return false
}

// noteRefusal notes the client's words, which are kept of its last refusal alone.
func (t *InspectedType) noteRefusal(version string, r *ResourceStatus) {
	n := t.nack
	if version != "" && version != n.Version {
		n = Nack{Version: version, Node: n.Node, Message: "(refused before the last refusal, of which alone the message is kept)"}
	}
	r.Nack = &n
}

// version is the one by which the client knows the resource that it has.
func (t *InspectedType) version(had *xds.Resource) string {
	s := t.session
	if s.variant == xds.Delta {
		return s.form.Version(had)
	}
	return s.acked
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
	sortUnique(&names)
	for _, name := range names {
		has, is := now.Look(p.sub, name)
		if is == xds.Elsewhere {
			continue
		}
		r := ResourceStatus{Name: name, State: p.state, Error: now.Error(p.sub, name)}
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
