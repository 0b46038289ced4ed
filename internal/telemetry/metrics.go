package telemetry

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/uber-go/tally/v4"
	"github.com/uber-go/tally/v4/multi"
	tallyprom "github.com/uber-go/tally/v4/prometheus"
)

// DefaultPrefix is what names begin with unless Options say otherwise.
const DefaultPrefix = "xdsrelay"

// Options of the metrics; the zero value has no statsd and no key label.
type Options struct {
	// Prefix of every name, without the underscore after it.
	Prefix string
	// StatsdAddress is host:port (UDP); empty: no statsd.
	StatsdAddress string
	// Log of the statsd sender; nil: no log.
	Log *slog.Logger
	// Version of the program.
	Version string
	// KeyLabel adds the label key to the metrics that are of one key: those in
	// Type. Others (streams, refusals) may be of several keys or of none. What of
	// Type is of no key, as a file of an origin that cannot be read, has an empty one.
	KeyLabel bool
}

// Metrics are the relay's metrics that are not of one type or origin, and the
// way to those that are.
type Metrics struct {
	// Downstream.
	Streams         [variants]*Gauge // open streams, by Variant
	MixedUserAgents Counter          // members unlike their key's representative (P58)
	RuleErrors      Counter          // errors in a rule's match, each taken for no match

	PinnedBytes *Gauge // that slow clients keep alive
	Ready       *Gauge // 1: clients are served

	// Keys.
	Keys *Gauge
	// HistoryDropped are replaced states that are kept no more for want of room, so
	// that what a client refused of them cannot be shown.
	HistoryDropped Counter
	// NacksDropped are rows of what clients refused that are shown no more for want of room.
	NacksDropped Counter

	// The relay's own configuration.
	ConfigRejected     *Gauge // 1: what the file says now is not in force, since it has faults
	ConfigNeedsRestart *Gauge // keys of it that are not in force before a restart

	// Upstream.
	UpstreamStreams *Gauge
	// Stale are the types of keys that are served from the last known good.
	Stale             *Gauge
	OversizedRequests Counter // requests over max_request_bytes (P59)
	VersionsLeftOut   Counter // versions that had no room in a request (P59)

	Store Store // the last known good on disk

	refused [reasons]Counter
	ended   [reasons]Counter // those that are planned
	faults  [faults]Counter
	reloads [reloads]Counter // of certificates

	configReloads [reloads]Counter
	spans         [spans]Counter
	limits        [limits]*Gauge
	standings     [][standings]*Gauge // by typeIndex, then "other"

	// received is when an origin's response was last taken, since start.
	start    time.Time
	received atomic.Int64

	// Fixed once New has returned.
	prefix    string
	keyLabel  bool
	registry  *prometheus.Registry
	prom      tallyprom.Reporter
	reporter  tally.CachedStatsReporter
	statsd    *statsdSink // nil: none
	badMetric error       // the first that could not be registered

	propagation *prometheus.HistogramVec
	perKey      []*prometheus.CounterVec // those with the label key
	everyKey    *Key                     // what is not of one key

	// mu protects what is made later; never held while counting.
	mu           sync.Mutex
	keys         map[string]*Key
	origins      map[string]*Origin
	certificates map[string]*Gauge
}

// validPrefix is what Prometheus allows a name to begin with.
var validPrefix = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)

// propagationBuckets are in seconds: a relay on loopback takes under a
// millisecond, and clients that warm their clusters many seconds.
var propagationBuckets = []float64{
	.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60,
}

// New makes the metrics and their registry, with Go's and the process' metrics
// in it.
func New(o Options) (*Metrics, error) {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if !validPrefix.MatchString(o.Prefix) {
		return nil, fmt.Errorf("metrics.prefix: %q cannot begin a metric's name: letters, digits, _ and : only", o.Prefix)
	}
	m := &Metrics{
		start:    time.Now(),
		prefix:   o.Prefix,
		keyLabel: o.KeyLabel,
		registry: prometheus.NewRegistry(),
		keys:     make(map[string]*Key),
		origins:  make(map[string]*Origin),

		certificates: make(map[string]*Gauge),
	}
	m.prom = tallyprom.NewReporter(tallyprom.Options{
		Registerer: m.registry,
		// Without it the reporter panics.
		OnRegisterError: m.cannotRegister,
	})
	m.reporter = m.prom
	if o.StatsdAddress != "" {
		m.statsd = newStatsdSink(o.StatsdAddress, cmp.Or(o.Log, slog.New(slog.DiscardHandler)))
		m.reporter = multi.NewMultiCachedReporter(m.prom, m.statsd)
	}
	m.register(collectors.NewGoCollector())
	m.register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.make()
	m.makeStanding(o.Version)
	if m.badMetric != nil {
		return nil, fmt.Errorf("metrics: %w", m.badMetric)
	}
	return m, nil
}

// make makes everything that does not depend on an origin or a key.
func (m *Metrics) make() {
	for v := range variants {
		m.Streams[v] = m.gauge("downstream_streams", "Open streams of clients.", tags{"variant": v.String()})
	}
	m.MixedUserAgents = m.counter("mixed_user_agents_total", "Clients whose user agent is not that of their key's representative.", nil)
	m.RuleErrors = m.counter("rule_errors_total", "Errors in the match of an aggregation rule, each taken for no match.", nil)
	m.Keys = m.gauge("keys", "Aggregation keys held, with clients or without.", nil)
	m.Stale = m.gauge("stale_types", "Types of keys served from the last known good, of which no origin has spoken since the start.", nil)
	m.UpstreamStreams = m.gauge("upstream_streams", "Open streams to origins.", nil)
	m.HistoryDropped = m.counter("history_dropped_total", "Replaced states of a type that are not kept for people to compare with any more, for want of room.", nil)
	m.NacksDropped = m.counter("nacks_dropped_total", "Rows of what clients refused, by key, type, version and message, that are not kept for people to read any more, for want of room.", nil)
	m.OversizedRequests = m.counter("upstream_oversized_requests_total", "Requests to an origin over upstream.max_request_bytes.", nil)
	m.VersionsLeftOut = m.counter("upstream_versions_left_out_total", "Versions that had no room in a request to an origin, whose removal meanwhile goes unnoticed.", nil)
	for r := range reasons {
		m.refused[r] = m.counter("refused_total", "What clients were refused, had their stream ended for by a fault of theirs or a limit, or delayed for (requests_per_second), by reason.", tags{"reason": r.String()})
		if r.Planned() {
			m.ended[r] = m.counter("downstream_ended_total", "Streams that the relay ended because their time had come, by reason: nobody was refused.", tags{"reason": r.String()})
		}
	}
	for f := range faults {
		m.faults[f] = m.counter("upstream_rejected_total", "Responses of origins and files that were rejected, by their first fault.", tags{"reason": f.String()})
	}

	for r := range reloads {
		m.reloads[r] = m.counter("certificate_reloads_total", "Certificate files that changed and were read again, by what came of it.", tags{"result": r.String()})
		m.configReloads[r] = m.counter("config_reloads_total", "Changes of the relay's own configuration, by what came of them.", tags{"result": r.String()})
	}
	for s := range spans {
		m.spans[s] = m.counter("trace_spans_total", "Spans of traces, by what became of them.", tags{"result": s.String()})
	}
	m.makeStore()
	m.ConfigRejected = m.gauge("config_rejected", "1 while the relay's own configuration file has faults, and what was before is in force.", nil)
	m.ConfigNeedsRestart = m.gauge("config_needs_restart", "Keys of the relay's own configuration whose new values need a restart.", nil)

	age := func() float64 { return m.ConfigAge().Seconds() }
	name := m.prefix + "_config_age_seconds"
	m.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: name,
		Help: "Time since a response of any origin, changed or not, was last taken; since the start, if none was. It grows while nothing changes, and says nothing of how old what is served is.",
	}, age))
	if m.statsd != nil {
		m.statsd.read(name, age)
	}

	labels := []string{"type"}
	if m.keyLabel {
		labels = append(labels, "key")
	}
	m.propagation = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    m.prefix + "_propagation_seconds",
		Help:    "From an origin's response to a client's ACK of it.",
		Buckets: propagationBuckets,
	}, labels)
	m.register(m.propagation)
	m.everyKey = newKey(m, "")
	if m.keyLabel {
		return // what is of no key has series once there is any
	}
	for i := range m.everyKey.types {
		m.everyKey.types[i].Store(m.makeType(i, ""))
	}
}

// Refuse counts that something of a client was refused for this reason.
func (m *Metrics) Refuse(r Reason) { m.refused[r].Inc() }

// End counts that a client's stream was ended for this reason.
func (m *Metrics) End(r Reason) {
	if r.Planned() {
		m.ended[r].Inc()
		return
	}
	m.refused[r].Inc()
}

// Reject counts that a response of an origin was rejected for this fault.
func (m *Metrics) Reject(f Fault) { m.faults[f].Inc() }

// Reload counts what came of certificate files that changed.
func (m *Metrics) Reload(r Reload) { m.reloads[r].Inc() }

// ReloadConfig counts what came of a change of the relay's own configuration.
func (m *Metrics) ReloadConfig(r Reload) { m.configReloads[r].Inc() }

// Spans counts what became of spans of traces.
func (m *Metrics) Spans(s Span, n int) { m.spans[s].Add(n) }

// ConfigReceived says that at this time an origin's response was taken, changed
// or not.
func (m *Metrics) ConfigReceived(at time.Time) { m.received.Store(int64(at.Sub(m.start))) }

// ConfigAge is the time since the last ConfigReceived; since start, without any.
func (m *Metrics) ConfigAge() time.Duration {
	return max(0, time.Since(m.start)-time.Duration(m.received.Load()))
}

// maxScrapes is how many requests for the metrics are answered at the same time; others get
// a 503.
const maxScrapes = 4

// Handler serves the registry in Prometheus' formats. A scrape sees all that
// was counted before it.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
}

// CertificateExpires says when the certificate of that which is called so in the log
// expires. There are as many as the configuration names.
func (m *Metrics) CertificateExpires(of string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.certificates[of]
	if g == nil {
		g = m.gauge("certificate_expiry_timestamp_seconds", "When a certificate that the relay shows expires, or the first of its chain, in seconds since 1970.", tags{"of": of})
		m.certificates[of] = g
	}
	g.Set(int(at.Unix()))
}

// Origin are the metrics of one origin.
type Origin struct {
	// Connected is how many connections to it are up.
	Connected *Gauge
	// Away is 1 while it is: an attempt failed, and none has had a response since.
	Away *Gauge
	// Silent is how many streams to it are open on which nothing comes.
	Silent     *Gauge
	reconnects [reconnects]Counter
}

// Reconnect counts that a stream to the origin has to be opened again.
func (o *Origin) Reconnect(r Reconnect) { o.reconnects[r].Inc() }

// Origin returns the handles of the origin of this name, the same each time.
// Origins are those of the configuration, so there is a bound to them.
func (m *Metrics) Origin(name string) *Origin {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.origins[name]
	if !ok {
		o = &Origin{Connected: m.gauge("upstream_connected", "Connections to an origin that are up.", tags{"origin": name}),
			Away:   m.gauge("upstream_away", "1 while an origin is away: an attempt failed, and none has had a response since.", tags{"origin": name}),
			Silent: m.gauge("upstream_silent_streams", "Streams to an origin that are open, and on which nothing came within first_answer_timeout.", tags{"origin": name})}
		for r := range reconnects {
			o.reconnects[r] = m.counter("upstream_reconnects_total", "Streams to an origin that had to be opened again.",
				tags{"origin": name, "reason": r.String()})
		}
		m.origins[name] = o
	}
	return o
}

// tags are a metric's labels with their values.
type tags = map[string]string

// counter makes a counter; the same name always comes with the same labels.
func (m *Metrics) counter(name, help string, t tags) Counter {
	t = clean(t)
	// tally's reporter makes up a help text unless it knows one by then.
	vec, err := m.prom.RegisterCounter(m.prefix+"_"+name, slices.Sorted(maps.Keys(t)), help)
	if err != nil {
		m.cannotRegister(err)
		return Counter{}
	}
	if _, ok := t["key"]; ok && !slices.Contains(m.perKey, vec) {
		m.perKey = append(m.perKey, vec)
	}
	return Counter{to: m.reporter.AllocateCounter(m.prefix+"_"+name, t)}
}

// gauge makes a gauge, as counter does.
func (m *Metrics) gauge(name, help string, t tags) *Gauge {
	t = clean(t)
	if _, err := m.prom.RegisterGauge(m.prefix+"_"+name, slices.Sorted(maps.Keys(t)), help); err != nil {
		m.cannotRegister(err)
		return &Gauge{}
	}
	g := &Gauge{to: m.reporter.AllocateGauge(m.prefix+"_"+name, t)}
	g.settle() // statsd shows a gauge only once it has a value
	return g
}

func (m *Metrics) register(c prometheus.Collector) {
	if err := m.registry.Register(c); err != nil {
		m.cannotRegister(err)
	}
}

func (m *Metrics) cannotRegister(err error) {
	if m.badMetric == nil {
		m.badMetric = err
	}
}

// clean makes values of t that Prometheus takes: it panics at other than UTF-8.
func clean(t tags) tags {
	out := make(tags, len(t))
	for k, v := range t {
		out[k] = strings.ToValidUTF8(v, "�")
	}
	return out
}

// Gatherer is what Handler serves, for who reads it without HTTP.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }
