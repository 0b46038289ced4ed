package fanout

import (
	"slices"
	"time"

	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// work is a worker's turn at the stream. It sends at most one message, since at most one may be in
// flight: the response of the first type, in the order of sending (P35), that has something to
// send.
func (st *stream) work() {
	if !st.run.enter() {
		return
	}
	st.sendNext()
	queue, ended := st.run.leave()
	if ended {
		close(*st.left.Load())
	}
	if queue {
		st.srv.sched.push(st)
	}
}

func (st *stream) sendNext() {
	if !st.stillAdmitted() {
		return
	}
	if u := st.unsent; u != nil {
		st.sendBody(u.ty, u.frame, u.next, u.seq, time.Now())
		return
	}
	p := st.newPass()
	// The worker looks at all types, not only at dirty ones. A group publishes a State of all its
	// types and then wakes them one by one, and the first to be woken may not be the first to send.
	// A type that is in step costs a comparison.
	for i := range p.order {
		if st.sendType(&p, i) {
			for _, ty := range p.order[i+1:] {
				st.run.mark(p.dirty & ty.bit)
			}
			return
		}
	}
	// A type that joined meanwhile keeps its dirty bit, so the stream is queued again.
}

// pass is one look of a worker at all types of a stream.
type pass struct {
	now       time.Time     // the pass includes what was published until then
	order     []*streamType // in the order of sending
	snapshots [maxTypes]*snapshot.Snapshot
	dirty     uint64 // bits of the types that were dirty
}

// newPass loads the snapshots of the types, in the reverse of the order of sending. Groups may
// publish meanwhile. In this order, a worker that sees new endpoints also sees the clusters that
// were published with them (P35). A single State is not enough, since the types may be of several
// groups.
func (st *stream) newPass() (p pass) {
	st.mu.Lock()
	p.order = st.types
	st.mu.Unlock()
	p.now = time.Now()
	for i, ty := range slices.Backward(p.order) {
		// Before the State is read: what is published later sets the bit again.
		p.dirty |= st.run.unmark(ty.bit)
		p.snapshots[i] = ty.snapshot()
	}
	return p
}

// sendType sends what there is to send of the i-th type. It reports whether a message is in
// flight, or nothing may follow now for another reason.
func (st *stream) sendType(p *pass, i int) bool {
	ty := p.order[i]
	st.mu.Lock()
	epoch := ty.epoch
	plan := ty.Next(p.snapshots[i], st.moment(p, i))
	ty.Planned(&plan)
	clusters, routesWait := ty.Type.URL == xds.ClusterType && ty.Began(), time.Duration(0)
	if clusters {
		routesWait = ty.RoutesWait(p.snapshots[i])
	}
	if !plan.Until.IsZero() && (ty.wakeTime.IsZero() || plan.Until.Before(ty.wakeTime)) {
		ty.wakeAt(plan.Until)
	}
	unnamed := ty.countNoNames(p.snapshots[i])
	st.mu.Unlock()
	if clusters {
		ty.subscriber.SetRoutesWait(routesWait)
	}
	if unnamed {
		ty.reportUnanswered(telemetry.NoNames, errNoNames)
	}
	if !plan.Sends() {
		return false
	}
	frame := framesOf(plan.To).frame(st, &plan, st.srv.opts.Replica)
	if frame == nil {
		st.run.mark(ty.bit) // another worker builds the frame
		return true
	}
	sent, stale := st.commit(p, i, &plan, frame, epoch)
	if plan.Oversized != nil && !stale {
		st.reportOversized(ty, &plan)
	}
	if stale {
		// The stream is queued again, behind the others. So a client that sends requests
		// faster than it can be answered does not keep a worker (P16).
		st.run.mark(ty.bit)
	}
	return sent || stale
}

// commit applies the plan to the session and sends the frame. stale: a request came after the plan
// was made, and the plan does not hold any more.
func (st *stream) commit(p *pass, i int, plan *session.Plan, frame *Frame, epoch uint64) (sent, stale bool) {
	ty := p.order[i]
	st.mu.Lock()
	if ty.epoch != epoch {
		st.mu.Unlock()
		return false, true
	}
	if frame.Empty() {
		if plan.Oversized != nil {
			ty.TooLarge(plan)
		} else {
			ty.NothingToSend(plan)
		}
		var accepted *snapshot.Snapshot
		if ty.Resumes() && !ty.track.EverSent() { // there is nothing to acknowledge (P27)
			accepted = ty.Accepted()
		}
		st.mu.Unlock()
		if accepted != nil {
			ty.subscriber.Acked(accepted.Gen, accepted)
		}
		return false, false
	}
	skipped := ty.Skipped(plan)
	merged := 0
	if frame.Renewed > 0 {
		merged = ty.SkippedHeartbeats(plan)
	}
	seq := st.nonces.Reserve(len(frame.bodies))
	ty.Sent(plan, frame.Manifest, seq, p.now)
	for range frame.bodies {
		ty.track.Sent(plan, frame.Version)
	}
	if ty.Type.Warms {
		p.markLater(i)
	}
	follow := st.refreshFollowers(ty, frame.Follows) | st.refreshFollowers(ty, plan.AlsoFollows)
	st.mu.Unlock()

	if follow != 0 {
		st.run.mark(follow)
	}
	ty.metrics.Heartbeats.Add(frame.Renewed)
	ty.metrics.HeartbeatsCoalesced.Add(merged)
	if skipped > 0 {
		ty.metrics.Coalesced.Add(skipped)
	}
	st.sendBody(ty, frame, 0, seq, p.now)
	return true, false
}

// unsent are the parts of a response that the stream has yet to send (P38). The session counts them
// as sent: nothing is sent before them.
type unsent struct {
	ty    *streamType
	frame *Frame
	next  int    // index of the next part
	seq   uint64 // number in its nonce
}

// sendBody sends one message of a frame. If others follow, the stream is queued again once this one
// has left.
func (st *stream) sendBody(ty *streamType, frame *Frame, i int, seq uint64, now time.Time) {
	if st.unsent = nil; i+1 < len(frame.bodies) {
		st.unsent = &unsent{ty, frame, i + 1, seq + 1}
		st.run.mark(ty.bit)
	}
	var buf [32]byte
	out := newOutgoing(st, frame.bodies[i], st.nonces.Append(buf[:0], seq))
	size := len(out.body) + len(out.tail)
	st.size.Store(int64(len(out.body)))
	st.before.Store(st.conn.Written())
	st.since.Store(now.UnixNano()) // before inFlight is looked at
	st.inFlight.Store(frame)
	if size > clientLimit {
		st.large.Store(&large{*ty.Type, size, seq, now})
	}
	out.seq = st.run.send()
	// SendMsg only queues. An error means that the stream is ending, which the receiver sees
	// as well.
	if st.grpc.SendMsg(out) != nil {
		return
	}
	ty.metrics.Responses[st.variant].Inc()
	ty.metrics.Bytes[st.variant].Add(size)
}

// reportOversized counts and logs a response that is too large (P38). Each client counts. The log
// has one line for a snapshot.
func (st *stream) reportOversized(ty *streamType, p *session.Plan) {
	ty.metrics.Oversized.Inc()
	if framesOf(p.To).reported.Swap(true) {
		return
	}
	st.srv.log.Error("response not sent: it is too large", "key", ty.subscriber.Key().String(), "type", ty.Type.URL,
		"variant", st.variant.String(), "version", p.Oversized.Version, "bytes", p.Oversized.Bytes, "limit", p.Limit)
}

// moment is what the session of the i-th type has to know about the time and the other types. The
// stream's lock is held.
func (st *stream) moment(p *pass, i int) session.Moment {
	ty := p.order[i]
	m := session.Moment{Now: p.now, AckTimeout: st.srv.settings().AckTimeout}
	m.Release = ty.Type.Warms && ty.PendingACK() && st.laterPending(p, i)
	if ty.Type.RefersToClusters && ty.Resumes() && st.srv.opts.RelayKey == nil && p.now.Sub(ty.track.Began()) < snapshot.WildcardWait {
		m.ClustersUntil = ty.track.Began().Add(st.routesWait(p, ty))
	}
	return m
}

// routesWait is for how long at most a type that refers to clusters waits for them (P67). Those of
// this stream may have another key, or an older snapshot than the key's newest.
func (st *stream) routesWait(p *pass, ty *streamType) time.Duration {
	wait := ty.subscriber.RoutesWait()
	for i, o := range p.order {
		if o.Type.URL == xds.ClusterType {
			wait = max(wait, o.RoutesWait(p.snapshots[i]))
		}
	}
	return wait
}

// refreshFollowers has the type that follows ty send these names again (P37), such as the endpoints
// of clusters that are sent. It returns that type's dirty bit. The stream's lock is held.
func (st *stream) refreshFollowers(ty *streamType, names []string) uint64 {
	if len(names) == 0 || st.srv.opts.RelayKey != nil {
		return 0
	}
	for _, o := range st.types {
		if o.Type.URL == ty.Type.Follower && o.Refresh(names) {
			return o.bit
		}
	}
	return 0
}

// markLater records the snapshots of the types that are sent after the i-th, at the time of its
// response. The types may have different keys, so snapshots can only be compared by identity. The
// stream's lock is held.
func (p *pass) markLater(i int) {
	at := p.order[i].Type.Order
	for j, o := range p.order {
		if o.Type.Order > at {
			o.marks[at] = p.snapshots[j].ID()
		}
	}
}

// laterPending reports whether a type that is sent after the i-th has a change to send that came
// after the newest response of the i-th (P19). A client that warms resources acknowledges that
// response only when it has the change. The stream's lock is held.
func (st *stream) laterPending(p *pass, i int) bool {
	at := p.order[i].Type.Order
	for j, o := range p.order {
		if o.Type.Order <= at || p.snapshots[j].ID() == o.marks[at] {
			continue
		}
		if o.Pending(p.snapshots[j]) {
			return true
		}
	}
	return false
}
