package listener

import (
	"sync"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
)

// Admission admits connections, streams and polls within the limits. It counts peers by
// Caller.PeerID. Streams of a connection are counted by the connection's identity, since two
// clients on two listeners may have one remote address.
type Admission struct {
	// connections has an element for each open connection; nil: no limit.
	connections chan struct{}

	mu      sync.Mutex
	limits  config.Limits
	rate    *rate.Limiter // nil: no limit
	total   int
	perPeer map[string]int
	perConn map[*Conn]int
}

// NewAdmission makes an Admission with these limits.
func NewAdmission(limits config.Limits) *Admission {
	a := &Admission{perPeer: make(map[string]int), perConn: make(map[*Conn]int)}
	if limits.Connections > 0 {
		a.connections = make(chan struct{}, limits.Connections)
	}
	a.Reconfigure(limits)
	return a
}

// Reconfigure sets other limits, except that of connections. A rate that stays the same continues. A new rate begins with a
// second's worth of streams.
func (a *Admission) Reconfigure(limits config.Limits) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.limits
	a.limits = limits
	switch {
	case limits.StreamsPerSecond <= 0:
		a.rate = nil
	case a.rate == nil || limits.StreamsPerSecond != old.StreamsPerSecond:
		a.rate = rate.NewLimiter(rate.Limit(limits.StreamsPerSecond), limits.StreamsPerSecond)
	}
}

// Enter admits a stream or says why not. A limit of the client or peer gives RESOURCE_EXHAUSTED. A
// limit of the relay gives UNAVAILABLE, so that the client tries another replica. On a proxy's
// connection HTTP/2 limits the streams: the proxy then opens another one, but would send the client
// of a refused stream to the same connection again.
func (a *Admission) Enter(c *Caller, on *Conn) *refusal.Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	limits, peerID := &a.limits, c.PeerID
	switch {
	case limits.StreamsPerConnection > 0 && a.perConn[on] >= limits.StreamsPerConnection && !on.proxied.Load():
		return refusal.New(codes.ResourceExhausted, telemetry.LimitStreamsPerConnection, "stream: the connection would have more streams than downstream.limits.streams_per_connection allows (%d)", limits.StreamsPerConnection)
	case limits.StreamsPerPeer > 0 && a.perPeer[peerID] >= limits.StreamsPerPeer:
		return refusal.New(codes.ResourceExhausted, telemetry.LimitStreamsPerPeer, "stream: peer %s would have more streams than downstream.limits.streams_per_peer allows (%d)", peerID, limits.StreamsPerPeer)
	case limits.Streams > 0 && a.total >= limits.Streams:
		return refusal.New(codes.Unavailable, telemetry.LimitStreams, "stream: the relay would have more streams than downstream.limits.streams allows (%d)", limits.Streams)
	case a.rate != nil && !a.rate.Allow():
		return refusal.New(codes.Unavailable, telemetry.LimitStreamsPerSecond, "stream: more new streams than downstream.limits.streams_per_second allows (%d)", limits.StreamsPerSecond)
	}
	a.total++
	a.perPeer[peerID]++
	a.perConn[on]++
	return nil
}

// Full reports whether a further stream would exceed limits.streams.
func (a *Admission) Full() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.limits.Streams > 0 && a.total >= a.limits.Streams
}

// Leave is called when a stream that was admitted has ended.
func (a *Admission) Leave(c *Caller, on *Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.total--
	down(a.perPeer, c.PeerID)
	down(a.perConn, on)
}

// EnterPoll admits a poll, which counts as a stream while it is answered. HTTP limits the polls of
// a connection.
func (a *Admission) EnterPoll(peerID string) *refusal.Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	limits := &a.limits
	switch {
	case limits.StreamsPerPeer > 0 && a.perPeer[peerID] >= limits.StreamsPerPeer:
		return refusal.New(codes.ResourceExhausted, telemetry.LimitStreamsPerPeer, "poll: peer %s would have more streams than downstream.limits.streams_per_peer allows (%d)", peerID, limits.StreamsPerPeer)
	case limits.Streams > 0 && a.total >= limits.Streams:
		return refusal.New(codes.Unavailable, telemetry.LimitStreams, "poll: the relay would have more streams than downstream.limits.streams allows (%d)", limits.Streams)
	}
	a.total++
	a.perPeer[peerID]++
	return nil
}

// LeavePoll is called when a poll that was admitted is answered.
func (a *Admission) LeavePoll(peerID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.total--
	down(a.perPeer, peerID)
}

// EnterPoller admits a client's first poll within the rate limit of new streams.
func (a *Admission) EnterPoller() *refusal.Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rate == nil || a.rate.Allow() {
		return nil
	}
	return refusal.New(codes.Unavailable, telemetry.LimitStreamsPerSecond, "poll: more new clients than downstream.limits.streams_per_second allows (%d)", a.limits.StreamsPerSecond)
}

func down[K comparable](counts map[K]int, k K) {
	if counts[k]--; counts[k] == 0 {
		delete(counts, k)
	}
}

// Streams is how many streams are on the connection.
func (a *Admission) Streams(on *Conn) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.perConn[on]
}
