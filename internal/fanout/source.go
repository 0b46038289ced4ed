package fanout

import (
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// Source says which group a client belongs to. The floor above implements it.
type Source interface {
	// Join makes a type of a stream a member of the group of its node's key. It
	// does not wait for the origin. The error is a *Refusal.
	Join(j Join) (Member, error)
	// KeyOf is the key of the group which a client would belong to now. The error is
	// a *Refusal.
	KeyOf(node *xds.Node, peer expr.Peer, typ xds.TypeURL) (xds.Key, error)
}

// Join is what a Source has to know of the client.
type Join struct {
	Node *xds.Node
	Peer expr.Peer
	// Account is whom limits per peer count (Caller.Account).
	Account string
	Type    xds.TypeURL
	Waker   Waker
}

// Member is one type of one stream in its group. No method blocks, and all but
// Subscribe and Leave, which belong to the stream's receiver, are safe for
// concurrent use.
type Member interface {
	// Key of the group.
	Key() xds.Key
	// State is the newest one that the member sees; nil before the group has
	// any.
	State() *xds.State
	// Newest is the newest snapshot of the type, be it that the State does not have
	// it yet, since it waits for more (settle); nil before there is any. Like State
	// it takes no lock.
	Newest() *xds.Snapshot
	// Intern returns the group's one value equal to sub. Clients that want the
	// same share it.
	Intern(sub *xds.Subscription) *xds.Subscription
	// Subscribe says what the client wants from now on; sub is interned. Once
	// the group has indexed it, it calls the Waker, whatever State holds, so
	// that no update falls between.
	Subscribe(sub *xds.Subscription)
	// Routed says that the stream also has listeners or routes, so that deletions of
	// clusters and load assignments wait (P36). The stream's receiver calls it.
	Routed()
	// Again says that the client asked for these again, which the origin could not
	// resolve: it is to be asked once more (P18).
	Again(names []string)
	// Nacked reports a refusal of this type (P17).
	Nacked(n Nack)
	// Acked says that the client acknowledged a generation of this member's type, and
	// refuses nothing: what came with it may be in use (P36). all is the snapshot of that
	// generation if the client has all of it, so that it may be stored (P66); otherwise
	// nil. Mostly it costs no more than two loads.
	Acked(gen uint64, all *xds.Snapshot)
	// Leave ends the membership; the Waker is not called once the group has
	// seen it.
	Leave()
}

// Nack is a client's refusal (P17).
type Nack struct {
	Version string `json:"version"` // of the refused response
	Code    int32  `json:"code"`
	Message string `json:"message"` // bounded
	Node    string `json:"node"`    // id
	// At is when it came; Gen the generation that the response was of.
	At  time.Time `json:"at"`
	Gen uint64    `json:"-"`
}

// Waker is how a group reaches one type of a stream. Its methods neither block
// nor call back.
type Waker interface {
	// Wake says that there may be something to send.
	Wake()
	// Lack says that nothing of what the type asks for is held or stored, and no origin
	// can be reached; nil: that is over. The stream ends with the refusal once that is so
	// of all types for which it asks (P53).
	Lack(r *Refusal)
	// End ends the whole stream with the refusal.
	End(r *Refusal)
}

// Refusal ends a stream, or refuses one.
type Refusal = refusal.Refusal

// Refuse makes a Refusal.
func Refuse(code codes.Code, reason telemetry.Reason, format string, args ...any) *Refusal {
	return refusal.New(code, reason, format, args...)
}
