package fanout

import (
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

// moment is what sl's session is to be told. Under the lock.
func (st *stream) moment(sl *slot, now time.Time) Moment {
	m := st.removals(sl, now)
	m.Release = sl.typ.Warms && len(sl.flights) > 0 && st.laterPending(sl, now)
	return m
}

// removals is moment without Release. Under the lock.
func (st *stream) removals(sl *slot, now time.Time) Moment {
	m := Moment{Now: now, AckTimeout: st.srv.opts.AckTimeout}
	if sl.typ.LeavesLast && st.points() {
		m.Hold = st.srv.opts.RemovalDelay
	}
	if sl.hold.ripe(now, m.Hold) {
		m.Routed = st.routed(now)
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
// answered. Under the lock.
func (st *stream) routed(now time.Time) time.Time {
	until := now
	for _, o := range st.order {
		if o.typ.Points && o.member != nil {
			if t := o.Through(o.snapshot(), now); t.Before(until) {
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
		if o.hold.ripe(now, st.srv.opts.RemovalDelay) {
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

// setMarks notes where the types that are sent after sl stand as its response
// goes out. Their keys may be others: only identity can be compared. Under the
// lock.
func (st *stream) setMarks(sl *slot) {
	for _, o := range st.order {
		if o.typ.Order > sl.typ.Order {
			o.marks[sl.typ.Order] = markOf(o.snapshot())
		}
	}
}

// laterPending reports whether a type that is sent after sl has a change to
// send that came after sl's newest response (P19). Under the lock.
func (st *stream) laterPending(sl *slot, now time.Time) bool {
	for _, o := range st.order {
		if o.typ.Order <= sl.typ.Order {
			continue
		}
		if cur := o.snapshot(); markOf(cur) != o.marks[sl.typ.Order] {
			m := st.removals(o, now)
			if o.observe(cur, &m); o.Pending(cur) {
				return true
			}
		}
	}
	return false
}
