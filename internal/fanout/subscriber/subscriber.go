package subscriber

import (
	"time"

	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/tokens"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Joiner says which groups a client belongs to. The orchestrator implements it.
type Joiner interface {
	// Join makes a client known. The client belongs to no group before it subscribes.
	Join(info Info) Client
	// KeyOf returns the key of the group to which a client would belong now. The error
	// is a *refusal.Refusal.
	KeyOf(node *xds.Node, peer expr.Peer, typ xds.TypeURL) (xds.Key, error)
}

// Info is what a Joiner has to know of a client.
type Info struct {
	Node *xds.Node
	Peer expr.Peer
	// PeerID is the name by which limits per peer count the client (listener.Caller).
	PeerID string
	// Token is the client's verified token; nil: the listener needs none.
	Token *tokens.Token
	// Key is that of all types; zero: the rules give each type its key.
	Key xds.Key
	// Relay: the client is another relay of the cluster. It sees only what origins said to this relay.
	// Its node is sent upstream as it is. Its ACKs and types do not count as a client's. The limits of
	// names and of a peer's keys do not apply, since it applies them to its own clients.
	Relay bool
	// End ends the client with the refusal. Any goroutine may call it, several times. It neither
	// blocks nor calls back.
	End func(*refusal.Refusal)
}

// Client is a client that joined. Its receiver calls the methods, one at a time.
type Client interface {
	// SetNode changes the node. Types that subscribed already keep the earlier one (P1).
	SetNode(node *xds.Node)
	// Subscribe makes a type of the client a subscriber of the group of its key, once per type. It
	// does not wait for the origin, but the first client of a key may wait for other new keys. The
	// error is a *refusal.Refusal.
	Subscribe(typ xds.TypeURL, w Waker) (Subscriber, error)
	// Leave ends all subscriptions. No Waker is called once the groups have seen it.
	Leave()
}

// Subscriber is one type of one client in its group. No method blocks. All but Request are safe for
// concurrent use; the client's receiver calls Request.
type Subscriber interface {
	// Key of the group.
	Key() xds.Key
	States
	// GroupStates are the same States. The subscribers of a group share the value, so its memory is
	// more likely to be in the processor's cache.
	GroupStates() States
	// Newest is the newest snapshot of the type; nil before there is any. It may be newer
	// than that of State, which waits for further changes (settle). Neither takes a lock.
	Newest() *snapshot.Snapshot
	// Intern returns the group's one value that equals sub. Clients with equal subscriptions share
	// it.
	Intern(sub *snapshot.Subscription) *snapshot.Subscription
	// Request says what the client requests from now on; sub is interned. The group calls the
	// Waker once it has indexed sub, even if State has not changed. So no update is missed.
	Request(sub *snapshot.Subscription)
	// SetRoutesWait says for how long at most listeners and routes wait for the full-state response
	// of this subscriber's clusters (P67); 0: it can be sent. It is called with each change, also
	// before the first request is applied.
	SetRoutesWait(wait time.Duration)
	// RoutesWait is for how long at most listeners and routes wait for clusters of the key. It
	// takes no lock. When that becomes shorter, the group calls the Wakers of subscribers that
	// resume.
	RoutesWait() time.Duration
	// Resubscribe says that the client requested names that the origin could not resolve (P18) or
	// that do not exist (P25). The group requests them at the origin once more.
	Resubscribe(names []string)
	// Offered returns the resources of an offer that was a response, the first maxNames of them,
	// and whether these are all.
	Offered(o *snapshot.Offer, maxNames int) (out []*xds.Resource, all bool)
	// Nacked reports the client's NACK of a response of this type (P17), and what the response
	// offered.
	Nacked(n Nack, rejected *snapshot.Offer)
	// Acked says that the client acknowledged a generation of this subscriber's type and rejected
	// nothing: what came with it may be in use (P36). all is the snapshot of that generation if the
	// client has all of it, so that it may be stored (P66); otherwise nil. It usually costs two
	// atomic loads.
	Acked(gen uint64, all *snapshot.Snapshot)
}

// States is what a subscriber sees of its group.
type States interface {
	// State is the newest State; nil before the group has any.
	State() *snapshot.State
}

// Waker is how a group tells one type of a client that something changed.
type Waker interface {
	// Wake says that there may be something to send. It neither blocks nor calls back.
	Wake()
}
