package upstream

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
)

// tcpKeepalive finds dead paths to origins, which may not permit HTTP/2 pings so
// often. gRPC sets TCP_USER_TIMEOUT to upstream.keepalive.timeout, 10 s. The kernel
// then closes a connection whose data is not acknowledged for so long. With that
// option Linux does not use Count: it closes an idle connection at the second probe,
// 40 s after the last packet, or after the timeout if that is longer. Other systems
// may wait for all probes, 60 s.
var tcpKeepalive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

// keepaliveCredentials turn TCP keepalive on before each handshake. A dialer of
// the relay's own would do the same, but gRPC ignores the environment's proxies
// where there is one.
type keepaliveCredentials struct {
	credentials.TransportCredentials
}

func (c keepaliveCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if tcp, ok := raw.(*net.TCPConn); ok {
		if err := tcp.SetKeepAliveConfig(tcpKeepalive); err != nil {
			return nil, nil, err
		}
	}
	return c.TransportCredentials.ClientHandshake(ctx, authority, raw)
}

func (c keepaliveCredentials) Clone() credentials.TransportCredentials {
	return keepaliveCredentials{c.TransportCredentials.Clone()}
}
