package model

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"xdsrelay/internal/xds"
)

// origin is a control plane. The driver decides when it sends, and in which order and portions.
type origin struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	listener *bufconn.Listener
	server   *grpc.Server
	serving  sync.WaitGroup

	mu       sync.Mutex
	has      map[xds.TypeURL]map[string]int // name -> content
	stamps   int                            // makes versions differ
	version  map[string]int                 // type+name -> stamp
	removals map[string][]time.Time         // type+name -> when
	pushes   map[string]int                 // type+name -> how often it was sent
	saidAt   map[string]time.Time           // key+type+name -> when it was sent last
	silent   map[string]bool                // type+name: it is not answered
	ttl      map[string]time.Duration       // type+name
	volatile map[string]bool                // type+name: do_not_cache
	away     bool                           // streams end at once
	whole    bool                           // everything pending is sent at once
	splits   bool                           // delta: the first answer to a wildcard may come in parts (P67)
	streams  []*originStream
	sotwSeen bool     // a stream was SotW
	faults   []string // wrong requests of the relay
	history  []line   // the messages of both
	keep     int      // how much of the history is kept, about; 0: all

	dirty chan struct{} // of capacity 1: something may be pending; nil: the driver asks by itself
}

// line is a sent message. It is printed only if a case fails.
type line struct {
	at     time.Time
	s      *originStream
	origin bool // the origin sent it
	m      proto.Message
}

// tell prints the history.
func (o *origin) tell(log func(format string, args ...any)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	streams := make(map[*originStream]int)
	for _, l := range o.history {
		if streams[l.s] == 0 {
			streams[l.s] = len(streams) + 1
		}
		sender := "relay"
		if l.origin {
			sender = "origin"
		}
		log("%s stream %d %s %s, %s: %v", l.at.Format("15:04:05.000"), streams[l.s], l.s.from, l.s.key, sender, l.m)
	}
}

// note adds a message to the history, of which the oldest is dropped. The caller holds the lock.
func (o *origin) note(s *originStream, origin bool, m proto.Message) {
	o.history = append(o.history, line{time.Now(), s, origin, m})
	if o.keep > 0 && len(o.history) >= 2*o.keep {
		o.history = append([]line(nil), o.history[o.keep:]...)
	}
	o.wake()
}

// wake says that something may be pending.
func (o *origin) wake() {
	select {
	case o.dirty <- struct{}{}:
	default:
	}
}

// hidden names are served by name, but not by the wildcard.
func hidden(name string) bool { return name[0] == 'x' }

type originStream struct {
	v     xds.Variant
	from  string // the address of the relay
	key   string // the cluster of its node
	send  func(proto.Message) error
	kill  chan struct{}
	types map[xds.TypeURL]*originType
	nonce int
}

// originType is a stream's subscription to a type, and what was sent for it.
type originType struct {
	named    bool // a name was listed at some time
	wild     bool
	names    map[string]bool
	told     map[string]string // name -> version
	due      map[string]bool   // to be answered, even if unchanged
	beat     map[string]bool   // by a heartbeat
	answer   bool              // a response is due, even an empty one
	unacked  string            // nonce
	versions int               // version_info
}

func startOrigin() *origin {
	o := &origin{
		listener: bufconn.Listen(1 << 16),
		// The bubble's hours pass at once, so many pings must not count as a flood.
		server: grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true})),
		has:    make(map[xds.TypeURL]map[string]int), version: make(map[string]int), removals: make(map[string][]time.Time), pushes: make(map[string]int), saidAt: make(map[string]time.Time),
		silent: make(map[string]bool), ttl: make(map[string]time.Duration), volatile: make(map[string]bool),
	}
	for _, typ := range types {
		o.has[typ] = make(map[string]int)
	}
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(o.server, o)
	o.serving.Go(func() { _ = o.server.Serve(o.listener) }) // it ends by Stop
	return o
}

func (o *origin) stop() {
	o.server.Stop()
	o.serving.Wait()
}

func (o *origin) StreamAggregatedResources(gs discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	s := o.open(xds.SotW, gs)
	return o.serve(s, gs, func() error {
		r, err := gs.Recv()
		if err == nil {
			o.sotw(s, r)
		}
		return err
	})
}

func (o *origin) DeltaAggregatedResources(gs discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	s := o.open(xds.Delta, gs)
	return o.serve(s, gs, func() error {
		r, err := gs.Recv()
		if err == nil {
			o.delta(s, r)
		}
		return err
	})
}

func (o *origin) open(v xds.Variant, gs grpc.ServerStream) *originStream {
	s := &originStream{v: v, send: func(m proto.Message) error { return gs.SendMsg(m) }, kill: make(chan struct{}), types: make(map[xds.TypeURL]*originType)}
	if p, ok := peer.FromContext(gs.Context()); ok {
		s.from = p.Addr.String()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.away {
		close(s.kill)
		return s
	}
	o.streams = append(o.streams, s)
	o.sotwSeen = o.sotwSeen || v == xds.SotW
	return s
}

// serve receives until the stream ends or is killed.
func (o *origin) serve(s *originStream, gs grpc.ServerStream, receive func() error) error {
	received := make(chan error, 1)
	go func() {
		for {
			if err := receive(); err != nil {
				received <- err
				return
			}
		}
	}()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.streams = slices.DeleteFunc(o.streams, func(x *originStream) bool { return x == s })
	}()
	select {
	case <-received:
		return nil
	case <-s.kill:
		return status.Error(codes.Unavailable, "the origin goes away")
	case <-gs.Context().Done():
		return nil
	}
}

// idle records a fault if a stream beside another has no subscription (P50).
func (o *origin) idle() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.streams {
		asks := false
		for _, t := range s.types {
			asks = asks || t.wild || len(t.names) > 0
		}
		if !asks && len(o.streams) > 1 || len(o.streams) > 2 {
			o.fault("%d streams, and one asks for nothing: %v", len(o.streams), !asks)
		}
	}
}

// cut ends all streams.
func (o *origin) cut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.streams {
		close(s.kill)
	}
	o.streams = nil
}

func (s *originStream) of(typ string) *originType {
	t := s.types[xds.TypeURL(typ)]
	if t == nil {
		t = &originType{names: make(map[string]bool), told: make(map[string]string), due: make(map[string]bool), beat: make(map[string]bool)}
		s.types[xds.TypeURL(typ)] = t
	}
	return t
}

func (o *origin) fault(format string, args ...any) {
	o.faults = append(o.faults, fmt.Sprintf(format, args...))
}

func (o *origin) sotw(s *originStream, r *discoveryv3.DiscoveryRequest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.note(s, false, r)
	s.key = r.Node.GetCluster()
	if r.ErrorDetail != nil {
		o.fault("NACK of %s: %s", r.TypeUrl, r.ErrorDetail.Message)
	}
	first := s.types[xds.TypeURL(r.TypeUrl)] == nil
	t := s.of(r.TypeUrl)
	if !first && r.ResponseNonce != t.unacked {
		return // stale
	}
	if first && r.ResponseNonce != "" {
		o.fault("the first request for %s has a nonce", r.TypeUrl)
	}
	wild := slices.Contains(r.ResourceNames, "*")
	if len(r.ResourceNames) == 0 {
		wild = !t.named && fullState(xds.TypeURL(r.TypeUrl))
	} else {
		t.named = true
	}
	names := make(map[string]bool)
	for _, n := range r.ResourceNames {
		if n == "*" {
			continue
		}
		if names[n] = true; !t.names[n] {
			t.due[n] = true
		}
	}
	for n := range t.told {
		if !names[n] && !wild {
			delete(t.told, n)
		}
	}
	if wild && !t.wild {
		t.answer = true
	}
	t.names, t.wild = names, wild
}

func (o *origin) delta(s *originStream, r *discoveryv3.DeltaDiscoveryRequest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.note(s, false, r)
	s.key = r.Node.GetCluster()
	if r.ErrorDetail != nil {
		o.fault("NACK of %s: %s", r.TypeUrl, r.ErrorDetail.Message)
	}
	first := s.types[xds.TypeURL(r.TypeUrl)] == nil
	t := s.of(r.TypeUrl)
	maps.Copy(t.told, r.InitialResourceVersions)
	if len(r.InitialResourceVersions) > 0 && !first {
		o.fault("initial_resource_versions of %s in a later request", r.TypeUrl)
	}
	if first && len(r.ResourceNamesSubscribe) == 0 && fullState(xds.TypeURL(r.TypeUrl)) {
		t.wild, t.answer = true, true
	}
	for _, n := range r.ResourceNamesSubscribe {
		if slices.Contains(r.ResourceNamesUnsubscribe, n) {
			o.fault("%s %s is in both lists", r.TypeUrl, n)
		}
		if n == "*" {
			t.wild, t.answer = true, true
			continue
		}
		if _, resumed := t.told[n]; !resumed || !first {
			t.due[n] = true
		}
		t.names[n] = true
	}
	for _, n := range r.ResourceNamesUnsubscribe {
		if n == "*" {
			t.wild = false
		} else if t.names[n] {
			delete(t.names, n)
			if t.wild {
				t.due[n] = true
			}
		}
	}
	for n := range t.told {
		if !t.covers(n) && !first {
			delete(t.told, n)
			delete(t.due, n)
		}
	}
}

func (t *originType) covers(name string) bool { return t.names[name] || t.wild && !hidden(name) }

// put and remove change the content; stamp gives equal content another version.
func (o *origin) put(typ xds.TypeURL, name string, content int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.has[typ][name] = content
	o.stamps++
	o.version[string(typ)+name] = o.stamps
	o.wake()
}

func (o *origin) remove(typ xds.TypeURL, name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.has[typ], name)
	o.removals[string(typ)+name] = append(o.removals[string(typ)+name], time.Now())
	o.wake()
}

// ripe reports whether a name was removed at least this long ago, or was not removed after a client
// accepted it.
func (o *origin) ripe(typ xds.TypeURL, name string, accepted time.Time, ago time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.removals[string(typ)+name], func(at time.Time) bool { return time.Since(at) >= ago || !at.After(accepted) })
}

func (o *origin) stamp(typ xds.TypeURL, name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stamps++
	o.version[string(typ)+name] = o.stamps
}

// hush makes the origin stop or resume answering for a name. A response that holds everything
// cannot leave out an existing resource.
func (o *origin) hush(typ xds.TypeURL, name string, silent bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.silent[string(typ)+name] = silent
}

// leave makes the origin unreachable, or reachable again.
func (o *origin) leave(away bool) {
	o.mu.Lock()
	o.away = away
	o.mu.Unlock()
	if away {
		o.cut()
	}
}

// repeat makes the origin send names again to subscribed streams.
func (o *origin) repeat(typ xds.TypeURL, name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.streams {
		if t := s.types[typ]; t != nil && t.covers(name) {
			t.due[name] = true
		}
	}
}

// heartbeat makes the origin renew the TTL of a resource, on delta streams.
func (o *origin) heartbeat(typ xds.TypeURL, name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.streams {
		if t := s.types[typ]; t != nil && t.covers(name) {
			t.due[name], t.beat[name] = true, true
		}
	}
	o.wake()
}

// pending returns the names to be sent on a stream, and whether a response is due at all.
func (o *origin) pending(s *originStream, typ xds.TypeURL) (names []string, due bool) {
	t := s.types[typ]
	if t == nil {
		return nil, false
	}
	for n := range o.has[typ] {
		if t.due[n] || t.covers(n) && t.told[n] != o.versionOf(typ, n) {
			names = append(names, n)
		}
	}
	for n := range t.told {
		if _, ok := o.has[typ][n]; !ok {
			names = append(names, n)
		}
	}
	for n := range t.due {
		if _, ok := o.has[typ][n]; !ok {
			names = append(names, n)
		}
	}
	names = slices.DeleteFunc(names, func(n string) bool { return o.silent[string(typ)+n] })
	slices.Sort(names)
	names = slices.Compact(names)
	return names, len(names) > 0 || t.answer
}

func (o *origin) versionOf(typ xds.TypeURL, name string) string {
	return "v" + strconv.Itoa(o.version[string(typ)+name])
}

// say sends one response with a part of the pending names. pick draws it by returning a number
// below n. It reports whether anything was pending.
func (o *origin) say(pick func(n int) int) bool {
	s, msg := o.next(pick)
	if msg != nil {
		_ = s.send(msg) // the relay finds out that a stream has ended
	}
	return s != nil
}

func (o *origin) next(pick func(n int) int) (*originStream, proto.Message) {
	o.mu.Lock()
	defer o.mu.Unlock() // rapid leaves pick by a panic
	type turn struct {
		s     *originStream
		typ   xds.TypeURL
		names []string
	}
	var turns []turn
	for _, s := range o.streams {
		for _, typ := range types {
			if names, due := o.pending(s, typ); due {
				turns = append(turns, turn{s, typ, names})
			}
		}
	}
	if len(turns) == 0 {
		return nil, nil
	}
	at := turns[pick(len(turns))]
	names := at.names
	t := at.s.types[at.typ]
	// A wildcard's first answer is complete, unless the origin splits it.
	if len(names) > 1 && !o.whole && (!t.answer || o.splits && at.s.v == xds.Delta) && !(at.s.v == xds.SotW && fullState(at.typ)) {
		from := pick(len(names))
		names = names[from : from+1+pick(len(names)-from)]
	}
	m := o.response(at.s, at.typ, names)
	if m != nil {
		o.note(at.s, true, m)
	}
	return at.s, m
}

// pushesSoFar returns how often each type+name was sent.
func (o *origin) pushesSoFar() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.pushes)
}

// response makes the message, nil if the variant cannot express it.
func (o *origin) response(s *originStream, typ xds.TypeURL, names []string) proto.Message {
	t := s.types[typ]
	s.nonce++
	nonce := "n" + strconv.Itoa(s.nonce)
	t.answer = false
	t.versions++
	version := strconv.Itoa(t.versions)
	d := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(typ), Nonce: nonce, SystemVersionInfo: version}
	w := &discoveryv3.DiscoveryResponse{TypeUrl: string(typ), Nonce: nonce, VersionInfo: version}
	for _, n := range names {
		delete(t.due, n)
		content, ok := o.has[typ][n]
		if !ok || !t.covers(n) {
			delete(t.told, n)
			d.RemovedResources = append(d.RemovedResources, n)
			continue
		}
		beat := t.beat[n] && t.told[n] == o.versionOf(typ, n)
		delete(t.beat, n)
		t.told[n] = o.versionOf(typ, n)
		o.saidAt[s.key+string(typ)+n] = time.Now()
		o.pushes[string(typ)+n]++
		a := makeAny(typ, n, content)
		r := &discoveryv3.Resource{Name: n, Version: t.told[n], Resource: a}
		if ttl := o.ttl[string(typ)+n]; ttl > 0 {
			r.Ttl = durationpb.New(ttl)
		}
		if o.volatile[string(typ)+n] {
			r.CacheControl = &discoveryv3.Resource_CacheControl{DoNotCache: true}
		}
		if beat {
			r.Resource = nil
		}
		d.Resources = append(d.Resources, r)
		w.Resources = append(w.Resources, a)
	}
	if s.v == xds.Delta {
		return d
	}
	if fullState(typ) {
		w.Resources = nil
		for _, n := range slices.Sorted(maps.Keys(o.has[typ])) {
			if t.covers(n) {
				w.Resources = append(w.Resources, makeAny(typ, n, o.has[typ][n]))
				o.pushes[string(typ)+n]++
				o.saidAt[s.key+string(typ)+n] = time.Now()
				t.told[n] = o.versionOf(typ, n)
			}
		}
	} else if len(w.Resources) == 0 && len(names) > 0 {
		return nil // a removal sends nothing
	}
	t.unacked = nonce
	return w
}
