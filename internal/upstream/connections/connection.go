package connections

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/endpointsharding"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/dns"
	"google.golang.org/grpc/status"
)

// Options of the connections to an origin.
type Options struct {
	Target string // any gRPC target
	// Settings is where the configuration has address and tls, for errors.
	Settings string
	// Balance over what the target resolves to: round_robin or pick_first.
	Balance                         string
	Credentials                     credentials.TransportCredentials
	KeepaliveTime, KeepaliveTimeout time.Duration // of HTTP/2 pings
	Timeout                         time.Duration // of an attempt to connect
	DialEvery                       time.Duration // about; while the origin cannot be reached (P54)
	Limit                           int           // streams of a connection
	// Dialer connects. Nil means over the network.
	Dialer func(ctx context.Context, address string) (net.Conn, error)
	Calls  []grpc.CallOption // defaults of streams
	Method string            // a method that the origin serves
	// Extra is for tests.
	Extra []grpc.DialOption
}

func init() {
	// After a failed dial, names are resolved again at once (P54). grpc-go waits for 30 s otherwise.
	dns.SetMinResolutionInterval(2 * time.Second)
	balancer.Register(onDemand{})
}

// onDemand is round_robin, but it dials a lost address again only when a stream or Connect needs it.
// pick_first does the same.
type onDemand struct{}

func (onDemand) Name() string { return "xdsrelay_round_robin_on_demand" }

func (onDemand) Build(cc balancer.ClientConn, o balancer.BuildOptions) balancer.Balancer {
	return endpointsharding.NewBalancer(cc, o, balancer.Get(pickfirst.Name).Build, endpointsharding.Options{DisableAutoReconnect: true})
}

// connection makes a connection with this policy of balancing. It performs no I/O.
func (o *Options) connection(balance string) (*Connection, error) {
	c := &Connection{options: o}
	options := append([]grpc.DialOption{
		grpc.WithTransportCredentials(countedCredentials{o.Credentials, c}),
		grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig":[{%q:{}}]}`, balance)),
		grpc.WithDisableServiceConfig(), // the resolver's: the user configures the balance
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: o.KeepaliveTime, Timeout: o.KeepaliveTimeout}),
		grpc.WithIdleTimeout(0),
		grpc.WithUserAgent("xdsrelay"), // before grpc's own
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: o.DialEvery, Multiplier: 1, Jitter: 0.2, MaxDelay: o.DialEvery},
			MinConnectTimeout: o.Timeout,
		}),
		grpc.WithDefaultCallOptions(o.Calls...),
		grpc.WithStatsHandler(endings{}),
		grpc.WithResolvers(watchedResolver{resolver.Get("dns"), c}),
	}, o.Extra...)
	if o.Dialer != nil {
		options = append(options, grpc.WithContextDialer(o.Dialer))
	}
	var err error
	c.CC, err = grpc.NewClient(o.Target, options...)
	return c, err
}

// Connection is one connection to an origin, or one to each address of its target. Safe for concurrent
// use.
type Connection struct {
	CC *grpc.ClientConn
	// Received counts the received bytes.
	Received atomic.Uint64
	small    atomic.Uint64

	options *Options
	usage
	// unresolved is why the last lookup of the target's name gave no address; nil: it gave one, or
	// the target is no DNS name.
	unresolved atomic.Pointer[error]
}

// failing reports whether the last attempt to connect failed.
func (c *Connection) failing() bool { return c.CC.GetState() == connectivity.TransientFailure }

// large is the size of a response that may take long to arrive, in bytes.
const large = 64 << 10

// Completed records a response of so many bytes that a stream received whole.
func (c *Connection) Completed(bytes int) {
	if bytes < large {
		c.small.Add(uint64(bytes + bytes/64 + 64)) // at least what HTTP/2 and TLS add
	}
}

// ReceivedOfLarge is how many bytes the connection received, except small responses that are
// complete. Only differences say something.
func (c *Connection) ReceivedOfLarge() int64 { return int64(c.Received.Load() - c.small.Load()) }

// Unopened is the error of a stream that could not be opened in time.
func (c *Connection) Unopened(in time.Duration) error {
	if c.CC.GetState() == connectivity.Ready {
		return fmt.Errorf("connected, but no stream was opened within %s", in)
	}
	return fmt.Errorf("not connected within %s", in)
}

// Explain returns the cause of an error of NewStream. If no connection can be made, that is the
// error of the resolver, the dialer or the TLS handshake, which gRPC wraps or hides. It names the
// proxy that the environment sets for the target.
func (c *Connection) Explain(err error) error {
	err = WithoutLocalAddress(c.cause(err))
	if proxy := c.proxy(); proxy != "" {
		return fmt.Errorf("by the proxy %s of HTTPS_PROXY: %w", proxy, err)
	}
	return err
}

// proxy returns the address of the proxy that gRPC takes from the environment for the target; "" if
// none.
func (c *Connection) proxy() string {
	target, err := url.Parse(c.CC.CanonicalTarget())
	if err != nil || c.options.Dialer != nil || strings.HasPrefix(target.Scheme, "unix") {
		return ""
	}
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "https", Host: strings.TrimPrefix(target.Path, "/")}})
	if err != nil || proxy == nil {
		return ""
	}
	return proxy.Host
}

// cause is Explain, with the addresses of both ends.
func (c *Connection) cause(err error) error {
	text := status.Convert(err).Message()
	// round_robin hides the resolver's error behind the first text, pick_first some behind the
	// second.
	if strings.HasPrefix(text, "no children to pick from") || strings.HasPrefix(text, "name resolver error: ") {
		if cause := c.unresolved.Load(); cause != nil {
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
		return fmt.Errorf("connected, but no HTTP/2 within %s", c.options.Timeout)
	case ok && strings.Contains(preface, "http2: "):
		return errors.New("connected, but the server does not speak HTTP/2; if it needs TLS, set " + c.options.Settings + ".tls")
	case ok && (preface == "EOF" || strings.Contains(preface, "connection reset")):
		return errors.New("connected, but the server closed the connection; if it needs TLS, set " + c.options.Settings + ".tls")
	}
	switch {
	case strings.Contains(what, "missing selected ALPN property"), strings.Contains(what, "tls: no application protocol"):
		return errors.New("the server's TLS does not offer HTTP/2 (ALPN h2); check the port in " + c.options.Settings + ".address, and HTTP/2 at the server")
	case strings.Contains(what, "first record does not look like a TLS handshake"):
		return errors.New("connected, but the server does not speak TLS; check the port in " + c.options.Settings + ".address, or leave out " + c.options.Settings + ".tls")
	}
	what = strings.TrimPrefix(what, "transport: ")
	return errors.New(strings.TrimPrefix(what, "Error while dialing: "))
}

// localAddress is the relay's end of a connection in the text of a net.OpError.
var localAddress = regexp.MustCompile(`\b((?:tcp|udp)[46]?) \S+->`)

// WithoutLocalAddress removes the relay's address from an error. It has another port in each
// attempt, so the same error would count as a new one.
func WithoutLocalAddress(err error) error {
	text := err.Error()
	if short := localAddress.ReplaceAllString(text, "$1 "); short != text {
		return errors.New(short)
	}
	return err
}

// Failure is why no connection can be made, nil if one is ready. It waits while the first attempt
// to connect runs. gRPC tells the reason only to calls, so this makes a call that it never sends.
func (c *Connection) Failure(ctx context.Context) error {
	var call unsentCall
	_, err := c.CC.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, c.options.Method,
		grpc.PerRPCCredentials(&call))
	if err == nil || call.ready || ctx.Err() != nil {
		return nil
	}
	return c.Explain(err)
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
	connection *Connection
}

func (w watchedResolver) Build(target resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	host, _, err := net.SplitHostPort(target.Endpoint())
	if err != nil { // without a port
		host = target.Endpoint()
	}
	return w.Builder.Build(target, watchedLookups{cc, host, w.connection}, opts)
}

// watchedLookups receives the results of a watchedResolver.
type watchedLookups struct {
	resolver.ClientConn
	host       string
	connection *Connection
}

// UpdateState records whether there is an address. For a name that does not exist, gRPC's resolver
// drops the error and gives an empty list.
func (w watchedLookups) UpdateState(s resolver.State) error {
	w.connection.unresolved.Store(nil)
	if len(s.Addresses) == 0 && len(s.Endpoints) == 0 {
		var err error = &net.DNSError{Err: "no such host", Name: w.host, IsNotFound: true}
		w.connection.unresolved.Store(&err)
	}
	return w.ClientConn.UpdateState(s)
}

func (w watchedLookups) ReportError(err error) {
	w.connection.unresolved.Store(&err)
	w.ClientConn.ReportError(err)
}
