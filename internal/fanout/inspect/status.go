package inspect

import (
	"slices"
	"time"

	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/xds"
)

// ClientStatus is one client, for people to read: a stream, or what a client polls by REST.
type ClientStatus struct {
	Stream           uint64    `json:"stream"`
	Node             string    `json:"node"`
	Cluster          string    `json:"cluster,omitempty"`
	UserAgent        string    `json:"user_agent,omitempty"`
	UserAgentVersion string    `json:"user_agent_version,omitempty"`
	Peer             string    `json:"peer"`
	Identity         string    `json:"identity,omitempty"` // proven by its certificate
	Variant          string    `json:"variant"`
	Since            time.Time `json:"since"` // when the stream was opened
	// Sending is when a message was handed to the transport that the client has not taken
	// yet.
	Sending *time.Time   `json:"sending_since,omitempty"`
	Types   []TypeStatus `json:"types"`
	// Member is the relay that has the client. Only relay status --members sets it.
	Member string `json:"member,omitempty"`
	// FullNode is the whole node; nil before the first request. It may have secrets.
	FullNode *xds.Node `json:"-"`
}

// States of a type on a stream, as istioctl proxy-status has them, and StateUnconfirmed.
const (
	StateSynced      = session.StateSynced
	StateUnconfirmed = session.StateUnconfirmed
	StateNotSent     = session.StateNotSent
	StateStale       = session.StateStale
	StateNacked      = session.StateNacked
)

// States are the states of a type, from best to worst.
var States = []string{StateSynced, StateUnconfirmed, StateNotSent, StateStale, StateNacked}

// Worse returns the worse of two states. "" is better than any state.
func Worse(a, b string) string {
	if slices.Index(States, b) > slices.Index(States, a) {
		return b
	}
	return a
}

// TypeStatus is one type on a stream.
type TypeStatus struct {
	Type  string `json:"type"`
	Key   string `json:"key,omitempty"` // empty: the node has no key, and the type gets no response
	State string `json:"state"`
	// Since is when the state began. For STALE it is when the oldest response with a pending ACK
	// was sent, or else when the newest version came.
	Since time.Time `json:"since"`
	// Older: a newer stream of the node, on another connection, requests the same. This one may be
	// that of a connection that the node has lost.
	Older    bool `json:"older,omitempty"`
	Wildcard bool `json:"wildcard"`
	Names    int  `json:"names"`
	// Sent is the newest version of which the client was sent all that it requests, and Acked the
	// newest of which it acknowledged all that. A client that has everything has the newest
	// version, even if no response had that version.
	Sent  string           `json:"sent,omitempty"`
	Acked string           `json:"acked,omitempty"`
	Sends uint64           `json:"responses"`
	Acks  uint64           `json:"acks"`
	Nacks uint64           `json:"nacks"`
	Nack  *subscriber.Nack `json:"last_nack,omitempty"`
	// PendingACKSince is when the oldest response with a pending ACK was sent. PendingACKSeconds is
	// how long ago that is.
	PendingACKSince   *time.Time `json:"unanswered_since,omitempty"`
	PendingACKSeconds float64    `json:"unanswered_seconds,omitempty"`
	// Unsent: the newest snapshot has something for the client that was not sent yet.
	Unsent bool `json:"unsent,omitempty"`
	// Oversized: the newest response is not sent because it is too large (P38).
	Oversized *session.Oversized `json:"oversized,omitempty"`
}

// Status returns the status of the type.
func (t StreamType) Status(look *Survey) TypeStatus {
	at, s := t.state(look), t.Session
	out := TypeStatus{
		Type: string(s.Type.URL), Wildcard: s.Subscription().Wildcard, Names: s.Subscription().Names.Len(),
		State: at.state, Since: at.since, Unsent: at.unsent,
		Sends: t.sent, Acks: t.acks, Nacks: t.nacks, Nack: t.lastNack(),
		Acked: s.AckedVersion(), Sent: t.version, Oversized: s.Oversized(),
	}
	if t.Subscriber != nil {
		out.Key = t.Subscriber.Key().String()
	}
	if sent := s.PendingACKSince(); !sent.IsZero() {
		out.PendingACKSince, out.PendingACKSeconds = &sent, look.Now.Sub(sent).Seconds()
	}
	switch newest := t.newest(); {
	case (out.State == StateNotSent || out.State == StateUnconfirmed) && t.sent == 0:
		out.Acked = ""
	case (out.State == StateSynced || out.State == StateNotSent) && newest != nil && out.Acked != "":
		out.Acked = newest.Version
		if out.Sent != "" {
			out.Sent = newest.Version
		}
	}
	return out
}
