package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
)

// dialed is a connection to an origin, with what is known of how it fares until it
// can be used. Safe for concurrent use.
type dialed struct {
	cc      *grpc.ClientConn
	timeout time.Duration // of an attempt at connecting
	// greeting are the attempts that have a connection of TCP, on which the origin has
	// yet to speak TLS, if it has that, and HTTP/2.
	greeting atomic.Int32
	greeted  atomic.Int64 // when such an attempt ended last, in nanoseconds since 1970
	closed   atomic.Int64 // how many of those that had a handshake are closed, for whatever reason
}

// countedCredentials count the attempts that are at their handshake, or at what
// follows it until the connection is one of HTTP/2: gRPC's context ends with that.
type countedCredentials struct {
	credentials.TransportCredentials
	of *dialed
}

func (c *countedCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c.of.greeting.Add(1)
	context.AfterFunc(ctx, func() {
		c.of.greeted.Store(time.Now().UnixNano())
		c.of.greeting.Add(-1)
	})
	made, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return made, info, err
	}
	l := newLife()
	return &countedConn{made, c.of, l}, &transported{info, l}, nil
}

// countedConn counts its end before gRPC tells it to who asks something on it, and knows when
// anything came last.
type countedConn struct {
	net.Conn
	of   *dialed
	life *life
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.life.reads(n)
	}
	return n, err
}

func (c *countedConn) Close() error {
	c.of.closed.Add(1)
	return c.Conn.Close()
}

func (c *countedCredentials) Clone() credentials.TransportCredentials {
	return &countedCredentials{c.TransportCredentials.Clone(), c.of}
}

const justNow = time.Second

// unopened says why no stream could be opened in a time, as far as is known.
func (d *dialed) unopened(in time.Duration) error {
	greeted := time.Since(time.Unix(0, d.greeted.Load())) < justNow // its time may have been up together with ours
	switch state := d.cc.GetState(); {
	case state == connectivity.Ready:
		return fmt.Errorf("connected, but no stream could be opened within %s", in)
	case d.greeting.Load() > 0 || greeted:
		return noHTTP2(in)
	}
	return fmt.Errorf("not connected within %s", in)
}

func noHTTP2(in time.Duration) error { return fmt.Errorf("connected, but no HTTP/2 within %s", in) }

// explain says what gRPC means by an error of connecting: it says so only in words,
// and of a time that is over only that it has closed the connection for it.
func (d *dialed) explain(err error) error {
	_, what, ok := strings.Cut(err.Error(), "error reading server preface: ")
	switch {
	case !ok:
		return err
	case strings.Contains(what, "use of closed network connection"):
		return noHTTP2(d.timeout)
	case strings.Contains(what, "http2: "):
		return errors.New("connected, but what answers does not speak HTTP/2; if it wants TLS, give upstream.origins[].tls")
	}
	return err
}
