package telemetry

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cactus/go-statsd-client/v5/statsd"
	"github.com/uber-go/tally/v4"
	tallystatsd "github.com/uber-go/tally/v4/statsd"
)

const (
	statsdInterval = time.Second
	// statsdPacket is the largest packet on Ethernet with IPv6, in bytes.
	statsdPacket = 1432
	// statsdWarn is the least time between two log lines about failures.
	statsdWarn = time.Minute
)

// Run sends to statsd once a second, and once more when ctx ends. Without a statsd address it only
// waits for ctx.
func (m *Metrics) Run(ctx context.Context) error {
	if m.statsd == nil {
		<-ctx.Done()
		return nil
	}
	return m.statsd.run(ctx, statsdInterval)
}

// statsdSink is tally's statsd reporter with two additions. Tags, which that reporter drops, become
// part of the name. Counts are collected and sent once in an interval, not as a packet each.
//
// A label becomes ".label.value" in the name, in the order of the labels. In a value, _ replaces
// all but letters, digits, - and _. The label key is left out, so all keys count together: statsd's
// backends keep a file or a series for each name for ever.
type statsdSink struct {
	address string
	log     *slog.Logger

	mu       sync.Mutex // protects the maps, not the cells
	counters map[string]*statsdCounter
	gauges   map[string]func() float64
}

func newStatsdSink(address string, log *slog.Logger) *statsdSink {
	return &statsdSink{
		address:  address,
		log:      log,
		counters: make(map[string]*statsdCounter),
		gauges:   make(map[string]func() float64),
	}
}

// statsdCounter is a count that is not sent yet.
type statsdCounter struct{ n atomic.Int64 }

func (c *statsdCounter) ReportCount(n int64) { c.n.Add(n) }

// statsdGauge is the newest value, as float64 bits.
type statsdGauge struct{ bits atomic.Uint64 }

func (g *statsdGauge) ReportGauge(v float64) { g.bits.Store(math.Float64bits(v)) }

func (g *statsdGauge) value() float64 { return math.Float64frombits(g.bits.Load()) }

// AllocateCounter returns the counter of a name and its tags. It makes one if there is none.
func (s *statsdSink) AllocateCounter(name string, t map[string]string) tally.CachedCount {
	name = statsdName(name, t)
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.counters[name]
	if !ok {
		c = new(statsdCounter)
		s.counters[name] = c
	}
	return c
}

// AllocateGauge makes the gauge of a name and its tags.
func (s *statsdSink) AllocateGauge(name string, t map[string]string) tally.CachedGauge {
	g := new(statsdGauge)
	s.read(statsdName(name, t), g.value)
	return g
}

func (s *statsdSink) read(name string, f func() float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gauges[name] = f
}

// AllocateTimer is tally's; there are no timers.
func (s *statsdSink) AllocateTimer(string, map[string]string) tally.CachedTimer { return nil }

// AllocateHistogram is tally's; histograms do not come through tally.
func (s *statsdSink) AllocateHistogram(string, map[string]string, tally.Buckets) tally.CachedHistogram {
	return nil
}

func (s *statsdSink) Capabilities() tally.Capabilities { return s }

func (s *statsdSink) Reporting() bool { return true }

// Tagging is tally's: send puts tags into the names.
func (s *statsdSink) Tagging() bool { return true }

// Flush is tally's; run sends.
func (s *statsdSink) Flush() {}

func (s *statsdSink) run(ctx context.Context, every time.Duration) error {
	out := &statsdSender{address: s.address}
	defer out.Close()
	client, err := statsd.NewClientWithSender(out, "", statsd.SuffixOctothorpe)
	if err != nil {
		return err
	}
	reporter := tallystatsd.NewReporter(client, tallystatsd.Options{})
	tick := time.Tick(every)
	var warned time.Time
	for done := false; !done; {
		select {
		case <-tick:
		case <-ctx.Done():
			done = true
		}
		s.send(reporter)
		// If no process listens, every second packet fails. The log has that once in statsdWarn.
		if err := out.flush(); err != nil && time.Since(warned) >= statsdWarn {
			warned = time.Now()
			s.log.Warn("metrics cannot be sent to statsd, and their counts are lost", "address", s.address, "error", err)
		}
	}
	return nil
}

// send sends the counts since the last time, and all gauges: a packet may be lost, and a gauge that
// does not change would stay wrong.
func (s *statsdSink) send(to tally.StatsReporter) {
	s.mu.Lock()
	counters, gauges := maps.Clone(s.counters), maps.Clone(s.gauges)
	s.mu.Unlock()
	for name, c := range counters {
		if n := c.n.Swap(0); n != 0 {
			to.ReportCounter(name, nil, n)
		}
	}
	for name, f := range gauges {
		to.ReportGauge(name, nil, f())
	}
}

// statsdSender packs lines into packets. It is not safe for concurrent use. It dials before the
// first packet and after each failure, so that it finds a name that resolves later or to another
// address.
type statsdSender struct {
	address string
	conn    net.Conn
	packet  []byte
	err     error // the first since the last flush
}

// Send adds one line.
func (s *statsdSender) Send(line []byte) (int, error) {
	if len(s.packet) > 0 && len(s.packet)+1+len(line) > statsdPacket {
		s.write()
	}
	if len(s.packet) > 0 {
		s.packet = append(s.packet, '\n')
	}
	s.packet = append(s.packet, line...)
	return len(line), nil
}

// flush sends the last packet, and returns the first error since the last flush.
func (s *statsdSender) flush() error {
	s.write()
	err := s.err
	s.err = nil
	return err
}

func (s *statsdSender) write() {
	packet := s.packet
	s.packet = s.packet[:0]
	// After an error the rest of this round is dropped: the next packet would fail too, and
	// resolving a name may take seconds.
	if len(packet) == 0 || s.err != nil {
		return
	}
	if s.conn == nil {
		if s.conn, s.err = net.DialTimeout("udp", s.address, statsdInterval); s.err != nil {
			s.conn = nil
			return
		}
	}
	if _, s.err = s.conn.Write(packet); s.err != nil {
		_ = s.Close()
	}
}

func (s *statsdSender) Close() error {
	if s.conn == nil {
		return nil
	}
	err := s.conn.Close()
	s.conn = nil
	return err
}

// statsdName adds tags to a name.
func statsdName(name string, t map[string]string) string {
	var b strings.Builder
	b.WriteString(name)
	for _, k := range slices.Sorted(maps.Keys(t)) {
		if k == "key" {
			continue
		}
		b.WriteString("." + k + ".")
		for _, c := range t[k] {
			switch {
			case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
				b.WriteRune(c)
			default:
				b.WriteByte('_')
			}
		}
	}
	return b.String()
}
