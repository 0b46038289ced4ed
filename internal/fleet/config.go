package fleet

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"

	"xdsrelay/internal/xds"
)

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

// Behaviour is how a client chooses its subscriptions; see the package.
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

// Memory is what a client keeps for its next stream.
type Memory uint8

const (
	// KeepVersions keeps the resources and sends their versions (initial_resource_versions;
	// version_info), as real clients do.
	KeepVersions Memory = iota
	// DropVersions keeps the resources and sends no versions.
	DropVersions
)

// Subscription is a Raw client's subscription to a type. Without names it is the legacy wildcard.
type Subscription struct {
	Type  xds.TypeURL
	Names []string
}

// ClientConfig configures a Client. Only Target or Conn is required.
type ClientConfig struct {
	Target      string                   // any gRPC target; the client makes a connection of its own
	Conn        grpc.ClientConnInterface // instead of Target: a connection that the caller owns
	DialOptions []grpc.DialOption        // with Target; none: plaintext
	Node        *corev3.Node             // of the first request; nil: none is sent. It must not change

	Variant   Variant
	Behaviour Behaviour
	Listener  string         // GRPC: the first subscription
	Subscribe []Subscription // Raw: requested in this order

	WarmTimeout time.Duration // Envoy: initial_fetch_timeout of load assignments; 0: 15s

	// WildcardIsFull: a SotW response under the wildcard is complete for every type. Otherwise it
	// is complete only for Listener, Cluster and ScopedRouteConfiguration.
	WildcardIsFull bool

	// Nack, if not nil, is called for each response. If it returns an error, the client sends a
	// NACK with that message.
	Nack          func(t xds.TypeURL, resources []Resource) error
	DiscardBodies bool // keep names, versions and hashes only

	NoReconnect bool // Run returns when the first stream ends
	Backoff     Backoff

	// Hooks; nil: none. The reader calls them in the order of the responses.

	OnStream   func(c *Client, err error) // a stream opened (nil) or ended
	OnResponse func(c *Client, r Response)
	OnApplied  func(c *Client, t xds.TypeURL, version string, received time.Time)
	OnNack     func(c *Client, t xds.TypeURL, version string, err error)

	refs *refCache // shared within a Fleet
}

// Backoff is the time between streams: random up to Base, which doubles at each failure up to Max.
// After a stream with a response it starts at Base again.
type Backoff struct {
	Base time.Duration // 0: 100ms
	Max  time.Duration // 0: 5s
}

// Response is a response before the client accepts or rejects it, for OnResponse.
type Response struct {
	Type       xds.TypeURL
	Identifier string // control_plane.identifier
	Resources  int
	Removed    int

	response *response
}

// Contents returns the response's resources, without hashes, and the names that it removes.
func (r Response) Contents() ([]Resource, []string) {
	return resources(r.response), r.response.removed
}
