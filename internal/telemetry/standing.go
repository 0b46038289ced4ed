package telemetry

import "xdsrelay/internal/xds"

// Standing is where a client stands with a type, as people are shown it.
type Standing uint8

// The states.
const (
	StandsSynced  Standing = iota // it took all that there is for it
	StandsNotSent                 // it was sent nothing yet, or waits for what the origin says nothing of
	StandsStale                   // it has not answered, or was not sent all of it
	StandsNacked                  // it refused what it was sent last
	standings
)

var standingNames = [standings]string{StandsSynced: "synced", StandsNotSent: "not_sent", StandsStale: "stale", StandsNacked: "nacked"}

func (s Standing) String() string { return standingNames[s] }

// Standings counts clients by type and where they stand. The zero value has
// counted none; it has one user.
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

// Stand shows the numbers, which are those of all clients.
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

// Limit is a limit of the configuration that a number can be held against.
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

// Limit says what is in force; 0: none.
func (m *Metrics) Limit(l Limit, n int64) { m.limits[l].Set(int(n)) }

// makeStanding makes what operators hold numbers against.
func (m *Metrics) makeStanding(version string) {
	if version == "" {
		version = "dev"
	}
	m.gauge("build_info", "1; what is running is in its label.", tags{"version": version}).Set(1)
	m.Ready = m.gauge("ready", "1 while clients are served: 0 at the start and while draining.", nil)
	m.PinnedBytes = m.gauge("pinned_bytes", "Bytes of old states, unfinished messages and names to be answered that clients keep alive, looked at once a second.", nil)
	for l := range limits {
		m.limits[l] = m.gauge("limit", "Limits in force, of downstream.limits; 0: none.", tags{"limit": l.String()})
	}
	m.standings = make([][standings]*Gauge, len(typeLabels))
	for i, label := range typeLabels {
		for at := range standings {
			m.standings[i][at] = m.gauge("downstream_types", "Types on streams of clients, and clients that poll, by where they stand, counted every ten seconds.",
				tags{"type": label, "state": at.String()})
		}
	}
}
