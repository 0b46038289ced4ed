package store

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// said is a log that can be read.
type said struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// rig is a store with what is around it.
type rig struct {
	*Store
	log     *said
	metrics *telemetry.Metrics
	stop    func() // ends Run, and waits for it
	hurry   func() // has the end be at once
}

// options for a store in dir.
func options(t testing.TB, dir string) (Options, *said, *telemetry.Metrics) {
	t.Helper()
	m, err := telemetry.New(telemetry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	log := new(said)
	return Options{Path: dir, Metrics: &m.Store, Log: slog.New(slog.NewTextHandler(log, nil))}, log, m
}

// opened opens a store that does not run.
func opened(t testing.TB, dir string, change ...func(*Options)) *rig {
	t.Helper()
	o, log, m := options(t, dir)
	for _, c := range change {
		c(&o)
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Store: s, log: log, metrics: m, stop: func() {}, hurry: func() {}}
	t.Cleanup(func() {
		r.stop()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// running opens one that does.
func running(t testing.TB, dir string, change ...func(*Options)) *rig {
	t.Helper()
	r := opened(t, dir, change...)
	ctx, cancel := context.WithCancel(context.Background())
	hurry, atOnce := context.WithCancel(context.Background())
	r.hurry = atOnce
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, hurry) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		atOnce()
	})
	return r
}

// until waits for something that another goroutine does.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.After(20 * time.Second)
	for !is() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// settled waits until all is written that was touched.
func (r *rig) settled(t testing.TB) {
	t.Helper()
	until(t, "all is written", func() bool { return r.Status().Waiting == 0 })
}

// source is good by what was set last.
type source struct {
	mu    sync.Mutex
	rec   *Record
	asked int
	// unknown: it cannot tell.
	unknown bool
}

func (s *source) Good() (*Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return s.rec, !s.unknown
}

func (s *source) set(r *Record) *source {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec = r
	return s
}

// put has a record written, as a group would.
func (r *rig) put(t testing.TB, rec *Record) *source {
	t.Helper()
	src := new(source).set(rec)
	r.Touch(rec.Key, rec.Type, src)
	r.settled(t)
	return src
}

// counts holds the metrics against what they are to be.
func (r *rig) counts(t testing.TB, want map[string]float64) {
	t.Helper()
	answer := httptest.NewRecorder()
	r.metrics.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	got := make(map[string]float64)
	for line := range strings.Lines(answer.Body.String()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			got[strings.TrimPrefix(name, "xdsrelay_")], _ = strconv.ParseFloat(value, 64)
		}
	}
	for name, n := range want {
		if v, ok := got[name]; !ok || v != n {
			t.Errorf("%s is %v (%t), and should be %v", name, v, ok, n)
		}
	}
}

// anyOf is an Any on the wire.
func anyOf(typ xds.TypeURL, value string) []byte {
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), string(typ))
	return protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), value)
}

// resource makes one as it comes from an incremental origin; extra are more fields
// of the Resource on the wire.
func resource(t testing.TB, typ xds.TypeURL, name, version, value string, extra ...byte) *xds.Resource {
	t.Helper()
	w := protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), name)
	w = protowire.AppendString(protowire.AppendTag(w, 1, protowire.BytesType), version)
	w = protowire.AppendBytes(protowire.AppendTag(w, 2, protowire.BytesType), anyOf(typ, value))
	w = append(w, extra...)
	m := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), w)
	m = protowire.AppendString(protowire.AppendTag(m, 4, protowire.BytesType), string(typ))
	resp, err := xds.ParseResponse(xds.Delta, m)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Resources[0].Take(xds.TypeOf(typ), nil)
}

// Fields of a Resource on the wire.
func alias(a string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, 4, protowire.BytesType), a)
}

func message(field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), m)
}

func number(field protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), n)
}

var (
	uncached = message(7, number(1, 1)) // cache_control.do_not_cache
	timed    = message(6, number(1, 60))
)

// clusters makes a record of n clusters, each of about size bytes.
func clusters(t testing.TB, key string, n, size int) *Record {
	t.Helper()
	r := &Record{
		Key: xds.NewKey(key), Type: xds.ClusterType, Node: []byte("node of " + key), Origin: "one", Version: "v1",
		Wildcard: true, Received: time.Now(), Confirmed: time.Now(),
	}
	for i := range n {
		value := fmt.Sprintf("%s %d %s", key, i, bytes.Repeat([]byte{byte('a' + i%26)}, size))
		r.Entries = append(r.Entries, Entry{resource(t, r.Type, fmt.Sprintf("cluster-%06d", i), fmt.Sprint(i), value), true})
	}
	return r
}

// equal tells whether two records say the same; "" if so.
func equal(a, b *Record) string {
	switch {
	case a == nil || b == nil:
		if a != b {
			return fmt.Sprintf("one is nil: %v, %v", a, b)
		}
		return ""
	case a.Key != b.Key || a.Type != b.Type || a.Origin != b.Origin || a.Version != b.Version || a.Wildcard != b.Wildcard:
		return fmt.Sprintf("%v %v %q %q %t, and %v %v %q %q %t", a.Key, a.Type, a.Origin, a.Version, a.Wildcard, b.Key, b.Type, b.Origin, b.Version, b.Wildcard)
	case !bytes.Equal(a.Node, b.Node):
		return "nodes differ"
	case !a.Received.Equal(b.Received):
		return fmt.Sprintf("received %v, and %v", a.Received, b.Received)
	case len(a.Entries) != len(b.Entries):
		return fmt.Sprintf("%d entries, and %d", len(a.Entries), len(b.Entries))
	}
	for i, e := range a.Entries {
		o := b.Entries[i]
		if e.Wild != o.Wild || !e.Resource.Same(o.Resource) || e.Resource.Version != o.Resource.Version ||
			!bytes.Equal(e.Resource.AppendStored(nil), o.Resource.AppendStored(nil)) {
			return fmt.Sprintf("entry %d: %q %t, and %q %t", i, e.Resource.Name, e.Wild, o.Resource.Name, o.Wild)
		}
	}
	return ""
}

// loads has the store give what is good.
func (r *rig) loads(t testing.TB, want *Record) {
	t.Helper()
	got, err := r.Load(want.Key, want.Type)
	if err != nil {
		t.Fatal(err)
	}
	if diff := equal(want, got); diff != "" {
		t.Errorf("loaded something else than was stored: %s", diff)
	}
	if got != nil && !got.Confirmed.Equal(want.Confirmed) {
		t.Errorf("confirmed %v, and stored %v", got.Confirmed, want.Confirmed)
	}
}

// slowSource takes its time.
type slowSource struct {
	rec   *Record
	takes time.Duration
	asked atomic.Int32
}

func (s *slowSource) Good() (*Record, bool) {
	s.asked.Add(1)
	<-time.After(s.takes)
	return s.rec, true
}
