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
type Result uint8

// The results.
const (
	// Applied: something changed.
	Applied Result = iota
	// Unchanged: everything in it was held already, or was not requested.
	Unchanged
	// Rejected: it was NACKed, or its file could not be read (P18, P80).
	Rejected
	results
)

var resultNames = [results]string{Applied: "applied", Unchanged: "unchanged", Rejected: "rejected"}

func (r Result) String() string { return resultNames[r] }

// HeartbeatResult is the result of an origin's heartbeat (P62).
type HeartbeatResult uint8

// The results of heartbeats.
const (
	// Renewed: the TTL of a held resource starts again.
	Renewed HeartbeatResult = iota
	// StaleHeartbeat: it names nothing that is held.
	StaleHeartbeat
	heartbeatResults
)

var heartbeatResultNames = [heartbeatResults]string{Renewed: "renewed", StaleHeartbeat: "stale"}

func (b HeartbeatResult) String() string { return heartbeatResultNames[b] }

// Drop is why the relay drops a resource that no origin removed.
type Drop uint8

// The reasons.
const (
	// Expired: its TTL is over (P62).
	Expired Drop = iota
	// StreamEnded: it must not be cached, and the stream that brought it ended (P63).
	StreamEnded
	// Unwanted: it must not be cached, and no client subscribes to it any more (P63).
	Unwanted
	drops
)

var dropNames = [drops]string{Expired: "expired", StreamEnded: "stream_ended", Unwanted: "unwanted"}

func (d Drop) String() string { return dropNames[d] }

// Failure is the result of a resource_errors entry (P39).
type Failure uint8

// The results of resource_errors.
const (
	// Kept: clients are told of it.
	Kept Failure = iota
	// NoRoom: the type has too many already.
	NoRoom
	failures
)

var failureNames = [failures]string{Kept: "kept", NoRoom: "no_room"}

func (f Failure) String() string { return failureNames[f] }

// Fault is why a response of an origin, or a file, was rejected (P18).
type Fault uint8

// The reasons for rejecting.
const (
	Unreadable     Fault = iota // no protobuf, JSON or YAML of the message
	DuplicateName               // the same name twice
	ChangedAndGone              // a name both in resources and removed_resources
	WrongType                   // a resource of another type
	Nameless                    // a resource without a name
	InvalidName                 // longer than 2 KiB, or no UTF-8 (P28)
	ManyAliases                 // a resource with too many aliases (P26)
	TooLarge                    // over the limit of a response (P59)
	faults
)

var faultNames = [faults]string{
	Unreadable:     "unreadable",
	DuplicateName:  "duplicate_name",
	ChangedAndGone: "changed_and_removed",
	WrongType:      "wrong_type",
	Nameless:       "nameless",
	InvalidName:    "invalid_name",
	ManyAliases:    "many_aliases",
	TooLarge:       "too_large",
}

// FaultOf returns the fault of an error of the package xds (P18).
func FaultOf(err error) Fault {
	for _, f := range []struct {
		is    error
		fault Fault
	}{
		{xds.ErrDuplicateName, DuplicateName},
		{xds.ErrChangedAndRemoved, ChangedAndGone},
		{xds.ErrOtherType, WrongType},
		{xds.ErrNameless, Nameless},
		{xds.ErrLongName, InvalidName},
		{xds.ErrAliases, ManyAliases},
	} {
		if errors.Is(err, f.is) {
			return f.fault
		}
	}
	return Unreadable
}

func (f Fault) String() string { return faultNames[f] }

// Reconnect is why a stream to an origin is opened again (P54, P56).
type Reconnect uint8

// The reasons for reconnecting.
const (
	// Unreachable: no stream could be opened.
	Unreachable Reconnect = iota
	// NoResponse: the stream ended before it had a response.
	NoResponse
	// Ended: the stream ended, by the origin or an error, after a response.
	Ended
	// Switched: another origin serves now.
	Switched
	// Returned: a preferred origin serves again.
	Returned
	reconnects
)

var reconnectNames = [reconnects]string{
	Unreachable: "unreachable",
	NoResponse:  "no_response",
	Ended:       "ended",
	Switched:    "switched",
	Returned:    "returned",
}

func (r Reconnect) String() string { return reconnectNames[r] }

// Reload is the result of reading changed files.
type Reload uint8

// The results.
const (
	Reloaded     Reload = iota
	ReloadFailed        // the previous one stays in force
	reloads
)

var reloadNames = [reloads]string{Reloaded: "reloaded", ReloadFailed: "failed"}

func (r Reload) String() string { return reloadNames[r] }

// Span is the result of a trace's span.
type Span uint8

// The results.
const (
	SpanSent   Span = iota
	SpanFailed      // the collector did not accept it
	spans
)

var spanNames = [spans]string{SpanSent: "sent", SpanFailed: "failed"}

func (s Span) String() string { return spanNames[s] }

// MemberState is the state of a member of the cluster.
type MemberState uint8

// The states.
const (
	MemberAlive    MemberState = iota
	MemberUnusable             // alive, but it can own no keys, for example because of another compat
	MemberLeft
	MemberDead
	MemberStates // their number
)

var memberStateNames = [MemberStates]string{
	MemberAlive: "alive", MemberUnusable: "unusable", MemberLeft: "left", MemberDead: "dead",
}

func (s MemberState) String() string { return memberStateNames[s] }

// Move is why a key uses another source, of which one is a member of the cluster.
type Move uint8

// The reasons.
const (
	MoveSwitched  Move = iota // the source failed, or is none of the key's any more
	MovePreferred             // a preferred source answers
	MoveDraining              // likewise, and the former source drains
	moves
)

var moveNames = [moves]string{MoveSwitched: "switched", MovePreferred: "preferred", MoveDraining: "draining"}

func (m Move) String() string { return moveNames[m] }

// KeyRole is what a relay of a cluster is for a key.
type KeyRole uint8

// The roles.
const (
	KeyOwner    KeyRole = iota // it asks origins, and serves the key to other members
	KeyFollower                // it asks another member
	KeyDirect                  // it asks origins, although another member owns the key
	KeyRoles                   // their number
)

var keyRoleNames = [KeyRoles]string{KeyOwner: "owner", KeyFollower: "follower", KeyDirect: "direct"}

func (r KeyRole) String() string { return keyRoleNames[r] }

// Reason is why a client was refused, its stream ended, its request ignored, or its request or
// connection delayed (LimitRequestsPerSecond, LimitNamesPerSecond, LimitConnections).
type Reason uint8

// The reasons. Those with the name of a key of downstream.limits are counted when that limit is
// exceeded.
const (
	NodeMissing       Reason = iota // first request without a node (P1)
	NodeInvalid                     // a node that is not well-formed
	NodeChanged                     // a later, different node; it is ignored (P1)
	Unmapped                        // no rule matches the first type (P5)
	UnmappedLater                   // no rule matches a later type; unanswered (P5)
	KeyError                        // an error or empty value in a rule's key (P5)
	KeyChanged                      // ended because changed rules give another key (P5)
	Handshake                       // a failed TLS handshake, e.g. with an unknown certificate
	Protocol                        // the first bytes of a connection are of another protocol
	Compression                     // compressed requests
	Pings                           // pings more often than min_time; the connection is closed
	UnknownMethod                   // a call of a method that the relay does not have
	OpenFiles                       // no connection can be accepted: too many open files
	Identity                        // the identity rule refuses
	Secrets                         // Secrets without a proven identity (P6)
	NoNames                         // delta, and the origin's resources have no names; unanswered (P3)
	Report                          // a first request that reports and does not subscribe; dropped (P3)
	TypeMissing                     // an aggregated request without type_url (P2)
	TypeMismatch                    // another type than the service's (P2)
	RequestInvalid                  // not well-formed
	ResourceLocators                // resource_locators (P39)
	NameBytes                       // a name over 2 KiB (P28)
	HTTPRequest                     // a path, method, content or pace that REST does not allow (P70)
	NotJSON                         // a resource that cannot be converted to JSON (P70)
	OriginUnreachable               // nothing held and no origin (P53)
	SendTimeout                     // the client read too little in send_timeout
	Draining                        // the relay is shutting down
	MessageLimit                    // the client ended its stream right after a large response (P38)
	Compat                          // a member of the cluster with another configuration
	TokenMissing                    // a client without the token that the listener needs
	TokenInvalid                    // a token that is not the issuer's, or for another audience
	TokenExpired
	TokenRenewal // a stream that ends so that its client returns with a new token
	TokenKeys    // the issuer's keys cannot be read

	LimitConnections
	LimitStreams
	LimitStreamsPerSecond
	LimitStreamsPerPeer
	LimitStreamsPerConnection
	LimitRequestsPerSecond
	LimitNamesPerSecond
	LimitRequestBytes
	LimitNodeBytes
	LimitNamesPerStream
	LimitTypesPerStream
	LimitKeys
	LimitKeysPerPeer
	LimitNamesPerKey
	LimitTypesPerKey
	LimitPinnedBytes
	LimitRESTBytes
	reasons
)

var reasonNames = [reasons]string{
	NodeMissing:       "node_missing",
	NodeInvalid:       "node_invalid",
	NodeChanged:       "node_changed",
	Unmapped:          "unmapped",
	UnmappedLater:     "unmapped_later_type",
	KeyError:          "key_error",
	KeyChanged:        "key_changed",
	Handshake:         "tls_handshake",
	Protocol:          "protocol",
	Compression:       "compression",
	Pings:             "pings",
	UnknownMethod:     "unknown_method",
	OpenFiles:         "open_files",
	Identity:          "identity",
	Secrets:           "secrets",
	NoNames:           "no_names",
	Report:            "report",
	TypeMissing:       "type_missing",
	TypeMismatch:      "type_mismatch",
	RequestInvalid:    "request_invalid",
	ResourceLocators:  "resource_locators",
	NameBytes:         "name_bytes",
	HTTPRequest:       "http_request",
	NotJSON:           "not_json",
	OriginUnreachable: "origin_unreachable",
	SendTimeout:       "send_timeout",
	Draining:          "draining",
	MessageLimit:      "client_message_limit",
	Compat:            "compat",
	TokenMissing:      "token_missing",
	TokenInvalid:      "token_invalid",
	TokenExpired:      "token_expired",
	TokenRenewal:      "token_renewal",
	TokenKeys:         "token_keys",

	LimitConnections:          "connections",
	LimitStreams:              "streams",
	LimitStreamsPerSecond:     "streams_per_second",
	LimitStreamsPerPeer:       "streams_per_peer",
	LimitStreamsPerConnection: "streams_per_connection",
	LimitRequestsPerSecond:    "requests_per_second",
	LimitNamesPerSecond:       "names_per_second",
	LimitRequestBytes:         "request_bytes",
	LimitNodeBytes:            "node_bytes",
	LimitNamesPerStream:       "names_per_stream",
	LimitTypesPerStream:       "types_per_stream",
	LimitKeys:                 "keys",
	LimitKeysPerPeer:          "keys_per_peer",
	LimitNamesPerKey:          "names_per_key",
	LimitTypesPerKey:          "types_per_key",
	LimitPinnedBytes:          "pinned_bytes",
	LimitRESTBytes:            "rest_bytes",
}

func (r Reason) String() string { return reasonNames[r] }

// Planned reports whether r ends streams without a fault: the relay ends each stream at some time.
// New streams may be refused for the same reason.
func (r Reason) Planned() bool { return r == Draining || r == KeyChanged || r == TokenRenewal }

// OfRelay reports whether the relay would refuse most new clients for r, whatever their key and
// requests. Another replica may serve them.
func (r Reason) OfRelay() bool {
	switch r {
	case LimitStreams, LimitStreamsPerSecond, LimitKeys, OriginUnreachable:
		return true
	}
	return false
}
