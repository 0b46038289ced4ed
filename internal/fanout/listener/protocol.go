package listener

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"xdsrelay/internal/telemetry"
)

// protocols are what clients and load balancers send by mistake, and how it begins.
var protocols = []struct{ name, begins string }{
	{"HTTP/2 without TLS", "PRI * HTTP/2.0"},
	{"TLS", "\x16\x03"},
	{"the PROXY protocol, which the relay does not read", "PROXY "},
	{"the PROXY protocol, which the relay does not read", "\r\n\r\n\x00\r\nQUIT\n"},
	{http1, "GET "}, {http1, "HEAD "}, {http1, "POST "}, {http1, "PUT "}, {http1, "OPTIONS "}, {http1, "CONNECT "},
}

const http1 = "HTTP/1, and gRPC needs HTTP/2"

// protocolOf names the protocol of a connection by its first bytes, of which it needs five.
func protocolOf(first []byte) string {
	for _, p := range protocols {
		if n := min(len(first), len(p.begins)); n > 1 && string(first[:n]) == p.begins[:n] {
			return p.name
		}
	}
	return "an unknown protocol"
}

// checkProtocol reports the first bytes of a client that uses another protocol than its listener.
// grpc closes such a connection without a word.
func (c *Conn) checkProtocol(first []byte) {
	p := c.in.policy
	name := protocolOf(first)
	if p.TLS != nil || name == protocols[0].name || name == http1 && p.HTTP1 {
		return
	}
	if name == "TLS" {
		name += ", and " + p.tlsKey() + " is not set"
	}
	c.in.refusals.NoteConnection("client uses another protocol", telemetry.Protocol, p.Key, c.RemoteAddr().String(), fmt.Errorf("the client uses %s", name))
}

// secured is a connection with TLS as grpc has it.
type secured struct {
	net.Conn
	of *Conn
}

// Write implements net.Conn.
func (s secured) Write(b []byte) (int, error) {
	s.of.checkGoAway(b)
	return s.Conn.Write(b)
}

// tooManyPings ends the GOAWAY frame that grpc writes last to a client that pings too often: the code
// ENHANCE_YOUR_CALM, and a text.
var tooManyPings = []byte("\x00\x00\x00\x0btoo_many_pings")

// checkGoAway reports a client that pings too often, since grpc tells only the client.
func (c *Conn) checkGoAway(written []byte) {
	if bytes.HasSuffix(written, tooManyPings) {
		c.in.refusals.NoteConnection("client pings too often", telemetry.Pings, c.in.policy.Key, c.RemoteAddr().String(),
			errors.New("the client pings more often than downstream.keepalive.min_time allows"))
	}
}

// tlsKey is the configuration key of the listener's TLS.
func (p *Policy) tlsKey() string {
	if p.HTTP1 {
		return "downstream.tls" // of the first listener
	}
	return p.Key + ".tls"
}

// HandshakeFailed reports a TLS handshake that failed, unless that was a probe of the port.
func (c *Conn) HandshakeFailed(err error) {
	if c.probed(err) {
		return
	}
	var record tls.RecordHeaderError
	if errors.As(err, &record) {
		err = fmt.Errorf("%w: the client uses %s", err, strings.TrimSuffix(protocolOf(record.RecordHeader[:]), ", and gRPC needs HTTP/2"))
	}
	c.in.refusals.NoteConnection("client TLS handshake failed", telemetry.Handshake, c.in.policy.Key, c.RemoteAddr().String(), err)
}
