package upstream

import (
	"slices"
	"strings"
	"time"
)

// reply answers a response.
type reply struct {
	nonce string
	fault string // "": an ACK
	// due is when a NACK may go, soon if the interest changed meanwhile; zero:
	// at once.
	due, soon time.Time
}

// maxReplies that wait for an origin that does not read; then the oldest is
// given up.
const maxReplies = 64

// due returns the reply that is due by now. While a NACK is held back, what is
// due after it is as well.
func (t *typeTalk) due(now time.Time) (reply, bool) {
	if len(t.replies) == 0 || t.notBefore().After(now) {
		return reply{}, false
	}
	r := t.replies[0]
	t.replies = t.replies[1:]
	return r, true
}

// notBefore is when the first reply may go.
func (t *typeTalk) notBefore() time.Time {
	if t.changed() {
		return t.replies[0].soon
	}
	return t.replies[0].due
}

// changed: what is asked is not what should be.
func (t *typeTalk) changed() bool { return len(t.lapsed) > 0 || !t.asked.equal(t.want) }

// good: a response was taken. The NACKs before it, if they wait, need not wait
// any longer.
func (t *typeTalk) good() {
	t.refusals, t.fault = 0, ""
	for i := range t.replies {
		t.replies[i].due, t.replies[i].soon = time.Time{}, time.Time{}
	}
}

func (t *typeTalk) reply(r reply) {
	if len(t.replies) == maxReplies {
		t.replies = slices.Delete(t.replies, 0, 1)
	}
	t.replies = append(t.replies, r)
}

// maxFault bounds the message of a NACK, in bytes.
const maxFault = 4096

// refuse has a NACK follow. Many origins answer it with the same response, at
// once (go-control-plane's SotW server does): so only the first in a row goes at
// once, the others after a wait that grows. Whatever their faults: an origin may
// alternate. The wait is that of the type; other types go on.
//
// A change of the interest cuts the wait short, to the least one: its answer may
// be a good response. It cannot go without the NACK in SotW, where it would be
// taken for the ACK; in incremental it has no nonce, and does not wait at all.
func (t *talk) refuse(tt *typeTalk, nonce string, fault error, now time.Time) verdict {
	msg := fault.Error()
	msg = strings.ToValidUTF8(msg[:min(len(msg), maxFault)], "�")
	_, heldBack := tt.heldUntil()
	v := verdict{refusals: tt.refusals + 1, news: tt.refusals == 0 || msg != tt.fault && !heldBack}
	tt.refusals, tt.fault = v.refusals, msg
	tt.sotw.refused(nonce)
	r := reply{nonce: nonce, fault: msg}
	if repeats := v.refusals - 1; repeats > 0 {
		r.due = now.Add(t.damping.delay(repeats, t.random))
		r.soon = now.Add(min(r.due.Sub(now), t.damping.Base))
	}
	tt.reply(r)
	return v
}

// heldUntil reports whether and how long a NACK is held back.
func (t *typeTalk) heldUntil() (time.Time, bool) {
	if len(t.replies) == 0 {
		return time.Time{}, false
	}
	at := t.notBefore()
	return at, !at.IsZero()
}

func (t *talk) heldUntil() time.Time {
	var first time.Time
	for _, tt := range t.types {
		if at, ok := tt.heldUntil(); ok && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}
