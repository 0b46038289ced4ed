package fanout

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"xdsrelay/internal/fanout/session"
)

// ClientStatus is one stream, for people to read.
type ClientStatus struct {
	Stream    uint64    `json:"stream"`
	Node      string    `json:"node"`
	Cluster   string    `json:"cluster,omitempty"`
	UserAgent string    `json:"user_agent,omitempty"`
	Peer      string    `json:"peer"`
	Identity  string    `json:"identity,omitempty"` // that its certificate proves
	Variant   string    `json:"variant"`
	Since     time.Time `json:"since"`
	// Sending is since when a message waits for the client to take it from the
	// transport.
	Sending *time.Time   `json:"sending_since,omitempty"`
	Types   []TypeStatus `json:"types"`
}

// States of a type on a stream, as istioctl proxy-status has them.
const (
	Synced     = session.Synced
	NotSent    = session.NotSent
	Unanswered = session.Unanswered
	Refused    = session.Refused
)

// TypeStatus is one type on a stream.
type TypeStatus struct {
	Type  string `json:"type"`
	Key   string `json:"key,omitempty"` // empty: maps to no key, unanswered
	State string `json:"state"`
	// Since is when that began. Of STALE: when the oldest unanswered response was
	// sent, or else when the newest version came.
	Since    time.Time `json:"since"`
	Wildcard bool      `json:"wildcard"`
	Names    int       `json:"names"`
	// Sent and Acked are the versions of which it was sent, and took, all that concerns
	// it: of who has all that there is the newest, whichever was the last that it was told of.
	Sent  string `json:"sent,omitempty"`
	Acked string `json:"acked,omitempty"`
	Sends uint64 `json:"responses"`
	Acks  uint64 `json:"acks"`
	Nacks uint64 `json:"nacks"`
	Nack  *Nack  `json:"last_nack,omitempty"`
	// Unanswered is when the oldest response was sent that has no answer yet, and
	// UnansweredFor how long ago that is, in seconds.
	Unanswered    *time.Time `json:"unanswered_since,omitempty"`
	UnansweredFor float64    `json:"unanswered_seconds,omitempty"`
	// Unsent: the newest has something for the client that it was not sent yet, for
	// whichever reason.
	Unsent bool `json:"unsent,omitempty"`
	// Oversized: the newest response is not sent because it is too large (P38).
	Oversized *session.Oversized `json:"oversized,omitempty"`
}

// Clients returns all streams, and all that polls, by node and stream. It locks
// one stream at a time, for as long as it takes to copy a few words.
func (s *Server) Clients() []ClientStatus {
	out := slices.Collect(s.ClientsAfter(0))
	slices.SortFunc(out, func(a, b ClientStatus) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Stream, b.Stream))
	})
	return out
}

// ClientsAfter yields the streams with a higher number than after, and what polls, in
// order of their numbers: who wants a page looks at no more than that.
func (s *Server) ClientsAfter(after uint64) iter.Seq[ClientStatus] {
	return func(yield func(ClientStatus) bool) {
		streams := slices.DeleteFunc(s.all(), func(st *stream) bool { return st.id <= after })
		polls := slices.DeleteFunc(s.pollers.all(), func(p *poller) bool { return p.id <= after })
		look := newSurvey()
		inOrder(streams, polls, func(st *stream) bool {
			return yield(st.status(look))
		}, func(p *poller) bool {
			return yield(s.pollers.client(p))
		})
	}
}

// inOrder calls one and poll for all, in order of their numbers, until one says
// that it is enough.
func inOrder(streams []*stream, polls []*poller, one func(*stream) bool, poll func(*poller) bool) {
	slices.SortFunc(streams, func(a, b *stream) int { return cmp.Compare(a.id, b.id) })
	slices.SortFunc(polls, func(a, b *poller) int { return cmp.Compare(a.id, b.id) })
	for more := true; more && len(streams)+len(polls) > 0; {
		if len(polls) == 0 || len(streams) > 0 && streams[0].id < polls[0].id {
			more, streams = one(streams[0]), streams[1:]
		} else {
			more, polls = poll(polls[0]), polls[1:]
		}
	}
}

func (st *stream) status(look *survey) ClientStatus {
	c := ClientStatus{Stream: st.id, Peer: st.from, Variant: st.variant.String(), Since: st.opened}
	if st.flying.Load() != nil {
		since := time.Unix(0, st.since.Load())
		c.Sending = &since
	}
	if st.caller.Verified() {
		c.Identity = st.caller.Account
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.node != nil {
		c.Node, c.Cluster, c.UserAgent = st.node.ID, st.node.Cluster, st.node.UserAgent
	}
	c.Types = make([]TypeStatus, 0, len(st.order))
	for _, sl := range st.order {
		c.Types = append(c.Types, sl.status(look))
	}
	return c
}

// status of a type. Under the stream's lock.
func (s *slot) status(look *survey) TypeStatus {
	at := s.stands(look)
	t := TypeStatus{
		Type: string(s.Type.URL), Wildcard: s.Subscription().Wildcard, Names: s.Subscription().Names.Len(),
		State: at.state, Since: at.since, Unsent: at.unsent,
		Sends: s.counts.sent, Acks: s.counts.acks, Nacks: s.counts.nacks,
		Acked: s.AckedVersion(), Sent: s.version, Oversized: s.Oversized(),
	}
	if s.member != nil {
		t.Key = s.member.Key().String()
	}
	if s.nack != nil {
		n := *s.nack
		t.Nack = &n
	}
	if sent := s.UnansweredSince(); !sent.IsZero() {
		t.Unanswered, t.UnansweredFor = &sent, look.now.Sub(sent).Seconds()
	}
	switch newest := s.coming(); {
	case t.State == NotSent && s.counts.sent == 0:
		t.Acked = ""
	case (t.State == Synced || t.State == NotSent) && newest != nil && t.Acked != "":
		t.Acked = newest.Version
		if t.Sent != "" {
			t.Sent = newest.Version
		}
	}
	return t
}
