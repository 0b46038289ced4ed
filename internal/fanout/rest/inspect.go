package rest

import (
	"slices"
	"time"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// ID implements inspect.Client.
func (p *Poller) ID() uint64 { return p.id }

func (p *Poller) NodeID() string { return p.node.ID }

func (p *Poller) UserAgent() inspect.UserAgent {
	return inspect.UserAgent{Name: p.node.UserAgent, Version: p.node.UserAgentVersion}
}

// Status implements inspect.Client: a poller is shown as a stream of one type.
func (p *Poller) Status(look *inspect.Survey) inspect.ClientStatus {
	at, ps := p.newest(look.Now), p.srv.pollers
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return inspect.ClientStatus{
		Stream: p.id, Node: p.node.ID, Cluster: p.node.Cluster, UserAgent: p.node.UserAgent, UserAgentVersion: p.node.UserAgentVersion,
		Peer: p.Peer(), Identity: p.Identity(), Variant: telemetry.REST.String(), Since: p.opened, Types: []inspect.TypeStatus{p.status(&at)}, FullNode: p.node,
	}
}

func (p *Poller) AppendTypeStates(look *inspect.Survey, wanted func(xds.Key, xds.TypeURL) bool, to []inspect.TypeState) []inspect.TypeState {
	if !wanted(p.subscriber.Key(), p.typ.URL) {
		return to
	}
	return append(to, p.state(look.Now))
}

// state is the state of the poller. A client has what it was sent once it polls again with that
// version.
func (p *Poller) state(now time.Time) inspect.TypeState {
	at, ps := p.newest(now), p.srv.pollers
	out := inspect.TypeState{Key: p.subscriber.Key(), Type: p.typ.URL, Stream: p.id, Node: p.node.ID, Host: listener.Host(p.Peer())}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	t := p.status(&at)
	out.State, out.Since = t.State, t.Since
	if (t.State == inspect.StateNotSent || t.State == inspect.StateUnconfirmed) && at.unanswered {
		out.WaitingSince = t.Since
	}
	if at.newest != nil && t.State != inspect.StateUnconfirmed {
		out.Lineage = at.newest.Lineage
		switch {
		case p.sent == p.acked && !p.behind && (!at.ready || p.acked == at.version):
			out.Has = at.newest.Gen
		case p.ackedMark.Lineage == at.newest.Lineage:
			out.Has = p.ackedMark.Gen
		}
	}
	if t.State == inspect.StateNacked {
		out.Nack, out.Final = t.Nack, !t.Unsent
	}
	return out
}

// pollAnswer is what the newest snapshot has for a poller. ready: there is an answer, of this
// version. unanswered: the origin has not answered some requested names.
type pollAnswer struct {
	newest     *snapshot.Snapshot
	ready      bool
	unanswered bool
	version    string
	now        time.Time
}

func (p *Poller) newest(now time.Time) pollAnswer {
	at := pollAnswer{newest: p.subscriber.Newest(), now: now}
	if at.newest != nil {
		a := p.srv.opts.DocumentsOf(at.newest).document(at.newest, p.sub)
		at.ready, at.version, at.unanswered = a.ready, a.version, a.unanswered
	} else {
		at.unanswered = at.newest.AnyUnanswered(p.sub)
	}
	return at
}

// status is called under the table's lock.
func (p *Poller) status(at *pollAnswer) inspect.TypeStatus {
	t := inspect.TypeStatus{
		Type: string(p.typ.URL), Key: p.subscriber.Key().String(), Wildcard: p.sub.Wildcard, Names: p.sub.Names.Len(),
		Sends: p.given, Acks: p.acks, Nacks: p.nacks, Sent: p.sent, Acked: p.acked,
		Since: p.stateSince, Unsent: at.ready && at.version != p.sent,
	}
	if p.nacks > 0 {
		n := p.nack
		t.Nack = &n
	}
	switch {
	case p.sent == "" && !t.Unsent && !at.unanswered:
		t.State, t.Since = inspect.StateSynced, p.opened // there is nothing for it
	case p.sent == "" && !t.Unsent && p.sub.Resumes:
		t.State, t.Since = inspect.StateUnconfirmed, p.opened
	case p.sent == "":
		t.State, t.Since = inspect.StateNotSent, p.opened
	case p.nacked:
		t.State = inspect.StateNacked
	case p.behind, p.acked != p.sent: // its ACK is the next poll, which may take long
		since := p.stateSince
		t.State, t.PendingACKSince, t.PendingACKSeconds = inspect.StateStale, &since, at.now.Sub(since).Seconds()
	case t.Unsent:
		t.State = inspect.StateStale
	case at.unanswered:
		t.State, t.Since = inspect.StateNotSent, p.opened
	default:
		t.State = inspect.StateSynced
	}
	return t
}

// AppendUnacknowledged implements inspect.Client. The relay knows what a client was sent or
// rejected, and not what else it has.
func (p *Poller) AppendUnacknowledged(look *inspect.Survey, to []inspect.Unacknowledged) []inspect.Unacknowledged {
	at, ps := p.newest(look.Now), p.srv.pollers
	ps.mu.Lock()
	t := p.status(&at)
	u := inspect.Unacknowledged{
		Stream: p.id, Node: p.node.ID, Key: p.subscriber.Key(), Type: p.typ, State: t.State, Since: t.Since,
		AckedVersion: p.acked, Version: p.sent, Nack: t.Nack, Offer: snapshot.Offer{Sub: p.sub, Names: []string{}},
	}
	ps.mu.Unlock()
	if at.newest != nil {
		u.Lineage, u.Of = at.newest.Lineage, at.newest.Gen
	}
	switch {
	case t.State == inspect.StateSynced:
		return to
	case t.State == inspect.StateNacked:
		u.Version, u.Names = t.Nack.Version, nil
		return append(to, u)
	}
	u.Nack = nil
	switch {
	case t.Unsent:
		u.Version, u.Unsent = at.version, true
	case t.State == inspect.StateNotSent, t.State == inspect.StateUnconfirmed:
		u.Unanswered = inspect.FirstNames(at.newest.Unanswered(p.sub))
	}
	return append(to, u)
}

// pollConfig is the state of a poller at one moment. All names have the same state.
type pollConfig struct {
	sub    *snapshot.Subscription
	newest *snapshot.Snapshot // nil: nothing is known
	acked  string
	sent   bool
	nacked bool
	behind bool
	state  string
	nack   *subscriber.Nack
}

func (p *Poller) Config() (inspect.ClientConfig, bool) {
	return inspect.ClientConfig{
		Stream: p.id, Node: p.node, Peer: p.Peer(), Variant: telemetry.REST.String(), Conn: [2]string{p.caller.PeerID, p.Peer()}, Types: p.typeConfigs,
	}, true
}

func (p *Poller) typeConfigs() []inspect.TypeConfig {
	at, ps := p.newest(time.Now()), p.srv.pollers
	ps.mu.Lock()
	defer ps.mu.Unlock()
	t := p.status(&at)
	c := pollConfig{
		sub: p.sub, newest: at.newest, acked: p.acked, sent: p.sent != "", nacked: p.nacked, behind: t.State == inspect.StateStale, state: t.State, nack: t.Nack,
	}
	if c.state == inspect.StateNotSent && c.sent {
		c.state = inspect.StateSynced // except for the names that the origin has not answered
	}
	return []inspect.TypeConfig{{URL: p.typ.URL, Resources: c.resources}}
}

// resources are the resources that a poll would be sent, with what the client has of each.
func (c *pollConfig) resources(yield func(inspect.ResourceStatus) bool) {
	now := c.newest
	names := slices.Collect(c.sub.Names.All())
	now.Covered(c.sub, func(r *xds.Resource) bool {
		names = append(names, r.Name)
		return true
	})
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names {
		has, is := now.Look(c.sub, name)
		if is == snapshot.UnderOtherName {
			continue
		}
		r := inspect.ResourceStatus{Resource: session.Resource{Name: name, State: c.state, Error: now.Error(c.sub, name)}}
		switch {
		case is == snapshot.Present && !c.sent:
			r.State = inspect.StateNotSent
		case is == snapshot.Present && c.nacked:
			r.NameStatus, r.Version, r.Nacked, r.Nack, r.Updated = inspect.StatusNacked, c.acked, has, c.nack, now.Received
		case is == snapshot.Present && c.behind && c.acked == "":
			r.Updated = now.Received
		case is == snapshot.Present && c.behind:
			r.NameStatus, r.Updated = inspect.StatusUnknown, now.Received
		case is == snapshot.Present && c.acked != "":
			r.NameStatus, r.Version, r.Has, r.Updated = inspect.StatusAcked, c.acked, has, now.Received
		case r.Error != nil && !r.Error.Absent():
			r.NameStatus = inspect.StatusReceivedError
		case is == snapshot.Absent, is == snapshot.Unresolvable:
			if r.NameStatus = inspect.StatusDoesNotExist; !now.Type.FullState {
				r.State = inspect.StateSynced // P31: SotW has no way to say that it does not exist
			}
		case c.state == inspect.StateUnconfirmed:
			r.NameStatus = inspect.StatusUnknown
		case is == snapshot.Pending, is == snapshot.Expired:
			r.State = inspect.StateNotSent
		}
		if !yield(r) {
			return
		}
	}
}
