package xdstest

import (
	"context"
	"sync"

	"google.golang.org/grpc/stats"
)

// ConnCounter is a grpc stats handler that counts connections.
type ConnCounter struct {
	mu         sync.Mutex
	open, ever int
}

// Counts returns how many connections are open, and how many were ever opened.
func (c *ConnCounter) Counts() (open, ever int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open, c.ever
}

// HandleConn implements stats.Handler.
func (c *ConnCounter) HandleConn(_ context.Context, s stats.ConnStats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s.(type) {
	case *stats.ConnBegin:
		c.open++
		c.ever++
	case *stats.ConnEnd:
		c.open--
	}
}

// TagConn implements stats.Handler.
func (*ConnCounter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// TagRPC implements stats.Handler.
func (*ConnCounter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (*ConnCounter) HandleRPC(context.Context, stats.RPCStats) {}
