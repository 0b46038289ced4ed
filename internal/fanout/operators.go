package fanout

import (
	"context"

	"xdsrelay/internal/fanout/listener"

	"google.golang.org/grpc"
)

// OperatorOptions are the options of a grpc server that serves what Listener returns, and
// none of the xDS services. Its connections are secured as the gate says, and have the
// same bounds as those of clients.
func (s *Server) OperatorOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(listener.Credentials(s.refusals.HandshakeFailed)),
		grpc.ConnectionTimeout(listener.HandshakeTimeout),
		grpc.ReadBufferSize(0),
		grpc.StaticStreamWindowSize(listener.RequestWindow),
		grpc.StaticConnWindowSize(listener.RequestWindow),
		grpc.MaxHeaderListSize(maxHeaders),
	}
}

// CloseConnection closes the connection that a call came by, for a client that does
// not take what it is answered: no status would reach it either.
func CloseConnection(ctx context.Context) {
	if conn, _, ok := listener.Of(ctx); ok {
		_ = conn.Close() // its streams see it; there is nobody else to tell
	}
}
