package promql

import (
	"context"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	engine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// minutes is the length of a history, with a sample each minute. It is more than a day, because a
// rule compares with the day before.
const minutes = 26 * 60

// history has series as Prometheus stores them, by their labels.
type history map[string]series

type series struct {
	labels labels.Labels
	values []float64 // by minute; the last one is the newest
}

func (h history) put(l labels.Labels, values []float64) { h[l.String()] = series{l, values} }

// healthy is the history of a relay without faults. It has the metrics of a real relay, which stay
// constant, without the NACKs of its clients.
func healthy(all map[string]*dto.MetricFamily) history {
	h := make(history)
	for name, f := range all {
		for _, m := range f.Metric {
			b := labels.NewBuilder(labels.FromStrings("job", "relay", "instance", "a:1"))
			for _, l := range m.Label {
				b.Set(l.GetName(), l.GetValue())
			}
			put := func(name string, v float64, more ...string) {
				b.Set(labels.MetricName, name)
				for i := 0; i < len(more); i += 2 {
					b.Set(more[i], more[i+1])
				}
				h.put(b.Labels(), slices.Repeat([]float64{v}, minutes+1))
			}
			switch f.GetType() {
			case dto.MetricType_HISTOGRAM:
				put(name+"_count", float64(m.Histogram.GetSampleCount()))
				for _, bucket := range m.Histogram.Bucket {
					put(name+"_bucket", float64(bucket.GetCumulativeCount()), "le", formatBound(bucket.GetUpperBound()))
				}
			case dto.MetricType_SUMMARY:
				put(name+"_count", float64(m.Summary.GetSampleCount()))
				put(name+"_sum", m.Summary.GetSampleSum())
			default:
				v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
				if name == "xdsrelay_downstream_types" && b.Get("state") != "synced" {
					v = 0
				}
				put(name, v)
			}
		}
	}
	return h
}

func formatBound(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// Querier implements storage.Queryable.
func (h history) Querier(int64, int64) (storage.Querier, error) { return querier{history: h}, nil }

type querier struct {
	storage.LabelQuerier // unused
	history              history
}

func (querier) Close() error { return nil }

// Select implements storage.Querier.
func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var out []series
	for _, s := range q.history {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b series) int { return labels.Compare(a.labels, b.labels) })
	return &seriesSet{left: out}
}

type seriesSet struct {
	left []series
	at   series
}

func (s *seriesSet) Next() bool {
	if len(s.left) == 0 {
		return false
	}
	s.at, s.left = s.left[0], s.left[1:]
	return true
}
func (s *seriesSet) At() storage.Series                { return s.at }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }
func (s series) Labels() labels.Labels                 { return s.labels }
func (s series) Iterator(chunkenc.Iterator) chunkenc.Iterator {
	var list []chunks.Sample
	for i, v := range s.values {
		if math.IsNaN(v) {
			continue // no sample
		}
		list = append(list, sample{t: int64(minutes+1-len(s.values)+i) * 60_000, v: v})
	}
	return storage.NewListSeries(s.labels, list).Iterator(nil)
}

type sample struct {
	t int64
	v float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

func newEngine() *engine.Engine {
	return engine.NewEngine(engine.EngineOpts{MaxSamples: 10_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
}

// longest returns for how long an expression has a result without a break in the last 70 minutes,
// and the labels of that result; a negative time: it has none. The expression is evaluated each
// minute.
func (h history) longest(t *testing.T, expr string) (of labels.Labels, lasts time.Duration) {
	t.Helper()
	end := time.UnixMilli(minutes * 60_000)
	q, err := newEngine().NewRangeQuery(t.Context(), h, nil, expr, end.Add(-70*time.Minute), end, time.Minute)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	m, err := q.Exec(t.Context()).Matrix()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	lasts = -1
	for _, s := range m {
		began := s.Floats[0].T
		for i, p := range s.Floats {
			if i > 0 && p.T-s.Floats[i-1].T > time.Minute.Milliseconds() {
				began = p.T
			}
			if d := time.Duration(p.T-began) * time.Millisecond; d > lasts {
				of, lasts = s.Metric, d
			}
		}
	}
	return of, lasts
}

// ask puts a query to a history, at its end.
func (h history) ask(t *testing.T, expr string) engine.Vector {
	t.Helper()
	q, err := newEngine().NewInstantQuery(t.Context(), h, nil, expr, time.UnixMilli(minutes*60_000))
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	r := q.Exec(t.Context())
	v, err := r.Vector()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return slices.Clone(v)
}

// relabelled is a series with the labels that Prometheus adds. The job is relay and the instance is
// a:1 unless l has others.
func relabelled(l labels.Labels) labels.Labels {
	b := labels.NewBuilder(l)
	if !l.Has("job") {
		b.Set("job", "relay")
	}
	if !l.Has("instance") {
		b.Set("instance", "a:1")
	}
	return b.Labels()
}
