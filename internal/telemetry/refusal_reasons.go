package telemetry

// Reason is why a client was refused, its stream ended, its request ignored, or its request or
// connection delayed (LimitRequestsPerSecond, LimitNamesPerSecond, LimitConnections).
type Reason string

// The reasons. Those with the name of a key of downstream.limits are counted when that limit is
// exceeded.
const (
	NodeMissing       Reason = "node_missing"         // first request without a node (P1)
	NodeInvalid       Reason = "node_invalid"         // a node that is not well-formed
	NodeChanged       Reason = "node_changed"         // a later, different node; it is ignored (P1)
	Unmapped          Reason = "unmapped"             // no rule matches the first type (P5)
	UnmappedLater     Reason = "unmapped_later_type"  // no rule matches a later type; unanswered (P5)
	KeyError          Reason = "key_error"            // an error or empty value in a rule's key (P5)
	KeyChanged        Reason = "key_changed"          // ended because changed rules give another key (P5)
	Handshake         Reason = "tls_handshake"        // a failed TLS handshake, e.g. with an unknown certificate
	Protocol          Reason = "protocol"             // the first bytes of a connection are of another protocol
	Compression       Reason = "compression"          // compressed requests
	Pings             Reason = "pings"                // pings more often than min_time; the connection is closed
	UnknownMethod     Reason = "unknown_method"       // a call of a method that the relay does not have
	OpenFiles         Reason = "open_files"           // no connection can be accepted: too many open files
	Identity          Reason = "identity"             // the identity rule refuses
	Secrets           Reason = "secrets"              // Secrets without a proven identity (P6)
	NoNames           Reason = "no_names"             // delta, and the origin's resources have no names; unanswered (P3)
	Report            Reason = "report"               // a first request that reports and does not subscribe; dropped (P3)
	TypeMissing       Reason = "type_missing"         // an aggregated request without type_url (P2)
	TypeMismatch      Reason = "type_mismatch"        // another type than the service's (P2)
	RequestInvalid    Reason = "request_invalid"      // not well-formed
	ResourceLocators  Reason = "resource_locators"    // resource_locators (P39)
	NameBytes         Reason = "name_bytes"           // a name over 2 KiB (P28)
	HTTPRequest       Reason = "http_request"         // a path, method, content or pace that REST does not allow (P70)
	NotJSON           Reason = "not_json"             // a resource that cannot be converted to JSON (P70)
	OriginUnreachable Reason = "origin_unreachable"   // nothing held and no origin (P53)
	SendTimeout       Reason = "send_timeout"         // the client read too little in send_timeout
	Draining          Reason = "draining"             // the relay is shutting down
	MessageLimit      Reason = "client_message_limit" // the client ended its stream right after a large response (P38)
	Compat            Reason = "compat"               // a member of the cluster with another configuration
	TokenMissing      Reason = "token_missing"        // a client without the token that the listener needs
	TokenInvalid      Reason = "token_invalid"        // a token that is not the issuer's, or for another audience
	TokenExpired      Reason = "token_expired"
	TokenRenewal      Reason = "token_renewal" // a stream that ends so that its client returns with a new token
	TokenKeys         Reason = "token_keys"    // the issuer's keys cannot be read

	LimitConnections          Reason = "connections"
	LimitStreams              Reason = "streams"
	LimitStreamsPerSecond     Reason = "streams_per_second"
	LimitStreamsPerPeer       Reason = "streams_per_peer"
	LimitStreamsPerConnection Reason = "streams_per_connection"
	LimitRequestsPerSecond    Reason = "requests_per_second"
	LimitNamesPerSecond       Reason = "names_per_second"
	LimitRequestBytes         Reason = "request_bytes"
	LimitNodeBytes            Reason = "node_bytes"
	LimitNamesPerStream       Reason = "names_per_stream"
	LimitTypesPerStream       Reason = "types_per_stream"
	LimitKeys                 Reason = "keys"
	LimitKeysPerPeer          Reason = "keys_per_peer"
	LimitNamesPerKey          Reason = "names_per_key"
	LimitTypesPerKey          Reason = "types_per_key"
	LimitPinnedBytes          Reason = "pinned_bytes"
	LimitRESTBytes            Reason = "rest_bytes"
)

var reasons = []Reason{
	NodeMissing, NodeInvalid, NodeChanged, Unmapped, UnmappedLater, KeyError, KeyChanged, Handshake,
	Protocol, Compression, Pings, UnknownMethod, OpenFiles, Identity, Secrets, NoNames, Report,
	TypeMissing, TypeMismatch, RequestInvalid, ResourceLocators, NameBytes, HTTPRequest, NotJSON,
	OriginUnreachable, SendTimeout, Draining, MessageLimit, Compat, TokenMissing, TokenInvalid,
	TokenExpired, TokenRenewal, TokenKeys, LimitConnections, LimitStreams, LimitStreamsPerSecond,
	LimitStreamsPerPeer, LimitStreamsPerConnection, LimitRequestsPerSecond, LimitNamesPerSecond,
	LimitRequestBytes, LimitNodeBytes, LimitNamesPerStream, LimitTypesPerStream, LimitKeys,
	LimitKeysPerPeer, LimitNamesPerKey, LimitTypesPerKey, LimitPinnedBytes, LimitRESTBytes,
}

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
