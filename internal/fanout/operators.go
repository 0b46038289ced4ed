package fanout

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"
)

// OperatorOptions are those of a grpc server that serves what Listener returns, and
// none of the xDS services: its connections are secured as the gate says, and held
// to what is asked of clients' (toll.go, unfinished.go, strikes.go, greeting.go).
// A message that does not come to its end ends its call.
func (s *Server) OperatorOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(handshakes{s}),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.ReadBufferSize(0),
		grpc.StaticStreamWindowSize(requestWindow),
		grpc.StaticConnWindowSize(requestWindow),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.InTapHandle(func(ctx context.Context, _ *tap.Info) (context.Context, error) { return opened(ctx, false), nil }),
	}
}

// CloseConnection closes the connection that a call came by, for a client that does
// not take what it is answered: no status would reach it either.
func CloseConnection(ctx context.Context) {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return
	}
	if auth, ok := p.AuthInfo.(authInfo); ok {
		_ = auth.conn.Close() // its streams see it; there is nobody else to tell
	}
}
