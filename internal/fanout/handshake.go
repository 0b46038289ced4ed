package fanout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"

	"xdsrelay/internal/telemetry"
)

// handshakeTimeout is how long a connection may take until it speaks HTTP/2.
const handshakeTimeout = 20 * time.Second

// handshakes are the transport credentials of the one grpc server that serves
// all listeners: how a connection is secured, and what is known of its client,
// depends on the listener that accepted it. A server for each listener would
// have one health service, one drain and one Stop each, all to be joined again.
type handshakes struct{ srv *Server }

// authInfo is how a stream finds its connection, and what that showed.
type authInfo struct {
	conn   *conn
	caller *Caller
}

// AuthType implements credentials.AuthInfo.
func (a authInfo) AuthType() string { return "listener" }

var errForeign = errors.New("connection: accepted by a listener that is not of Server.Listener")

// ServerHandshake implements credentials.TransportCredentials.
func (h handshakes) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, ok := raw.(*conn)
	if !ok {
		return nil, nil, errForeign
	}
	from := c.RemoteAddr().String()
	if c.in.creds == nil {
		return raw, authInfo{c, c.in.gate.Caller(from, nil)}, nil
	}
	secured, info, err := c.in.creds.ServerHandshake(raw)
	if err != nil {
		probe := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) && !c.heard.Load()
		if !probe { // of the port, which was refused nothing
			h.srv.meters.Refuse(telemetry.Handshake)
			refused := Refusal{Reason: telemetry.Handshake, Err: fmt.Errorf("%s: peer %s: %w", c.in.gate.Key, from, err)}
			h.srv.sentAway.note(&refused, "", time.Now())
			h.srv.log.Warn("a client's TLS handshake failed", "peer", from, "listener", c.in.gate.Key, "reason", telemetry.Handshake.String(), "error", strings.Clone(short(err.Error(), maxSentAwayText)))
		}
		return nil, nil, err
	}
	state := info.(credentials.TLSInfo).State // what credentials.NewTLS gives
	return secured, authInfo{c, c.in.gate.Caller(from, &state)}, nil
}

// ClientHandshake implements credentials.TransportCredentials; it is a server's.
func (handshakes) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("credentials of a server")
}

// Info implements credentials.TransportCredentials.
func (handshakes) Info() credentials.ProtocolInfo { return credentials.ProtocolInfo{} }

// Clone implements credentials.TransportCredentials.
func (h handshakes) Clone() credentials.TransportCredentials { return h }

// OverrideServerName implements credentials.TransportCredentials.
func (handshakes) OverrideServerName(string) error { return nil }
