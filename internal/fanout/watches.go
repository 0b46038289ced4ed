package fanout

import (
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"

	"xdsrelay/internal/telemetry"
)

// Streams that watch the relay's health never end by themselves. Each counts as a
// stream of the whole and of its peer; so many may be on one connection, of which
// an honest client has one; and so many there are, also where streams is no limit.
// They are not counted among the connection's streams: what is decided by these is
// decided for xDS. A question that is answered once (Check) is free.
const (
	watchesPerConnection = 4
	maxWatches           = 4096
)

// watches are those that are open.
type watches struct {
	mu    sync.Mutex
	total int
	conns map[*conn]int
}

func (w *watches) enter(c *conn) *Refusal {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.conns[c] >= watchesPerConnection:
		return Refuse(codes.ResourceExhausted, telemetry.HealthWatches, "watch: more than %d of a connection", watchesPerConnection)
	case w.total >= maxWatches:
		return Refuse(codes.ResourceExhausted, telemetry.HealthWatches, "watch: more than %d", maxWatches)
	}
	w.total++
	w.conns[c]++
	return nil
}

func (w *watches) leave(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total--
	down(w.conns, c)
}

// watching is the interceptor of streams that are none of xDS.
func (s *Server) watching(srv any, gs grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if info.FullMethod != grpc_health_v1.Health_Watch_FullMethodName {
		return next(srv, gs)
	}
	p, _ := peer.FromContext(gs.Context())
	if p == nil {
		return next(srv, gs)
	}
	auth, ok := p.AuthInfo.(authInfo)
	if !ok {
		return next(srv, gs)
	}
	refusal := s.watches.enter(auth.conn)
	if refusal == nil {
		defer s.watches.leave(auth.conn)
		if refusal = s.door.admit("watch", auth.caller.Account); refusal == nil {
			defer s.door.unseat(auth.caller.Account)
			auth.conn.used.Store(true)
			return next(srv, gs)
		}
	}
	s.meters.Refuse(refusal.Reason)
	return refusal
}
