package orchestrator

import (
	"context"
	"log/slog"
	"time"

	"xdsrelay/internal/expr"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// Keys maps nodes to keys. An error that is an *aggregator.Error says which
// rules were tried (P5).
type Keys interface {
	Key(node *xds.Node, peer expr.Peer, typ xds.TypeURL) (xds.Key, error)
}

// Stream is a key's conversation with its origins, as upstream.Stream is.
type Stream interface {
	// SetInterest says what is wanted from now on; it never blocks.
	SetInterest(i *xds.Interest)
	// CountIn is called before Run, and k is released after it.
	CountIn(k *telemetry.Key)
	// Run serves until ctx ends. It returns an error only if the sink did.
	Run(ctx context.Context) error
}

// Options of a Registry.
type Options struct {
	// Settings are those that it begins with.
	Settings
	// Open makes an upstream stream of a key; it starts nothing. first is nil for the key's first
	// stream. The second stream uses the origin that the first one uses (P50).
	Open func(id string, node []byte, sink upstream.Sink, first Stream) Stream
	// Node gives the node that is sent upstream for a key whose first client has
	// this node; nil: the client's own (P58).
	Node func(node *xds.Node) ([]byte, error)

	// FirstAnswerTimeout is how long a key of which nothing is held may be
	// without an open upstream stream before its clients are sent elsewhere
	// (P53); 0: until an attempt has failed.
	FirstAnswerTimeout time.Duration
	// Store keeps what clients acknowledged, and serves it while no origin can be
	// reached; nil: nothing is kept.
	Store Store

	Metrics *telemetry.Metrics
	Log     *slog.Logger // nil: slog.Default
}
