package fanout

import (
	"time"

	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/xds"
)

// work is a worker's turn at the stream: it sends one message at most, since
// one may be in flight, and of the types that have something to say the first
// in the order of sending (P35).
func (st *stream) work() {
	if !st.run.enter() {
		return
	}
	st.pass()
	queue, ended := st.run.leave()
	if ended {
		close(*st.left.Load())
	}
	if queue {
		st.srv.sched.push(st)
	}
}

func (st *stream) pass() {
	v := st.look()
	// All types are looked at, not only those marked: a group publishes a State
	// of all its types and then wakes them one by one, and the first to be woken
	// may not be the first to go. One that is in step costs a comparison.
	for i := range v.order {
		if st.advance(&v, i) {
			for _, sl := range v.order[i+1:] {
				st.run.mark(v.dirty & sl.bit)
			}
			return
		}
	}
	// The bit of a type that joined meanwhile stays set: the stream is queued
	// again.
}

// advance sends what there is to send of the i-th type. It reports whether a
// message is in flight, or nothing may follow now for another reason.
func (st *stream) advance(v *sight, i int) bool {
	sl := v.order[i]
	st.mu.Lock()
	epoch := sl.epoch
	plan := sl.Next(v.cur[i], st.moment(v, i))
	if !plan.Until.IsZero() && (sl.alarm.IsZero() || plan.Until.Before(sl.alarm)) {
		sl.wakeAt(plan.Until)
	}
	st.mu.Unlock()
	if !plan.Sends() {
		return false
	}
	frame := framesOf(plan.To).frame(st, &plan, st.srv.opts.Replica)
	if frame == nil {
		st.run.mark(sl.bit) // parked
		return true
	}
	sent, stale := st.commit(v, i, &plan, frame, epoch)
	if plan.Oversized != nil && !stale {
		st.report(sl, &plan)
	}
	if stale {
		// A request came in between. Again, but after the others: a client that
		// asks faster than it can be answered is to keep no worker (P16).
		st.run.mark(sl.bit)
	}
	return sent || stale
}

// commit moves the session and sends. stale: a request came in between, and
// the plan is no longer the session's.
func (st *stream) commit(v *sight, i int, plan *session.Plan, frame *Frame, epoch uint64) (sent, stale bool) {
	var buf [32]byte
	sl := v.order[i]
	st.mu.Lock()
	if sl.epoch != epoch {
		st.mu.Unlock()
		return false, true
	}
	if frame.Empty() {
		if plan.Oversized != nil {
			sl.TooLarge(plan)
		} else {
			sl.NothingToSend(plan)
		}
		var accepted *xds.Snapshot
		if sl.BringsState() && sl.counts.sent == 0 { // it has nothing to acknowledge (P27)
			accepted = sl.Accepted()
		}
		st.mu.Unlock()
		if accepted != nil {
			sl.member.Acked(accepted.Gen, accepted)
		}
		return false, false
	}
	skipped := sl.Skipped(plan)
	merged := 0
	if frame.Renewed > 0 {
		merged = sl.SkippedHeartbeats(plan)
	}
	nonce, seq := st.nonces.Next(buf[:0])
	sl.Sent(plan, frame.Manifest, seq, v.now)
	sl.counts.sent++
	sl.sending(plan)
	sl.version = frame.Version
	if sl.Type.Warms {
		v.setMarks(i)
	}
	follow := st.follow(sl, frame.Follows) | st.follow(sl, plan.AlsoFollows)
	st.mu.Unlock()

	if follow != 0 {
		st.run.mark(follow)
	}
	out := newOutgoing(st, frame.body, nonce)
	size := len(out.body) + len(out.tail)
	st.since.Store(time.Now().UnixNano()) // before it is looked at
	st.flying.Store(frame)
	out.seq = st.run.send()
	// It only queues; an error means that the stream is ending, which the
	// receiver sees as well.
	if st.grpc.SendMsg(out) != nil {
		return true, false
	}
	sl.meters.Responses[st.variant].Inc()
	sl.meters.Bytes[st.variant].Add(size)
	if skipped > 0 {
		sl.meters.Coalesced.Add(skipped)
	}
	sl.meters.Heartbeats.Add(frame.Renewed)
	sl.meters.HeartbeatsCoalesced.Add(merged)
	return true, false
}

// report tells of a response that is too large. Each client counts. The log has one
// line for a snapshot.
func (st *stream) report(sl *slot, p *session.Plan) {
	sl.meters.Oversized.Inc()
	if framesOf(p.To).told.Swap(true) {
		return
	}
	st.srv.log.Error("response not sent: it is too large", "key", sl.member.Key().String(), "type", sl.Type.URL,
		"variant", st.variant.String(), "version", p.Oversized.Version, "bytes", p.Oversized.Bytes, "limit", p.Limit)
}
