//go:build linux

package main

import (
	"encoding/json"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// serveBare is a gRPC server without a protocol. It answers a client's first message with the
// newest body, and sends each new body to all clients, with as many workers as cores. It has the
// relay's transport options, so any difference is the relay's own cost.
func serveBare(settings []byte) error {
	var l load
	if err := json.Unmarshal(settings, &l); err != nil {
		return err
	}
	b := &bare{load: l}
	if err := prepare(b.prepare).now(0); err != nil {
		return err
	}
	lis, err := listen()
	if err != nil {
		return err
	}
	opts, err := l.TLS.options()
	if err != nil {
		return err
	}
	opts = append(opts, transportOptions...)
	g := grpc.NewServer(append(opts, grpc.ForceServerCodecV2(bareCodec{}), grpc.UnknownServiceHandler(b.serve))...)
	go func() { _ = g.Serve(unsentLimiter{lis}) }() // until the process ends
	return obeyAsServer(lis, b.prepare)
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

type bare struct {
	load load

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
	const responseNonce = 5
	tail := protowire.AppendTag(make([]byte, 0, 24), responseNonce, protowire.BytesType)
	tail = protowire.AppendString(tail, strconv.FormatUint(st.sent, 36))
	return st.grpc.SendMsg(&bareMessage{body, tail})
}

func (b *bare) prepare(n int) (func() error, error) {
	body, err := b.load.body(n)
	return func() error { b.push(body); return nil }, err
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
			for {
				i := int(next.Add(1)) - 1
				if i >= len(streams) {
					return
				}
				// The crowd reports a missing client.
				_ = streams[i].send(body)
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
