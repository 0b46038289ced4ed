package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// maxMessage is the message limit of origin and clients: what the relay may send (P59).
const maxMessage = 256 << 20

// control is a control plane for many tests: a site for each key.
type control struct {
	addr string
	grpc *grpc.Server
	done chan struct{}

	mu    sync.Mutex
	sites map[string]*site
}

func newControl() (*control, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &control{addr: l.Addr().String(), done: make(chan struct{}), sites: make(map[string]*site)}
	c.grpc = grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(c.grpc, c)
	go func() {
		defer close(c.done)
		_ = c.grpc.Serve(l) // ended by stop
	}()
	return c, nil
}

// newTestControl returns a control plane for a single test.
func newTestControl(t testing.TB) *control {
	t.Helper()
	c, err := newControl()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	return c
}

func (c *control) stop() {
	c.grpc.Stop()
	<-c.done
}

// site makes the site of a key.
func (c *control) site(key string) *site {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &site{key: key, news: make(chan struct{}), held: make(map[kind]map[string]string), byHand: make(map[kind]bool)}
	c.sites[key] = s
	return s
}

func (c *control) StreamAggregatedResources(g discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return serve(c, g, false, fromSotW)
}

func (c *control) DeltaAggregatedResources(g discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return serve(c, g, true, fromDelta)
}

// serve handles one of the relay's streams. The node's cluster in its first request selects the
// site.
func serve[R interface{ GetNode() *corev3.Node }](c *control, g interface {
	grpc.ServerStream
	Recv() (R, error)
}, delta bool, read func(R) request) error {
	first, err := g.Recv()
	if err != nil {
		return err
	}
	node := first.GetNode()
	c.mu.Lock()
	s := c.sites[node.GetCluster()]
	c.mu.Unlock()
	if s == nil {
		return status.Errorf(codes.Unavailable, "no test has the key %q", node.GetCluster())
	}
	u := &upstream{site: s, grpc: g, delta: delta, node: node, over: make(chan error, 1), asks: make(map[kind]*ask)}
	if err := s.open(u); err != nil {
		return err
	}
	defer s.close(u)
	s.heard(u, read(first))
	requests := xdstest.Receive(g)
	for {
		select {
		case r, more := <-requests:
			if !more {
				return nil
			}
			s.heard(u, read(r))
		case err := <-u.over:
			return err
		}
	}
}

// request is a request of the relay, in either variant.
type request struct {
	kind    kind
	node    *corev3.Node
	names   []string // SotW: the whole list; delta: subscribed
	dropped []string // delta: unsubscribed
	resumed map[string]string
	version string
	nonce   string
	err     string // of a NACK
	size    int

	stream int // number of the site's stream, from 1
}

func fromSotW(r *discoveryv3.DiscoveryRequest) request {
	return request{kind: kind(r.GetTypeUrl()), node: r.GetNode(), names: slices.Sorted(slices.Values(r.GetResourceNames())),
		version: r.GetVersionInfo(), nonce: r.GetResponseNonce(), err: r.GetErrorDetail().GetMessage(), size: proto.Size(r)}
}

func fromDelta(r *discoveryv3.DeltaDiscoveryRequest) request {
	return request{kind: kind(r.GetTypeUrl()), node: r.GetNode(), names: slices.Sorted(slices.Values(r.GetResourceNamesSubscribe())),
		dropped: slices.Sorted(slices.Values(r.GetResourceNamesUnsubscribe())), resumed: r.GetInitialResourceVersions(),
		nonce: r.GetResponseNonce(), err: r.GetErrorDetail().GetMessage(), size: proto.Size(r)}
}

// String formats a request: "+a +b -c nonce=3".
func (r request) String() string {
	out := r.kind.short()
	for _, n := range r.names {
		out += " +" + n
	}
	for _, n := range r.dropped {
		out += " -" + n
	}
	for _, n := range slices.Sorted(maps.Keys(r.resumed)) {
		out += fmt.Sprintf(" %s@%q", n, r.resumed[n])
	}
	if r.version != "" {
		out += " version=" + r.version
	}
	if r.nonce != "" {
		out += " nonce=" + r.nonce
	}
	if r.err != "" {
		out += " error"
	}
	return out
}

// upstream is one of the relay's streams to a site.
type upstream struct {
	site  *site
	grpc  grpc.ServerStream
	delta bool
	node  *corev3.Node
	over  chan error // ends the stream

	// site.mu protects the fields below.
	number int
	asks   map[kind]*ask
	closed bool
}

// site is one key's part of a control plane. It answers requests from its resources, except for
// types that the test answers by hand.
type site struct {
	key string

	mu      sync.Mutex
	news    chan struct{} // closed and replaced at each event
	away    error         // error that ends new streams
	streams []*upstream   // all that were ever opened
	log     []request     // all that were ever received
	byHand  map[kind]bool // types that the test answers
	held    map[kind]map[string]string
	silent  bool   // no answer for names without a resource
	rejects string // a request with this name ends its stream
	serial  int    // number of the last response
}

func (s *site) tell() {
	close(s.news)
	s.news = make(chan struct{})
}

func (s *site) open(u *upstream) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams = append(s.streams, u)
	u.number = len(s.streams)
	u.closed = s.away != nil
	s.tell()
	return s.away
}

func (s *site) close(u *upstream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.closed = true
	s.tell()
}

func (s *site) heard(u *upstream, r request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.stream = u.number
	s.log = append(s.log, r)
	switch {
	case s.rejects != "" && slices.Contains(r.names, s.rejects):
		u.finish(status.Errorf(codes.InvalidArgument, "unknown name %s, Bearer abcdefghijkl", s.rejects))
	case !s.byHand[r.kind]:
		u.answer(r)
	}
	s.tell()
}

// waitFor waits until cond, called under the site's lock, holds.
func (s *site) waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(xdstest.Patience)
	defer deadline.Stop()
	for {
		s.mu.Lock()
		ok, news := cond(), s.news
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-news:
		case <-deadline.C:
			t.Fatalf("the origin did not receive: %s; it received %v", what, s.requests(""))
		}
	}
}

// manual makes the test answer these types.
func (s *site) manual(kinds ...kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range kinds {
		s.byHand[k] = true
	}
}

// stream waits for the site's stream of this number, from 1.
func (s *site) stream(t testing.TB, number int) *upstream {
	t.Helper()
	s.waitFor(t, fmt.Sprintf("stream %d", number), func() bool { return len(s.streams) >= number })
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[number-1]
}

// opened returns how many streams were opened, and how many are open.
func (s *site) opened() (ever, open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.streams {
		if !u.closed {
			open++
		}
	}
	return len(s.streams), open
}

// requests returns those of a type, or all except fences if it is empty.
func (s *site) requests(k kind) []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.picked(k)
}

func (s *site) picked(k kind) []request {
	return slices.DeleteFunc(slices.Clone(s.log), func(r request) bool {
		return r.kind != k && (k != "" || r.kind == fence)
	})
}

// request waits for the nth request of a type, from 1.
func (s *site) request(t testing.TB, k kind, n int) request {
	t.Helper()
	s.waitFor(t, fmt.Sprintf("request %d of %s", n, k.short()), func() bool { return len(s.picked(k)) >= n })
	return s.requests(k)[n-1]
}

// await waits for a request of a type for which pick holds, and returns the first one.
func (s *site) await(t testing.TB, k kind, what string, pick func(request) bool) request {
	t.Helper()
	var found request
	s.waitFor(t, what, func() bool {
		for _, r := range s.picked(k) {
			if pick(r) {
				found = r
				return true
			}
		}
		return false
	})
	return found
}

// leave ends all streams, and each new one, until back. They fail before any response, as with an
// origin that is away.
func (s *site) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = status.Error(codes.Unavailable, "the origin is away")
	for _, u := range s.streams {
		u.finish(s.away)
	}
}

func (s *site) back() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = nil
}

// finish ends a stream. The caller holds site.mu, or is end.
func (u *upstream) finish(err error) {
	select {
	case u.over <- err:
	default: // it is ending already
	}
}

// end ends a stream from the origin's side.
func (u *upstream) end(t testing.TB, err error) {
	t.Helper()
	u.finish(err)
	u.site.waitFor(t, "the stream's end", func() bool { return u.closed })
}

// send sends a response.
func (u *upstream) send(t testing.TB, m proto.Message) {
	t.Helper()
	u.site.mu.Lock()
	defer u.site.mu.Unlock()
	if err := u.grpc.SendMsg(m); err != nil {
		t.Fatalf("the origin cannot send: %v", err)
	}
}

// reply sends a response with these resources, in the format of answer.String. The version is its
// nonce as well. It waits for the relay's ACK or NACK, and returns it.
func (u *upstream) reply(t testing.TB, k kind, version string, things ...string) request {
	t.Helper()
	u.send(t, u.response(k, version, things...))
	return u.reaction(t, k, version)
}

// reaction waits for the ACK or NACK of a nonce.
func (u *upstream) reaction(t testing.TB, k kind, nonce string) request {
	t.Helper()
	return u.site.await(t, k, "an answer to "+nonce, func(r request) bool {
		return r.nonce == nonce && r.stream == u.number
	})
}

// acked fails the test unless the relay acknowledges a nonce.
func (u *upstream) acked(t testing.TB, k kind, nonce string) {
	t.Helper()
	if r := u.reaction(t, k, nonce); r.err != "" {
		t.Fatalf("the relay rejected %s: %s", nonce, r.err)
	}
}

// accepts sends a response, and fails the test unless the relay acknowledges it.
func (u *upstream) accepts(t testing.TB, k kind, version string, things ...string) {
	t.Helper()
	u.send(t, u.response(k, version, things...))
	u.acked(t, k, version)
}

// push is accepts for a response in which, in delta, each resource has the version of the response.
// nonce is empty if the version is the nonce as well.
func (u *upstream) push(t testing.TB, k kind, version, nonce string, things ...string) {
	t.Helper()
	nonce = cmp.Or(nonce, version)
	m := u.response(k, version, things...)
	setNonce(m, nonce)
	if r, delta := m.(*discoveryv3.DeltaDiscoveryResponse); delta {
		for _, res := range r.Resources {
			res.Version = version
		}
	}
	u.send(t, m)
	u.acked(t, k, nonce)
}

func setNonce(m proto.Message, nonce string) {
	switch r := m.(type) {
	case *discoveryv3.DiscoveryResponse:
		r.Nonce = nonce
	case *discoveryv3.DeltaDiscoveryResponse:
		r.Nonce = nonce
	}
}

// response makes a response of the stream's variant.
func (u *upstream) response(k kind, version string, things ...string) proto.Message {
	if u.delta {
		r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(k), SystemVersionInfo: version, Nonce: version}
		for _, thing := range things {
			name, value, gone := parse(thing)
			if gone {
				r.RemovedResources = append(r.RemovedResources, name)
				continue
			}
			r.Resources = append(r.Resources, &discoveryv3.Resource{Name: name, Version: "r" + value, Resource: body(k, name, value)})
		}
		return r
	}
	r := &discoveryv3.DiscoveryResponse{TypeUrl: string(k), VersionInfo: version, Nonce: version}
	for _, thing := range things {
		if name, value, gone := parse(thing); !gone {
			r.Resources = append(r.Resources, body(k, name, value))
		}
	}
	return r
}

// parse reads "name=value" or "-name".
func parse(thing string) (name, value string, gone bool) {
	if thing[0] == '-' {
		return thing[1:], "", true
	}
	for i := range thing {
		if thing[i] == '=' {
			return thing[:i], thing[i+1:], false
		}
	}
	panic(errors.New("no value in " + thing))
}
