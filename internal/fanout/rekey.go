package fanout

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// KeyOf says which key a client has for a type: a Source does, and so do rules that
// are not in force.
type KeyOf func(node *xds.Node, peer expr.Peer, typ xds.TypeURL) (xds.Key, error)

// Rekey has the key of every type of every client computed anew, by the Source
// and the gates as they are now, and ends those of which one is another (P5),
// evenly over the time. What is under way of an earlier call is taken up anew: who
// is back at its old key stays. It returns at once; Run does it.
func (s *Server) Rekey(over time.Duration) {
	m := s.mover
	m.over.Store(int64(over))
	m.era.Add(1)
	select {
	case m.told <- struct{}{}:
	default:
	}
}

// Turned is a gate of which others hold, as in listener.Gate.Reconfigure.
type Turned struct {
	Gate     *listener.Gate
	Identity *expr.Predicate
	Secrets  string
}

// Turn changes rules and gates together, and then calls Rekey. The function puts the rules
// into the Source. A client that comes meanwhile has to pass both the old gates and the new
// ones. A client that was let in before, and gets its key after the change began, is asked
// by the gates again at once. One call at a time.
func (s *Server) Turn(gates []Turned, rules func(), over time.Duration) {
	for _, t := range gates {
		t.Gate.Narrow(t.Identity, t.Secrets)
	}
	s.mover.era.Add(1)
	rules()
	for _, t := range gates {
		t.Gate.Reconfigure(t.Identity, t.Secrets)
	}
	s.Rekey(over)
}

// mover ends the streams and pollers whose keys changed. A stream that looks up
// its key just then is seen by one of two: by the mover, which looks at it after
// the era has changed, or by the stream itself, which looks at the era again after
// others can see its slot.
type mover struct {
	srv  *Server
	era  atomic.Uint64 // counts Rekeys, and what Turn begins
	over atomic.Int64  // of the last one
	told chan struct{} // one slot
}

func newMover(s *Server) *mover { return &mover{srv: s, told: make(chan struct{}, 1)} }

// run ends them until ctx ends.
func (m *mover) run(ctx context.Context) {
	var left []leaver
	var p spread
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.told:
			p = spread{began: time.Now(), over: time.Duration(m.over.Load())}
			left = m.srv.staying(m.look(p.over))
		case <-timer.C:
			left = m.srv.staying(left)
		}
		now := p.due(time.Now(), len(left))
		for _, l := range left[:now] {
			l.end(l.refusal)
		}
		if left = left[now:]; len(left) > 0 {
			timer.Reset(spreadEvery)
		} else {
			timer.Reset(time.Hour)
		}
	}
}

// leaver is a client that is to end.
type leaver struct {
	over    func() bool // it has ended, or was told to, by others; under the server's lock
	end     func(*Refusal)
	refusal *Refusal
}

// staying are those that did not end by themselves. When the relay drains it is
// none: all are ended then.
func (s *Server) staying(ls []leaver) []leaver {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return nil
	}
	return slices.DeleteFunc(ls, func(l leaver) bool { return l.over() })
}

// look holds all clients against the rules, and returns those that are to end,
// those first who may not be here any more. No lock is held while it does, and
// equal nodes are evaluated once, as far as the rules remember them.
func (m *mover) look(over time.Duration) []leaver {
	s, all := m.srv, 0
	var refused, moving []leaver
	add := func(end func(*Refusal), over func() bool, r *Refusal) {
		all++
		switch {
		case r == nil:
		case r.Code == codes.PermissionDenied:
			refused = append(refused, leaver{over, end, r})
		default:
			moving = append(moving, leaver{over, end, r})
		}
	}
	for _, st := range s.all() {
		if st.refusal.Load() == nil {
			gone := func() bool { return st.refusal.Load() != nil || s.streams[st.id] != st }
			add(st.end, gone, st.judge())
		}
	}
	for _, p := range s.pollers.all() {
		if p.refusal.Load() == nil {
			add(p.End, func() bool { return p.refusal.Load() != nil }, p.judge())
		}
	}
	if len(moving)+len(refused) == 0 {
		s.log.Info("rules, identity or secrets changed: every client keeps its keys", "clients", all)
		return nil
	}
	s.log.Info("rules, identity or secrets changed: clients that lose their keys are ended", "moving", len(moving), "refused", len(refused), "clients", all, "over", over.String())
	return slices.Concat(refused, moving)
}

// standing is a type of a client, with the key that it has, and from what it was
// computed.
type standing struct {
	typ  xds.Type
	node *xds.Node
	key  xds.Key // zero: the type stays unanswered (P5, P6)
}

// Change is what other rules make of a type of a client.
type Change struct {
	Type xds.TypeURL
	// From and To are keys; the zero Key: none.
	From, To xds.Key
	// Refused is why it would have none.
	Refused error
}

func (c *Change) ask(keyOf KeyOf, node *xds.Node, peer expr.Peer) {
	if key, err := keyOf(node, peer, c.Type); err != nil {
		c.Refused = err
	} else {
		c.To = key
	}
}

// changesOf are the types of a client whose keys are others by these rules, and the
// refusal with which it would be ended if it came now, as join has it.
func changesOf(c *listener.Caller, keyOf KeyOf, only bool, node *xds.Node, types []standing) (out []Change, refusal *Refusal) {
	if refusal := c.Admit(node); refusal != nil {
		return nil, refusal
	}
	some := false // has a key
	for _, h := range types {
		now := Change{Type: h.typ.URL, From: h.key}
		ends := only // a stream of Secrets; on others they stay unanswered (P6)
		if denied := c.MayHave(h.typ); denied != nil {
			now.Refused = denied
		} else {
			now.ask(keyOf, h.node, c.Peer)
			ends = !some
		}
		if now.Refused != nil && ends && refusal == nil {
			refusal = asRefusal(now.Refused)
		}
		some = some || now.Refused == nil
		if now.From != now.To {
			out = append(out, now)
		}
	}
	return out, refusal
}

func asRefusal(err error) *Refusal {
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	return Refuse(codes.PermissionDenied, telemetry.Unmapped, "%w", err)
}

// verdict is how a client with these changes ends; nil: it stays.
func verdict(what string, changes []Change, refusal *Refusal) *Refusal {
	switch {
	case refusal != nil:
		return refusal
	case len(changes) == 0:
		return nil
	}
	c := &changes[0]
	is := "none"
	if !c.To.IsZero() {
		is = c.To.String()
	}
	return Refuse(codes.Unavailable, telemetry.KeyChanged, "%s: the rules have changed: the key for %s is %s now", what, c.Type, is)
}

// judge holds a stream against the rules as they are now; nil: it stays.
func (st *stream) judge() *Refusal {
	changes, refusal := st.changes(st.srv.source.KeyOf)
	return verdict("stream", changes, refusal)
}

func (st *stream) changes(keyOf KeyOf) ([]Change, *Refusal) {
	node, types := st.standings()
	if node == nil {
		return nil, nil // its first request will be held against what is in force then
	}
	return changesOf(st.caller, keyOf, st.only != "", node, types)
}

// standings are the stream's types in the order in which they spoke first.
func (st *stream) standings() (*xds.Node, []standing) {
	st.mu.Lock()
	defer st.mu.Unlock()
	out := make([]standing, len(st.slots))
	for i, sl := range st.slots {
		out[i] = standing{typ: sl.Type, node: sl.node}
		if sl.member != nil {
			out[i].key = sl.member.Key()
		}
	}
	return st.node, out
}

// placed adds the slot to the stream. If the rules may be others than when its key
// was looked up, nobody else may have seen that it has another by now.
func (st *stream) placed(sl *slot, era uint64) (*slot, *Refusal) {
	st.place(sl)
	st.tellRouted()
	if st.srv.mover.era.Load() != era {
		return sl, st.judge()
	}
	return sl, nil
}

// judge holds a poller against the rules as they are now; nil: it stays. Each poll asks
// whether it may poll, and asks again before it is answered.
func (p *poller) judge() *Refusal {
	if c := p.change(p.srv.source.KeyOf); c.Refused != nil {
		return asRefusal(c.Refused)
	} else if c.From != c.To {
		return verdict("poll", []Change{c}, nil)
	}
	return nil
}

func (p *poller) change(keyOf KeyOf) Change {
	c := Change{Type: p.typ.URL, From: p.member.Key()}
	c.ask(keyOf, p.node, expr.Peer{Address: p.address})
	return c
}
