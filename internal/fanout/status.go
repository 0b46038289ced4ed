package fanout

import (
	"cmp"
	"slices"
	"time"
)

// ClientStatus is one stream, for people to read.
type ClientStatus struct {
	Stream    uint64       `json:"stream"`
	Node      string       `json:"node"`
	Cluster   string       `json:"cluster,omitempty"`
	UserAgent string       `json:"user_agent,omitempty"`
	Peer      string       `json:"peer"`
	Identity  string       `json:"identity,omitempty"` // that its certificate proves
	Variant   string       `json:"variant"`
	Since     time.Time    `json:"since"`
	Types     []TypeStatus `json:"types"`
}

// States of a type on a stream, as istioctl proxy-status has them.
const (
	Synced     = "SYNCED"   // took the newest that was sent
	NotSent    = "NOT SENT" // nothing was sent yet
	Unanswered = "STALE"    // has not answered, or has not been sent all of the newest
	Refused    = "NACKED"   // refused the last it answered
)

// TypeStatus is one type on a stream.
type TypeStatus struct {
	Type     string `json:"type"`
	Key      string `json:"key,omitempty"` // empty: maps to no key, unanswered
	State    string `json:"state"`
	Wildcard bool   `json:"wildcard"`
	Names    int    `json:"names"`
	Sent     string `json:"sent,omitempty"`  // version_info
	Acked    string `json:"acked,omitempty"` // version_info
	Sends    uint64 `json:"responses"`
	Acks     uint64 `json:"acks"`
	Nacks    uint64 `json:"nacks"`
	Nack     *Nack  `json:"last_nack,omitempty"`
	// Held are resources whose removal waits for routes and listeners (P36).
	Held int `json:"held,omitempty"`
	// Oversized: the newest is not sent, or not all of it, for its size (P38).
	Oversized *Oversized `json:"oversized,omitempty"`
}

// Clients returns all streams, and all that polls, by node and stream. It locks
// one stream at a time, for as long as it takes to copy a few words.
func (s *Server) Clients() []ClientStatus {
	streams := s.all()
	out := make([]ClientStatus, 0, len(streams))
	for _, st := range streams {
		out = append(out, st.status())
	}
	out = append(out, s.pollers.clients()...)
	slices.SortFunc(out, func(a, b ClientStatus) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Stream, b.Stream))
	})
	return out
}

func (st *stream) status() ClientStatus {
	st.mu.Lock()
	defer st.mu.Unlock()
	c := ClientStatus{Stream: st.id, Peer: st.from, Variant: st.variant.String(), Since: st.opened}
	if st.caller.verified {
		c.Identity = st.caller.Account
	}
	if st.node != nil {
		c.Node, c.Cluster, c.UserAgent = st.node.ID, st.node.Cluster, st.node.UserAgent
	}
	for _, sl := range st.order {
		c.Types = append(c.Types, sl.status())
	}
	return c
}

// status of a type. Under the stream's lock.
func (s *slot) status() TypeStatus {
	t := TypeStatus{
		Type: string(s.typ.URL), Wildcard: s.sub.Wildcard, Names: s.sub.Names.Len(),
		Sends: s.counts.sent, Acks: s.counts.acks, Nacks: s.counts.nacks,
		Acked: s.acked, Sent: s.version, Held: len(s.over().all()), Oversized: s.unsent(),
	}
	if s.member != nil {
		t.Key = s.member.Key().String()
	}
	if s.counts.nacks > 0 {
		n := s.nack
		t.Nack = &n
	}
	switch {
	case s.counts.sent == 0:
		t.State, t.Acked = NotSent, ""
	case s.refuses:
		t.State = Refused
	case len(s.flights) > 0 || s.parts != nil || s.stuck != nil:
		t.State = Unanswered
	default:
		t.State = Synced
	}
	return t
}
