package fanout

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// OperatorOptions are the options of a grpc server that serves what Listener returns, and
// none of the xDS services. Its connections are secured as the gate says, and have the
// same bounds as those of clients.
func (s *Server) OperatorOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(handshakes{s}),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.ReadBufferSize(0),
		grpc.StaticStreamWindowSize(requestWindow),
		grpc.StaticConnWindowSize(requestWindow),
		grpc.MaxHeaderListSize(maxHeaders),
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
