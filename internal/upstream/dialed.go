package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/xds"
)

// dialed is a connection to an origin. Safe for concurrent use.
type dialed struct {
	cc      *grpc.ClientConn
	timeout time.Duration // of one attempt to connect
	// received counts the bytes that its connections to all addresses received.
	received atomic.Uint64
	// unresolved is why the last lookup of the target's name gave no address; nil: it gave one, or
	// the target is no DNS name.
	unresolved atomic.Pointer[error]
}

// unopened is the error of a stream that could not be opened in time.
func (d *dialed) unopened(in time.Duration) error {
	if d.cc.GetState() == connectivity.Ready {
		return fmt.Errorf("connected, but no stream was opened within %s", in)
	}
	return fmt.Errorf("not connected within %s", in)
}

// explain returns the cause of an error of NewStream. If no connection can be made, that is the
// error of the resolver, the dialer or the TLS handshake, which gRPC wraps or hides.
func (d *dialed) explain(err error) error { return withoutLocalAddress(d.cause(err)) }

// cause is explain, with the addresses of both ends.
func (d *dialed) cause(err error) error {
	text := status.Convert(err).Message()
	// round_robin hides the resolver's error behind the first text, pick_first some behind the
	// second.
	if strings.HasPrefix(text, "no children to pick from") || strings.HasPrefix(text, "name resolver error: ") {
		if cause := d.unresolved.Load(); cause != nil {
			return *cause
		}
	}
	_, quoted, ok := strings.Cut(text, "connection error: desc = ")
	if !ok {
		return fmt.Errorf("open stream: %w", err)
	}
	what, unquoted := strconv.Unquote(quoted)
	if unquoted != nil {
		what = quoted
	}
	_, preface, ok := strings.Cut(what, "error reading server preface: ")
	switch {
	case ok && strings.Contains(preface, "use of closed network connection"):
		return fmt.Errorf("connected, but no HTTP/2 within %s", d.timeout)
	case ok && strings.Contains(preface, "http2: "):
		return errors.New("connected, but the server does not speak HTTP/2; if it needs TLS, set upstream.origins[].tls")
	case ok && (preface == "EOF" || strings.Contains(preface, "connection reset")):
		return errors.New("connected, but the server closed the connection; if it needs TLS, set upstream.origins[].tls")
	}
	what = strings.TrimPrefix(what, "transport: ")
	return errors.New(strings.TrimPrefix(what, "Error while dialing: "))
}

// localAddress is the relay's end of a connection in the text of a net.OpError.
var localAddress = regexp.MustCompile(`\b((?:tcp|udp)[46]?) \S+->`)

// withoutLocalAddress removes the relay's address from an error. It has another port in each
// attempt, so the same error would count as a new one.
func withoutLocalAddress(err error) error {
	text := err.Error()
	if short := localAddress.ReplaceAllString(text, "$1 "); short != text {
		return errors.New(short)
	}
	return err
}

// failure is why no connection can be made, nil if one is ready. It waits while the first attempt
// to connect runs. gRPC tells the reason only to calls, so this makes a call that it never sends.
func (d *dialed) failure(ctx context.Context) error {
	var call unsentCall
	_, err := d.cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, methods[xds.Delta],
		grpc.PerRPCCredentials(&call))
	if err == nil || call.ready || ctx.Err() != nil {
		return nil
	}
	return d.explain(err)
}

// unsentCall ends a call just before it is sent: gRPC asks for a call's credentials once it has a
// ready connection for the call.
type unsentCall struct{ ready bool }

func (c *unsentCall) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	c.ready = true
	return nil, errors.New("the call is not sent")
}

func (c *unsentCall) RequireTransportSecurity() bool { return false }

// watchedResolver is gRPC's resolver of DNS names. It remembers why it found no address.
type watchedResolver struct {
	resolver.Builder
	dialed *dialed
}

func (w watchedResolver) Build(target resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	host, _, err := net.SplitHostPort(target.Endpoint())
	if err != nil { // without a port
		host = target.Endpoint()
	}
	return w.Builder.Build(target, watchedLookups{cc, host, w.dialed}, opts)
}

// watchedLookups receives the results of a watchedResolver.
type watchedLookups struct {
	resolver.ClientConn
	host   string
	dialed *dialed
}

// UpdateState records whether there is an address. For a name that does not exist, gRPC's resolver
// drops the error and gives an empty list.
func (w watchedLookups) UpdateState(s resolver.State) error {
	w.dialed.unresolved.Store(nil)
	if len(s.Addresses) == 0 && len(s.Endpoints) == 0 {
		var err error = &net.DNSError{Err: "no such host", Name: w.host, IsNotFound: true}
		w.dialed.unresolved.Store(&err)
	}
	return w.ClientConn.UpdateState(s)
}

func (w watchedLookups) ReportError(err error) {
	w.dialed.unresolved.Store(&err)
	w.ClientConn.ReportError(err)
}
