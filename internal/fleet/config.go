package fleet

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"

	"xdsrelay/internal/xds"
)

// Variant of the protocol.
type Variant uint8

const (
	SotW Variant = iota
	Delta
)

func (v Variant) String() string {
	if v == Delta {
		return "delta"
	}
	return "sotw"
}

// Behaviour is how a client finds out what to ask for; see the package.
type Behaviour uint8

const (
	Envoy Behaviour = iota
	GRPC
	Raw
)

func (b Behaviour) String() string {
	switch b {
	case GRPC:
		return "grpc"
	case Raw:
		return "raw"
	default:
		return "envoy"
	}
}

// Memory is what a client takes along to its next stream.
type Memory uint8

const (
	// KeepVersions: what it holds, and the versions of it are sent
	// (initial_resource_versions; version_info), as real clients do.
	KeepVersions Memory = iota
	// DropVersions: what it holds, but no versions are sent.
	DropVersions
	// Forget: nothing, as a process that was started anew. Names that were
	// found by following references are forgotten as well.
	Forget
)

// Subscription is what a Raw client asks for of one type. No names: the
// legacy wildcard; "*" among them: the wildcard.
type Subscription struct {
	Type  xds.TypeURL
	Names []string
}

// ClientConfig says what a Client is. Only Target or Conn is required.
type ClientConfig struct {
	Target      string                   // any gRPC target; the client has a connection of its own
	Conn        grpc.ClientConnInterface // instead of Target: a connection that the caller owns
	DialOptions []grpc.DialOption        // with Target; none: plaintext
	CallOptions []grpc.CallOption
	Node        *corev3.Node // of the first request; nil: none is sent. Not changed, not to be changed

	Variant   Variant
	Behaviour Behaviour
	Listener  string         // GRPC: where it starts
	Subscribe []Subscription // Raw: requested in this order

	// Envoy.

	AckCold       bool          // the ACK of clusters does not wait for warming
	KeepWarm      bool          // a changed cluster whose load assignment is held is warm at once (Envoy's EDS cache)
	WarmTimeout   time.Duration // initial_fetch_timeout of load assignments; 0: 15s
	ListenersLast bool          // Listener is first asked for when the first clusters are warm, as at Envoy's start

	// WildcardIsFull: a SotW response under the wildcard holds everything,
	// whatever the type. Else only Listener, Cluster and
	// ScopedRouteConfiguration are taken so.
	WildcardIsFull bool

	// Refuse, if not nil, is asked about each response; an error is a NACK
	// with that message. SetRefuse changes it.
	Refuse        func(t xds.TypeURL, resources []Resource) error
	AckDelay      time.Duration // before each ACK and NACK
	DiscardBodies bool          // keep names, versions and hashes only

	NoReconnect bool // Run returns when the first stream ends
	Reconnect   Memory
	Backoff     Backoff

	// Hooks; nil: none. Called on the reader, in the order of the responses.

	OnStream   func(c *Client, err error) // a stream opened (nil) or ended
	OnResponse func(c *Client, r Response)
	OnApplied  func(c *Client, t xds.TypeURL, version string, received time.Time)
	OnRefused  func(c *Client, t xds.TypeURL, version string, err error)

	refs *refCache // shared within a Fleet
}

// Backoff between streams: a random time up to Base, doubled at each failure
// up to Max. A stream that had a response starts again at Base.
type Backoff struct {
	Base time.Duration // 0: 100ms
	Max  time.Duration // 0: 5s
}

// Response is what OnResponse sees, before the client has judged it.
type Response struct {
	Type       xds.TypeURL
	Version    string // version_info or system_version_info
	Nonce      string
	Identifier string // control_plane.identifier
	Resources  int
	Removed    int
	Size       int
	Received   time.Time

	frame *frame
}

// Contents are the resources that the response brings, without hashes, and the
// names that it removes. Only OnResponse may call it, before it returns.
func (r Response) Contents() (resources []Resource, removed []string) {
	for _, name := range r.frame.removed {
		removed = append(removed, string(name))
	}
	return copies(r.frame), removed
}
