package telemetry

import "xdsrelay/internal/xds"

// ClientState is the state of a type at a client, as operators see it.
type ClientState uint8

// The states.
const (
	ClientSynced      ClientState = iota // it accepted everything that it subscribes to
	ClientUnconfirmed                    // it keeps what it brought, until the origin answers
	ClientNotSent                        // it was sent nothing yet, or waits for the origin's answer
	ClientStale                          // it has not answered, or was not sent all of the newest
	ClientNacked                         // it NACKed the last response
	clientStates
)

var clientStateNames = [clientStates]string{ClientSynced: "synced", ClientUnconfirmed: "unconfirmed", ClientNotSent: "not_sent", ClientStale: "stale", ClientNacked: "nacked"}

func (s ClientState) String() string { return clientStateNames[s] }

// ClientStates counts types on streams, and REST clients. Use NewClientStates. It is not safe for
// concurrent use.
type ClientStates []typeClients // by typeIndex, then "other"

// typeClients counts the clients of a type.
type typeClients struct {
	states             [clientStates]int
	oversized, waiting int
}

// NewClientStates makes an empty ClientStates.
func NewClientStates() ClientStates { return make(ClientStates, len(typeLabels)) }

// ClientType is one type at one client.
type ClientType struct {
	State     ClientState
	Oversized bool // its newest response is too large to be sent
	Waiting   bool // it has waited for more than 30 s for the origin's answer
}

// Count counts one client's type.
func (s ClientStates) Count(url xds.TypeURL, of ClientType) {
	t := &s[indexOf(url)]
	t.states[of.State]++
	if of.Oversized {
		t.oversized++
	}
	if of.Waiting {
		t.waiting++
	}
}

// typeGauges show typeClients.
type typeGauges struct {
	states             [clientStates]*Gauge
	oversized, waiting *Gauge
}

// SetClientStates sets the gauges to the numbers of all clients.
func (m *Metrics) SetClientStates(s ClientStates) {
	for i, t := range s {
		for at, n := range t.states {
			m.clientStates[i].states[at].Set(n)
		}
		m.clientStates[i].oversized.Set(t.oversized)
		m.clientStates[i].waiting.Set(t.waiting)
	}
}

// TypeCount is a number of clients of a type.
type TypeCount struct {
	Type    string // the label
	Clients int
}

// Oversized returns the types whose newest response is too large for clients, as of the last
// SetClientStates.
func (m *Metrics) Oversized() (out []TypeCount) {
	for i := range m.clientStates {
		if n := m.clientStates[i].oversized.Value(); n > 0 {
			out = append(out, TypeCount{typeLabels[i], n})
		}
	}
	return out
}

// ClientState returns how many types on streams of clients were in a state when they were counted
// last.
func (m *Metrics) ClientState(at ClientState) int {
	n := 0
	for i := range m.clientStates {
		n += m.clientStates[i].states[at].Value()
	}
	return n
}

// Responses returns how many responses were sent to clients since the start, and how many of them
// clients acknowledged and NACKed.
func (m *Metrics) Responses() (sent, acks, nacks int64) {
	return m.responses.Load(), m.acks.Load(), m.nacks.Load()
}

// Limit is a configured limit with a gauge, to compare a number with.
type Limit string

// The limits.
const (
	MaxStreams     Limit = "streams"
	MaxKeys        Limit = "keys"
	MaxPinnedBytes Limit = "pinned_bytes"
)

var limits = []Limit{MaxStreams, MaxKeys, MaxPinnedBytes}

// Limit sets the gauge of a limit in force; 0: none.
func (m *Metrics) Limit(l Limit, n int64) { m.limits[l].Set(int(n)) }

func (m *Metrics) makeClientStates(version string) {
	if version == "" {
		version = "dev"
	}
	m.gauge("build_info", "1. The label version has the relay's version.", tags{"version": version}).Set(1)
	m.Ready = m.gauge("ready", "1 while the relay serves clients. 0 at the start and while it drains.", nil)
	m.PinnedBytes = m.gauge("pinned_bytes", "Bytes of old snapshots, unfinished messages and unanswered names that clients keep in memory.", nil)
	m.limits = byLabel(m.gauge, "limit", "Limits of downstream.limits in force. 0: no limit.", nil, "limit", limits)
	m.clientStates = make([]typeGauges, len(typeLabels))
	for i, label := range typeLabels {
		g := &m.clientStates[i]
		for at := range clientStates {
			g.states[at] = m.gauge("downstream_types", "Types on streams of clients, and REST clients, by state, counted every ten seconds.",
				tags{"type": label, "state": at.String()})
		}
		g.oversized = m.gauge("downstream_oversized_types", "Types on streams whose newest response is not sent because it is too large, counted every ten seconds.",
			tags{"type": label})
		g.waiting = m.gauge("downstream_waiting_types", "Types on streams, and REST clients, that have waited for more than 30 s for the origin's answer, counted every ten seconds.",
			tags{"type": label})
	}
}
