package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	sotwMethod  = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	deltaMethod = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"

	maxResponse = 512 << 20
)

type stream struct {
	ctx     context.Context
	cancel  context.CancelFunc
	cs      grpc.ClientStream
	writers sync.WaitGroup // the writer, while it runs

	// Guarded by Client.mu.
	number   uint64 // number of the stream, from 1
	outbox   []proto.Message
	writing  bool
	node     bool // the node was sent
	versions bool // first requests have versions
	answered bool
	nonces   map[uint64]struct{} // hashes of received nonces
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
	cs, err := conn.NewStream(sctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method,
		grpc.MaxCallRecvMsgSize(maxResponse))
	if err != nil {
		err = fmt.Errorf("open stream: %w", err)
		c.lock()
		c.lastErr = err
		c.unlock()
		c.onStream(err)
		return false, false, err
	}
	s := &stream{ctx: sctx, cancel: cancel, cs: cs, nonces: make(map[uint64]struct{})}
	c.open(s)
	c.onStream(nil)
	err = fmt.Errorf("stream: %w", c.read(s))

	c.lock()
	asked = c.stream != s // by Reconnect
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

// open makes s the client's stream and sends the first requests. Envoy and Raw also request a type
// without names if that is no wildcard (P21); gRPC does not.
func (c *Client) open(s *stream) {
	c.lock()
	defer c.unlock()
	c.count.Streams++
	if c.count.Streams > 1 {
		c.count.Reconnects++
	}
	s.number = c.count.Streams
	s.versions = c.next == KeepVersions
	c.next = KeepVersions
	c.stream = s
	for _, t := range c.order {
		t.reset(s.versions)
		if t.active && (t.wildcard || len(t.names) > 0 || c.cfg.Behaviour != GRPC && noLegacy[t.url]) {
			c.send(t, nil)
		}
	}
}

func (c *Client) read(s *stream) error {
	for {
		r, err := c.receive(s)
		if status.Code(err) == codes.Internal && strings.Contains(err.Error(), "unmarshal") {
			c.lock()
			c.violate(s, "", "unreadable response: %v", err)
			c.unlock()
		}
		if err != nil {
			return err
		}
		if err := c.handle(s, r, time.Now()); err != nil {
			return err
		}
	}
}

func (c *Client) receive(s *stream) (*response, error) {
	if c.cfg.Variant == Delta {
		m := new(discoveryv3.DeltaDiscoveryResponse)
		if err := s.cs.RecvMsg(m); err != nil {
			return nil, err
		}
		return deltaResponse(m), nil
	}
	m := new(discoveryv3.DiscoveryResponse)
	if err := s.cs.RecvMsg(m); err != nil {
		return nil, err
	}
	return sotwResponse(m)
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

// sleep waits for a random time up to d, or until Reconnect.
func (c *Client) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(rand.N(d) + 1):
	case <-c.wake:
	case <-ctx.Done():
	}
}

func (c *Client) stopTimer() {
	c.lock()
	warm := c.warmTimer
	c.warmTimer = nil
	c.unlock()
	if warm != nil {
		warm.Stop()
	}
}
