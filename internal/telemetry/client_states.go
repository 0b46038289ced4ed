package telemetry

import "xdsrelay/internal/xds"

// ClientState is the state of a type at a client, as operators see it.
type ClientState uint8

// The states.
const (
	ClientSynced  ClientState = iota // it accepted everything that it subscribes to
	ClientNotSent                    // it was sent nothing yet, or waits for the origin's answer
	ClientStale                      // it has not answered, or was not sent all of the newest
	ClientNacked                     // it NACKed the last response
	clientStates
)

var clientStateNames = [clientStates]string{ClientSynced: "synced", ClientNotSent: "not_sent", ClientStale: "stale", ClientNacked: "nacked"}

func (s ClientState) String() string { return clientStateNames[s] }

// ClientStates counts clients by type and state. The zero value is empty. It is not safe for
// concurrent use.
type ClientStates [][clientStates]int

// Count counts one client's type.
func (s *ClientStates) Count(url xds.TypeURL, at ClientState) {
	if *s == nil {
		*s = make(ClientStates, len(typeLabels))
	}
	i, ok := typeIndex[url]
	if !ok {
		i = len(typeLabels) - 1
	}
	(*s)[i][at]++
}

// SetClientStates sets the gauges to the numbers of all clients.
func (m *Metrics) SetClientStates(s ClientStates) {
	for i := range m.clientStates {
		for at := range clientStates {
			n := 0
			if s != nil {
				n = s[i][at]
			}
			m.clientStates[i][at].Set(n)
		}
	}
}

// ClientState returns how many types on streams of clients were in a state when they were counted
// last.
func (m *Metrics) ClientState(at ClientState) int {
	n := 0
	for i := range m.clientStates {
		n += m.clientStates[i][at].Value()
	}
	return n
}

// Responses returns how many responses were sent to clients since the start, and how many of them
// clients acknowledged and NACKed.
func (m *Metrics) Responses() (sent, acks, nacks int64) {
	return m.responses.Load(), m.acks.Load(), m.nacks.Load()
}

// Limit is a configured limit with a gauge, to compare a number with.
type Limit uint8

// The limits.
const (
	MaxStreams Limit = iota
	MaxKeys
	MaxPinnedBytes
	limits
)

var limitNames = [limits]string{MaxStreams: "streams", MaxKeys: "keys", MaxPinnedBytes: "pinned_bytes"}

func (l Limit) String() string { return limitNames[l] }

// Limit sets the gauge of a limit in force; 0: none.
func (m *Metrics) Limit(l Limit, n int64) { m.limits[l].Set(int(n)) }

// makeClientStates makes the gauges of clients' states, limits and readiness.
func (m *Metrics) makeClientStates(version string) {
	if version == "" {
		version = "dev"
	}
	m.gauge("build_info", "1. The label version has the relay's version.", tags{"version": version}).Set(1)
	m.Ready = m.gauge("ready", "1 while the relay serves clients. 0 at the start and while it drains.", nil)
	m.PinnedBytes = m.gauge("pinned_bytes", "Bytes of old snapshots, unfinished messages and unanswered names that clients keep in memory.", nil)
	for l := range limits {
		m.limits[l] = m.gauge("limit", "Limits of downstream.limits in force. 0: no limit.", tags{"limit": l.String()})
	}
	m.clientStates = make([][clientStates]*Gauge, len(typeLabels))
	for i, label := range typeLabels {
		for at := range clientStates {
			m.clientStates[i][at] = m.gauge("downstream_types", "Types on streams of clients, and REST clients, by state, counted every ten seconds.",
				tags{"type": label, "state": at.String()})
		}
	}
}
