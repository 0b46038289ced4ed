package upstream

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"xdsrelay/internal/telemetry/tlsfiles"
)

// TLSFiles are what a connection to an origin is secured with; without any of
// them it is plaintext. Renewed files are used from the next connection on.
type TLSFiles struct {
	CAFile     string // empty: the system's
	CertFile   string // with KeyFile: the relay's own
	KeyFile    string
	ServerName string // empty: the target's host
}

// credentials of connections, and the source of what is in force for them; nil
// for plaintext. What is wrong with the files shows here.
func (f TLSFiles) credentials(origin string, opts *Options) (credentials.TransportCredentials, *tlsfiles.Source, error) {
	if f == (TLSFiles{}) {
		return insecure.NewCredentials(), nil, nil
	}
	src, err := tlsfiles.Open(tlsfiles.Files{CertFile: f.CertFile, KeyFile: f.KeyFile, CAFile: f.CAFile},
		tlsfiles.Options{Name: "origin " + origin, Metrics: opts.Metrics, Log: opts.Log})
	if err != nil {
		return nil, nil, err
	}
	return &fileCredentials{TransportCredentials: credentials.NewTLS(src.Client(f.ServerName)), src: src, serverName: f.ServerName}, src, nil
}

// fileCredentials shake hands with what the files hold at the time. What is
// embedded answers for all that does not depend on them.
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
