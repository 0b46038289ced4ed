package fanout

import (
	"cmp"
	"context"
	"iter"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/rest"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// Rekey computes the keys of all clients again, by the Joiner and the policies as they are now. It
// ends the clients that have another key now (P5), evenly over the time. It ends clients that a
// policy excludes at once; after the call they get nothing more. A call replaces an earlier one
// that has not finished: a client that has its old key again stays. Rekey returns at once; Run does
// the work.
func (s *Server) Rekey(period time.Duration) {
	k := s.rekeyer
	k.period.Store(int64(period))
	k.rulesVersion.Add(1)
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// PolicyChange is a change of a policy, as listener.Policy.Reconfigure makes it.
type PolicyChange struct {
	Policy   *listener.Policy
	Identity *expr.Predicate
	Secrets  string
}

// ChangeRules changes rules and policies together, and then calls Rekey. The function rules puts
// the rules into the Joiner. A client that connects meanwhile has to pass both the old policies and
// the new ones. If a client was admitted before the change and gets its key after the change began,
// the policies check it again at once. One call at a time.
func (s *Server) ChangeRules(policies []PolicyChange, rules func(), period time.Duration) {
	for _, c := range policies {
		c.Policy.Restrict(c.Identity, c.Secrets)
	}
	s.rekeyer.rulesVersion.Add(1)
	rules()
	for _, c := range policies {
		c.Policy.Reconfigure(c.Identity, c.Secrets)
	}
	s.Rekey(period)
}

// rekeyer ends the streams and pollers whose keys changed. A type may look up its key while the
// rules change. Then one of two notices: the rekeyer, which reads all types after the version
// has changed, or the stream, which reads the version again after it has added the type.
type rekeyer struct {
	srv          *Server
	rulesVersion atomic.Uint64 // counts calls of Rekey and ChangeRules
	period       atomic.Int64  // of the last call: see drainPace
	wake         chan struct{} // has one slot

	doneVersion              atomic.Uint64 // the version of the last call that is finished
	checked, clients, ending atomic.Int64  // see Rekeying
}

// Rekeying says how far the last Rekey is: of how many of the clients it has computed the keys, and how
// many still have to end. inWork: it is not finished.
func (s *Server) Rekeying() (checked, clients, ending int64, inWork bool) {
	k := s.rekeyer
	inWork = k.doneVersion.Load() != k.rulesVersion.Load()
	return k.checked.Load(), k.clients.Load(), k.ending.Load(), inWork
}

func newRekeyer(s *Server) *rekeyer { return &rekeyer{srv: s, wake: make(chan struct{}, 1)} }

// run ends clients until ctx ends.
func (k *rekeyer) run(ctx context.Context) {
	var left []staleClient
	var p drainPace
	var rulesVersion uint64
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
			rulesVersion = k.rulesVersion.Load()
			period := time.Duration(k.period.Load())
			left = k.srv.stillOpen(k.find(period))
			p = drainPace{began: time.Now(), period: period} // find may take longer than the period
		case <-timer.C:
			left = k.srv.stillOpen(left)
		}
		now := p.due(time.Now(), len(left))
		for _, c := range left[:now] {
			c.end(c.refused)
		}
		left = left[now:]
		k.ending.Store(int64(len(left)))
		if len(left) > 0 {
			timer.Reset(drainTick)
		} else {
			k.doneVersion.Store(rulesVersion)
			timer.Reset(time.Hour)
		}
	}
}

// staleClient is a stream or poller that has to end.
type staleClient struct {
	ended   func() bool // it ended, or was told to; called under the server's lock
	end     func(*refusal.Refusal)
	refused *refusal.Refusal
}

// stillOpen drops the clients that have ended by themselves. When the relay drains it drops all,
// since Drain ends them.
func (s *Server) stillOpen(cs []staleClient) []staleClient {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return nil
	}
	return slices.DeleteFunc(cs, func(c staleClient) bool { return c.ended() })
}

// find checks the keys of all clients. It ends those that a policy excludes, and returns the others
// that have to end. Those that have no key now come first. It holds no lock meanwhile. The Joiner
// remembers the keys of equal nodes.
func (k *rekeyer) find(period time.Duration) []staleClient {
	s, all, excluded := k.srv, 0, 0
	var refused, moving []staleClient
	add := func(end func(*refusal.Refusal), ended func() bool, r *refusal.Refusal) {
		all++
		switch {
		case r == nil:
		case r.Reason == telemetry.Identity, r.Reason == telemetry.Secrets:
			excluded++
			end(r)
		case r.Code == codes.PermissionDenied:
			refused = append(refused, staleClient{ended, end, r})
		default:
			moving = append(moving, staleClient{ended, end, r})
		}
	}
	streams, pollers := s.all(), s.rest.Pollers()
	k.checked.Store(0)
	k.clients.Store(int64(len(streams) + len(pollers)))
	for _, st := range streams {
		if st.refusal.Load() == nil {
			gone := func() bool { return st.refusal.Load() != nil || s.streams[st.id] != st }
			add(st.End, gone, st.checkKeys())
		}
		k.checked.Add(1)
	}
	for _, p := range pollers {
		if p.Refusal() == nil {
			add(p.End, func() bool { return p.Refusal() != nil }, p.CheckKey())
		}
		k.checked.Add(1)
	}
	if len(moving)+len(refused)+excluded == 0 {
		s.log.Info("rules, identity or secrets changed: every client keeps its keys", "clients", all)
		return nil
	}
	s.log.Info("rules, identity or secrets changed: the relay ends the affected streams", "moving", len(moving), "refused", len(refused)+excluded, "clients", all, "over", period.String())
	return slices.Concat(refused, moving)
}

// keyedType is a type of a stream, with its key and the node from which that was computed.
type keyedType struct {
	typ  xds.Type
	node *xds.Node
	key  xds.Key // zero: the type gets no response (P5, P6)
}

// changesOf returns the types of a client that have other keys by these rules. It also returns the
// refusal that the client would get if it connected now. only: the stream is of a single type.
func changesOf(c *listener.Caller, keyOf subscriber.KeyOf, only bool, node *xds.Node, types []keyedType) (out []subscriber.Change, refused *refusal.Refusal) {
	some := false // has a key
	for _, t := range types {
		now := subscriber.Change{Type: t.typ.URL, From: t.key}
		ends := only // a stream of Secrets; on others Secrets get no response (P6)
		if denied := c.MayHave(t.typ); denied != nil {
			now.Refused = denied
		} else {
			now.Apply(keyOf, t.node, c.Peer)
			ends = !some
		}
		if now.Refused != nil && ends && refused == nil {
			refused = subscriber.AsRefusal(now.Refused)
		}
		some = some || now.Refused == nil
		if now.From != now.To {
			out = append(out, now)
		}
	}
	return out, refused
}

// excluded returns why the policy, as it is now, excludes the client, or denies it the Secrets that
// it gets; nil: it does not.
func (st *stream) excluded() *refusal.Refusal {
	node, types := st.keyedTypes()
	if node == nil {
		return nil // its first request is checked by the policy in force then
	}
	if refused := st.caller.Admit(node); refused != nil {
		return refused
	}
	for _, t := range types {
		if denied := st.caller.MayHave(t.typ); denied != nil && !t.key.IsZero() {
			if st.only != "" {
				return denied
			}
			return refusal.New(codes.Unavailable, telemetry.Secrets, "stream: %w", denied.Err) // the client comes back without them
		}
	}
	return nil
}

// stillAdmitted ends the stream if the policy excludes its client since a change. Otherwise it
// costs an atomic load. The worker calls it that has the stream.
func (st *stream) stillAdmitted() bool {
	rulesVersion := st.srv.rekeyer.rulesVersion.Load()
	if rulesVersion == st.checkedRules {
		return true
	}
	if refused := st.excluded(); refused != nil {
		st.End(refused)
		return false
	}
	st.checkedRules = rulesVersion
	return true
}

// checkKeys returns why the stream has to end by the rules as they are now; nil: it stays.
func (st *stream) checkKeys() *refusal.Refusal {
	if refused := st.excluded(); refused != nil || st.srv.opts.RelayKey != nil { // a relay says which key it wants
		return refused
	}
	changes, refused := st.changes(st.srv.joiner.KeyOf)
	switch {
	case refused != nil:
		return refused
	case len(changes) == 0:
		return nil
	}
	return changes[0].KeyChanged("stream")
}

func (st *stream) changes(keyOf subscriber.KeyOf) ([]subscriber.Change, *refusal.Refusal) {
	node, types := st.keyedTypes()
	if node == nil {
		return nil, nil // its first request is checked by the rules in force then
	}
	return changesOf(st.caller, keyOf, st.only != "", node, types)
}

// keyedTypes returns the stream's node and its types, in the order of their first requests.
func (st *stream) keyedTypes() (*xds.Node, []keyedType) {
	st.mu.Lock()
	defer st.mu.Unlock()
	out := make([]keyedType, len(st.types))
	for _, ty := range st.types {
		i := bits.TrailingZeros64(ty.bit)
		out[i] = keyedType{typ: *ty.Type, node: ty.node}
		if ty.subscriber != nil {
			out[i].key = ty.subscriber.Key()
		}
	}
	return st.node, out
}

// addChecked adds a type to the stream, after those that are sent before it. If the rules changed
// since its key was looked up, the rekeyer may have missed the type. Then the stream checks its
// keys itself.
func (st *stream) addChecked(ty *streamType, rulesVersion uint64) (*streamType, *refusal.Refusal) {
	st.mu.Lock()
	if ty.unanswered != nil {
		ty.unanswered.Add(1)
	}
	at, _ := slices.BinarySearchFunc(st.types, ty.Type.Order+1, func(s *streamType, o uint8) int { return int(s.Type.Order) - int(o) })
	types := slices.Clone(st.types)
	if types == nil {
		types = st.first[:0]
	}
	st.types = slices.Insert(types, at, ty)
	st.mu.Unlock()
	if st.srv.rekeyer.rulesVersion.Load() != rulesVersion {
		return ty, st.checkKeys()
	}
	return ty, nil
}

// RekeyPreview is what other rules would change for a client.
type RekeyPreview struct {
	Stream   uint64 // as in inspect.ClientStatus
	Node     string
	Peer     string
	Identity string // proven by its certificate
	// Changes are the types that would have other keys; none: the client would stay.
	Changes []subscriber.Change
}

// PreviewRekey yields what Rekey would do by rules that are not in force, for the clients with
// higher IDs than after, in the order of their IDs. It computes the keys of a client when the
// caller asks for the next one, and holds no lock meanwhile.
func (s *Server) PreviewRekey(after uint64, keyOf subscriber.KeyOf) iter.Seq[RekeyPreview] {
	type client struct {
		id      uint64
		preview func() RekeyPreview
	}
	var all []client
	for _, st := range s.all() {
		if st.id > after && st.refusal.Load() == nil {
			all = append(all, client{st.id, func() RekeyPreview { return st.preview(keyOf) }})
		}
	}
	for _, p := range s.rest.Pollers() {
		if p.ID() > after && p.Refusal() == nil {
			all = append(all, client{p.ID(), func() RekeyPreview { return previewPoller(p, keyOf) }})
		}
	}
	slices.SortFunc(all, func(a, b client) int { return cmp.Compare(a.id, b.id) })
	return func(yield func(RekeyPreview) bool) {
		for _, c := range all {
			if !yield(c.preview()) {
				return
			}
		}
	}
}

func (st *stream) preview(keyOf subscriber.KeyOf) RekeyPreview {
	out := RekeyPreview{Stream: st.id, Node: st.NodeID(), Peer: st.from, Identity: st.caller.Identity()}
	out.Changes, _ = st.changes(keyOf)
	return out
}

func previewPoller(p *rest.Poller, keyOf subscriber.KeyOf) RekeyPreview {
	out := RekeyPreview{Stream: p.ID(), Node: p.NodeID(), Peer: p.Peer(), Identity: p.Identity()}
	if c := p.Change(keyOf); c.From != c.To {
		out.Changes = []subscriber.Change{c}
	}
	return out
}
