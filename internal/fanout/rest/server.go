package rest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"net"
	"net/http"
	"sync"
	"time"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// maxHeader bounds the headers of a request, in bytes.
const maxHeader = 64 << 10

// Options of a Server. All are needed.
type Options struct {
	Joiner   subscriber.Joiner
	Metrics  *telemetry.Metrics
	Log      *slog.Logger
	Refusals *refusal.Log
	// Admission and Nodes are shared with streams, since limits count both.
	Admission *listener.Admission
	Nodes     *xds.NodeTable
	// SendTimeout ends a poll whose client reads nothing for so long; 0: never.
	SendTimeout time.Duration
	// MaxConnectionAge: older connections are closed with the next answer; 0: never.
	MaxConnectionAge time.Duration

	// LongPoll is how long a poll waits for a change before it is answered with 304 (P71). Limits
	// are the limits that hold now.
	LongPoll func() time.Duration
	Limits   func() *config.Limits
	// RESTBytes bounds the bodies that are being read, together.
	RESTBytes func() int64
	// RulesVersion counts the changes of rules, identity and secrets. A poll that was
	// admitted under another one is admitted again before it is answered.
	RulesVersion func() uint64
	// NextID numbers pollers among streams.
	NextID func() uint64
	// Identifier is the control_plane.identifier of a response from the snapshot (P39).
	Identifier func(*snapshot.Snapshot) string
	// DocumentsOf returns the place for the documents of a snapshot.
	DocumentsOf func(*snapshot.Snapshot) *Documents
}

// Server serves polls. See the package's Concurrency.
type Server struct {
	opts    Options
	polls   *polls
	pollers *pollers
	bodies  bodies
	times   times
}

// New makes a server and starts nothing.
func New(o Options) *Server {
	s := &Server{opts: o, polls: newPolls(), bodies: bodies{sizes: make(map[*Poll]int64)}, times: defaultTimes}
	s.pollers = newPollers(s)
	return s
}

// times are how long a client may take for a part of its request, how long a connection may be
// idle, and how long Serve waits for answers when it ends.
type times struct{ header, body, idle, grace time.Duration }

var defaultTimes = times{header: 10 * time.Second, body: 30 * time.Second, idle: 2 * time.Minute, grace: 2 * time.Second}

// Ping is the keepalive of HTTP/2 connections: the interval of pings, and the time to answer one.
type Ping struct{ Every, Timeout time.Duration }

// configKey is the key of the REST listener in the configuration, for messages.
const configKey = "downstream.rest_address"

// Serve serves REST-JSON on l, in HTTP/1.1 and in HTTP/2, until ctx ends; then it returns nil. It
// closes l. secured is the TLS of its connections, nil for none. A client must pass all of the
// policies. So the REST address serves no client that the other listeners refuse.
func (s *Server) Serve(ctx context.Context, l net.Listener, secured *tls.Config, ping Ping, policies ...*listener.Policy) error {
	var conns sync.WaitGroup
	limits := s.opts.Limits()
	srv := &http.Server{
		Handler:           s.Handler(policies...),
		ReadHeaderTimeout: s.times.header,
		IdleTimeout:       s.times.idle,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug),
		Protocols:         new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			// Further polls wait, as on a connection with HTTP/1.1.
			MaxConcurrentStreams:          limits.StreamsPerConnection,
			MaxReceiveBufferPerConnection: listener.RequestWindow,
			MaxReceiveBufferPerStream:     listener.RequestWindow,
			SendPingTimeout:               ping.Every,
			PingTimeout:                   ping.Timeout,
			WriteByteTimeout:              s.opts.SendTimeout,
		},
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			until := time.Time{}
			if age := s.opts.MaxConnectionAge; age > 0 {
				until = time.Now().Add(jitter(age, s.opts.NextID()))
			}
			return context.WithValue(ctx, agesAt{}, until)
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew: // in Serve, before the connection's goroutine
				conns.Add(1)
			case http.StateClosed: // the last that goroutine does
				s.noteHandshake(c)
				conns.Done()
			}
		},
	}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	l = listener.New(l, &listener.Policy{Key: configKey, TLS: secured, HTTP1: true}, s.opts.Admission, s.opts.Refusals, s.opts.SendTimeout)
	if secured != nil {
		l = tls.NewListener(l, secured)
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	var err error
	select {
	case err = <-ended: // the listener failed
		err = fmt.Errorf("rest %s: %w", l.Addr(), err)
		_ = srv.Close() // closes the listener once more, at most
	case <-ctx.Done():
	}
	s.polls.tell()
	if err == nil {
		grace, done := context.WithTimeout(context.WithoutCancel(ctx), s.times.grace)
		defer done()
		if srv.Shutdown(grace) != nil {
			_ = srv.Close() // what did not end in time
		}
		<-ended
	}
	conns.Wait()
	s.polls.wait() // an HTTP/2 connection does not wait for its handlers
	s.pollers.close()
	return err
}

// noteHandshake reports a connection that has ended if its TLS handshake failed.
func (s *Server) noteHandshake(c net.Conn) {
	secured, ok := c.(*tls.Conn)
	if !ok || secured.ConnectionState().HandshakeComplete {
		return
	}
	err := secured.Handshake() // the error that it failed with
	if raw, ok := secured.NetConn().(*listener.Conn); err != nil && !errors.Is(err, net.ErrClosed) && ok {
		raw.HandshakeFailed(err)
	}
}

// agesAt is the key under which a connection's context has the time at which it is as old as
// max_connection_age; zero: never.
type agesAt struct{}

// jitter returns d with up to a tenth added or taken away, by the connection's number. So
// connections that were opened together do not end together.
func jitter(d time.Duration, id uint64) time.Duration {
	part, _ := bits.Mul64(uint64(d/5), id*0x9e3779b97f4a7c15) // of d/5
	return d - d/10 + time.Duration(part)
}

// Drain accepts no more polls from now on, and ends those that are being answered. It returns their
// number.
func (s *Server) Drain() int { return s.polls.tell() }

// Pollers returns all pollers.
func (s *Server) Pollers() []*Poller { return s.pollers.all() }

// OpenPolls returns the number of polls that were read and are not answered yet.
func (s *Server) OpenPolls() int { return s.pollers.openPolls() }

// Expire removes the pollers that have been without a poll for twice long_poll (P70), or have
// ended.
func (s *Server) Expire(now time.Time) { s.pollers.expire(now) }

// Pinned calls f for what polls keep in memory: answers that have been in flight for longer than
// slow. what identifies one; by can be ended.
func (s *Server) Pinned(now time.Time, slow time.Duration, f func(what any, by *Poll, bytes int64)) {
	for _, p := range s.polls.all() {
		// Its deadline ends it by itself.
		if a := p.writing.Load(); a != nil && now.Sub(time.Unix(0, p.since.Load())) > slow {
			f(a, p, int64(len(a.body)))
		}
	}
}
