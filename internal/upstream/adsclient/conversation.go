package adsclient

import (
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Conversation is the protocol state of one ADS stream.
//
// The caller has at most one request in the transport at a time. Changes meanwhile are merged into
// the next request.
type Conversation interface {
	// SetInterest replaces the interest. The second argument lists the names that were unsubscribed and
	// wanted again since the last call. It returns false if this stream cannot carry the interest, so that
	// a new one is needed.
	SetInterest(*snapshot.Interest, Resubscriptions) bool
	// NextRequest returns the next request to send, nil if none is due.
	NextRequest(now time.Time) *Request
	// WakeAt is when NextRequest may return a request without another event: a NACK that is delayed
	// (P18: repeated NACKs are slowed down), or a request that the origin left unanswered (P55). It
	// is zero if there is none.
	WakeAt() time.Time
	// OverdueAt is when a name that was answered on this stream, dropped and requested again has
	// been unanswered for so long that only a new stream may get it (P64). It is zero if there is no
	// such name.
	OverdueAt() time.Time
	// Receive decides about a response. fault is the error of ParseResponse. The caller applies an
	// accepted response and calls Applied before it calls Receive again. An error ends the stream.
	Receive(r *xds.Response, fault error, now time.Time) (Decision, error)
	// Applied records that an accepted response was applied. The response is ACKed, whether or not
	// the relay's clients accept it (P18).
	Applied(r *xds.Response)
}

// Options of a Conversation.
type Options struct {
	Domain string // the origins whose versions count (P55)
	// ContentVersions: the origin makes versions from the content (P61), so those of all that is held
	// count, whoever sent it. Delta only.
	ContentVersions bool
	Node            []byte // the encoded node (P58)
	// SetNodeOnFirstMessageOnly sends the node once per stream instead of in each request (P58).
	SetNodeOnFirstMessageOnly bool
	// Newest returns the newest snapshot of a type, nil if none.
	Newest func(xds.TypeURL) *snapshot.Snapshot
	// LastVersions is the state that the key's earlier streams left. The Conversation changes it.
	LastVersions LastVersions
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

// protocolState is the state that both variants share.
type protocolState struct {
	Options
	echoesNonce bool         // SotW: requests repeat the newest nonce
	types       []*typeState // in the order of their first use
	byURL       map[xds.TypeURL]*typeState
	node        []byte // the encoded field of the node
	nodeSent    bool
}

// newProtocolState makes the state of a new stream. nodeField is the number of the node's field.
func newProtocolState(o Options, nodeField protowire.Number) protocolState {
	return protocolState{Options: o, byURL: make(map[xds.TypeURL]*typeState), node: appendBytes(nil, nodeField, o.Node)}
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
	// resubscribe are names that the group forgot, and that the origin may still have as subscribed.
	// Those that are wanted again have to be unsubscribed before they are subscribed.
	resubscribe *xds.NameSet
	// requestAgain are subscribed names to subscribe once more (delta; P18, P25).
	requestAgain *xds.NameSet
	// brought are names that other relays received (P65).
	brought *xds.NameSet
	// applying: a response was accepted and is not applied yet. answered: one was applied.
	applying, answered bool
	// replies that are due: NACKs and, in delta, ACKs.
	replies []reply
	// nacks counts the NACKs since the last accepted response. lastFault is the last fault.
	nacks     int
	lastFault string
	// unanswered has the names that the origin has yet to answer.
	unanswered unanswered
	sotw       sotwState
}

// reply answers a response.
type reply struct {
	nonce string
	fault string // "": an ACK
	// due is when a delayed NACK may be sent. soon is when it may be sent if the interest changed
	// meanwhile. Zero: at once.
	due, soon time.Time
}

// maxUnused bounds the types of a stream that are no longer wanted but keep state.
const maxUnused = 64

// errUnattributable ends the stream: a response without type or nonce cannot be NACKed.
var errUnattributable = errors.New("response without a readable type_url and nonce")

// maxFault bounds the message of a NACK, in bytes.
const maxFault = 4096

// maxReplies bounds the queued replies to an origin that does not read. Above it the oldest is
// dropped.
const maxReplies = 64

func (t *typeState) addReply(r reply) {
	if len(t.replies) == maxReplies {
		t.replies = slices.Delete(t.replies, 0, 1)
	}
	t.replies = append(t.replies, r)
}

// nextReply returns the reply that is due by now. A delayed NACK also delays the replies after it.
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

// accepted ends a row of NACKs. Delayed NACKs may be sent at once.
func (t *typeState) accepted() {
	t.nacks, t.lastFault = 0, ""
	for i := range t.replies {
		t.replies[i].due, t.replies[i].soon = time.Time{}, time.Time{}
	}
}

// delayedUntil is until when a NACK is delayed, zero if none is.
func (t *typeState) delayedUntil() time.Time {
	if len(t.replies) == 0 {
		return time.Time{}
	}
	return t.notBefore()
}

func (p *protocolState) WakeAt() time.Time {
	var first time.Time
	for _, t := range p.types {
		for _, at := range []time.Time{t.delayedUntil(), t.sotw.awaited.retryAt} {
			if !at.IsZero() && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	return first
}
