package store

import (
	"context"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const cds, eds = xds.ClusterType, xds.EndpointType

var web = xds.NewKey("web")

// storeFixture is a running store with its log.
type storeFixture struct {
	*Store
	t       *testing.T
	log     *xdstest.Log
	metrics *telemetry.Metrics
	stop    func() // ends Run, and waits for it

	mu        sync.Mutex
	all       map[slot]Entry // the newest of each slot
	confirmed bool           // all of it is
}

func (r *storeFixture) Put(key xds.Key, typ xds.TypeURL, s *snapshot.Snapshot) {
	r.mu.Lock()
	if was, ok := r.all[slot{key, typ}]; !ok || was.Snapshot.Gen < s.Gen {
		r.all[slot{key, typ}] = Entry{key, typ, s, false}
	}
	r.mu.Unlock()
	r.Store.Put(key, typ, s)
}

func (r *storeFixture) generations() iter.Seq[Entry] {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Collect(maps.Values(r.all))
	for i := range all {
		all[i].Confirmed = r.confirmed
	}
	return slices.Values(all)
}

func options(t testing.TB, dir string) (Options, *xdstest.Log, *telemetry.Metrics) {
	t.Helper()
	m, err := telemetry.New(telemetry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	log := new(xdstest.Log)
	return Options{Path: dir, Metrics: &m.Store, Log: log.Logger()}, log, m
}

// opened is a running store in a bubble; edit may be nil.
func opened(t *testing.T, dir string, edit func(*Options)) *storeFixture {
	t.Helper()
	o, log, m := options(t, dir)
	if edit != nil {
		edit(&o)
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	r := &storeFixture{Store: s, t: t, log: log, metrics: m, all: make(map[slot]Entry)}
	r.stop = xdstest.Run(t, func(ctx context.Context) error { return s.Run(ctx, context.Background(), r.generations) })
	synctest.Wait()
	return r
}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// view makes snapshots of one lineage.
type view struct {
	t   testing.TB
	b   *snapshot.Builder
	typ xds.TypeURL
	now *snapshot.Snapshot
}

func newView(t testing.TB, typ xds.TypeURL) *view {
	return &view{t: t, b: snapshot.NewBuilder(xds.TypeOf(typ)), typ: typ}
}

// snapshot applies changes such as "a=1" and "-a", by name or by the wildcard.
func (v *view) snapshot(wild bool, what ...string) *snapshot.Snapshot {
	u := snapshot.Update{Type: v.typ, Origin: "origin", Version: "v7", Wildcard: wild, Received: time.Unix(5, 6)}
	for _, s := range what {
		if name, gone := strings.CutPrefix(s, "-"); gone {
			u.Removed = append(u.Removed, name)
			continue
		}
		name, content, _ := strings.Cut(s, "=")
		u.Changed = append(u.Changed, resource(v.t, v.typ, name, content))
	}
	v.b.Apply(u)
	v.now, _ = v.b.Snapshot(v.now, 1)
	return v.now
}

func resource(t testing.TB, typ xds.TypeURL, name, content string) *xds.Resource {
	t.Helper()
	r, err := xds.NewResource(xds.TypeOf(typ), name, xdstest.NamedAny(string(typ), name, content))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// holds describes a loaded type: "*a" by the wildcard, "a" by name, "*" if the wildcard is
// answered.
func (r *storeFixture) holds(key xds.Key, typ xds.TypeURL) string {
	r.t.Helper()
	got := r.Load(context.Background(), key)[typ]
	if got == nil {
		return ""
	}
	if s := got.Snapshot; s.Origin != "origin" || s.OriginVersion() != "v7" || !s.Received.Equal(time.Unix(5, 6)) {
		r.t.Errorf("origin %q, version %q, received %v", s.Origin, s.OriginVersion(), s.Received)
	}
	return spell(got.Snapshot)
}

func spell(s *snapshot.Snapshot) string {
	var out []string
	for _, wild := range []bool{true, false} {
		mark := ""
		if wild {
			mark = "*"
		}
		for res := range s.Part(snapshot.ScopeOf(wild)).Resources {
			out = append(out, mark+res.Name+"="+xdstest.ContentOf(res.Any()))
		}
	}
	if s.Answered {
		out = append(out, "*")
	}
	return strings.Join(out, " ")
}

func (r *storeFixture) path(typ xds.TypeURL) string {
	return filepath.Join(r.o.Path, slot{web, typ}.name())
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// pass advances the clock, and waits for all goroutines.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
