package fanout

import (
	"slices"
	"time"

	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/xds"
)

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
func (st *stream) moment(v *sight, i int) session.Moment {
	sl := v.order[i]
	m := session.Moment{Now: v.now, AckTimeout: st.srv.settings().AckTimeout}
	m.Release = sl.Type.Warms && sl.AwaitsAnswer() && st.laterPending(v, i)
	return m
}

// follow has what follows the sent resources answered again (P37), and returns
// the dirty bits. Under the lock.
func (st *stream) follow(sl *slot, names []string) uint64 {
	if len(names) == 0 {
		return 0
	}
	for _, o := range st.slots {
		if o.Type.URL == sl.Type.Follower && o.Refresh(names) {
			return o.bit
		}
	}
	return 0
}

// setMarks notes where the types that are sent after the i-th stood as its
// response was made. Their keys may be others: only identity can be compared.
// Under the stream's lock.
func (v *sight) setMarks(i int) {
	at := v.order[i].Type.Order
	for j, o := range v.order {
		if o.Type.Order > at {
			o.marks[at] = session.IDOf(v.cur[j])
		}
	}
}

// laterPending reports whether a type that is sent after the i-th has a change
// to send that came after the newest response of that (P19). Under the lock.
func (st *stream) laterPending(v *sight, i int) bool {
	at := v.order[i].Type.Order
	for j, o := range v.order {
		if o.Type.Order <= at || session.IDOf(v.cur[j]) == o.marks[at] {
			continue
		}
		if o.Pending(v.cur[j]) {
			return true
		}
	}
	return false
}
