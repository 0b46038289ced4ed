package telemetry

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// statsdServer is a UDP socket and the values that it received.
type statsdServer struct {
	t    *testing.T
	conn *net.UDPConn
	got  map[string][]string // name to values, "3|c"
}

func newStatsdServer(t *testing.T) *statsdServer {
	t.Helper()
	conn := xdstest.Must(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	t.Cleanup(func() { conn.Close() })
	return &statsdServer{t: t, conn: conn, got: make(map[string][]string)}
}

func (s *statsdServer) address() string { return s.conn.LocalAddr().String() }

// until reads packets until name came with this value.
func (s *statsdServer) until(name, want string) {
	s.t.Helper()
	s.read(name, func(v string) bool { return v == want }, want)
}

// read reads packets until name came with a value that satisfies right.
func (s *statsdServer) read(name string, right func(string) bool, want string) {
	s.t.Helper()
	xdstest.NoError(s.t, s.conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	packet := make([]byte, 64<<10)
	for {
		for _, v := range s.got[name] {
			if right(v) {
				return
			}
		}
		n, err := s.conn.Read(packet)
		if err != nil {
			s.t.Fatalf("%s:%s did not come: %v; it has %v", name, want, err, s.got[name])
		}
		if n > statsdPacket {
			s.t.Errorf("a packet of %d bytes", n)
		}
		for line := range strings.SplitSeq(string(packet[:n]), "\n") {
			name, value, ok := strings.Cut(line, ":")
			if !ok {
				s.t.Errorf("a line without a value: %q", line)
			}
			s.got[name] = append(s.got[name], value)
		}
	}
}

// runStatsd runs the sink; the returned function ends it and waits.
func runStatsd(t *testing.T, m *Metrics, every time.Duration) (stop func()) {
	t.Helper()
	return xdstest.Run(t, func(ctx context.Context) error { return m.statsd.run(ctx, every) })
}

// Counters are sent as differences, gauges as values, and labels as a part of the name.
func TestStatsd(t *testing.T) {
	server := newStatsdServer(t)
	m := newMetrics(t, Options{StatsdAddress: server.address(), KeyLabel: true})
	acks := m.Key(xds.NewKey("a")).Type(xds.ClusterType).Acks
	runStatsd(t, m, time.Millisecond)

	acks.Inc()
	server.until("xdsrelay_downstream_acks_total.type.CDS", "1|c")
	acks.Add(3)
	server.until("xdsrelay_downstream_acks_total.type.CDS", "3|c")

	m.Streams[Delta].Add(2)
	server.until("xdsrelay_downstream_streams.variant.delta", "2|g")
	m.Streams[Delta].Add(-2)
	server.until("xdsrelay_downstream_streams.variant.delta", "0|g")

	m.Origin("10.0.0.1:18000|x").Reconnect(Ended)
	server.until("xdsrelay_upstream_reconnects_total.origin.10_0_0_1_18000_x.reason.ended", "1|c")
}

// The end of the sink sends the last counts, and all keys count together.
func TestStatsdEndsWithAll(t *testing.T) {
	server := newStatsdServer(t)
	m := newMetrics(t, Options{StatsdAddress: server.address(), KeyLabel: true})
	for _, k := range []string{"a", "b"} {
		m.Key(xds.NewKey(k)).Type(xds.RouteType).Nacks.Add(2)
	}
	m.Type(xds.RouteType).Nacks.Inc()
	runStatsd(t, m, time.Hour)()
	server.until("xdsrelay_downstream_nacks_total.type.RDS", "5|c")
	server.until("xdsrelay_keys", "0|g")
	server.read("xdsrelay_config_age_seconds", func(v string) bool { return strings.HasSuffix(v, "|g") }, "a gauge")
	for name := range server.got {
		if strings.Contains(name, ".key.") {
			t.Errorf("%s has the key in its name", name)
		}
	}
}

// An unreachable statsd loses the counts of that time only.
func TestStatsdAway(t *testing.T) {
	m := newMetrics(t, Options{StatsdAddress: "127.0.0.1:no-such-port"})
	m.Type(xds.ClusterType).Acks.Inc()
	runStatsd(t, m, time.Hour)()
	if got := value(t, scrape(t, m), "xdsrelay_downstream_acks_total", "type=CDS"); got != 1 {
		t.Errorf("Prometheus sees %v", got)
	}
}

// Without statsd, Run waits for its context.
func TestRunWithoutStatsd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m, done := newMetrics(t, Options{}), make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	select {
	case err := <-done:
		t.Fatalf("Run returned on its own: %v", err)
	default:
	}
	cancel()
	xdstest.NoError(t, <-done)
}
