package telemetry

import (
	"errors"

	"xdsrelay/internal/xds"
)

// Variant is a variant of xDS, as a label.
type Variant uint8

// The variants. REST is SotW over single requests instead of streams.
const (
	SotW Variant = iota
	Delta
	REST
	variants
)

var variantNames = [variants]string{SotW: "sotw", Delta: "delta", REST: "rest"}

func (v Variant) String() string { return variantNames[v] }

// Result is the relay's decision on an origin's response.
type Result string

// The results.
const (
	// Applied: something changed.
	Applied Result = "applied"
	// Unchanged: everything in it was held already, or was not requested.
	Unchanged Result = "unchanged"
	// Rejected: it was NACKed, or its file could not be read (P18, P80).
	Rejected Result = "rejected"
)

var results = []Result{Applied, Unchanged, Rejected}

// HeartbeatResult is the result of an origin's heartbeat (P62).
type HeartbeatResult string

// The results of heartbeats.
const (
	// Renewed: the TTL of a held resource starts again.
	Renewed HeartbeatResult = "renewed"
	// StaleHeartbeat: it names nothing that is held.
	StaleHeartbeat HeartbeatResult = "stale"
)

var heartbeatResults = []HeartbeatResult{Renewed, StaleHeartbeat}

// Drop is why the relay drops a resource that no origin removed.
type Drop string

// The reasons.
const (
	// Expired: its TTL is over (P62).
	Expired Drop = "expired"
	// StreamEnded: it must not be cached, and the stream that brought it ended (P63).
	StreamEnded Drop = "stream_ended"
	// Unwanted: it must not be cached, and no client subscribes to it any more (P63).
	Unwanted Drop = "unwanted"
)

var drops = []Drop{Expired, StreamEnded, Unwanted}

// Failure is the result of a resource_errors entry (P39).
type Failure string

// The results of resource_errors.
const (
	// Kept: clients are told of it.
	Kept Failure = "kept"
	// NoRoom: the type has too many already.
	NoRoom Failure = "no_room"
)

var failures = []Failure{Kept, NoRoom}

// Fault is why a response of an origin, or a file, was rejected (P18).
type Fault string

// The reasons for rejecting.
const (
	Unreadable     Fault = "unreadable"          // no protobuf, JSON or YAML of the message
	DuplicateName  Fault = "duplicate_name"      // the same name twice
	ChangedAndGone Fault = "changed_and_removed" // a name both in resources and removed_resources
	WrongType      Fault = "wrong_type"          // a resource of another type
	Nameless       Fault = "nameless"            // a resource without a name
	InvalidName    Fault = "invalid_name"        // longer than 2 KiB, or no UTF-8 (P28)
	ManyAliases    Fault = "many_aliases"        // a resource with too many aliases (P26)
	TooLarge       Fault = "too_large"           // over the limit of a response (P59)
)

var faults = []Fault{Unreadable, DuplicateName, ChangedAndGone, WrongType, Nameless, InvalidName, ManyAliases, TooLarge}

// FaultOf returns the fault of an error of the package xds (P18).
func FaultOf(err error) Fault {
	for _, f := range []struct {
		err   error
		fault Fault
	}{
		{xds.ErrDuplicateName, DuplicateName},
		{xds.ErrChangedAndRemoved, ChangedAndGone},
		{xds.ErrOtherType, WrongType},
		{xds.ErrNameless, Nameless},
		{xds.ErrLongName, InvalidName},
		{xds.ErrAliases, ManyAliases},
	} {
		if errors.Is(err, f.err) {
			return f.fault
		}
	}
	return Unreadable
}

// Reconnect is why a stream to an origin is opened again (P54, P56).
type Reconnect string

// The reasons for reconnecting.
const (
	// Unreachable: no stream could be opened.
	Unreachable Reconnect = "unreachable"
	// NoResponse: the stream ended before it had a response.
	NoResponse Reconnect = "no_response"
	// Ended: the stream ended, by the origin or an error, after a response.
	Ended Reconnect = "ended"
	// Switched: another origin serves now.
	Switched Reconnect = "switched"
	// Returned: a preferred origin serves again.
	Returned Reconnect = "returned"
)

var reconnects = []Reconnect{Unreachable, NoResponse, Ended, Switched, Returned}

// Reload is the result of reading changed files.
type Reload string

// The results.
const (
	Reloaded     Reload = "reloaded"
	ReloadFailed Reload = "failed" // the previous one stays in force
)

var reloads = []Reload{Reloaded, ReloadFailed}

// Span is the result of a trace's span.
type Span string

// The results.
const (
	SpanSent   Span = "sent"
	SpanFailed Span = "failed" // the collector did not accept it
)

var spans = []Span{SpanSent, SpanFailed}

// MemberState is the state of a member of the cluster.
type MemberState string

// The states.
const (
	MemberAlive    MemberState = "alive"
	MemberUnusable MemberState = "unusable" // alive, but it can own no keys, for example because of another compat
	MemberLeft     MemberState = "left"
	MemberDead     MemberState = "dead"
)

var memberStates = []MemberState{MemberAlive, MemberUnusable, MemberLeft, MemberDead}

// Move is why a key uses another source, of which one is a member of the cluster.
type Move string

// The reasons.
const (
	MoveSwitched  Move = "switched"  // the source failed, or is none of the key's any more
	MovePreferred Move = "preferred" // a preferred source answers
	MoveDraining  Move = "draining"  // likewise, and the former source drains
)

var moves = []Move{MoveSwitched, MovePreferred, MoveDraining}

// KeyRole is what a relay of a cluster is for a key.
type KeyRole string

// The roles.
const (
	KeyOwner    KeyRole = "owner"    // it asks origins, and serves the key to other members
	KeyFollower KeyRole = "follower" // it asks another member
	KeyDirect   KeyRole = "direct"   // it asks origins, although another member owns the key
)

var keyRoles = []KeyRole{KeyOwner, KeyFollower, KeyDirect}
