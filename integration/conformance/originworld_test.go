package conformance

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"
)

// dialect is a library with a kind of cache.
type dialect struct {
	library *library
	cache   string // "" for java-control-plane, which has one
}

func (d dialect) String() string {
	if d.cache == "" {
		return d.library.name
	}
	return d.library.name + "-" + d.cache
}

func dialects() []dialect {
	var out []dialect
	for _, l := range []*library{gcp013, gcp014} {
		for _, c := range []string{"snapshot", "ads", "linear", "mux"} {
			out = append(out, dialect{l, c})
		}
	}
	return append(out, dialect{jcp, ""})
}

// difference is something that an origin does not do. The tests check that it does not, so that the
// table stays true.
type difference struct {
	test    string
	library *library
	cache   string
	up      string // the variant at the origin; empty: both
	to      receiver
	why     string
}

// receiver is the client that does not get something.
type receiver int

const (
	directly     receiver = iota // a client without a relay; the relay makes up for it
	throughRelay                 // clients of the relay, which share a stream
)

// differences are all that are known. docs/origins.md has them too.
var differences = []difference{
	{"TestP22_RealOriginsMoreNames", gcp013, "linear", "sotw", directly, newNameSilent},
	{"TestP52_RealOriginsRemovedClusters", gcp013, "linear", "sotw", directly, newNameSilent},
	{"TestP64_RealOriginsNamesThatComeBack", gcp013, "snapshot", "", directly, sentOnce},
	{"TestP64_RealOriginsNamesThatComeBack", gcp013, "ads", "", directly, sentOnce},
	{"TestP64_RealOriginsNamesThatComeBack", gcp013, "linear", "", directly, sentOnce},
	{"TestP64_RealOriginsNamesThatComeBack", gcp013, "mux", "", directly, sentOnce},
	{"TestP64_RealOriginsNamesThatComeBack", jcp, "", "sotw", directly, sentOnce},
	{"TestP55_RealOriginsRemovedDuringAnOutage", jcp, "", "delta", throughRelay, "it ignores initial_resource_versions"},
	{"TestP16_RealOriginsMissingNames", jcp, "", "sotw", throughRelay, "it answers no request for endpoints that names something that it lacks"},
}

const (
	newNameSilent = "it does not answer a request that adds a name under the current version"
	sentOnce      = "on one stream it sends a resource again only when it has changed"
)

// known returns the difference that applies to a run, or nil.
func known(test string, d dialect, up string, direct bool) *difference {
	for i, x := range differences {
		if x.test == test && x.library == d.library && x.cache == d.cache && (x.up == up || x.up == "") &&
			direct == (x.to == directly) {
			return &differences[i]
		}
	}
	return nil
}

// world is a test at a real origin.
type world struct {
	*trial
	origin *realSite
	direct bool // without a relay
	known  *difference
}

// patience is how long a test waits for what it wants.
func (w *world) patience() time.Duration {
	if w.known != nil {
		return 2 * time.Second // it will not come
	}
	return xdstest.Patience
}

// missing ends the test, because something did not come.
func (w *world) missing(format string, args ...any) {
	w.Helper()
	if w.known != nil {
		w.Skipf("a known difference: %s", w.known.why)
	}
	w.Fatalf(format, args...)
}

// answered has a sync.Once for each relay. It gives the relay a first key that the origin answers, and
// that stays. Otherwise the origin counts as away if the first keys ask only for types that it does
// not know.
var answered sync.Map

// askEach runs a test at all origins and in all places with one stream. With directly, it also runs
// without a relay.
func askEach(t *testing.T, directly bool, test func(w *world)) {
	t.Parallel()
	for _, d := range dialects() {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			for _, at := range places() {
				if !at.ads {
					continue
				}
				t.Run(at.up+"-"+at.down, func(t *testing.T) {
					t.Parallel()
					control, err := sharedControl()
					if err != nil {
						t.Fatal(err)
					}
					name, origin := d.library.name+"-"+at.up, d.library.get(t)
					r := xdstest.SharedRelay(t, name, realConfig(at.up, origin.addr, control.addr))
					through := func() *world {
						w := worldOf(t, d, at, origin, false)
						w.through(&relay{r, xdstest.Dial(t, r.Address, nil)}, control)
						return w
					}
					once, _ := answered.LoadOrStore(name, new(sync.Once))
					once.(*sync.Once).Do(func() {
						w := through()
						w.known = nil
						w.origin.set(w, "1", web("1", nil))
						w.viewer("first").starts(web("1", nil))
					})
					w := through()
					test(w)
					w.over()
				})
			}
			for _, variant := range []string{"sotw", "delta"} {
				if directly {
					t.Run("direct-"+variant, func(t *testing.T) {
						t.Parallel()
						w := worldOf(t, d, place{variant, variant, true}, d.library.get(t), true)
						w.relay = &relay{conn: xdstest.Dial(t, w.origin.addr, nil)}
						test(w)
						w.over()
					})
				}
			}
		})
	}
}

func worldOf(t *testing.T, d dialect, at place, o *realOrigin, direct bool) *world {
	key := newKey(t)
	test, _, _ := strings.Cut(t.Name(), "/")
	w := &world{trial: &trial{TB: t, place: at, key: key}, direct: direct, known: known(test, d, at.up, direct),
		origin: &realSite{realOrigin: o, key: key, cache: d.cache}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the origin received:")
			for _, r := range w.origin.requests(t) {
				t.Logf("  on stream %d: %v", r.stream, r)
			}
		}
	})
	return w
}

// through puts a relay before the origin. Its second origin is scripted.
func (w *world) through(r *relay, control *control) {
	w.relay = r
	w.site = control.site(w.key)
	w.site.put(w, cds, "other=1")
	for _, k := range []kind{eds, lds, rds} {
		w.site.put(w, k, "a=other", "b=other", "r=other")
	}
	w.Cleanup(func() {
		if w.Failed() {
			w.Logf("the relay's log:\n%s%s", r.said("msg=\"origin"), r.said(w.key))
		}
	})
}

// realConfig has the times of a relay in production.
func realConfig(variant string, origins ...string) xdstest.Config {
	return config(variant, origins...).With(xdstest.Config{
		"downstream.removal_delay": "5s", "upstream.linger": "10s", "upstream.idle_ttl": long,
		"upstream.backoff.base": "1s", "upstream.backoff.max": "30s",
	})
}

// over checks at the end of a test that no known difference was missed, and that the relay has used
// no other origin.
func (w *world) over() {
	w.Helper()
	if w.known != nil {
		w.Errorf("it works, but the table says: %s", w.known.why)
	}
	if w.site == nil {
		return
	}
	if ever, _ := w.site.opened(); ever > 0 {
		w.Errorf("the key had %d streams at its other origin", ever)
	}
}

// healthy checks that the key is at the origin, and that the relay reports no fault of it.
func (w *world) healthy() {
	w.Helper()
	type upstream struct {
		Origin      string `json:"origin"`
		Connected   bool   `json:"connected"`
		Failed      bool   `json:"failed"`
		Error       string `json:"error"`
		SilentSince string `json:"silent_since"`
	}
	xdstest.Eventually(w, "a healthy key", func() error {
		var key struct { // a new one: JSON omits an error that is over
			Upstream upstream `json:"upstream"`
		}
		text := w.relay.get(w, "/keys/"+url.PathEscape(w.key))
		if err := json.Unmarshal([]byte(text), &key); err != nil {
			return err
		}
		if u := key.Upstream; !u.Connected || u.Failed || u.Error != "" || u.SilentSince != "" || u.Origin != w.origin.addr {
			return fmt.Errorf("the relay shows %+v", u)
		}
		return nil
	})
}

// viewer is a client that acknowledges all it gets, and keeps what it has.
type viewer struct {
	*client
	w    *world
	view map[kind]map[string]string
}

func (w *world) viewer(id string) *viewer {
	return &viewer{w.client(id), w, make(map[kind]map[string]string)}
}

// has waits until the client has exactly this of a type.
func (v *viewer) has(k kind, want string) {
	v.w.Helper()
	deadline := time.NewTimer(v.w.patience())
	defer deadline.Stop()
	s := v.on(k)
	for {
		s.mu.Lock()
		in, news, err := s.in, s.news, s.err
		s.in = nil
		s.mu.Unlock()
		for _, a := range in {
			v.take(a)
		}
		if got := v.String(k); got == want {
			return
		} else if err != nil {
			v.w.missing("the client %s has %s %q, want %q; its stream ended: %v", v.node.Id, k.short(), got, want, err)
		}
		select {
		case <-news:
		case <-deadline.C:
			v.w.missing("the client %s has %s %q, want %q", v.node.Id, k.short(), v.String(k), want)
		}
	}
}

func (v *viewer) take(a answer) {
	if v.view[a.kind] == nil || !a.delta && a.kind.full() {
		v.view[a.kind] = make(map[string]string)
	}
	for name, b := range a.bodies {
		v.view[a.kind][name] = field(b.GetValue(), valueField)
	}
	for _, name := range a.removed {
		delete(v.view[a.kind], name)
	}
	v.state(a.kind).answers++
	v.ack(a)
}

// String formats what the client has of a type.
func (v *viewer) String(k kind) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(v.view[k])) {
		out = append(out, name+"="+v.view[k][name])
	}
	return strings.Join(out, " ")
}

// drops unsubscribes from names, and forgets them.
func (v *viewer) drops(k kind, names ...string) {
	v.unsub(k, names...)
	for _, n := range names {
		delete(v.view[k], n)
	}
}

// web is what an Envoy needs: two clusters with endpoints, a listener and a route. All have this
// value, except for what others says.
func web(value string, others map[kind]string) map[kind]string {
	all := map[kind]string{cds: "a=V b=V", eds: "a=V b=V", lds: "l=V", rds: "r=V"}
	for k, things := range all {
		all[k] = cmp.Or(others[k], strings.ReplaceAll(things, "V", value))
	}
	return all
}

// starts subscribes as an Envoy does, and waits until the client has all of this.
func (v *viewer) starts(content map[kind]string) {
	v.w.Helper()
	v.sub(cds)
	v.has(cds, content[cds])
	v.wants(eds, content[eds])
	v.sub(lds)
	v.has(lds, content[lds])
	v.wants(rds, content[rds])
}

// wants subscribes to the names of a type, and waits until the client has this.
func (v *viewer) wants(k kind, content string) {
	v.w.Helper()
	var names []string
	for thing := range strings.FieldsSeq(content) {
		name, _, _ := parse(thing)
		names = append(names, name)
	}
	v.sub(k, names...)
	v.has(k, content)
}
