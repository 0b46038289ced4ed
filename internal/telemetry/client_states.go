package telemetry

import "xdsrelay/internal/xds"

// Standing is the state of a type at a client, as operators see it.
type Standing uint8

// The states.
const (
	StandsSynced  Standing = iota // it accepted everything that it subscribes to
	StandsNotSent                 // it was sent nothing yet, or waits for the origin's answer
	StandsStale                   // it has not answered, or was not sent all of the newest
	StandsNacked                  // it refused the last response
	standings
)

var standingNames = [standings]string{StandsSynced: "synced", StandsNotSent: "not_sent", StandsStale: "stale", StandsNacked: "nacked"}

func (s Standing) String() string { return standingNames[s] }

// Standings counts clients by type and state. The zero value is empty. It is not safe for
// concurrent use.
type Standings [][standings]int

// Count counts one client's type.
func (s *Standings) Count(url xds.TypeURL, at Standing) {
	if *s == nil {
		*s = make(Standings, len(typeLabels))
	}
	i, ok := typeIndex[url]
	if !ok {
		i = len(typeLabels) - 1
	}
	(*s)[i][at]++
}

// Stand sets the gauges to the numbers of all clients.
func (m *Metrics) Stand(s Standings) {
	for i := range m.standings {
		for at := range standings {
			n := 0
			if s != nil {
				n = s[i][at]
			}
			m.standings[i][at].Set(n)
		}
	}
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

// makeStanding makes the gauges of clients' states, limits and readiness.
func (m *Metrics) makeStanding(version string) {
	if version == "" {
		version = "dev"
	}
	m.gauge("build_info", "1; the label has the version that is running.", tags{"version": version}).Set(1)
	m.Ready = m.gauge("ready", "1 while clients are served: 0 at the start and while draining.", nil)
	m.PinnedBytes = m.gauge("pinned_bytes", "Bytes of old states, unfinished messages and names to be answered that clients keep alive, measured once a second.", nil)
	for l := range limits {
		m.limits[l] = m.gauge("limit", "Limits in force, of downstream.limits; 0: none.", tags{"limit": l.String()})
	}
	m.standings = make([][standings]*Gauge, len(typeLabels))
	for i, label := range typeLabels {
		for at := range standings {
			m.standings[i][at] = m.gauge("downstream_types", "Types on streams of clients, and REST clients, by state, counted every ten seconds.",
				tags{"type": label, "state": at.String()})
		}
	}
}
