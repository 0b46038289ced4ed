package model

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/xds"
)

// methods of the aggregated service, and of the services for one type.
var methods = map[xds.TypeURL]map[xds.Variant]string{
	"": {
		xds.SotW:  discoveryv3.AggregatedDiscoveryService_StreamAggregatedResources_FullMethodName,
		xds.Delta: discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName,
	},
	cds: {xds.SotW: clusterservice.ClusterDiscoveryService_StreamClusters_FullMethodName, xds.Delta: clusterservice.ClusterDiscoveryService_DeltaClusters_FullMethodName},
	eds: {xds.SotW: endpointservice.EndpointDiscoveryService_StreamEndpoints_FullMethodName, xds.Delta: endpointservice.EndpointDiscoveryService_DeltaEndpoints_FullMethodName},
}

// client is a client as plain maps: its subscriptions, and what it holds.
type client struct {
	id   string
	v    xds.Variant
	own  xds.TypeURL // the type of its stream; empty: it carries all types
	cc   *grpc.ClientConn
	send func(proto.Message) error
	end  func() // of the stream

	types  map[xds.TypeURL]*clientType
	node   bool // the node was sent on this stream
	points bool // it had listeners when the stream began
	log    func(format string, args ...any)

	mu     sync.Mutex
	pushes map[string]int // as of the end of the last take

	inbox []proto.Message
	err   error         // why the stream ended
	slow  chan struct{} // the reader waits until it is closed; nil: it reads
}

// clientType is one type of a client.
type clientType struct {
	typ      xds.TypeURL
	began    bool // a request was sent on this stream
	resumes  bool // SotW: its first request had a version (P67)
	answered bool // it received a response on this stream
	named    bool
	wild     bool
	names    map[string]bool

	holds    map[string]int
	versions map[string]string
	version  string // that it accepted last

	// The fields below belong to this stream.
	nonce           string // of the response that it answered last
	open            []response
	ever            map[string]bool   // names that it subscribed to
	told            map[string]int    // the last sent content, 0 for a removal
	cause           map[string]int    // how often names may be sent although they are unchanged
	answers         int               // how often the whole content may be, where a response holds everything
	parted          map[string]bool   // SotW: unsubscribed, perhaps by stale requests only (P12)
	unsure          map[string]bool   // SotW: subscribed again since; the relay may not have noticed the change
	initialVersions map[string]string // initial_resource_versions that no response has replaced yet
	// narrowed are names that it listed when it unsubscribed from the wildcard. The name's own copy
	// may have differed then. It is sent once, even if it has become equal to the wildcard's
	// meanwhile.
	narrowed map[string]bool
	nacks    []rejected           // rejected responses (P15)
	accepted map[string]time.Time // when it acknowledged resources while it rejected nothing (P36)
}

// rejected is a rejected response: its contents, and the pushes before it.
type rejected struct{ items, pushes map[string]int }

type response struct {
	nonce, version string
	pushes         map[string]int // that the relay had certainly seen when it made the response
	items          map[string]int // 0: removed
	versions       map[string]string
}

func newClient(cc *grpc.ClientConn, id string, v xds.Variant, log func(string, ...any)) *client {
	c := &client{id: id, v: v, cc: cc, log: log, types: make(map[xds.TypeURL]*clientType)}
	for _, typ := range types {
		c.types[typ] = &clientType{typ: typ, names: make(map[string]bool), holds: make(map[string]int), versions: make(map[string]string)}
	}
	return c
}

// full reports whether a response holds everything that is subscribed to.
func (c *client) full(t *clientType) bool { return c.v == xds.SotW && (fullState(t.typ) || t.wild) }

func (t *clientType) covers(name string) bool { return t.names[name] || t.wild && !hidden(name) }

// connect opens a stream.
func (c *client) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, methods[c.own][c.v])
	if err != nil {
		cancel()
		return err
	}
	c.send = func(m proto.Message) error { return stream.SendMsg(m) }
	receive := func() (proto.Message, error) {
		var m proto.Message = new(discoveryv3.DiscoveryResponse)
		if c.v == xds.Delta {
			m = new(discoveryv3.DeltaDiscoveryResponse)
		}
		return m, stream.RecvMsg(m)
	}
	c.mu.Lock()
	c.err, c.inbox = nil, nil
	c.mu.Unlock()
	c.node = false
	var reader sync.WaitGroup
	reader.Go(func() { c.read(ctx, receive) })
	c.end = func() { cancel(); reader.Wait() }
	for _, t := range c.types {
		t.began, t.named, t.nonce, t.open, t.nacks, t.initialVersions = false, false, "", nil, nil, nil
		t.told, t.cause, t.ever = make(map[string]int), make(map[string]int), make(map[string]bool)
		t.accepted, t.narrowed = make(map[string]time.Time), make(map[string]bool)
		t.answered, t.resumes = false, false
		t.parted, t.unsure, t.answers = make(map[string]bool), make(map[string]bool), 0
	}
	return nil
}

func (c *client) read(ctx context.Context, receive func() (proto.Message, error)) {
	for {
		c.mu.Lock()
		slow := c.slow
		c.mu.Unlock()
		if slow != nil {
			select {
			case <-slow:
			case <-ctx.Done():
				return
			}
		}
		m, err := receive()
		c.mu.Lock()
		if err != nil {
			c.err = err
			c.mu.Unlock()
			return
		}
		c.inbox = append(c.inbox, m)
		c.mu.Unlock()
	}
}

// setSlow makes the client stop reading, or read on.
func (c *client) setSlow(slow bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case slow && c.slow == nil:
		c.slow = make(chan struct{})
	case !slow && c.slow != nil:
		close(c.slow)
		c.slow = nil
	}
}

func (c *client) isSlow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slow != nil
}

// begin sends the first request of each type that the client uses.
func (c *client) begin() {
	defer func() { c.points = c.types[lds].began }()
	for _, typ := range types {
		if t := c.types[typ]; t.wild || len(t.names) > 0 {
			c.first(t)
		}
	}
}

// first sends a type's first request on a stream.
func (c *client) first(t *clientType) {
	t.began, t.named = true, true
	for n := range t.names {
		t.excuse(n)
		t.ever[n] = true
	}
	if c.v == xds.SotW {
		t.resumes = t.version != ""
		c.request(t, "", t.version, "")
		return
	}
	t.initialVersions = maps.Clone(t.versions)
	c.tell(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: string(t.typ), ResourceNamesSubscribe: t.list(), InitialResourceVersions: t.initialVersions,
	})
}

// excuse allows a name to be sent once more although it is unchanged.
func (t *clientType) excuse(name string) {
	t.cause[name]++
	t.answers++
}

// list is the whole subscription.
func (t *clientType) list() []string {
	names := slices.Sorted(maps.Keys(t.names))
	if t.wild {
		names = append(names, "*")
	}
	return names
}

// request sends a SotW request.
func (c *client) request(t *clientType, nonce, version, nack string) {
	if len(t.open) == 0 && !c.isSlow() {
		clear(t.parted) // not stale: names that it leaves out are unsubscribed
	}
	r := &discoveryv3.DiscoveryRequest{TypeUrl: string(t.typ), ResourceNames: t.list(), ResponseNonce: nonce, VersionInfo: version}
	if nack != "" {
		r.ErrorDetail = &statuspb.Status{Code: 3, Message: nack}
	}
	c.tell(r)
}

func (c *client) tell(m proto.Message) {
	node := &corev3.Node{Id: c.id, Cluster: "key"}
	if !c.node {
		c.node = true
		switch r := m.(type) {
		case *discoveryv3.DiscoveryRequest:
			r.Node = node
		case *discoveryv3.DeltaDiscoveryRequest:
			r.Node = node
		}
	}
	c.log("%s -> %v", c.id, m)
	_ = c.send(m) // the reader finds out that a stream has ended
}

// change adds names and removes others.
func (c *client) change(t *clientType, add, drop []string) {
	var gone []string
	for _, n := range add {
		if c.v == xds.Delta || !t.names[n] {
			t.excuse(n)
		}
		if c.v == xds.SotW && !t.covers(n) {
			delete(t.told, n) // a response in flight at the time may have had it
		}
		if t.parted[n] {
			t.unsure[n] = true // P22 compares with the last request that was not stale
		}
		t.names[n], t.ever[n] = true, true
	}
	for _, n := range drop {
		if !t.names[n] {
			continue
		}
		delete(t.names, n)
		delete(t.unsure, n)
		if !t.wild {
			t.letGo(n)
		}
		gone = append(gone, n)
		if c.v == xds.SotW {
			t.parted[n] = true
			if t.wild {
				t.answers++ // as in delta (P24), if it may have had it
			}
		}
		if t.covers(n) || t.wild && c.v == xds.Delta { // it is told that the name is no longer covered (P24)
			t.cause[n]++
			continue
		}
		delete(t.holds, n)
		delete(t.versions, n)
		delete(t.told, n)
	}
	switch {
	case !t.began && !t.wild && len(t.names) == 0:
	case !t.began:
		c.first(t)
	case c.v == xds.SotW:
		c.request(t, t.nonce, t.version, "")
	case len(add)+len(gone) > 0:
		c.tell(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(t.typ), ResourceNamesSubscribe: add, ResourceNamesUnsubscribe: gone})
	}
}

// widen subscribes to the wildcard, or unsubscribes. No response may be in flight, because
// different rules apply to responses before and after.
func (c *client) widen(t *clientType, wild bool) {
	if t.wild == wild {
		return
	}
	t.wild = wild
	for _, n := range names {
		switch {
		case wild && t.covers(n): // names that it subscribed to before are answered too
			t.excuse(n)
			t.ever[n] = true
		case !wild && !t.names[n]:
			t.letGo(n)
			delete(t.holds, n)
			delete(t.versions, n)
			delete(t.told, n)
		case !wild:
			t.narrowed[n] = true
		}
	}
	switch {
	case !t.began && !t.wild && len(t.names) == 0:
	case !t.began:
		c.first(t)
	case c.v == xds.SotW:
		c.request(t, t.nonce, t.version, "")
	case wild:
		c.tell(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(t.typ), ResourceNamesSubscribe: []string{"*"}})
	default:
		c.tell(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(t.typ), ResourceNamesUnsubscribe: []string{"*"}})
	}
}

// answer accepts or rejects the oldest unanswered response.
func (c *client) answer(t *clientType, nack bool) bool {
	if len(t.open) == 0 {
		return false
	}
	r := t.open[0]
	t.open = t.open[1:]
	t.nonce = r.nonce
	text := ""
	if nack {
		text = "no"
		t.changedSince(r)
		if !c.full(t) || len(t.open) == 0 { // otherwise the next one holds everything
			t.nacks = append(t.nacks, rejected{maps.Clone(r.items), r.pushes})
		}
		for n, content := range r.items {
			if !t.covers(n) {
				t.letGo(n)
			}
			if content == 0 && !t.covers(n) {
				// It unsubscribed from the name beside the wildcard, and rejects the answer that
				// nothing else covers it. The relay does not repeat that answer.
				delete(t.holds, n)
				delete(t.versions, n)
			}
		}
	} else {
		t.version = r.version
		if c.full(t) {
			clear(t.holds)
		}
		for n, content := range r.items {
			switch {
			case content == 0: // also for a name unsubscribed beside the wildcard (P24)
				delete(t.accepted, n)
				delete(t.holds, n)
				delete(t.versions, n)
			case t.covers(n):
				t.holds[n], t.versions[n] = content, r.versions[n]
				// In SotW the ACK of an earlier response is stale (P12).
				newest := c.v == xds.Delta || len(t.open) == 0
				if _, before := t.accepted[n]; !before && len(t.nacks) == 0 && newest {
					t.accepted[n] = time.Now()
				}
			}
		}
	}
	if c.v == xds.SotW {
		c.request(t, r.nonce, t.version, text)
		return true
	}
	d := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(t.typ), ResponseNonce: r.nonce}
	if nack {
		d.ErrorDetail = &statuspb.Status{Code: 3, Message: text}
	}
	c.tell(d)
	return true
}

// changedSince allows a rejected response to be sent again if one in flight has a change of it,
// even if the change was undone since (P15).
func (t *clientType) changedSince(nacked response) {
	for _, later := range t.open {
		for n, content := range later.items {
			if was, in := nacked.items[n]; in && was != content {
				for n := range nacked.items {
					t.excuse(n)
				}
				return
			}
		}
	}
}

// givenUp replaces a rejected content that no longer matters.
const givenUp = -1

// letGo marks the rejected contents of a name as not mattering, even if it is subscribed again.
func (t *clientType) letGo(name string) {
	for _, of := range t.nacks {
		if _, in := of.items[name]; in {
			of.items[name] = givenUp
		}
	}
}

// reconnect ends the stream, calls between, and opens another stream. forget drops what was held,
// as a restart does.
func (c *client) reconnect(ctx context.Context, forget bool, between func()) error {
	c.setSlow(false)
	c.end()
	between()
	for _, t := range c.types {
		if forget {
			clear(t.holds)
			clear(t.versions)
			t.version = ""
		}
	}
	if err := c.connect(ctx); err != nil {
		return err
	}
	c.begin()
	return nil
}

// empty reports whether nothing was sent on this stream: once anything of its key is held, the
// relay serves it (P53).
func (c *client) empty() bool {
	for _, t := range c.types {
		if len(t.told) > 0 {
			return false
		}
	}
	return true
}

// take checks new responses against what was sent before, and keeps them to be answered. It reports
// whether there were any.
func (c *client) take(w *relayFixture) (bool, error) {
	c.mu.Lock()
	inbox, err := c.inbox, c.err
	c.inbox = nil
	c.mu.Unlock()
	if err != nil {
		return false, fmt.Errorf("the stream ended: %w", err)
	}
	for _, m := range inbox {
		t, r, err := c.decode(m)
		r.pushes = c.pushes
		w.tb.Logf("%s <- %v", c.id, m)
		if err == nil {
			err = c.check(w, t, r)
		}
		if err != nil {
			return true, fmt.Errorf("%w\n%v", err, m)
		}
		t.open = append(t.open, r)
	}
	if !c.isSlow() {
		c.pushes = w.o.pushesSoFar()
	}
	return len(inbox) > 0, nil
}

func (c *client) decode(m proto.Message) (*clientType, response, error) {
	r := response{items: make(map[string]int), versions: make(map[string]string)}
	var typ string
	switch m := m.(type) {
	case *discoveryv3.DiscoveryResponse:
		typ, r.nonce, r.version = m.TypeUrl, m.Nonce, m.VersionInfo
		for _, a := range m.Resources {
			name, content, err := readAny(a)
			if err != nil {
				return nil, r, err
			}
			if r.items[name] != 0 {
				return nil, r, fmt.Errorf("%s twice", name)
			}
			r.items[name] = content
		}
	case *discoveryv3.DeltaDiscoveryResponse:
		typ, r.nonce, r.version = m.TypeUrl, m.Nonce, m.SystemVersionInfo
		for _, res := range m.Resources {
			name, content, err := readAny(res.Resource)
			if err != nil {
				return nil, r, err
			}
			if name != res.Name || r.items[name] != 0 {
				return nil, r, fmt.Errorf("%s twice, or not its own name", name)
			}
			r.items[name], r.versions[name] = content, res.Version
		}
		for _, name := range m.RemovedResources {
			if _, also := r.items[name]; also {
				return nil, r, fmt.Errorf("%s both there and gone", name)
			}
			r.items[name] = 0
		}
	}
	t := c.types[xds.TypeURL(typ)]
	if t == nil || r.nonce == "" {
		return nil, r, errors.New("a response without type or nonce")
	}
	return t, r, nil
}
