package filesource

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tracing"
	"xdsrelay/internal/upstream/adsclient"
	"xdsrelay/internal/upstream/upstreamtest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// directoryOrigin is a directory that serves keys, with its log.
type directoryOrigin struct {
	t         *testing.T
	dir       string
	directory *Directory
	metrics   *telemetry.Metrics
	ctx       context.Context
	wg        sync.WaitGroup
	log       xdstest.Log
}

func newDirectoryOrigin(t *testing.T, dir string) *directoryOrigin {
	return &directoryOrigin{t: t, dir: dir}
}

// run follows the directory from now on. The directory need not exist.
func (r *directoryOrigin) run() {
	t := r.t
	t.Helper()
	var err error
	r.metrics, err = telemetry.New(telemetry.Options{})
	must(t, err)
	r.directory, err = New(Options{Name: "files", Path: "//" + r.dir, Log: r.log.Logger(), Metrics: r.metrics, Origin: r.metrics.Origin("files")})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	r.ctx = ctx
	r.wg.Go(func() {
		if err := r.directory.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); r.wg.Wait() })
}

// key serves a key with this interest.
func (r *directoryOrigin) key(types ...snapshot.TypeInterest) (*testSink, *testStream) {
	s := r.newStream()
	s.SetInterest(s.sink.Want(types...))
	r.wg.Go(func() {
		if err := s.run(r.ctx); err != nil {
			r.t.Errorf("stream: %v", err)
		}
	})
	return s.sink, s
}

// testSink is a group without members that records the status of its stream.
type testSink struct {
	*upstreamtest.Sink
	status status // protected by Mu
}

type status struct {
	Connected, Failed bool
	Err               error
}

// lastStatus returns the newest status. The caller holds the lock.
func (s *testSink) lastStatus() status { return s.status }

func (s *testSink) setStatus(st status) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.status = st
	s.Notify()
}

// testInterest is the newest interest of a key, and what was unsubscribed since it was taken last.
type testInterest struct {
	changed chan struct{} // room for one

	mu     sync.Mutex // protects the fields below
	newest *snapshot.Interest
	again  adsclient.Resubscriptions
}

func newTestInterest() *testInterest {
	return &testInterest{changed: make(chan struct{}, 1), again: make(adsclient.Resubscriptions)}
}

func (i *testInterest) SetInterest(to *snapshot.Interest) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.again.Note(i.newest, to)
	i.newest = to
	select {
	case i.changed <- struct{}{}:
	default:
	}
}

func (i *testInterest) InterestChanged() <-chan struct{} { return i.changed }

func (i *testInterest) Interest() (*snapshot.Interest, func(xds.TypeURL) map[string]struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	again := i.again
	i.again = make(adsclient.Resubscriptions)
	return i.newest, again.Unsubscribed
}

// await returns true once something is wanted, false if ctx ended first.
func (i *testInterest) await(ctx context.Context) bool {
	for ctx.Err() == nil {
		i.mu.Lock()
		newest := i.newest
		i.mu.Unlock()
		if !newest.Empty() {
			return true
		}
		select {
		case <-i.changed:
		case <-ctx.Done():
		}
	}
	return false
}

// testStream is the stream of a key that uses no other origin.
type testStream struct {
	*testInterest
	of       *directoryOrigin
	sink     *testSink
	answered bool
	over     error // the sink's error
}

func (r *directoryOrigin) newStream() *testStream {
	return &testStream{testInterest: newTestInterest(), of: r, sink: &testSink{Sink: upstreamtest.NewSink()}}
}

// run serves the key until ctx ends or the sink fails.
func (s *testStream) run(ctx context.Context) error {
	for s.await(ctx) {
		s.answered = false
		err := s.of.directory.Serve(ctx, s)
		switch {
		case s.over != nil:
			return s.over
		case errors.Is(err, ErrNothingWanted):
			s.sink.setStatus(status{})
			continue
		}
		s.sink.setStatus(status{Failed: !s.answered, Err: err})
		s.of.directory.WaitBeforeRetry(ctx, time.Minute)
	}
	return nil
}

func (s *testStream) Newest(typ xds.TypeURL) *snapshot.Snapshot { return s.sink.Newest(typ) }
func (s *testStream) Opened()                                   { s.sink.setStatus(status{Connected: true}) }
func (s *testStream) Responded()                                { s.answered = true }
func (s *testStream) Trace(time.Time) *tracing.Update           { return nil }

func (s *testStream) Counters(typ xds.TypeURL) *telemetry.TypeMetrics { return s.of.metrics.Type(typ) }

func (s *testStream) Apply(ctx context.Context, u snapshot.Update) (changed bool, err error) {
	u.Origin = s.of.directory.name
	changed, err = s.sink.Update(ctx, u)
	if err != nil && ctx.Err() == nil {
		s.over = err
	}
	return changed, err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *directoryOrigin) path(name string) string { return filepath.Join(r.dir, name) }

// write writes a file in place.
func (r *directoryOrigin) write(name, text string) {
	r.t.Helper()
	must(r.t, os.WriteFile(r.path(name), []byte(text), 0o644))
}

// clustersFile is a file with clusters, each "name" or "name=content".
func clustersFile(version string, names ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "version_info: %q\ntype_url: %s\nresources:\n", version, clusterURL)
	for _, n := range names {
		name, content, _ := strings.Cut(n, "=")
		fmt.Fprintf(&b, "- {\"@type\": %s, name: %q, alt_stat_name: %q}\n", clusterURL, name, content)
	}
	if len(names) == 0 {
		b.WriteString("  []\n")
	}
	return b.String()
}

// holds waits until exactly these clusters are held, by content.
func holds(t *testing.T, s *testSink, names ...string) {
	t.Helper()
	sections, err := parseFile(".yaml", []byte(clustersFile("", names...)), noneHeld)
	must(t, err)
	want := sections[0].resources
	s.Until(t, fmt.Sprint(names), func() bool {
		snap := s.Snapshots[cds]
		if snap.Len() != len(want) || snap == nil {
			return false
		}
		return !slices.ContainsFunc(want, func(r *xds.Resource) bool { return !r.Same(snap.Resource(r.Name)) })
	})
}

// absent waits until a name is known to be absent.
func absent(t *testing.T, s *testSink, names ...string) {
	t.Helper()
	for _, n := range names {
		s.Until(t, n+" to be absent", func() bool { return s.Presence(cds, n) == snapshot.Absent })
	}
}

// removedEver returns the names that any update removed.
func removedEver(s *testSink) (names []string) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, u := range s.Updates {
		names = append(names, u.Removed...)
	}
	return names
}
