package session

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Answer is what a request says of an earlier response.
type Answer uint8

const (
	NoAnswer     Answer = iota // the request answers no response
	Acked                      // it has the nonce of an unanswered response, and no error
	Nacked                     // it has such a nonce and error_detail
	Stale                      // SotW: a response is unanswered, and this is no answer to the newest (P12)
	UnknownNonce               // a NACK of a response that this stream does not know (P13)
)

// pendingACK is a response that has not been answered. It keeps neither the body nor the snapshot
// alive.
type pendingACK struct {
	seq       uint64 // number in its nonce, from 1
	at        time.Time
	manifest  *Manifest
	sub       *snapshot.Subscription    // the effective one when it was sent
	beforeACK bool                      // it was sent while an earlier one was unanswered (P19)
	news      bool                      // something in it changed since all that was sent before
	of        SnapshotID                // the snapshot that it was made of
	progress  *snapshot.VersionProgress // of the snapshot's version; nil: nobody counts it
}

// maxPendingACKs bounds the unanswered responses that are remembered. The oldest response that was
// sent before an ACK is forgotten first. A NACK of it is then only logged.
const maxPendingACKs = 32

// inFlight are the responses that were sent and not answered, at most maxPendingACKs. Their seq
// rises.
type inFlight struct {
	responses   []pendingACK // oldest first; nil: none
	changeWaits bool         // an unanswered response holds back a change: the answer wakes the session
}

func (in *inFlight) any() bool { return len(in.responses) > 0 }

func (in *inFlight) add(f pendingACK) {
	in.responses = append(in.responses, f)
	if len(in.responses) > maxPendingACKs {
		sentBeforeACK := func(f pendingACK) bool { return f.beforeACK }
		i := max(0, slices.IndexFunc(in.responses[:maxPendingACKs], sentBeforeACK)) // never the new one
		in.responses = slices.Delete(in.responses, i, i+1)
	}
}

// remove takes out response i, which is answered. A client answers in order, so the responses
// before it are answered as well. In SotW only the answer to the newest one ends the wait.
func (in *inFlight) remove(i int, v xds.Variant) {
	switch {
	case i == len(in.responses)-1:
		in.responses = nil
	case v == xds.SotW:
		in.responses = slices.Delete(in.responses, i, i+1)
	default:
		in.responses = slices.Delete(in.responses, 0, i+1)
	}
}

// includes reports whether an unanswered response includes the name.
func (in *inFlight) includes(name string) bool {
	return slices.ContainsFunc(in.responses, func(f pendingACK) bool {
		_, includes := f.manifest.version(name)
		return includes
	})
}

// acknowledged is what the client accepted. It has versions and a snapshot's ID: a pointer would
// keep alive what the client accepted long ago.
type acknowledged struct {
	version     string     // of the snapshot that it acknowledged last, or with which it is in step
	versionInfo string     // SotW: version_info of the response that it acknowledged last
	snapshot    SnapshotID // newest snapshot that it acknowledged, or with which it was in step
}

// accept records the ACK of a response. A response that was sent before an ACK did not move the
// session, and its ACK moves nothing either.
func (a *acknowledged) accept(f *pendingACK, v xds.Variant) {
	if f.beforeACK {
		return
	}
	a.version, a.snapshot = f.manifest.Version, f.of
	if v == xds.SotW {
		a.versionInfo = cmp.Or(f.manifest.HeartbeatVersion, f.manifest.Version)
	}
}

// answer matches the request with the response that it answers, by its nonce alone: versions say
// nothing (P13). In SotW a request without the newest nonce is stale (P12), and any request with it
// is an ACK or a NACK, also if it changes the list of names.
func (s *Session) answer(r *xds.Request, seq uint64, out *Outcome) {
	i := slices.IndexFunc(s.inFlight.responses, func(f pendingACK) bool { return f.seq == seq }) // never 0
	newest := i >= 0 && i == len(s.inFlight.responses)-1
	sotw := s.form.Variant == xds.SotW
	switch {
	case i < 0 && r.IsNACK:
		out.Answer = UnknownNonce
		return
	case i < 0:
		if sotw && s.inFlight.any() {
			out.Answer = Stale
		}
		return
	case r.IsNACK:
		// P19: a late NACK of an earlier response is recorded as well.
		out.Answer = Nacked
		s.refusals.lastAnswer = true
		s.refuse(&s.inFlight.responses[i], s.inFlight.responses[i+1:])
	case sotw && !newest:
		out.Answer = Stale
		return
	default:
		out.Answer = Acked
		s.refusals.lastAnswer = false
		s.acked.accept(&s.inFlight.responses[i], s.form.Variant)
	}
	f := &s.inFlight.responses[i]
	out.Version, out.Gen, out.News = f.manifest.Version, f.of.Gen, f.news
	if !f.beforeACK {
		out.Progress = f.progress
	}
	if f.news {
		out.Received = f.manifest.Received
	}
	s.inFlight.remove(i, s.form.Variant)
}

// AwaitsAnswer reports whether a response is unanswered.
func (s *Session) AwaitsAnswer() bool { return s.inFlight.any() }

// Outstanding reports whether an unanswered response holds back the next one at now, and until when
// (P19: until the answer, or for ack_timeout). Responses that were sent before an ACK do not extend
// the wait: a client that goes on to subscribe would wait for ever.
func (s *Session) Outstanding(now time.Time, ackTimeout time.Duration) (time.Time, bool) {
	if !s.inFlight.any() {
		return time.Time{}, false
	}
	at := s.inFlight.responses[0].at
	for _, f := range slices.Backward(s.inFlight.responses) {
		if !f.beforeACK {
			at = f.at
			break
		}
	}
	until := at.Add(ackTimeout)
	return until, now.Before(until)
}

// UnansweredSince is when the oldest unanswered response was sent; zero: there is none.
func (s *Session) UnansweredSince() time.Time {
	if !s.inFlight.any() {
		return time.Time{}
	}
	return s.inFlight.responses[0].at
}

// NewestUnanswered is the generation and the version of the newest unanswered response, with the
// names in it, which the caller must not change; nil for a full-state response.
func (s *Session) NewestUnanswered() (gen uint64, version string, names []string) {
	f := &s.inFlight.responses[len(s.inFlight.responses)-1]
	if !s.fullState() {
		names = f.manifest.names
	}
	return f.of.Gen, f.manifest.Version, names
}

// AckedVersion is the version that the client acknowledged last, or with which it is in step.
func (s *Session) AckedVersion() string { return s.acked.version }

// AckedGeneration is the newest generation of which the client has everything that is for it; 0:
// none. open: it is to be sent something of the newest, or has to answer, or refuses something.
func (s *Session) AckedGeneration(newest *snapshot.Snapshot, open bool) uint64 {
	switch {
	case newest == nil || !s.sub.began:
		return 0
	case !open:
		return newest.Gen
	case s.acked.snapshot.Lineage != newest.Lineage:
		return 0
	}
	gen := s.acked.snapshot.Gen
	now := s.view(s.delivered.snapshot)
	for i := range s.refusals.list {
		if r := &s.refusals.list[i]; now.asksForAny(r) {
			gen = min(gen, r.gen-1)
		}
	}
	return gen
}

// Nonces makes the nonces of one stream (P10). A nonce is a prefix and a number. No other stream of
// this process has the same prefix, and a stream of another process is unlikely to. So a nonce of
// another stream is recognised (P13).
type Nonces struct {
	prefix [prefixLen]byte
	last   uint64
}

const prefixLen = 9

// NonceSize is the most that a nonce adds to a body, in bytes.
const NonceSize = 2 + prefixLen + 13

// NewNonces makes the nonces of a stream, by its number in the process and the process's random
// number.
func NewNonces(process, stream uint64) Nonces {
	var n Nonces
	// Multiples of the golden ratio differ in their upper bits. With the highest bit set they have
	// 8 digits.
	b := strconv.AppendUint(nil, (stream*0x9e3779b97f4a7c15+process)>>24|1<<40, 36)
	copy(n.prefix[:], b)
	n.prefix[prefixLen-1] = '-'
	return n
}

// Next appends the next nonce to dst and returns it with its number.
func (n *Nonces) Next(dst []byte) ([]byte, uint64) {
	n.last++
	return strconv.AppendUint(append(dst, n.prefix[:]...), n.last, 36), n.last
}

// Number returns the number of a nonce, 0 if the nonce is not of this stream.
func (n *Nonces) Number(nonce []byte) uint64 {
	if len(nonce) <= prefixLen || string(nonce[:prefixLen]) != string(n.prefix[:]) {
		return 0
	}
	v := uint64(0)
	for _, c := range nonce[prefixLen:] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'z':
			c -= 'a' - 10
		default:
			return 0
		}
		if v = v*36 + uint64(c); v > n.last {
			return 0
		}
	}
	return v
}
