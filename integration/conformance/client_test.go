package conformance

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// client is one client process: one aggregated stream, or one stream a type. It only does what the
// test says; it does not acknowledge by itself. It belongs to the test's goroutine, except what its
// streams read.
type client struct {
	t       testing.TB
	c       *trial
	delta   bool
	ads     bool
	node    *corev3.Node
	conn    *grpc.ClientConn
	streams map[kind]*stream // "": the aggregated one
	states  map[kind]*typeState
	fences  int
	deaf    bool // does not read
	// receives is the limit of what it receives, in bytes; 0: maxMessage.
	receives int
}

// typeState is the client's state of one type.
type typeState struct {
	names   []string // SotW: the whole list; delta: subscribed
	wild    bool
	named   bool   // a name was listed at some time
	last    string // nonce of the newest response
	nonce   string // of the response that was last answered
	version string // the version acknowledged last
	answers int
}

// stream is one gRPC stream.
type stream struct {
	grpc   grpc.ClientStream
	cancel context.CancelFunc
	done   chan struct{} // closed when it has been read to its end
	noded  bool          // the node has been sent

	mu   sync.Mutex
	news chan struct{} // closed and replaced at each event
	in   []answer      // received, not yet taken by the test
	err  error         // why the stream ended
}

// on returns the stream that carries a type, and opens it if there is none.
func (c *client) on(k kind) *stream {
	c.t.Helper()
	if c.ads {
		k = ""
	}
	if s := c.streams[k]; s != nil {
		return s
	}
	return c.open(k)
}

// open opens the stream of a type's service, or the aggregated one.
func (c *client) open(k kind) *stream {
	c.t.Helper()
	s := c.rawOpen(services[k].method(c.delta))
	c.streams[k] = s
	return s
}

// rawOpen opens a stream of any method.
func (c *client) rawOpen(method string) *stream {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cs, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method,
		grpc.MaxCallRecvMsgSize(cmp.Or(c.receives, maxMessage)))
	if err != nil {
		cancel()
		c.t.Fatalf("open a stream: %v", err)
	}
	s := &stream{grpc: cs, cancel: cancel, done: make(chan struct{}), news: make(chan struct{})}
	if c.deaf {
		close(s.done)
	} else {
		go s.read(c.delta)
	}
	c.t.Cleanup(s.close)
	return s
}

func (s *stream) close() {
	s.cancel()
	<-s.done
}

func (s *stream) read(delta bool) {
	defer close(s.done)
	for {
		a, err := s.receive(delta)
		s.mu.Lock()
		if err != nil {
			s.err = err
		} else {
			s.in = append(s.in, a)
		}
		close(s.news)
		s.news = make(chan struct{})
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *stream) receive(delta bool) (answer, error) {
	if delta {
		r := new(discoveryv3.DeltaDiscoveryResponse)
		if err := s.grpc.RecvMsg(r); err != nil {
			return answer{}, err
		}
		return readDelta(r), nil
	}
	r := new(discoveryv3.DiscoveryResponse)
	if err := s.grpc.RecvMsg(r); err != nil {
		return answer{}, err
	}
	return readSotW(r), nil
}

// waitFor waits until cond, called under the stream's lock, holds.
func (s *stream) waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(xdstest.Patience)
	defer deadline.Stop()
	for {
		s.mu.Lock()
		ok, news, err, in := cond(), s.news, s.err, s.in
		s.mu.Unlock()
		if ok {
			return
		}
		if err != nil {
			t.Fatalf("%s: the stream ended: %v; not looked at: %v", what, err, in)
		}
		select {
		case <-news:
		case <-deadline.C:
			t.Fatalf("%s: nothing came; not looked at: %v", what, in)
		}
	}
}

// rawRequest is a request as it is sent, in either variant.
type rawRequest struct {
	names, drop []string
	nonce       string
	version     string
	err         string
	resumed     map[string]string
	node        *corev3.Node // instead of the first request's
	noNode      bool
	typeless    bool
}

// tell sends a request unchanged.
func (c *client) tell(k kind, r rawRequest) {
	c.t.Helper()
	s := c.on(k)
	node := r.node
	if node == nil && !s.noded && !r.noNode {
		node = c.node
	}
	s.noded = true
	var detail *rpcstatus.Status
	if r.err != "" {
		detail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: r.err}
	}
	url := string(k)
	if r.typeless {
		url = ""
	}
	var m proto.Message = &discoveryv3.DiscoveryRequest{Node: node, TypeUrl: url, ResourceNames: r.names,
		VersionInfo: r.version, ResponseNonce: r.nonce, ErrorDetail: detail}
	if c.delta {
		m = &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: url, ResourceNamesSubscribe: r.names,
			ResourceNamesUnsubscribe: r.drop, InitialResourceVersions: r.resumed, ResponseNonce: r.nonce, ErrorDetail: detail}
	}
	if err := s.grpc.SendMsg(m); err != nil {
		c.t.Logf("%s: send: %v", k.short(), err) // the test checks how the stream ended
	}
}

func (c *client) state(k kind) *typeState {
	if c.states[k] == nil {
		c.states[k] = &typeState{}
	}
	return c.states[k]
}

// sub subscribes to more names. Without names in the first request it subscribes to the legacy
// wildcard.
func (c *client) sub(k kind, names ...string) {
	c.t.Helper()
	t := c.state(k)
	t.wild = t.wild || slices.Contains(names, "*") || len(names) == 0 && !t.named && !k.noLegacy()
	t.named = t.named || len(names) > 0
	for _, n := range names {
		if !slices.Contains(t.names, n) {
			t.names = append(t.names, n)
		}
	}
	if c.delta {
		c.tell(k, rawRequest{names: names})
		return
	}
	c.tell(k, rawRequest{names: t.names, nonce: t.nonce, version: t.version})
}

// unsub unsubscribes from names.
func (c *client) unsub(k kind, names ...string) {
	c.t.Helper()
	t := c.state(k)
	t.names = slices.DeleteFunc(t.names, func(n string) bool { return slices.Contains(names, n) })
	t.wild = t.wild && !slices.Contains(names, "*")
	if c.delta {
		c.tell(k, rawRequest{drop: names})
		return
	}
	c.tell(k, rawRequest{names: t.names, nonce: t.nonce, version: t.version})
}

// ack acknowledges a response.
func (c *client) ack(a answer) {
	c.t.Helper()
	t := c.state(a.kind)
	t.nonce, t.version = a.nonce, a.version
	if c.delta {
		c.tell(a.kind, rawRequest{nonce: a.nonce})
		return
	}
	c.tell(a.kind, rawRequest{names: t.names, nonce: a.nonce, version: a.version})
}

// nack rejects a response.
func (c *client) nack(a answer) {
	c.t.Helper()
	t := c.state(a.kind)
	t.nonce = a.nonce
	if c.delta {
		c.tell(a.kind, rawRequest{nonce: a.nonce, err: "not taken"})
		return
	}
	c.tell(a.kind, rawRequest{names: t.names, nonce: a.nonce, version: t.version, err: "not taken"})
}

// next waits for the next response of a type, and leaves it unanswered.
func (c *client) next(k kind) answer {
	c.t.Helper()
	for {
		got := c.any(k)
		if !got.fenceAlone() {
			return got
		}
		c.ack(got)
	}
}

// fenceAlone reports whether the response has only fences of this or another client.
func (a answer) fenceAlone() bool {
	for name := range a.bodies {
		if !isFence(name) {
			return false
		}
	}
	return len(a.bodies) > 0 && len(a.removed) == 0
}

// any is next, but also returns a response that has only fences.
func (c *client) any(k kind) answer {
	c.t.Helper()
	s := c.on(k)
	var got answer
	s.waitFor(c.t, "the next response of "+k.short(), func() bool {
		i := slices.IndexFunc(s.in, func(a answer) bool { return a.kind == k })
		if i < 0 {
			return false
		}
		got = s.in[i]
		s.in = slices.Delete(s.in, i, i+1)
		return true
	})
	c.state(k).answers++
	c.state(k).last = got.nonce
	if got.nonce == "" {
		c.t.Errorf("a response of %s has no nonce", k.short())
	}
	if got.twice != "" {
		c.t.Errorf("a response of %s has %q twice", k.short(), got.twice)
	}
	return got
}

// lastNonce is that of the newest response of a type.
func (c *client) lastNonce(k kind) string { return c.state(k).last }

// first waits for the next response on the aggregated stream, of any type.
func (c *client) first() answer {
	c.t.Helper()
	s := c.on("")
	var k kind
	s.waitFor(c.t, "the next response", func() bool {
		if len(s.in) > 0 {
			k = s.in[0].kind
		}
		return len(s.in) > 0
	})
	return c.next(k)
}

// want waits for the next response of a type and does not answer it. It must hold exactly this, in
// the format of answer.String.
func (c *client) want(k kind, want string) answer {
	c.t.Helper()
	a := c.next(k)
	if got := a.String(); got != want {
		c.t.Fatalf("a response of %s holds %q, want %q", k.short(), got, want)
	}
	return a
}

// take is want and ack.
func (c *client) take(k kind, want string) answer {
	c.t.Helper()
	a := c.want(k, want)
	c.ack(a)
	return a
}

// gets subscribes to the names in a response, and takes the response, which must hold exactly this.
func (c *client) gets(k kind, want string) answer {
	c.t.Helper()
	var names []string
	for thing := range strings.FieldsSeq(want) {
		name, _, _ := parse(thing)
		names = append(names, name)
	}
	c.sub(k, names...)
	return c.take(k, want)
}

// getsAll subscribes to the legacy wildcard, and takes the response, which must hold exactly this.
func (c *client) getsAll(k kind, want string) answer {
	c.t.Helper()
	c.sub(k)
	return c.take(k, want)
}

// until takes responses of a type up to one that has this resource or removal.
func (c *client) until(k kind, thing string) answer {
	c.t.Helper()
	for {
		a := c.next(k)
		c.ack(a)
		if slices.Contains(strings.Fields(a.String()), thing) {
			return a
		}
	}
}

// takeFull is take with the whole content where responses hold all: for a SotW full-state type, and
// for SotW with a wildcard. Elsewhere the response has only the change.
func (c *client) takeFull(k kind, all, change string) answer {
	c.t.Helper()
	if c.wholeState(k) {
		return c.take(k, all)
	}
	return c.take(k, change)
}

// wholeState reports whether each response of the type holds everything.
func (c *client) wholeState(k kind) bool { return !c.delta && (k.full() || c.state(k).wild) }

// quiet checks that nothing else has arrived, neither for this client's requests, nor for what the
// origin sent.
func (c *client) quiet(kinds ...kind) {
	c.t.Helper()
	c.fences++
	name := fmt.Sprintf("fence-%s-%d", c.node.Id, c.fences)
	if c.ads {
		c.c.site.put(c.t, fence, name+"=1")
		c.sub(fence, name)
		a := c.any(fence)
		c.ack(a)
		c.nothing("", "the fence's answer")
		return
	}
	for _, k := range kinds {
		of := name
		if !c.state(k).wild {
			of = onDemand + name // the wildcard of another client does not cover it
		}
		c.c.site.put(c.t, k, of+"=1")
		if !c.state(k).wild {
			c.sub(k, of)
		}
		a := c.any(k)
		for a.bodies[of] == nil && a.fenceAlone() { // a fence of another client
			c.ack(a)
			a = c.any(k)
		}
		if a.bodies[of] == nil || a.String() != "" && !c.wholeState(k) {
			c.t.Fatalf("%s: before or beside the fence came %q", k.short(), a)
		}
		c.ack(a)
		c.nothing(k, "the fence's answer")
	}
}

// nothing checks that a stream has no response that the test has not taken.
func (c *client) nothing(k kind, when string) {
	c.t.Helper()
	s := c.on(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.in {
		if a.fenceAlone() {
			continue
		}
		c.t.Fatalf("before %s came %s %q", when, a.kind.short(), a)
	}
	if s.err != nil {
		c.t.Fatalf("before %s the stream ended: %v", when, s.err)
	}
}

// ended waits for the end of the stream that carries a type.
func (c *client) ended(k kind, want codes.Code) *status.Status {
	c.t.Helper()
	s := c.on(k)
	deadline := time.NewTimer(xdstest.Patience)
	defer deadline.Stop()
	select {
	case <-s.done:
	case <-deadline.C:
		c.t.Fatalf("the stream goes on; it should have ended with %v", want)
	}
	got := status.Convert(s.err)
	if got.Code() != want {
		c.t.Fatalf("the stream ended with %v, want %v", s.err, want)
	}
	if strings.TrimSpace(got.Message()) == "" {
		c.t.Errorf("the stream ended with %v and without a message", want)
	}
	return got
}

// reconnect closes all streams; the next request opens a new one. The client forgets its
// subscriptions, as the relay has to.
func (c *client) reconnect() {
	for k, s := range c.streams {
		s.close()
		delete(c.streams, k)
	}
	clear(c.states)
}
