package tracing

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tracing/otlptest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	edge = xds.NewKey("edge")
	cds  = xds.ClusterType
)

// away is a collector that cannot be reached.
const away = "http://127.0.0.1:1"

// tracerFixture is a running tracer.
type tracerFixture struct {
	*Tracer
	metrics *telemetry.Metrics
	stop    func()
}

func newTracerFixture(t *testing.T, endpoint string, sample float64) *tracerFixture {
	t.Helper()
	m := xdstest.Must(telemetry.New(telemetry.Options{}))(t)
	r := &tracerFixture{metrics: m}
	r.Tracer = New(Options{Endpoint: endpoint, Sample: sample, Replica: "relay-1", Version: "v1", Metrics: m})
	return r
}

// run runs the tracer; stop ends it and waits.
func (r *tracerFixture) run(t *testing.T) {
	r.stop = xdstest.Run(t, r.Run)
	xdstest.Eventually(t, "the tracer", xdstest.Holds(func() bool { return r.tracer.Load() != nil }))
}

// traced is a collector, and a running tracer that sends it all spans.
func traced(t *testing.T) (*otlptest.Collector, *tracerFixture) {
	c := otlptest.New(t)
	r := newTracerFixture(t, c.Address, 1)
	r.run(t)
	return c, r
}

// spans reads the counter of spans with a result.
func (r *tracerFixture) spans(t *testing.T, result string) float64 {
	t.Helper()
	families := xdstest.Must(r.metrics.Gatherer().Gather())(t)
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == "xdsrelay_trace_spans_total" && m.Label[0].GetValue() == result {
				return m.Counter.GetValue()
			}
		}
	}
	t.Fatalf("no %s", result)
	return 0
}

// update traces a response that is applied and published.
func (r *tracerFixture) update(at time.Time, version string) *Update {
	if !r.Sampled() {
		return nil
	}
	u := r.Begin(at, About{Key: edge.String(), Node: "envoy-1", Origin: "first", Variant: "delta"})
	u.Read(Response{Type: cds, Version: version, Nonce: "n1", Resources: 3, Removed: 1}, nil)
	u.Handed(2, 1)
	u.Applied(time.Now())
	u.Published(time.Now(), 7, 20)
	return u
}

func (r *tracerFixture) ack(at time.Time, node string) {
	r.Acked(&Ack{Node: node, Key: edge, Type: cds, Version: "v1", Nonce: []byte("n"), Received: at, At: time.Now()})
}

// A fault in an attribute of the environment leaves the other attributes.
func TestAttributesOfTheEnvironment(t *testing.T) {
	for value, want := range map[string]string{
		"":                  "",
		"team=mesh, zone=a": "team=mesh zone=a",
		"team=mesh,":        "team=mesh",
		"team,zone=a%20b":   "zone=a b",
		"team=50%,zone=a":   "team=50% zone=a",
	} {
		t.Setenv("OTEL_RESOURCE_ATTRIBUTES", value)
		c, r := traced(t)
		r.update(time.Now(), "1")
		r.stop()
		var got []string
		for _, key := range []string{"team", "zone"} {
			if value, ok := c.Resource()[key]; ok {
				got = append(got, key+"="+value)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: the attributes are %q", value, got)
		}
	}
}

func TestOneSpanForAResponseWithItsSteps(t *testing.T) {
	c, r := traced(t)
	at := time.Now()
	r.update(at, "v1")
	u := c.Await(t, "xds.update", 1)[0]
	for name, want := range map[string]any{
		"xds.key": "edge", "xds.node": "envoy-1", "xds.origin": "first", "xds.variant": "delta", "xds.type": string(cds), "xds.version": "v1", "xds.nonce": "n1",
		"xds.resources": int64(3), "xds.removed": int64(1), "xds.handed.changed": int64(2), "xds.handed.removed": int64(1),
		"xds.generation": int64(7), "xds.woken": int64(20), "xds.result": "applied",
	} {
		if got := otlptest.Attributes(u)[name]; got != want {
			t.Errorf("%s is %v, not %v", name, got, want)
		}
	}
	if u.StartTimeUnixNano != uint64(at.UnixNano()) || u.EndTimeUnixNano < u.StartTimeUnixNano {
		t.Errorf("from %d to %d, and the response came at %d", u.StartTimeUnixNano, u.EndTimeUnixNano, at.UnixNano())
	}
	for _, step := range []string{"check", "apply", "fanout"} {
		s := c.Await(t, "xds.update."+step, 1)
		if len(s) != 1 || !bytes.Equal(s[0].ParentSpanId, u.SpanId) || !bytes.Equal(s[0].TraceId, u.TraceId) {
			t.Errorf("%s is no step of the response: %v", step, s)
		}
	}
	if got := c.Resource(); got["service.name"] != "xdsrelay" || got["service.instance.id"] != "relay-1" || got["service.version"] != "v1" {
		t.Errorf("resource %v", got)
	}
}

// For any number of clients only some ACKs have spans, the first and one of the last among them,
// with a link.
func TestFewAcksAreLinked(t *testing.T) {
	const clients = 20_000
	c, r := traced(t)
	at := time.Now()
	r.update(at, "v1")
	for i := range clients {
		r.ack(at, fmt.Sprint("envoy-", i+1))
	}
	r.Acked(&Ack{Key: xds.NewKey("other"), Type: cds, Received: at}) // of other keys and types
	r.Acked(&Ack{Key: edge, Type: xds.EndpointType, Received: at})
	r.ack(at.Add(1), "envoy-0")
	r.stop()
	u, acks := c.Spans("xds.update")[0], c.Spans("xds.ack")
	var nodes []string
	for _, a := range acks {
		nodes = append(nodes, otlptest.Attributes(a)["xds.node"].(string))
		if len(a.Links) != 1 || !bytes.Equal(a.Links[0].SpanId, u.SpanId) || !bytes.Equal(a.Links[0].TraceId, u.TraceId) {
			t.Errorf("%v is not linked to the response", a)
		}
		if bytes.Equal(a.TraceId, u.TraceId) {
			t.Error("an ACK makes the response's trace longer")
		}
	}
	want := "envoy-1 envoy-2 envoy-4 envoy-8 envoy-16 envoy-32 envoy-64 envoy-128 envoy-256 envoy-512 envoy-1024 envoy-2048 envoy-4096 envoy-8192 envoy-16384"
	if got := strings.Join(nodes, " "); got != want {
		t.Errorf("told were\n%s, not\n%s", got, want)
	}
}

func TestAcksHaveABound(t *testing.T) {
	c, r := traced(t)
	at := time.Now()
	r.update(at, "v1")
	for range 1 << 17 {
		r.ack(at, "envoy")
	}
	r.stop()
	if n := len(c.Spans("xds.ack")); n != maxAcks {
		t.Errorf("%d ACKs were told, not %d", n, maxAcks)
	}
}

func TestSampleIsAShare(t *testing.T) {
	const n = 100_000
	for _, share := range []float64{0, .01, .5, 1} {
		r := newTracerFixture(t, away, share)
		r.run(t)
		got := 0
		for range n {
			if r.Sampled() {
				got++
			}
		}
		if d := float64(got) - share*n; d > .01*n || d < -.01*n {
			t.Errorf("%d of %d were sampled at %v", got, n, share)
		}
	}
}

// Without a trace nothing is allocated.
func TestNoAllocationWithoutATrace(t *testing.T) {
	on := newTracerFixture(t, away, 1)
	on.run(t)
	on.update(time.Now(), "v1")
	ctx, ack := t.Context(), Ack{Node: "envoy", Key: edge, Type: cds, Received: time.Now().Add(time.Hour), At: time.Now()}
	for name, tracer := range map[string]*Tracer{"off": nil, "on": on.Tracer} {
		if n := testing.AllocsPerRun(100, func() { tracer.Acked(&ack) }); n != 0 {
			t.Errorf("%s: an ACK makes %v allocations", name, n)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		var off *Tracer
		if off.Sampled() {
			t.Error("sampled")
		}
		var u *Update
		u.Read(Response{Type: cds}, nil)
		u.Handed(1, 1)
		if From(With(ctx, u)) != nil {
			t.Error("traced")
		}
		u.Applied(time.Now())
		u.Published(time.Time{}, 1, 1)
		u.Fail("rejected", nil)
	}); n != 0 {
		t.Errorf("a response makes %v allocations", n)
	}
}

func TestSecretsAreNotInSpans(t *testing.T) {
	c, r := traced(t)
	const secret = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ\n-----END PRIVATE KEY-----"
	u := r.Begin(time.Now(), About{Key: "Bearer abc123secret", Node: "https://u:hunter2secret@x"})
	u.Read(Response{Type: cds, Version: secret, Nonce: strings.Repeat("x", 10_000)}, errors.New("bad inline_string: \"topsecret\""))
	u.Fail("rejected", errors.New("bad inline_string: \"topsecret\""))
	r.stop()
	for _, s := range c.Spans("") {
		text := s.String()
		for _, bad := range []string{"abc123secret", "hunter2secret", "MIIEvQ", "topsecret"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s shows %s: %s", s.Name, bad, text)
			}
		}
		if len(text) > 4000 {
			t.Errorf("%s has %d bytes", s.Name, len(text))
		}
	}
	if len(c.Spans("xds.update")) != 1 {
		t.Error("no span came")
	}
}

// The end sends waiting spans.
func TestEndSendsWaitingSpans(t *testing.T) {
	c, r := traced(t)
	for i := range 10 {
		r.update(time.Now(), fmt.Sprint(i))
	}
	r.stop()
	if n := len(c.Spans("xds.update")); n != 10 {
		t.Errorf("%d spans came, not 10", n)
	}
	if sent := r.spans(t, "sent"); sent != 40 {
		t.Errorf("%v were counted, not 40", sent)
	}
}

// A collector that never answers does not delay the end.
func TestCollectorHangs(t *testing.T) {
	l := xdstest.Must(net.Listen("tcp", "127.0.0.1:0"))(t) // it accepts, and never answers
	defer l.Close()
	r := newTracerFixture(t, "http://"+l.Addr().String(), 1)
	r.run(t)
	for i := range 2000 {
		r.update(time.Now(), fmt.Sprint(i))
	}
	began := time.Now()
	r.stop()
	if took := time.Since(began); took > flushFor+5*time.Second {
		t.Errorf("the end took %v", took)
	}
}

// Spans that the collector refuses are counted.
func TestCollectorRefuses(t *testing.T) {
	c := otlptest.New(t)
	c.Refuse()
	r := newTracerFixture(t, c.Address, 1)
	r.run(t)
	r.update(time.Now(), "v1")
	r.stop()
	if failed := r.spans(t, "failed"); failed != 4 {
		t.Errorf("%v failed, of 4", failed)
	}
}

// The standard variables name a collector if the configuration does not, and headers.
func TestCollectorOfTheEnvironment(t *testing.T) {
	if New(Options{}) != nil {
		t.Fatal("a tracer without a collector")
	}
	for env, path := range map[string]string{endpointEnv: "", tracesEndpointEnv: "/v1/traces"} {
		t.Run(env, func(t *testing.T) {
			c := otlptest.New(t)
			t.Setenv(endpointEnv, away)
			t.Setenv(env, c.Address+path)
			t.Setenv(headersEnv, "api-key=a%20b, team=mesh,junk")
			r := newTracerFixture(t, "", 1)
			r.run(t)
			r.update(time.Now(), "v1")
			r.stop()
			if h := c.Headers(); len(c.Spans("xds.update")) != 1 || h.Get("api-key") != "a b" || h.Get("team") != "mesh" {
				t.Errorf("headers %v", h)
			}
		})
	}
}

// Only the newest updates have spans for ACKs.
func TestOldUpdatesAreForgotten(t *testing.T) {
	r := newTracerFixture(t, away, 1)
	r.run(t)
	at := time.Now()
	for i := range 10 * maxRecent {
		r.update(at.Add(time.Duration(i)), "v")
	}
	now := *r.recent.updates.Load()
	if len(now) != maxRecent || len(r.recent.order) != maxRecent || now[at.UnixNano()+10*maxRecent-1] == nil {
		t.Errorf("%d are kept", len(now))
	}
}
