package connections

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/stats"
)

// endedByOrigin is the key of the context value, an *atomic.Bool.
type endedByOrigin struct{}

// NoteEnd returns the context for a stream that sets ended if the origin ends the stream by its own
// status: by trailers, not by a lost connection, GOAWAY or RST_STREAM (P68).
func NoteEnd(ctx context.Context, ended *atomic.Bool) context.Context {
	return context.WithValue(ctx, endedByOrigin{}, ended)
}

// endings notes how streams end. gRPC tells only a stats handler.
type endings struct{}

func (endings) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if _, ok := event.(*stats.InTrailer); !ok {
		return
	}
	if ended, ok := ctx.Value(endedByOrigin{}).(*atomic.Bool); ok {
		ended.Store(true)
	}
}
func (endings) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (endings) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (endings) HandleConn(context.Context, stats.ConnStats)                       {}
