package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

const (
	sotwMethod  = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	deltaMethod = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"

	maxResponse = 512 << 20
	// maxOutbox bounds the requests that wait for a server that does not read. The client then ends
	// the stream.
	maxOutbox = 4096
)

// stream is a gRPC stream of a client.
type stream struct {
	ctx     context.Context
	cancel  context.CancelFunc
	cs      grpc.ClientStream
	writers sync.WaitGroup // the writer, while it runs

	// Guarded by Client.mu.
	number     uint64 // number of the stream, from 1
	outbox     []proto.Message
	writing    bool
	node       bool // the node was sent
	versions   bool // first requests have versions
	answered   bool
	overflowed bool                // the outbox is full
	nonces     map[uint64]struct{} // hashes of received nonces
}

// runStream opens a stream and reads it to its end. asked: the client ended it. answered: it had a
// response.
func (c *Client) runStream(ctx context.Context, conn grpc.ClientConnInterface) (asked, answered bool, err error) {
	method := sotwMethod
	if c.cfg.Variant == Delta {
		method = deltaMethod
	}
	sctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opts := append([]grpc.CallOption{grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxResponse)}, c.cfg.CallOptions...)
	cs, err := conn.NewStream(sctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, opts...)
	if err != nil {
		err = fmt.Errorf("open stream: %w", err)
		c.lock()
		c.lastErr = err
		c.unlock()
		c.onStream(err)
		return false, false, err
	}
	s := &stream{ctx: sctx, cancel: cancel, cs: cs, nonces: make(map[uint64]struct{})}
	if !c.open(s) {
		return true, false, nil
	}
	c.onStream(nil)
	err = fmt.Errorf("stream: %w", c.read(s))

	c.lock()
	asked = c.stream != s // detached by Disconnect or Reconnect
	if !asked {
		c.stream = nil
		c.lastErr = err
	}
	answered = s.answered
	c.unlock()
	cancel()
	s.writers.Wait()
	if !asked {
		c.onStream(err)
	} else {
		c.onStream(context.Canceled)
	}
	return asked, answered, err
}

func (c *Client) onStream(err error) {
	if c.cfg.OnStream != nil {
		c.cfg.OnStream(c, err)
	}
}

// open makes s the client's stream and sends the first requests. It reports false if the client was
// disconnected meanwhile.
func (c *Client) open(s *stream) bool {
	c.lock()
	defer c.unlock()
	if c.offline {
		return false
	}
	mode := c.next
	c.next = c.cfg.Reconnect
	c.count.Streams++
	if c.count.Streams > 1 {
		c.count.Reconnects++
	} else {
		mode = KeepVersions
	}
	s.number = c.count.Streams
	s.versions = mode == KeepVersions
	c.stream = s
	for _, t := range c.order {
		t.reset(mode)
		if mode == Forget && c.cfg.Behaviour != Raw {
			t.forgetNames()
		}
	}
	if mode == Forget && c.cfg.Behaviour != Raw {
		clear(c.warming)
		c.begin()
		for _, t := range c.order {
			t.add, t.drop, t.stale = nil, nil, false
		}
	}
	for _, t := range c.order {
		if c.asks(t) {
			c.send(t, nil)
		}
	}
	return true
}

// asks reports whether a new stream requests a type. Envoy and Raw also request a type without
// names if that is no wildcard (P21); gRPC does not.
func (c *Client) asks(t *typeState) bool {
	return t.active && (t.wild() || len(t.names) > 0 || c.cfg.Behaviour != GRPC && t.noLegacy)
}

// read handles responses until the stream ends.
func (c *Client) read(s *stream) error {
	var r received
	for {
		if err := c.waitResumed(s); err != nil {
			return err
		}
		if err := s.cs.RecvMsg(&r); err != nil {
			return err
		}
		at := time.Now()
		// Stalled meanwhile: the response is received, but not applied yet.
		err := c.waitResumed(s)
		if err == nil {
			err = c.handle(s, r.buf.ReadOnlyData(), at)
		}
		r.free()
		if err != nil {
			return err
		}
	}
}

// waitResumed waits while the client is stalled.
func (c *Client) waitResumed(s *stream) error {
	for {
		c.mu.Lock()
		stalled := c.stalled
		c.mu.Unlock()
		if stalled == nil {
			return nil
		}
		select {
		case <-stalled:
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
}

// write sends the outbox, and ends when it is empty.
func (c *Client) write(s *stream) {
	defer s.writers.Done()
	for {
		c.mu.Lock()
		if c.stream != s || len(s.outbox) == 0 {
			s.writing, s.outbox = false, nil
			c.mu.Unlock()
			return
		}
		m := s.outbox[0]
		s.outbox = s.outbox[1:]
		c.mu.Unlock()
		// The reader gets the reason for an error here.
		_ = s.cs.SendMsg(m)
	}
}

// enqueue queues a request. Needs mu.
func (c *Client) enqueue(m proto.Message) {
	s := c.stream
	if len(s.outbox) >= maxOutbox {
		if !s.overflowed {
			s.overflowed = true // unlock ends the stream
			c.violate(s, "", "%d requests were not read", maxOutbox)
		}
		return
	}
	s.outbox = append(s.outbox, m)
}

// waitOnline waits until Reconnect; false: ctx ended.
func (c *Client) waitOnline(ctx context.Context) bool {
	for {
		c.mu.Lock()
		offline := c.offline
		c.mu.Unlock()
		if !offline {
			return ctx.Err() == nil
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			return false
		}
	}
}

// sleep waits for a random time up to d, or until Reconnect.
func (c *Client) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(rand.N(d) + 1)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.wake:
	case <-ctx.Done():
	}
}

func (c *Client) stopTimers() {
	c.lock()
	ack, warm := c.ackTimer, c.warmTimer
	c.ackTimer, c.warmTimer = nil, nil
	c.running = true // a client runs only once
	c.unlock()
	for _, t := range []*time.Timer{ack, warm} {
		if t != nil {
			t.Stop()
		}
	}
}
