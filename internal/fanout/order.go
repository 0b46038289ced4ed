package fanout

import (
	"slices"
	"time"

	"xdsrelay/internal/xds"
)

// Moment is what a session has to be told of the time, and of its stream, to
// say what to send.
type Moment struct {
	Now        time.Time
	AckTimeout time.Duration
	// Release: a later type has a change to send that came after the newest
	// unanswered response, so that this type does not wait (P19).
	Release bool
	// Hold is how long a removal is held back (P36); 0: it is not.
	Hold time.Duration
	// Routed: what routes and listeners had to send until then is answered. It
	// need only be told where something is ripe.
	Routed time.Time
}

// sight is what a worker's turn at a stream sees of the types, in the order of
// sending.
type sight struct {
	now   time.Time // what was published until then is seen
	order []*slot
	cur   [maxTypes]*xds.Snapshot
	dirty uint64 // the types that were marked
}

// look takes a sight. The types that are sent last are looked at first: so
// nothing of a later type is seen whose clusters, say, are not seen yet, though
// groups publish meanwhile (P35). One State would not do, since types may be of
// several groups.
func (st *stream) look() (v sight) {
	st.mu.Lock()
	v.order = st.order // replaced, not changed, when a type is added
	st.mu.Unlock()
	v.now = time.Now()
	for i, sl := range slices.Backward(v.order) {
		// Before the State is read: what is published later sets it again.
		v.dirty |= st.run.unmark(sl.bit)
		v.cur[i] = sl.snapshot()
	}
	return v
}

// moment is what the session of the i-th type is to be told. Under the lock.
func (st *stream) moment(v *sight, i int) Moment {
	sl := v.order[i]
	m := st.removals(v, sl)
	m.Release = sl.typ.Warms && len(sl.flights) > 0 && st.laterPending(v, i)
	return m
}

// removals is moment without Release. Under the lock.
func (st *stream) removals(v *sight, sl *slot) Moment {
	m := Moment{Now: v.now, AckTimeout: st.srv.settings().AckTimeout}
	if sl.typ.LeavesLast && st.points() {
		m.Hold = st.srv.settings().RemovalDelay
	}
	if sl.hold.ripe(v.now, m.Hold) {
		m.Routed = v.routed()
	}
	return m
}

// points reports whether this is an aggregated stream that has spoken for routes
// or listeners, and is answered (P36). Under the lock.
func (st *stream) points() bool {
	if st.only != "" {
		return false
	}
	for _, o := range st.order {
		if o.typ.Points && o.member != nil {
			return true
		}
	}
	return false
}

// routed is the time until which all that routes and listeners had to send is
// answered. Under the stream's lock.
func (v *sight) routed() time.Time {
	until := v.now
	for i, o := range v.order {
		if o.typ.Points && o.member != nil {
			if t := o.Through(v.cur[i], v.now); t.Before(until) {
				until = t
			}
		}
	}
	return until
}

// ripe returns the types whose removals wait for nothing but routes and
// listeners, if sl is one of these. Under the lock.
func (st *stream) ripe(sl *slot, now time.Time) (bits uint64) {
	if !sl.typ.Points {
		return 0
	}
	for _, o := range st.slots {
		if o.hold.ripe(now, st.srv.settings().RemovalDelay) {
			bits |= o.bit
		}
	}
	return bits
}

// Through returns until when all that the session had to send was answered: all
// that was published before was sent and acknowledged or refused, or was
// nothing to this client. cur was read after now.
func (s *Session) Through(cur *xds.Snapshot, now time.Time) time.Time {
	if s.Pending(cur) {
		return s.through
	}
	if n := len(s.flights); n > 0 {
		s.flights[n-1].covers = now
	} else {
		s.through = now
	}
	return s.through
}

// follow has what follows the sent resources answered again (P37), and returns
// the dirty bits. Under the lock.
func (st *stream) follow(sl *slot, names []string) uint64 {
	if len(names) == 0 {
		return 0
	}
	for _, o := range st.slots {
		if o.typ.URL == sl.typ.Follower && o.Refresh(names) {
			return o.bit
		}
	}
	return 0
}

// mark is a snapshot by its name, which keeps nothing alive.
type mark struct{ lineage, gen uint64 }

func markOf(s *xds.Snapshot) mark {
	if s == nil {
		return mark{}
	}
	return mark{s.Lineage, s.Gen}
}

// setMarks notes where the types that are sent after the i-th stood as its
// response was made. Their keys may be others: only identity can be compared.
// Under the stream's lock.
func (v *sight) setMarks(i int) {
	at := v.order[i].typ.Order
	for j, o := range v.order {
		if o.typ.Order > at {
			o.marks[at] = markOf(v.cur[j])
		}
	}
}

// laterPending reports whether a type that is sent after the i-th has a change
// to send that came after the newest response of that (P19). Under the lock.
func (st *stream) laterPending(v *sight, i int) bool {
	at := v.order[i].typ.Order
	for j, o := range v.order {
		if o.typ.Order <= at || markOf(v.cur[j]) == o.marks[at] {
			continue
		}
		m := st.removals(v, o)
		if o.observe(v.cur[j], &m); o.Pending(v.cur[j]) {
			return true
		}
	}
	return false
}
