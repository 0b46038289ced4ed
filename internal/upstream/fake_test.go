package upstream

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"xdsrelay/internal/upstream/connections"
	"xdsrelay/internal/upstream/timing"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// bytesCodec lets a test's origin send arbitrary bytes.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// fakeOrigin is a real server whose messages the test scripts.
type fakeOrigin struct {
	t       *testing.T
	address string
	streams chan *fakeStream
	server  *grpc.Server
	wg      sync.WaitGroup // of Serve, and of the streams' receivers
	peers   xdstest.ConnCounter
}

// fakeStream is one stream at a fakeOrigin.
type fakeStream struct {
	grpc.ServerStream
	t    *testing.T
	v    xds.Variant
	in   chan string // requests as text
	done chan error
	n    int
}

func startFake(t *testing.T, opts ...grpc.ServerOption) *fakeOrigin {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveFake(t, lis, opts...)
}

func serveFake(t *testing.T, lis net.Listener, opts ...grpc.ServerOption) *fakeOrigin {
	f := &fakeOrigin{t: t, address: lis.Addr().String(), streams: make(chan *fakeStream, 1000)}
	opts = append(opts, grpc.ForceServerCodecV2(bytesCodec{}), grpc.UnknownServiceHandler(f.handle), grpc.StatsHandler(&f.peers), grpc.WaitForHandlers(true))
	f.server = grpc.NewServer(opts...)
	f.wg.Go(func() { _ = f.server.Serve(lis) })
	t.Cleanup(func() {
		f.server.Stop()
		f.wg.Wait()
	})
	return f
}

func (f *fakeOrigin) handle(_ any, ss grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(ss)
	s := &fakeStream{ServerStream: ss, t: f.t, in: make(chan string, 1000), done: make(chan error, 1)}
	if method == methods[xds.Delta] {
		s.v = xds.Delta
	} else if method != methods[xds.SotW] {
		return fmt.Errorf("method %s", method)
	}
	f.streams <- s
	f.wg.Go(func() { // it ends with the stream, which ends with this handler
		for {
			var msg []byte
			if ss.RecvMsg(&msg) != nil {
				return
			}
			select {
			case s.in <- show(f.t, s.v, msg):
			case <-ss.Context().Done():
				return
			}
		}
	})
	select {
	case err := <-s.done:
		return err
	case <-ss.Context().Done():
		return ss.Context().Err()
	}
}

const patience = 20 * time.Second

// next returns the next stream that is opened.
func (f *fakeOrigin) next() *fakeStream {
	f.t.Helper()
	select {
	case s := <-f.streams:
		return s
	case <-time.After(patience):
		f.t.Fatal("no stream is opened")
		return nil
	}
}

func (s *fakeStream) request() string {
	s.t.Helper()
	select {
	case r := <-s.in:
		return r
	case <-time.After(patience):
		s.t.Fatal("no request")
		return ""
	}
}

// got checks the next request.
func (s *fakeStream) got(want string) {
	s.t.Helper()
	if r := s.request(); r != want {
		s.t.Fatalf("request %q, want %q", r, want)
	}
}

// send sends a response, with nonces 1, 2, 3.
func (s *fakeStream) send(p resp) {
	s.t.Helper()
	s.n++
	s.raw(p.Encode(s.t, s.v, fmt.Sprint(s.n)))
}

func (s *fakeStream) raw(msg []byte) {
	s.t.Helper()
	if err := s.SendMsg(msg); err != nil {
		s.t.Fatal(err)
	}
}

// relay is a running Client, with its streams.
type relay struct {
	t      *testing.T
	client *Client
	ctx    context.Context
	wg     sync.WaitGroup
}

var quick = timing.Backoff{Base: 10 * time.Millisecond, Max: 50 * time.Millisecond}

// startRelay runs a client of the origins.
func startRelay(t *testing.T, v xds.Variant, o Options, addresses ...string) *relay {
	t.Helper()
	r := newRelay(t, v, o, addresses...)
	r.launch()
	return r
}

// newRelay makes a client of the origins, which all use this variant.
func newRelay(t *testing.T, v xds.Variant, o Options, addresses ...string) *relay {
	t.Helper()
	for _, a := range addresses {
		o.Origins = append(o.Origins, OriginOptions{Address: a})
	}
	for i := range o.Origins {
		o.Origins[i].Variant = v
	}
	if o.Backoff == (timing.Backoff{}) {
		o.Backoff = quick
	}
	if o.dialEvery == 0 && o.Dialer == nil {
		o.dialEvery = 10 * time.Millisecond
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return &relay{t: t, client: c}
}

// launch runs the client.
func (r *relay) launch() {
	ctx, cancel := context.WithCancel(context.Background())
	r.ctx = ctx
	r.wg.Go(func() {
		if err := r.client.Run(ctx); err != nil {
			r.t.Error(err)
		}
	})
	r.t.Cleanup(func() {
		cancel()
		r.wg.Wait()
	})
}

// reconnect changes the options of the connections to the first origin. The relay must not run yet.
func (r *relay) reconnect(change func(*connections.Options)) {
	r.t.Helper()
	at := r.client.origins[0]
	options := at.connections(insecure.NewCredentials(), &r.client.opts)
	if options.Balance == "" {
		options.Balance = "round_robin"
	}
	change(&options)
	pool, err := connections.New(options)
	if err != nil {
		r.t.Fatal(err)
	}
	at.transport.(*grpcOrigin).pool = pool
}

// fail makes an origin away, although its connection is ready.
func (r *relay) fail(at *Origin) {
	r.t.Helper()
	r.until("a connection", func() bool { return !at.status().Reached.IsZero() })
	at.ended(attemptEnd{opened: true}, errTest, time.Now())
}

// stream runs a stream with this interest.
func (r *relay) stream(types ...snapshot.TypeInterest) (*Source, *testSink) {
	sink := newTestSink()
	return r.run(sink, types...), sink
}

// run runs a stream with this sink.
func (r *relay) run(sink *testSink, types ...snapshot.TypeInterest) *Source {
	s := r.client.NewSource(testKey, nil, sink, nil)
	r.start(s, sink, types...)
	return s
}

// start runs this stream with this sink.
func (r *relay) start(s *Source, sink *testSink, types ...snapshot.TypeInterest) {
	s.SetInterest(sink.Want(types...))
	r.wg.Go(func() {
		if err := s.Run(r.ctx); err != nil {
			r.t.Error(err)
		}
	})
}
