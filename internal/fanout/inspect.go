package fanout

import (
	"cmp"
	"time"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/xds"
)

// inspected returns all clients: streams and REST pollers.
func (s *Server) inspected() []inspect.Client {
	streams, pollers := s.all(), s.rest.Pollers()
	out := make([]inspect.Client, 0, len(streams)+len(pollers))
	for _, st := range streams {
		out = append(out, st)
	}
	for _, p := range pollers {
		out = append(out, p)
	}
	return out
}

// ID implements inspect.Client.
func (st *stream) ID() uint64 { return st.id }

// noNode stands for the node before the first request.
var noNode = new(xds.Node)

func (st *stream) nodeNow() *xds.Node {
	st.mu.Lock()
	defer st.mu.Unlock()
	return cmp.Or(st.node, noNode)
}

func (st *stream) NodeID() string { return st.nodeNow().ID }

func (st *stream) UserAgent() inspect.UserAgent {
	n := st.nodeNow()
	return inspect.UserAgent{Name: n.UserAgent, Version: n.UserAgentVersion}
}

func (st *stream) Status(look *inspect.Survey) inspect.ClientStatus {
	c := inspect.ClientStatus{Stream: st.id, Peer: st.from, Variant: st.variant.String(), Since: st.opened, Identity: st.caller.Identity()}
	if st.inFlight.Load() != nil {
		since := time.Unix(0, st.since.Load())
		c.Sending = &since
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.node != nil {
		c.Node, c.Cluster, c.FullNode = st.node.ID, st.node.Cluster, st.node
		c.UserAgent, c.UserAgentVersion = st.node.UserAgent, st.node.UserAgentVersion
	}
	c.Types = make([]inspect.TypeStatus, 0, len(st.types))
	for _, ty := range st.types {
		c.Types = append(c.Types, ty.inspected().Status(look))
	}
	return c
}

func (st *stream) AppendTypeStates(look *inspect.Survey, wanted func(xds.Key, xds.TypeURL) bool, to []inspect.TypeState) []inspect.TypeState {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, ty := range st.types {
		if ty.subscriber == nil || !wanted(ty.subscriber.Key(), ty.Type.URL) {
			continue
		}
		s := ty.inspected().TypeState(look)
		s.Stream, s.Node, s.Host, s.Conn = st.id, st.node.ID, listener.Host(st.from), st.conn
		to = append(to, s)
	}
	return to
}

func (st *stream) AppendUnacknowledged(look *inspect.Survey, to []inspect.Unacknowledged) []inspect.Unacknowledged {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, ty := range st.types {
		if u, ok := ty.inspected().Unacknowledged(look); ok {
			u.Stream, u.Node = st.id, st.node.ID
			if f := st.inFlight.Load(); f != nil && f.typ == ty.Type.URL {
				size := st.size.Load()
				u.Sending = &inspect.Sending{Since: time.Unix(0, st.since.Load()), Bytes: size, Received: min(max(st.conn.Delivered()-st.before.Load(), 0), size)}
			}
			to = append(to, u)
		}
	}
	return to
}

func (st *stream) Config() (inspect.ClientConfig, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	return inspect.ClientConfig{Stream: st.id, Node: st.node, Peer: st.from, Variant: st.variant.String(), Conn: st.conn, Types: st.typeConfigs}, st.node != nil
}

func (st *stream) typeConfigs() (out []inspect.TypeConfig) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, ty := range st.types {
		if c, ok := ty.inspected().Config(); ok {
			out = append(out, c)
		}
	}
	return out
}

// inspected is the type as package inspect reads it. The stream's lock is held.
func (t *streamType) inspected() inspect.StreamType {
	return inspect.StreamType{Session: &t.Session, Subscriber: t.subscriber, NoKey: t.noKey, Tracker: &t.track}
}
