package grpcadmin

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// open has the methods that need no token: probes have none.
var open = map[string]bool{
	grpc_health_v1.Health_Check_FullMethodName: true,
	grpc_health_v1.Health_Watch_FullMethodName: true,
}

// authorize returns why a call is not allowed; nil: it is allowed.
func (s *Server) authorize(ctx context.Context, method string) error {
	if open[method] {
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	one := func(key string) string {
		if v := md.Get(key); len(v) == 1 { // of several values none is trusted
			return v[0]
		}
		return ""
	}
	if name := one(":authority"); !s.opts.Guard.AllowsHost(name) {
		return status.Errorf(codes.PermissionDenied, "host: without admin.token_file it must be localhost or an IP address, but is %s", name)
	}
	from := ""
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	if !s.opts.Guard.Authorized(one("authorization"), from) {
		return status.Error(codes.Unauthenticated, "authorization: must be Bearer and the token of admin.token_file")
	}
	return nil
}

func (s *Server) guardUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := s.authorize(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (s *Server) guardStream(srv any, gs grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := s.authorize(gs.Context(), info.FullMethod); err != nil {
		return err
	}
	return next(srv, &guarded{gs, func() error { return s.authorize(gs.Context(), info.FullMethod) }})
}

// guarded checks access for each message of a stream, because a stream may outlive its token.
type guarded struct {
	grpc.ServerStream
	may func() error
}

func (g *guarded) RecvMsg(m any) error {
	if err := g.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return g.may()
}

func (g *guarded) SendMsg(m any) error {
	if err := g.may(); err != nil {
		return err
	}
	return g.ServerStream.SendMsg(m)
}
