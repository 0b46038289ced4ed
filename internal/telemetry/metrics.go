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

	"xdsrelay/internal/xds"
)

// DefaultPrefix is the default of Options.Prefix.
const DefaultPrefix = "xdsrelay"

// Options of Metrics; the zero value has no statsd and no key label.
type Options struct {
	// Prefix of every name, without the underscore that follows it.
	Prefix string
	// StatsdAddress is host:port (UDP); empty: no statsd.
	StatsdAddress string
	// Log of the statsd sender; nil: no log.
	Log *slog.Logger
	// Version of the program.
	Version string
	// KeyLabel adds the label key to the metrics in Type. Others (streams, refusals) may belong to
	// several keys or none. Counts in Type that belong to no key, such as a file that cannot be
	// read, have an empty key.
	KeyLabel bool
}

// Metrics has the relay's metrics that do not belong to one type or origin, and gives access to the
// others.
type Metrics struct {
	// Downstream.
	Streams    [variants]*Gauge // open streams, by Variant
	RuleErrors Counter          // errors in a rule's match; each counts as no match

	PinnedBytes *Gauge // kept alive by slow clients
	Ready       *Gauge // 1: clients are served

	// Keys.
	Keys               *Gauge
	AdminWrongTokens   Counter // requests to the admin API with a wrong token
	MixedUserAgentKeys *Gauge  // keys whose clients differ in user agent (P58)
	// HistoryDropped counts replaced snapshots that were dropped for lack of room. A NACK of such a
	// snapshot cannot be compared any more.
	HistoryDropped Counter
	// NacksDropped counts rows of NACKs that were dropped for lack of room.
	NacksDropped Counter

	// The relay's own configuration.
	ConfigRejected     *Gauge // 1: the file has faults and is not in force
	ConfigNeedsRestart *Gauge // keys with new values that need a restart

	// Upstream.
	UpstreamStreams *Gauge
	// Stale counts the types of keys that are served from the last known good.
	Stale             *Gauge
	OversizedRequests Counter // requests over max_request_bytes (P59)
	VersionsLeftOut   Counter // versions for which a request had no room (P59)

	// ClusterMembers are the known members of the cluster, this relay included, by MemberState.
	ClusterMembers map[MemberState]*Gauge
	// ClusterKeys are the keys in use, by KeyRole, if the relay is in a cluster.
	ClusterKeys map[KeyRole]*Gauge
	// ClusterUnjoined are the addresses of cluster.join at which no member is known, and its names without
	// an address.
	ClusterUnjoined *Gauge

	Store Store // the last known good on disk

	refused map[Reason]Counter
	ended   map[Reason]Counter // planned reasons only
	faults  map[Fault]Counter
	reloads map[Reload]Counter // of certificates

	configReloads map[Reload]Counter
	clusterMoves  map[Move]Counter
	spans         map[Span]Counter
	limits        map[Limit]*Gauge
	clientStates  []typeGauges // by typeIndex, then "other"
	unanswered    map[Reason]*Gauge

	// Sums over all types, keys and variants, because tally's counters cannot be read.
	responses, acks, nacks atomic.Int64

	// received is the time of the last accepted response of an origin, since start.
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
	clusterHop  prometheus.Histogram
	perKey      []*prometheus.CounterVec // with the label key
	everyKey    *Key                     // for counts that belong to no key

	// mu protects what is made after New. No lock is held while counting.
	mu           sync.Mutex
	keys         map[string]*Key
	origins      map[string]*Origin
	certificates map[string]*certificate
}

// validPrefix is what Prometheus allows at the start of a name.
var validPrefix = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)

// propagationBuckets are in seconds. A relay on loopback takes under a millisecond; clients that
// warm clusters take many seconds.
var propagationBuckets = []float64{
	.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60,
}

// New makes the metrics and their registry, with the metrics of Go and of the process.
func New(o Options) (*Metrics, error) {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if !validPrefix.MatchString(o.Prefix) {
		return nil, fmt.Errorf("metrics.prefix: must be letters, digits, _ and :, with no digit first, but is %q", o.Prefix)
	}
	m := &Metrics{
		start:    time.Now(),
		prefix:   o.Prefix,
		keyLabel: o.KeyLabel,
		registry: prometheus.NewRegistry(),
		keys:     make(map[string]*Key),
		origins:  make(map[string]*Origin),

		certificates: make(map[string]*certificate),
	}
	m.prom = tallyprom.NewReporter(tallyprom.Options{
		Registerer: m.registry,
		// Without it the reporter panics on an error.
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
	m.makeClientStates(o.Version)
	if m.badMetric != nil {
		return nil, fmt.Errorf("metrics: %w", m.badMetric)
	}
	return m, nil
}

// make makes everything that depends on no origin and no key.
func (m *Metrics) make() {
	for v := range variants {
		m.Streams[v] = m.gauge("downstream_streams", "Open streams of clients.", tags{"variant": v.String()})
	}
	m.RuleErrors = m.counter("rule_errors_total", "Errors in the match of an aggregation rule. Each error counts as no match.", nil)
	m.AdminWrongTokens = m.counter("admin_wrong_tokens_total", "Requests to the admin API, over HTTP or gRPC, with a wrong token.", nil)
	m.Keys = m.gauge("keys", "Aggregation keys that the relay keeps, with clients or without.", nil)
	m.MixedUserAgentKeys = m.gauge("mixed_user_agent_keys", "Aggregation keys whose clients differ in the name of their user agent.", nil)
	m.Stale = m.gauge("stale_types", "Types of keys that the relay serves from the last known good. No origin has answered for them since the start.", nil)
	m.UpstreamStreams = m.gauge("upstream_streams", "Open streams to origins.", nil)
	m.HistoryDropped = m.counter("history_dropped_total", "Replaced snapshots that were dropped for lack of room. relay diff cannot compare with them.", nil)
	m.NacksDropped = m.counter("nacks_dropped_total", "Rows of /nacks that were dropped for lack of room. A row has one key, type, version and message.", nil)
	m.OversizedRequests = m.counter("upstream_oversized_requests_total", "Requests to origins larger than upstream.max_request_bytes.", nil)
	m.VersionsLeftOut = m.counter("upstream_versions_left_out_total", "Versions that did not fit into a request to an origin. Removals of these resources may go unnoticed.", nil)
	m.refused = byLabel(m.counter, "refused_total", "Refused clients, ended streams and delayed requests, by reason. Planned ends of streams are not included.", nil, "reason", reasons)
	planned := slices.DeleteFunc(slices.Clone(reasons), func(r Reason) bool { return !r.Planned() })
	m.ended = byLabel(m.counter, "downstream_ended_total", "Streams that the relay ended as planned, by reason. They do not count as refused.", nil, "reason", planned)
	m.unanswered = byLabel(m.gauge, "downstream_unanswered_types", "Types on open streams that get no response, by reason.", nil, "reason", []Reason{UnmappedLater, Secrets, NoNames})
	m.faults = byLabel(m.counter, "upstream_rejected_total", "Rejected responses and files of origins, by their first fault.", nil, "reason", faults)
	m.reloads = byLabel(m.counter, "certificate_reloads_total", "Changed certificate files, by result.", nil, "result", reloads)
	m.configReloads = byLabel(m.counter, "config_reloads_total", "Changes of the relay's configuration, by result.", nil, "result", reloads)
	m.spans = byLabel(m.counter, "trace_spans_total", "Spans of traces, by result.", nil, "result", spans)
	m.ClusterMembers = byLabel(m.gauge, "cluster_members", "Known members of the cluster, this relay included, by state.", nil, "state", memberStates)
	m.ClusterKeys = byLabel(m.gauge, "cluster_keys", "Keys in use in a cluster, by what the relay is for them, counted every ten seconds.", nil, "role", keyRoles)
	m.clusterMoves = byLabel(m.counter, "cluster_moves_total", "Keys that went from or to another member as their source, by reason.", nil, "reason", moves)
	m.ClusterUnjoined = m.gauge("cluster_unjoined", "Addresses of cluster.join at which no member is known, and names without an address.", nil)
	m.makeStore()
	m.ConfigRejected = m.gauge("config_rejected", "1 while the relay rejects its configuration file. The previous configuration stays in force.", nil)
	m.ConfigNeedsRestart = m.gauge("config_needs_restart", "Settings whose new values need a restart.", nil)

	m.read("config_age_seconds", "Time since the last accepted response of any origin, or since the start. It grows while nothing changes, and is not the age of the resources.",
		func() float64 { return m.ConfigAge().Seconds() })

	labels := []string{"type"}
	if m.keyLabel {
		labels = append(labels, "key")
	}
	m.propagation = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    m.prefix + "_propagation_seconds",
		Help:    "Time from an origin's response to a client's ACK of it.",
		Buckets: propagationBuckets,
	}, labels)
	m.register(m.propagation)
	m.clusterHop = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    m.prefix + "_cluster_hop_seconds",
		Help:    "Time from an origin's response to the ACK of a follower of the key.",
		Buckets: propagationBuckets,
	})
	m.register(m.clusterHop)
	m.everyKey = newKey(m, "")
	if m.keyLabel {
		return // series without a key appear when they are first counted
	}
	for i := range m.everyKey.types {
		m.everyKey.types[i].Store(m.makeType(i, ""))
	}
}

// ForMembers returns the metrics of the server for other members of the cluster. They are not exported,
// because those of clients must not count members, but for the propagation, which is clusterHop.
func (m *Metrics) ForMembers() (*Metrics, error) {
	out, err := New(Options{Prefix: m.prefix})
	if err != nil {
		return nil, err
	}
	for i := range out.everyKey.types {
		out.everyKey.types[i].Load().Propagation = Histogram{to: m.clusterHop}
	}
	return out, nil
}

// ClusterMove counts a key that uses another source, of which one is a member.
func (m *Metrics) ClusterMove(r Move) { m.clusterMoves[r].Inc() }

// Refuse counts a refusal for this reason.
func (m *Metrics) Refuse(r Reason) { m.refused[r].Inc() }

// End counts a stream that the relay ended for this reason.
func (m *Metrics) End(r Reason) {
	if r.Planned() {
		m.ended[r].Inc()
		return
	}
	m.refused[r].Inc()
}

// Unanswered is the number of types on open streams that get no response for this reason. It is nil
// for reasons that refuse the whole stream.
func (m *Metrics) Unanswered(r Reason) *Gauge { return m.unanswered[r] }

// Reject counts an origin's response that was rejected for this fault.
func (m *Metrics) Reject(f Fault) { m.faults[f].Inc() }

// Reload counts a reload of certificate files.
func (m *Metrics) Reload(r Reload) { m.reloads[r].Inc() }

// ReloadConfig counts a reload of the relay's own configuration.
func (m *Metrics) ReloadConfig(r Reload) { m.configReloads[r].Inc() }

// Spans counts n spans.
func (m *Metrics) Spans(s Span, n int) { m.spans[s].Add(n) }

// ConfigReceived records when an origin's response was accepted, changed or not.
func (m *Metrics) ConfigReceived(at time.Time) { m.received.Store(int64(at.Sub(m.start))) }

// ConfigAge is the time since the last ConfigReceived, or since the start if there was none.
func (m *Metrics) ConfigAge() time.Duration {
	return max(0, time.Since(m.start)-time.Duration(m.received.Load()))
}

// maxScrapes bounds the scrapes in progress; further ones get a 503.
const maxScrapes = 4

// Handler serves the registry in Prometheus' formats. A scrape includes all counts before it.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
}

// certificate has the metrics of certificate files. A gauge exists once it has a value.
type certificate struct {
	expires  *Gauge
	lifetime *Gauge
	failed   *Gauge
}

// certificate returns the metrics of certificate files. of is their name in the log. The
// configuration bounds their number. The caller holds mu.
func (m *Metrics) certificate(of string) *certificate {
	c := m.certificates[of]
	if c == nil {
		c = new(certificate)
		m.certificates[of] = c
	}
	return c
}

// CertificateExpires records when a certificate expires, and its lifetime.
func (m *Metrics) CertificateExpires(of string, at time.Time, lifetime time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.certificate(of)
	if c.expires == nil {
		c.expires = m.gauge("certificate_expiry_timestamp_seconds", "Earliest expiry of a certificate of the chain, in seconds since 1970.", tags{"of": of})
		c.lifetime = m.gauge("certificate_lifetime_seconds", "Lifetime of the certificate of the chain that expires first.", tags{"of": of})
	}
	c.expires.Set(int(at.Unix()))
	c.lifetime.Set(int(lifetime.Seconds()))
}

// CertificateReloadFailed records whether the present certificate files cannot be used.
func (m *Metrics) CertificateReloadFailed(of string, failed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.certificate(of)
	if c.failed == nil {
		c.failed = m.gauge("certificate_reload_failed", "1 while the present certificate files cannot be used. The previous files stay in force.", tags{"of": of})
	}
	n := 0
	if failed {
		n = 1
	}
	c.failed.Set(n)
}

// Origin has the metrics of one origin.
type Origin struct {
	// Connected is the number of connections to it that are up.
	Connected *Gauge
	// Away is 1 while it is away: the relay cannot connect to it, or it ends every stream without a
	// response.
	Away *Gauge
	// Silent is the number of open streams to it without a response.
	Silent *Gauge
	// FaultyFiles is the number of its files, and of its directory, that cannot be used.
	FaultyFiles *Gauge
	rejected    []*Gauge // by typeIndex, then "other"
	reconnects  map[Reconnect]Counter
}

// Rejected is the number of keys whose newest response of a type from the origin was rejected.
func (o *Origin) Rejected(url xds.TypeURL) *Gauge { return o.rejected[indexOf(url)] }

// Reconnect counts a stream to the origin that has to be opened again.
func (o *Origin) Reconnect(r Reconnect) { o.reconnects[r].Inc() }

// Origin returns the metrics of an origin, the same each time. The configuration bounds the number
// of origins.
func (m *Metrics) Origin(name string) *Origin {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.origins[name]
	if !ok {
		o = &Origin{Connected: m.gauge("upstream_connected", "Connections to an origin that are up.", tags{"origin": name}),
			Away:        m.gauge("upstream_away", "1 while an origin is away: the relay cannot connect to it, or it ends every stream without a response.", tags{"origin": name}),
			Silent:      m.gauge("upstream_silent_streams", "Open streams on which an origin sent nothing within upstream.first_answer_timeout.", tags{"origin": name}),
			FaultyFiles: m.gauge("upstream_faulty_files", "Files of an origin's directory, and the directory, that cannot be used. Their previous content stays in force.", tags{"origin": name})}
		for _, label := range typeLabels {
			o.rejected = append(o.rejected, m.gauge("upstream_rejected_types", "Types of keys whose newest response from an origin the relay rejected.",
				tags{"origin": name, "type": label}))
		}
		o.reconnects = byLabel(m.counter, "upstream_reconnects_total", "Streams to an origin that the relay opened again, by reason.", tags{"origin": name}, "reason", reconnects)
		m.origins[name] = o
	}
	return o
}

// tags are a metric's labels with their values.
type tags = map[string]string

// byLabel makes a metric for each value of a label, beside the other tags.
func byLabel[L ~string, M any](create func(name, help string, t tags) M, name, help string, other tags, label string, values []L) map[L]M {
	out := make(map[L]M, len(values))
	for _, v := range values {
		t := tags{label: string(v)}
		maps.Copy(t, other)
		out[v] = create(name, help, t)
	}
	return out
}

// counter makes a counter. A name always has the same labels.
func (m *Metrics) counter(name, help string, t tags) Counter {
	t = clean(t)
	// tally's reporter invents a help text for an unregistered name.
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

func (m *Metrics) gauge(name, help string, t tags) *Gauge {
	t = clean(t)
	if _, err := m.prom.RegisterGauge(m.prefix+"_"+name, slices.Sorted(maps.Keys(t)), help); err != nil {
		m.cannotRegister(err)
		return &Gauge{}
	}
	g := &Gauge{to: m.reporter.AllocateGauge(m.prefix+"_"+name, t)}
	g.settle() // statsd reports a gauge only once it has a value
	return g
}

// read makes a gauge whose value is read at each scrape.
func (m *Metrics) read(name, help string, value func() float64) {
	name = m.prefix + "_" + name
	m.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	if m.statsd != nil {
		m.statsd.read(name, value)
	}
}

// ReadRulesWithErrors makes the gauge of rules with errors, which reads their number from n. It is
// called once, before Run.
func (m *Metrics) ReadRulesWithErrors(n func() int) {
	m.read("rules_with_errors", "Aggregation rules in force whose match failed for a client within the last hour.", func() float64 { return float64(n()) })
}

// ReadLogDropped makes the counter of dropped log lines, which reads their number from n. It is
// called once, before Run.
func (m *Metrics) ReadLogDropped(n func() int64) {
	name, value := m.prefix+"_log_dropped_lines_total", func() float64 { return float64(n()) }
	m.register(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: "Log lines that were dropped, because stderr did not take them."}, value))
	if m.statsd != nil {
		m.statsd.read(name, value)
	}
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

// clean makes the values valid UTF-8; Prometheus panics otherwise.
func clean(t tags) tags {
	out := make(tags, len(t))
	for k, v := range t {
		out[k] = strings.ToValidUTF8(v, "�")
	}
	return out
}

// Gatherer returns the registry for reading it without HTTP.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }
