package adsclient

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Conversation is the protocol state of one ADS stream.
//
// The caller has at most one request in the transport at a time. Changes meanwhile are merged into
// the next request.
type Conversation interface {
	// SetInterest replaces the interest. The second argument lists what was unsubscribed and wanted
	// again since the last call. It returns false if this stream cannot carry the interest, so that
	// a new one is needed.
	SetInterest(*snapshot.Interest, Resubscriptions) bool
	// NextRequest returns the next request to send, nil if none is due.
	NextRequest(now time.Time) *Request
	// DelayedUntil is when NextRequest may return a NACK that is delayed (P18: repeated NACKs are
	// slowed down). It is zero if none is delayed.
	DelayedUntil() time.Time
	// Receive decides about a response. fault is the error of ParseResponse. The caller applies an
	// accepted response and calls Applied before it calls Receive again. An error ends the stream.
	Receive(r *xds.Response, fault error, now time.Time) (Decision, error)
	// Applied records that an accepted response was applied. The response is ACKed, whether or not
	// the relay's clients accept it (P18).
	Applied(r *xds.Response)
}

// Options of a Conversation.
type Options struct {
	Origin string // the origin's name
	Node   []byte // for the first request (P58)
	// Held returns the newest snapshot of a type, nil if none.
	Held func(xds.TypeURL) *snapshot.Snapshot
	// Resumption is the state that the key's earlier streams left. The Conversation changes it.
	Resumption Resumption
	// MaxRequestBytes is what a request should not exceed (P59).
	MaxRequestBytes int
	// NACKDelay returns how long to delay a NACK after this many others in a row, one or more. A
	// changed interest shortens the delay to MinNACKDelay.
	NACKDelay    func(repeats int) time.Duration
	MinNACKDelay time.Duration
}

// New makes the Conversation of a new stream.
func New(v xds.Variant, o Options) Conversation {
	if v == xds.Delta {
		return newDelta(o)
	}
	return newSotW(o)
}

// Decision says what to do with a response.
type Decision struct {
	Accept bool
	// Unrequested: the type was never requested on this stream. The response is
	// dropped and not ACKed, because an ACK would request the type.
	Unrequested bool
	// Refusals of the type in a row, with this one, if the response is refused.
	Refusals int
	// NewFault: the refusal is worth a warning; it does not repeat the last one.
	NewFault bool

	// The fields below are input of Evaluate for an accepted response.
	subscribed      subscription // when the response came
	acceptedVersion string       // SotW: the version_info accepted last
	noneRefused     bool         // no response of the type was refused since the last accepted one
	otherOrigins    *xds.NameSet // held names for which this origin has sent no version
}

// Wanted reports whether anything of the type is still subscribed to. Otherwise an
// accepted response is ACKed and changes nothing.
func (d Decision) Wanted() bool { return !d.subscribed.empty() }

// Wildcard reports whether the response answers the wildcard.
func (d Decision) Wildcard() bool { return d.subscribed.wildcard }

// protocolState is the state that both variants share.
type protocolState struct {
	Options
	echoesNonce bool         // SotW: requests repeat the newest nonce
	types       []*typeState // in the order of their first use
	byURL       map[xds.TypeURL]*typeState
	nodeSent    bool
}

func newProtocolState(o Options) protocolState {
	return protocolState{Options: o, byURL: make(map[xds.TypeURL]*typeState)}
}

// typeState is the state of one type on the stream.
type typeState struct {
	typ       xds.Type
	requested bool
	// subscribed is what the last request subscribed to. wanted is what the interest contains.
	subscribed, wanted subscription
	// wildcardEnded: the wildcard was subscribed, and nothing of the type is wanted any more.
	// subscribed is empty since then. A SotW origin stays subscribed.
	wildcardEnded bool
	// unsubscribeWildcard: delta has yet to unsubscribe from the wildcard.
	unsubscribeWildcard bool
	// resubscribe are names, both subscribed and wanted, to unsubscribe and subscribe again. Either
	// the group forgot them in between, or clients asked for them again (P18).
	resubscribe []string
	// applying: a response was accepted and is not applied yet.
	applying bool
	// replies that are due: NACKs and, in delta, ACKs.
	replies []reply
	// refusals in a row since the last accepted response, and the last fault.
	refusals  int
	lastFault string
	sotw      sotwState
}

// reply answers a response.
type reply struct {
	nonce string
	fault string // "": an ACK
	// due is when a delayed NACK may be sent. soon is when it may be sent if the interest changed
	// meanwhile. Zero: at once.
	due, soon time.Time
}

// SetInterest implements Conversation.
//
// A change between names and wildcard takes a new stream:
//   - SotW cannot end a wildcard otherwise (P64).
//   - The next response could answer either the names or the wildcard. The relay could not tell
//     which, and that decides which resources are absent.
//   - Origins record what they sent on a stream, and leave that out of later responses.
//     go-control-plane does so when a wildcard is unsubscribed.
//
// If nothing of the type is wanted after the wildcard, the stream goes on, because other types use
// it (P16). Later responses of the type are dropped. The stream is replaced when the type is wanted
// again, or when nothing is wanted.
func (p *protocolState) SetInterest(i *snapshot.Interest, again Resubscriptions) bool {
	for _, in := range i.Types {
		if p.byURL[in.Type] == nil && !in.Empty() {
			t := &typeState{typ: xds.TypeOf(in.Type)}
			p.byURL[in.Type] = t
			p.types = append(p.types, t)
		}
	}
	fits, ended, wanted := true, false, false
	for _, t := range p.types {
		in := i.Of(t.typ.URL)
		t.wanted = subscription{wildcard: in.Wildcard, names: in.Names}
		fits = p.canCarry(t, again[t.typ.URL]) && fits
		ended = ended || t.wildcardEnded
		wanted = wanted || !t.wanted.empty()
	}
	return p.compact() && fits && (wanted || !ended)
}

// canCarry stores the interest in a type, and reports whether this stream can carry it.
func (p *protocolState) canCarry(t *typeState, again *resubscription) bool {
	if !t.requested {
		return true
	}
	if again != nil {
		for name := range again.names {
			if t.wanted.names.Has(name) && t.subscribed.names.Has(name) {
				t.resubscribe = append(t.resubscribe, name)
			}
		}
	}
	switch {
	case t.wanted.empty():
		if t.subscribed.wildcard {
			t.subscribed, t.wildcardEnded, t.unsubscribeWildcard = subscription{}, true, !p.echoesNonce
		}
		return true
	case t.wildcardEnded, t.subscribed.wildcard != t.wanted.wildcard:
		return false
	}
	return !t.subscribed.wildcard || again == nil || !again.wildcard
}

// maxUnused bounds the types of a stream that are no longer wanted but keep state.
const maxUnused = 64

// compact drops the state that earlier streams left for types that are no longer wanted. This
// stream still remembers three things of such a type: whether the wildcard ended, the newest nonce
// (P64), and that a late response is to be ACKed. compact returns false if there are too many such
// types, so that a new stream is opened.
func (p *protocolState) compact() bool {
	maps.DeleteFunc(p.Resumption, func(typ xds.TypeURL, _ *lastAccepted) bool {
		return p.byURL[typ] == nil || p.byURL[typ].unused()
	})
	unused := 0
	for _, t := range p.types {
		if t.unused() {
			unused++
		}
	}
	return unused <= maxUnused
}

// unused: nothing of the type is wanted or subscribed, and nothing remains to be
// sent.
func (t *typeState) unused() bool {
	return t.wanted.empty() && t.subscribed.empty() && !t.unsubscribeWildcard && !t.applying &&
		len(t.resubscribe) == 0 && len(t.replies) == 0 && !t.sotw.ackDue
}

// changed reports whether the next request changes the subscription.
func (t *typeState) changed() bool {
	return len(t.resubscribe) > 0 || !t.subscribed.equal(t.wanted)
}

// errUnattributable ends the stream: a response without type or nonce cannot be
// NACKed.
var errUnattributable = errors.New("a response without readable type and nonce")

// Receive implements Conversation.
func (p *protocolState) Receive(r *xds.Response, fault error, now time.Time) (Decision, error) {
	if errors.Is(fault, xds.ErrUnreadable) && (r.TypeURL == "" || r.Nonce == "") {
		return Decision{}, fmt.Errorf("%w: %w", errUnattributable, fault)
	}
	t := p.byURL[r.TypeURL]
	if t == nil || !t.requested {
		return Decision{Unrequested: true}, nil
	}
	if fault != nil {
		return p.refuse(t, r.Nonce, fault, now), nil
	}
	t.applying = true
	d := Decision{Accept: true, subscribed: t.subscribed, acceptedVersion: t.sotw.version, noneRefused: t.refusals == 0}
	if last := p.Resumption[r.TypeURL]; last != nil && last.origin == p.Origin {
		d.otherOrigins = last.otherOrigins
	}
	return d, nil
}

// maxFault bounds the message of a NACK, in bytes.
const maxFault = 4096

// refuse queues a NACK.
//
// Many origins answer a NACK with the same response at once, as go-control-plane's SotW server
// does. So only the first NACK in a row is sent at once. The delay of the others grows, even if
// their faults differ, because an origin may alternate. The delay is per type; other types go on.
//
// A changed interest shortens the delay to MinNACKDelay, because its answer may be a good response.
// In SotW the change cannot go before the NACK: the origin would take it for the ACK. In delta it
// has no nonce and does not wait.
func (p *protocolState) refuse(t *typeState, nonce string, fault error, now time.Time) Decision {
	msg := fault.Error()
	msg = strings.ToValidUTF8(msg[:min(len(msg), maxFault)], "�")
	_, delayed := t.delayedUntil()
	d := Decision{Refusals: t.refusals + 1, NewFault: t.refusals == 0 || msg != t.lastFault && !delayed}
	t.refusals, t.lastFault = d.Refusals, msg
	t.sotw.refused(nonce)
	r := reply{nonce: nonce, fault: msg}
	if repeats := d.Refusals - 1; repeats > 0 {
		delay := p.NACKDelay(repeats)
		r.due = now.Add(delay)
		r.soon = now.Add(min(delay, p.MinNACKDelay))
	}
	t.addReply(r)
	return d
}

// maxReplies bounds the queued replies to an origin that does not read. Above it the oldest is
// dropped.
const maxReplies = 64

func (t *typeState) addReply(r reply) {
	if len(t.replies) == maxReplies {
		t.replies = slices.Delete(t.replies, 0, 1)
	}
	t.replies = append(t.replies, r)
}

// nextReply returns the reply that is due by now. A delayed NACK also delays the
// replies after it.
func (t *typeState) nextReply(now time.Time) (reply, bool) {
	if len(t.replies) == 0 || t.notBefore().After(now) {
		return reply{}, false
	}
	r := t.replies[0]
	t.replies = t.replies[1:]
	return r, true
}

// notBefore is the earliest time for the first reply.
func (t *typeState) notBefore() time.Time {
	if t.changed() {
		return t.replies[0].soon
	}
	return t.replies[0].due
}

// accepted ends a row of refusals. Delayed NACKs may be sent at once.
func (t *typeState) accepted() {
	t.refusals, t.lastFault = 0, ""
	for i := range t.replies {
		t.replies[i].due, t.replies[i].soon = time.Time{}, time.Time{}
	}
}

// delayedUntil reports whether and until when a NACK is delayed.
func (t *typeState) delayedUntil() (time.Time, bool) {
	if len(t.replies) == 0 {
		return time.Time{}, false
	}
	at := t.notBefore()
	return at, !at.IsZero()
}

// DelayedUntil implements Conversation.
func (p *protocolState) DelayedUntil() time.Time {
	var first time.Time
	for _, t := range p.types {
		if at, ok := t.delayedUntil(); ok && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}
