package adsclient

import (
	"time"

	"xdsrelay/internal/xds"
)

// sotw is a Conversation in SotW: every request lists all names and the newest nonce (P64).
type sotw struct{ protocolState }

// sotwState is the per-type state that only SotW has.
type sotwState struct {
	// nonce is that of the newest response that was accepted or NACKed. version is that of the last
	// accepted one.
	nonce, version string
	ackDue         bool

	// list is the encoded list of listFor, nil if none was encoded yet. Every ACK repeats it.
	list    []byte
	listFor *xds.NameSet
}

func newSotW(o Options) *sotw {
	s := &sotw{newProtocolState(o, sotwNode)}
	s.echoesNonce = true
	return s
}

// nacked records the nonce of a NACK. The NACK carries the version accepted last, so it is also the
// ACK of that one. The origin could take a separate ACK after it for the ACK of the NACKed
// response.
func (s *sotwState) nacked(nonce string) { s.nonce, s.ackDue = nonce, false }

// Applied implements Conversation.
func (s *sotw) Applied(r *xds.Response) {
	t := s.byURL[r.TypeURL]
	t.applying = false
	if ambiguousHeartbeats(r, t.nacks == 0) {
		t.sotw.nonce, t.sotw.ackDue = r.Nonce, true
		return
	}
	t.accepted()
	t.sotw.nonce, t.sotw.version, t.sotw.ackDue = r.Nonce, r.Version, true
	if t.subscribed.empty() {
		return // the type is no longer wanted
	}
	last := s.record(t, r)
	last.subscribed, last.version = t.subscribed, r.Version // no request was sent since the response came
}

// NextRequest implements Conversation.
func (s *sotw) NextRequest(now time.Time) *Request {
	for _, t := range s.types {
		if r, ok := t.nextReply(now); ok { // a NACK repeats the list of the request before it
			return s.request(t, r.nonce, r.fault)
		}
		switch {
		case len(t.replies) > 0:
			continue // a request now would carry the NACKed nonce and count as its ACK
		case !t.requested:
			if t.wanted.empty() {
				continue
			}
			t.requested = true
			t.sotw.version = s.firstVersion(t)
			t.subscribed = t.wanted
		case t.applying:
			// A request now would be stale with the previous nonce, and be the ACK with the
			// response's nonce. The ACK follows at once, and lists the names that are wanted by
			// then.
			continue
		case len(t.resubscribe) > 0:
			// The first request is without these names, the next one has them again. Nothing else
			// makes an origin resend what it has sent before.
			t.subscribed = subscription{wildcard: t.wanted.wildcard, names: t.subscribed.names.Remove(t.resubscribe...)}
			t.resubscribe = nil
		case t.sotw.ackDue || !t.subscribed.equal(t.wanted):
			t.subscribed = t.wanted
		default:
			continue
		}
		t.sotw.ackDue = false
		return s.request(t, t.sotw.nonce, "")
	}
	return nil
}

// firstVersion is the version_info of a stream's first request for a type. It is the version that
// this origin sent for exactly these names, if all that it sent is still held (P55).
func (s *sotw) firstVersion(t *typeState) string {
	part := t.wanted.part(s.Held(t.typ.URL))
	last := s.lastAccepted(t.typ.URL, t.wanted.wildcard, part)
	if last.version == "" || !last.subscribed.equal(t.wanted) || t.wanted.wildcard && (!part.Answered() || part.HasExpired()) {
		return ""
	}
	for name := range t.wanted.names.All() {
		if !part.Answers(name) {
			return ""
		}
	}
	return last.version
}

// request encodes a request for a type; with a fault it is a NACK.
func (s *sotw) request(t *typeState, nonce, fault string) *Request {
	st := &t.sotw
	var b []byte
	if st.version != "" {
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
