package adsclient

import (
	"slices"
	"time"

	"xdsrelay/internal/xds"
)

// sotw is a Conversation in SotW: every request lists all names and the newest nonce (P64).
type sotw struct{ protocolState }

// sotwState is the per-type state that only SotW has.
type sotwState struct {
	// nonce is that of the newest response that was accepted or NACKed. version is that of the last
	// accepted one, also on an earlier stream to this origin.
	nonce, version string
	ackDue         bool

	awaited awaited

	// dropped are the names that recent requests left out, but no ACK. The next response may overtake
	// these requests. The origin then discards them as stale, and the names stay subscribed there.
	dropped []droppedName

	// list is the encoded list of listFor, nil if none was encoded yet. Every ACK repeats it.
	list    []byte
	listFor *xds.NameSet
}

// awaited is the state of the requests that the origin has to answer: a stream's first one for a
// type, and those that add names. They have no version, because an origin may take a request with
// its current version for one that needs no answer (P55).
type awaited struct {
	requests int          // since the last response
	added    *xds.NameSet // by the last request, nil if none
	// retryAt is when the last request is sent again with the version. Until then no request has
	// one. It is zero if there is no version, and after the retry.
	retryAt time.Time
	// overtaken: a response overtook the request that added names, so it has to be repeated.
	overtaken bool
}

func newSotW(o Options) *sotw {
	s := &sotw{newProtocolState(o, sotwNode)}
	s.echoesNonce = true
	return s
}

// droppedName is a name that a request without an ACK left out.
type droppedName struct {
	name string
	at   time.Time // when the request was sent
}

// overtakenWithin bounds how long a request and a response can cross. A response that comes later
// was sent after the origin had read the request.
const overtakenWithin = 5 * time.Second

// forgetDropped removes the names from dropped that no response can overtake any more.
func (s *sotwState) forgetDropped(now time.Time) {
	s.dropped = slices.DeleteFunc(s.dropped, func(d droppedName) bool { return now.Sub(d.at) >= overtakenWithin })
}

// responded records that a response came. The origin may have sent it before it read the requests
// since the last ACK. These then count as not sent (P64). The ACK counts as received, because an
// origin that waits for ACKs sends nothing before it.
func (t *typeState) responded(now time.Time) {
	t.sotw.forgetDropped(now)
	for _, d := range t.sotw.dropped {
		t.resubscribe = t.resubscribe.Add(d.name)
	}
	t.sotw.dropped = nil
}

// list makes to the list of the next request.
func (t *typeState) list(to subscription, now time.Time) {
	add, drop := diff(t.subscribed.names, to.names)
	t.unanswered.subscribed(add, now)
	t.unanswered.unsubscribed(drop)
	if !t.sotw.ackDue {
		t.sotw.forgetDropped(now)
		for _, name := range drop {
			t.sotw.dropped = append(t.sotw.dropped, droppedName{name, now})
		}
	}
	t.subscribed = to
}

// nacked records the nonce of a NACK. The NACK carries the version accepted last, so it is also the
// ACK of that one. The origin could take a separate ACK after it for the ACK of the NACKed
// response.
func (s *sotwState) nacked(nonce string) { s.nonce, s.ackDue = nonce, false }

// answerWithin is how long the relay waits for the answer to a request without a version. Then the
// same request follows with the version (P55).
const answerWithin = time.Second

func (s *sotw) Receive(r *xds.Response, fault error, now time.Time) (Decision, error) {
	t, whole := s.byURL[r.TypeURL], false
	if t != nil {
		whole = t.sotw.answered(r)
		t.responded(now)
	}
	d, err := s.protocolState.Receive(r, fault, now)
	if whole {
		d.brought = t.brought
	}
	return d, err
}

func (s *sotw) NextRequest(now time.Time) *Request {
	for _, t := range s.types {
		if r, ok := t.nextReply(now); ok { // a NACK repeats the list of the request before it
			return s.request(t, r.nonce, r.fault)
		}
		st := &t.sotw
		switch {
		case len(t.replies) > 0:
			continue // a request now would carry the NACKed nonce and count as its ACK
		case !t.requested:
			if t.wanted.empty() {
				continue
			}
			t.requested, t.subscribed = true, t.wanted
			t.unanswered.pending = t.wanted.names
			st.version = s.lastAccepted(t.typ.URL, t.wanted.wildcard, t.wanted.part(s.Newest(t.typ.URL))).version
			st.awaitAnswer(nil, now)
		case t.applying:
			// A request now would be stale with the previous nonce, and be the ACK with the
			// response's nonce. The ACK follows at once.
			continue
		case s.leavesOut(t, now):
		case !t.subscribed.equal(t.wanted):
			added, _ := diff(t.subscribed.names, t.wanted.names)
			if len(added) > 0 && st.ackDue {
				break // the ACK lists the names before
			}
			t.list(t.wanted, now)
			if len(added) > 0 {
				st.awaitAnswer(xds.NewNameSet(added...), now)
			}
		case st.ackDue:
		case st.awaited.overtaken:
			st.awaitAnswer(nil, now)
		case !st.awaited.retryAt.IsZero() && !st.awaited.retryAt.After(now):
			st.awaited.retryAt = time.Time{}
		default:
			continue
		}
		st.ackDue = false
		return s.request(t, st.nonce, "")
	}
	return nil
}

// leavesOut makes the next request leave out the names to resubscribe, and reports whether there are
// any. The request after it has them again. Nothing else makes an origin resend what it has sent
// before.
func (s *sotw) leavesOut(t *typeState, now time.Time) bool {
	again := s.toResubscribe(t)
	if len(again) > 0 {
		t.list(subscription{names: t.subscribed.names.Remove(again...)}, now)
	}
	return len(again) > 0
}

// awaitAnswer makes the next request one that the origin has to answer.
func (s *sotwState) awaitAnswer(added *xds.NameSet, now time.Time) {
	s.awaited = awaited{requests: s.awaited.requests + 1, added: added}
	if s.version != "" {
		s.awaited.retryAt = now.Add(answerWithin)
	}
}

// answered records a response. It may have overtaken a request that adds names. The origin discards
// such a request as stale, and takes the ACK of the response for the first request with the names.
// So the request is repeated after the ACK, but not twice, because the names may not exist. It need
// not be repeated if the response has one of the names, or repeats the accepted version: the latter
// only answers a request, and there is only this one. answered reports whether it is certain that the origin
// had read all that was requested.
func (s *sotwState) answered(r *xds.Response) (whole bool) {
	a, one := s.awaited, s.awaited.requests == 1
	repeats := r.Version == s.version
	brings := slices.ContainsFunc(r.Resources, func(raw xds.ParsedResource) bool { return raw.RequestedBy(a.added) })
	s.awaited = awaited{overtaken: a.added != nil && !(one && repeats) && !brings}
	return one && (s.nonce == "" || brings || repeats && r.Version != "")
}

// request encodes a request for a type; with a fault it is a NACK. It has no version while an
// answer is awaited.
func (s *sotw) request(t *typeState, nonce, fault string) *Request {
	st := &t.sotw
	var b []byte
	if st.version != "" && st.awaited.retryAt.IsZero() {
		b = appendText(b, sotwVersion, st.version)
	}
	b = appendText(b, sotwTypeURL, string(t.typ.URL))
	if nonce != "" {
		b = appendText(b, sotwNonce, nonce)
	}
	if fault != "" {
		b = appendStatus(b, sotwDetail, fault)
	}
	if st.list == nil || st.listFor != t.subscribed.names {
		st.list, st.listFor = encodeList(sotwNames, t), t.subscribed.names
	}
	r := s.newRequest(t.typ.URL, b, st.list)
	r.NACK = fault
	return r
}
