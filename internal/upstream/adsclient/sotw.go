package upstream

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"xdsrelay/internal/xds"
)

// Fields of DiscoveryRequest.
const (
	sotwVersion protowire.Number = 1
	sotwNode    protowire.Number = 2
	sotwNames   protowire.Number = 3
	sotwTypeURL protowire.Number = 4
	sotwNonce   protowire.Number = 5
	sotwDetail  protowire.Number = 6
)

// sotwState is what only SotW keeps of a type.
type sotwState struct {
	// nonce is that of the newest response that was taken or refused, version
	// that of the last taken.
	nonce, version string
	ackDue         bool

	// list is asked, encoded: an ACK repeats all names.
	list    []byte
	listFor *xds.NameSet
}

// refused: the refusal carries the version last taken, so it acknowledges that
// one as well. A plain request after it, with its nonce, must not be taken for
// its ACK more than need be.
func (s *sotwState) refused(nonce string) { s.nonce, s.ackDue = nonce, false }

// sotw is a talk in state of the world: every request lists the whole union and
// the newest nonce (P64).
type sotw struct{ talk }

func newSotW(o talkOptions) *sotw {
	s := &sotw{newTalk(o)}
	s.nonces = true
	return s
}

func (s *sotw) taken(r *xds.Response) {
	t := s.byURL[r.TypeURL]
	t.judging = false
	if echoes(r, t.refusals == 0) {
		t.sotw.nonce, t.sotw.ackDue = r.Nonce, true
		return
	}
	t.good()
	t.sotw.nonce, t.sotw.version, t.sotw.ackDue = r.Nonce, r.Version, true
	if t.asked.empty() {
		return // nobody wants it any more
	}
	m := s.took(t, r)
	m.acked, m.version = t.asked, r.Version // nothing was asked since it came
}

func (s *sotw) next(now time.Time) *request {
	for _, t := range s.types {
		if r, ok := t.due(now); ok { // a NACK repeats the list of the request before it
			return s.build(t, r.nonce, r.fault)
		}
		switch {
		case len(t.replies) > 0:
			continue // a request now, with the nonce refused, would be the ACK
		case !t.requested:
			if t.want.empty() {
				continue
			}
			t.requested = true
			t.sotw.version = s.firstVersion(t)
			t.asked = t.want
		case t.judging:
			// A request now would carry the nonce before, and be stale, or that of
			// the response, and be taken for its ACK. Its ACK follows at once, and
			// lists what is wanted by then.
			continue
		case len(t.lapsed) > 0:
			// First without them, then with them again: nothing else makes an
			// origin send what it has sent before.
			t.asked = asked{wildcard: t.want.wildcard, names: t.asked.names.Remove(t.lapsed...)}
			t.lapsed = nil
		case t.sotw.ackDue || !t.asked.equal(t.want):
			t.asked = t.want
		default:
			continue
		}
		t.sotw.ackDue = false
		return s.build(t, t.sotw.nonce, "")
	}
	return nil
}

// firstVersion is the version_info of a stream's first request for a type: what
// this origin gave for these very names, if all that it gave is still held
// (P55).
func (s *sotw) firstVersion(t *typeTalk) string {
	part := t.want.part(s.held(t.typ.URL))
	m := s.recall(t.typ.URL, t.want.wildcard, part)
	if m.version == "" || !m.acked.equal(t.want) || t.want.wildcard && (!part.Answered() || part.AnyLapsed()) {
		return ""
	}
	for name := range t.want.names.All() {
		if !part.Answers(name) {
			return ""
		}
	}
	return m.version
}

func (s *sotw) build(t *typeTalk, nonce, fault string) *request {
	st := &t.sotw
	var b []byte
	if st.version != "" {
		b = appendText(b, sotwVersion, st.version)
	}
	b = s.appendNode(b, sotwNode)
	b = appendText(b, sotwTypeURL, string(t.typ.URL))
	if nonce != "" {
		b = appendText(b, sotwNonce, nonce)
	}
	if fault != "" {
		b = appendStatus(b, sotwDetail, fault)
	}
	wildcard := t.asked.wildcard || t.ended
	if wildcard {
		// An empty first list, which the oldest origins understand as well. A type
		// never goes from names to the wildcard on one stream.
		if t.typ.NoLegacyWildcard {
			b = appendText(b, sotwNames, "*")
		}
	} else if st.listFor != t.asked.names {
		st.list, st.listFor = encodeList(sotwNames, t.asked), t.asked.names
	}
	r := &request{typ: t.typ.URL, head: b, refusal: fault}
	if !wildcard {
		r.tail = st.list
	}
	r.oversized = len(r.head)+len(r.tail) > s.maxRequest // sent anyway (P59)
	return r
}

// encodeList encodes names as a repeated field.
func encodeList(num protowire.Number, a asked) []byte {
	size := 0
	for n := range a.names.All() {
		size += protowire.SizeTag(num) + protowire.SizeBytes(len(n))
	}
	b := make([]byte, 0, size)
	for n := range a.names.All() {
		b = appendText(b, num, n)
	}
	return b
}
