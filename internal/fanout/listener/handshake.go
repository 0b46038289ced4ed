package listener

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"xdsrelay/internal/xds"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// HandshakeTimeout is how long the TLS and HTTP/2 handshakes of a connection may take.
const HandshakeTimeout = 20 * time.Second

// handshakes are the transport credentials of the one grpc server that serves all listeners. The
// listener that accepted a connection says how it is secured, and what is known of its client. A
// grpc server for each listener would need its own health service, drain and Stop.
type handshakes struct{ refusing func() bool }

// Credentials are the transport credentials of a grpc server that serves what New returns. While
// refusing returns true, each handshake begins later (headStart). It is called from several
// goroutines at a time.
func Credentials(refusing func() bool) credentials.TransportCredentials {
	return handshakes{refusing}
}

// headStart is how much later a handshake begins while the relay refuses clients. A gRPC client
// with several addresses tries the next one after 250 ms (Happy Eyeballs, RFC 8305), and uses the
// connection that is ready first. So it uses a replica that does not refuse clients, if there is
// one. Otherwise its channel would always use the first address that accepts connections.
const headStart = 500 * time.Millisecond

// authInfo carries a stream's connection and its caller.
type authInfo struct {
	conn   *Conn
	caller *Caller
}

// Of returns the connection of a call, and its caller; false if the call's server was not
// made with Credentials.
func Of(ctx context.Context) (*Conn, *Caller, bool) {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return nil, nil, false
	}
	auth, ok := p.AuthInfo.(authInfo)
	return auth.conn, auth.caller, ok
}

// AdmitMember returns why the caller of a unary call, which has no node, is not admitted; nil: it is.
func AdmitMember(ctx context.Context) error {
	_, caller, ok := Of(ctx)
	if !ok {
		return status.Error(codes.Internal, "call: the server was not made with Credentials")
	}
	if refused := caller.Admit(new(xds.Node)); refused != nil {
		return refused
	}
	return nil
}

// AuthType implements credentials.AuthInfo.
func (a authInfo) AuthType() string { return "listener" }

var errForeign = errors.New("connection: not accepted by a listener of the relay")

// ServerHandshake implements credentials.TransportCredentials.
func (h handshakes) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, ok := raw.(*Conn)
	if !ok {
		return nil, nil, errForeign
	}
	if h.refusing() {
		time.Sleep(headStart)
	}
	from := c.RemoteAddr().String()
	if c.in.creds == nil {
		return c, authInfo{c, c.in.policy.Caller(from, nil)}, nil
	}
	conn, info, err := c.in.creds.ServerHandshake(raw)
	if err != nil {
		c.HandshakeFailed(err)
		return nil, nil, err
	}
	state := info.(credentials.TLSInfo).State // what credentials.NewTLS gives
	return secured{conn, c}, authInfo{c, c.in.policy.Caller(from, &state)}, nil
}

// probed reports whether a TLS handshake that failed with err was a probe of the port, which is no
// failure.
func (c *Conn) probed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) && c.heardAt.Load() == 0
}

func (handshakes) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("credentials: only for a server")
}

func (handshakes) Info() credentials.ProtocolInfo { return credentials.ProtocolInfo{} }

func (h handshakes) Clone() credentials.TransportCredentials { return h }

func (handshakes) OverrideServerName(string) error { return nil }
