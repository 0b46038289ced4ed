package connections

import (
	"context"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tlsfiles"
)

// TLSFiles secure a connection to an origin, also if all fields are empty. Renewed files apply from
// the next connection on.
type TLSFiles struct {
	CAFile     string // empty: the system's CAs
	CertFile   string // with KeyFile: the relay's own certificate
	KeyFile    string
	ServerName string // empty: the target's host
}

// Credentials returns the credentials of connections and the source of their files,
// nil for plaintext. A nil f is plaintext. It fails if the files are invalid now.
func (f *TLSFiles) Credentials(origin string, m *telemetry.Metrics, log *slog.Logger) (credentials.TransportCredentials, *tlsfiles.Source, error) {
	if f == nil {
		return insecure.NewCredentials(), nil, nil
	}
	src, err := tlsfiles.Open(tlsfiles.Files{CertFile: f.CertFile, KeyFile: f.KeyFile, CAFile: f.CAFile},
		tlsfiles.Options{Name: "origin " + origin, Metrics: m, Log: log})
	if err != nil {
		return nil, nil, err
	}
	return &fileCredentials{TransportCredentials: credentials.NewTLS(src.Client(f.ServerName)), src: src, serverName: f.ServerName}, src, nil
}

// fileCredentials use the content of the files at the time of each handshake. The
// embedded credentials serve the methods that do not depend on the files.
type fileCredentials struct {
	credentials.TransportCredentials
	src        *tlsfiles.Source
	serverName string
}

func (c *fileCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(c.src.Client(c.serverName)).ClientHandshake(ctx, authority, conn)
}

func (c *fileCredentials) Clone() credentials.TransportCredentials {
	return &fileCredentials{TransportCredentials: c.TransportCredentials.Clone(), src: c.src, serverName: c.serverName}
}

// tcpKeepalive finds dead paths to origins, which may not permit HTTP/2 pings so
// often. gRPC sets TCP_USER_TIMEOUT to upstream.keepalive.timeout, 10 s. The kernel
// then closes a connection whose data is not acknowledged for so long. With that
// option Linux does not use Count: it closes an idle connection at the second probe,
// 40 s after the last packet, or after the timeout if that is longer. Other systems
// may wait for all probes, 60 s.
var tcpKeepalive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

// countedCredentials turn TCP keepalive on before each handshake, and count the bytes that the
// connection receives. A custom dialer could do the same, but gRPC then ignores the proxy environment
// variables.
type countedCredentials struct {
	credentials.TransportCredentials
	connection *Connection
}

func (c countedCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if tcp, ok := raw.(*net.TCPConn); ok {
		if err := tcp.SetKeepAliveConfig(tcpKeepalive); err != nil {
			return nil, nil, err
		}
	}
	return c.TransportCredentials.ClientHandshake(ctx, authority, countedConn{raw, c.connection})
}

func (c countedCredentials) Clone() credentials.TransportCredentials {
	return countedCredentials{c.TransportCredentials.Clone(), c.connection}
}

// countedConn counts what it receives.
type countedConn struct {
	net.Conn
	connection *Connection
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.connection.Received.Add(uint64(n))
	return n, err
}
