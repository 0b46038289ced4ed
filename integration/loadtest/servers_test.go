//go:build linux

package loadtest

import (
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// serverSettings are the settings of a server other than the relay.
type serverSettings struct {
	Name           string
	Load           load
	Address, Admin string
}

// serverVariable makes this program such a server. It has the settings in JSON.
const serverVariable = "LOADTEST_SERVER"

// prepare makes generation n, and returns the function that serves it.
type prepare func(n int) (push func())

// TestServer serves until the process gets SIGTERM. It is no test, but a process of one. It has the
// paths of the relay's admin API that the load test reads, and more: /prepare, /push and /free.
func TestServer(t *testing.T) {
	text := os.Getenv(serverVariable)
	if text == "" {
		t.Skip("is a server for the other tests")
	}
	var s serverSettings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	l := s.Load
	lis, err := (&net.ListenConfig{KeepAlive: -1}).Listen(t.Context(), "tcp", s.Address) // as the relay
	if err != nil {
		t.Fatal(err)
	}
	opts := map[string][]grpc.ServerOption{nameSnapshot: exampleOptions, nameOrigin: exampleOptions}[s.Name]
	if opts == nil {
		opts = transportOptions
	}
	var config *tls.Config
	if l.TLS {
		cert, err := tls.LoadX509KeyPair(l.Cert, l.Key)
		if err != nil {
			t.Fatal(err)
		}
		config = &tls.Config{Certificates: []tls.Certificate{cert}}
		opts = append(opts, grpc.Creds(credentials.NewTLS(config)))
	}
	var next prepare
	switch s.Name {
	case nameRaw:
		r := &raw{more: make(chan struct{})}
		next = func(n int) func() {
			body := l.body(t, n)
			framed := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
			return func() { r.push(framed) }
		}
		next(0)()
		if config != nil {
			lis = tls.NewListener(lis, config)
		}
		go r.serve(lis)
	case nameBare:
		b := &bare{body: l.body(t, 0)}
		next = func(n int) func() {
			body := l.body(t, n)
			return func() { b.push(body) }
		}
		g := grpc.NewServer(append(opts, grpc.ForceServerCodecV2(bareCodec{}), grpc.UnknownServiceHandler(b.serve))...)
		go func() { _ = g.Serve(unsentLimiter{lis}) }() // until the process ends
	default:
		with, p := newLinear(t, l)
		if s.Name != nameLinear {
			with, p = newSnapshots(t, l, s.Name == nameOrigin)
		} else if l.Stamped {
			http.HandleFunc("/feed", feed(t, with.(*cache.MuxCache), l))
		}
		next = p
		g := newGCP(t, with, opts...)
		go func() { _ = g.Serve(lis) }()
	}
	push := func() {}
	http.HandleFunc("/ready", func(http.ResponseWriter, *http.Request) {})
	http.Handle("/metrics", promhttp.Handler())
	http.HandleFunc("/prepare", func(_ http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.FormValue("n")) // from this program
		push = next(n)
	})
	http.HandleFunc("/push", func(http.ResponseWriter, *http.Request) { push() })
	http.HandleFunc("/free", func(http.ResponseWriter, *http.Request) { debug.FreeOSMemory() })
	go func() { t.Error(http.ListenAndServe(s.Admin, nil)) }() // nil: where net/http/pprof has its paths
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	<-ended
}

// transportOptions are the relay's.
var transportOptions = []grpc.ServerOption{
	grpc.WriteBufferSize(128 << 10),
	grpc.ReadBufferSize(0),
	// Otherwise grpc answers each ACK with a ping and a window update.
	grpc.StaticStreamWindowSize(256 << 10),
	grpc.StaticConnWindowSize(256 << 10),
	grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: time.Minute}),
}

// exampleOptions are the options of go-control-plane's own example.
var exampleOptions = []grpc.ServerOption{
	grpc.MaxConcurrentStreams(1_000_000),
	grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 5 * time.Second}),
	grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 30 * time.Second, PermitWithoutStream: true}),
}

// unsentLimiter limits unsent data in the kernel as the relay does. It sets each socket, because
// sockets of a Multipath TCP listener, Go's default, do not inherit the option.
type unsentLimiter struct{ net.Listener }

func (l unsentLimiter) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, 64<<10)
		})
	}
	return c, err
}

// bare is a gRPC server without a protocol. It answers a client's first message with the newest body,
// and sends each new body to all clients, with as many workers as cores. It has the relay's transport
// options, so any difference is the relay's own cost.
type bare struct {
	mu      sync.Mutex
	body    []byte // shared, immutable
	streams []*bareStream
}

// bareStream has at most one caller of Send at a time.
type bareStream struct {
	mu   sync.Mutex
	grpc grpc.ServerStream
	sent uint64
}

// bareMessage is a shared body with its own nonce. Requests are not parsed.
type bareMessage struct{ body, tail []byte }

func (b *bare) serve(_ any, gs grpc.ServerStream) error {
	st := &bareStream{grpc: gs}
	for first := true; ; first = false {
		if err := gs.RecvMsg(&bareMessage{}); err != nil {
			return err
		}
		if !first {
			continue // an ACK
		}
		b.mu.Lock()
		b.streams = append(b.streams, st)
		body := b.body
		b.mu.Unlock()
		if err := st.send(body); err != nil {
			return err
		}
	}
}

func (st *bareStream) send(body []byte) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.sent++
	tail := protowire.AppendTag(make([]byte, 0, 24), responseNonce, protowire.BytesType)
	tail = protowire.AppendString(tail, strconv.FormatUint(st.sent, 36))
	return st.grpc.SendMsg(&bareMessage{body, tail})
}

func (b *bare) push(body []byte) {
	b.mu.Lock()
	b.body = body
	streams := b.streams
	b.mu.Unlock()
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(streams); i = int(next.Add(1)) - 1 {
				_ = streams[i].send(body) // the crowd reports a missing client
			}
		})
	}
	workers.Wait()
}

type bareCodec struct{}

func (bareCodec) Name() string { return "proto" }

func (bareCodec) Marshal(v any) (mem.BufferSlice, error) {
	m := v.(*bareMessage)
	return mem.BufferSlice{mem.SliceBuffer(m.body), mem.SliceBuffer(m.tail)}, nil
}

func (bareCodec) Unmarshal(mem.BufferSlice, any) error { return nil }

// raw writes the bytes to each socket in one goroutine each, with gRPC's length prefix and nothing
// else. It measures the kernel's cost.
type raw struct {
	mu   sync.Mutex
	body []byte        // the newest, shared, immutable
	more chan struct{} // closed when there is a newer body
}

func (r *raw) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // the process ends
		}
		go func() {
			for {
				r.mu.Lock()
				body, more := r.body, r.more
				r.mu.Unlock()
				if _, err := c.Write(body); err != nil {
					return // the crowd reports a missing client
				}
				<-more
			}
		}()
	}
}

func (r *raw) push(framed []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.body = framed
	close(r.more)
	r.more = make(chan struct{})
}
