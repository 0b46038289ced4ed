package orchestrator

import (
	"context"
	"log/slog"
	"time"

	"xdsrelay/internal/expr"
	"xdsrelay/internal/store"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/upstream/timing"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Options of a Registry.
type Options struct {
	// Settings are the initial settings.
	Settings
	// NewSource makes the upstream stream of a key; it starts nothing. first is nil for the key's
	// first stream. The second stream uses the origin of the first one (P50).
	NewSource func(key xds.Key, node []byte, sink upstream.Sink, first *upstream.CurrentOrigin) Source
	// SotWOrigins says that upstream streams use SotW (P52: content/omitted.go).
	SotWOrigins bool
	// Node returns the node that is sent upstream for a key whose first client has this node. Nil
	// means the client's own (P58).
	Node func(node *xds.Node) ([]byte, error)

	// ByToken says that an origin gets clients' tokens: see Registry.Bearer. Then all clients of a key
	// have tokens of one issuer and subject.
	ByToken bool

	// Owns reports whether this relay owns a key in its cluster. A key without clients that it does not
	// own is kept for Linger only. Nil: it owns all keys.
	Owns func(xds.Key) bool

	// Seeds returns what other members hold of a key. It is asked when the stored would be served (P66),
	// and may block for a few seconds. Nil: there is no cluster.
	Seeds func(context.Context, xds.Key) map[xds.TypeURL]*store.Stored

	// FirstAnswerTimeout is how long a key waits for an open upstream stream before its
	// clients are refused if nothing is held (P53); 0: until an attempt has failed.
	FirstAnswerTimeout time.Duration
	// Store keeps the generations that clients acknowledged, to be served while no origin is
	// reachable. Nil means that nothing is stored.
	Store Store

	Metrics *telemetry.Metrics
	Log     *slog.Logger // nil: slog.Default
}

// Keys maps nodes to keys. An error that is an *aggregator.Error says which rules were tried
// (P5).
type Keys interface {
	Key(node *xds.Node, peer expr.Peer, typ xds.TypeURL) (xds.Key, error)
}

// Source is a key's upstream stream, over all reconnects, as upstream.Source is.
type Source interface {
	// SetInterest sets the interest. It never blocks.
	SetInterest(i *snapshot.Interest)
	// Current returns the origin that the stream uses, for the second stream of the key.
	Current() *upstream.CurrentOrigin
	// Suspended returns what the stream does not carry, because the origin ends each stream with
	// it.
	Suspended() []upstream.Suspended
	// Excluding reports whether the stream goes on without something, for that reason or because
	// the relay finds out whether it is so (P68).
	Excluding() bool
	// FrequentEnds returns the ends of the stream if it ends again and again; nil: it does not.
	FrequentEnds() *timing.Ends
	// SetMetrics is called before Run, and k is released after it.
	SetMetrics(k *telemetry.Key)
	// Run serves until ctx ends. It returns an error only if the sink did.
	Run(ctx context.Context) error
}

// Settings are what can change while the registry runs. They are immutable once in force. Code
// that needs two consistent values loads them once.
type Settings struct {
	Keys Keys
	// Settle is how long a change waits for more changes; 0: not at all.
	Settle time.Duration
	// RemovalDelay is how long the deletion of a cluster or load assignment waits (P36); 0:
	// not at all.
	RemovalDelay time.Duration
	// Linger is how long a name stays subscribed that no client wants any more (P52).
	Linger time.Duration
	// IdleTTL is how long a key without clients is kept; 0: not at all.
	IdleTTL time.Duration
	// MaxIdle is how many keys without clients are kept.
	MaxIdle int
	Limits  Limits
}

// Limits are the limits of downstream.limits that concern keys; 0: no limit.
type Limits struct{ Keys, KeysPerPeer, NamesPerKey, TypesPerKey int }
