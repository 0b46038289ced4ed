package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"xdsrelay/config"
	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/admin/memberread"
	"xdsrelay/internal/admin/overview"
	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/cluster"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Fakes of the relay's parts.
var (
	_ Clients = (*fanout.Server)(nil)
	_ Keys    = (*keystatus.Reader)(nil)
	_ Origins = (*upstream.Client)(nil)
	_ Members = (*memberread.Reader)(nil)
	_ Rules   = (*aggregator.Rules)(nil)
)

// fakeRelay has the data that a Server shows.
type fakeRelay struct {
	mu             sync.Mutex
	clients        []inspect.ClientStatus
	nodes          []*xds.Node // of streams with clusters, under the key "old"
	states         []inspect.TypeState
	held           map[xds.Key][]*snapshot.Snapshot
	unacknowledged []inspect.Unacknowledged
	differences    []snapshot.Difference // of all clients
	keys           []keystatus.Key
	origins        []upstream.OriginStatus
	roles          map[telemetry.KeyRole]int
	members        []cluster.Member
	away           []refusal.Recent
	block          chan struct{} // if set, Clients waits for it
	asked          chan struct{} // receives when Clients blocks
}

func (f *fakeRelay) Clients() []inspect.ClientStatus {
	if f.block != nil {
		f.asked <- struct{}{}
		<-f.block
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]inspect.ClientStatus(nil), f.clients...)
}

func (f *fakeRelay) ClientsAfter(after uint64) iter.Seq[inspect.ClientStatus] {
	return func(yield func(inspect.ClientStatus) bool) {
		all := f.Clients()
		slices.SortFunc(all, func(a, b inspect.ClientStatus) int { return cmp.Compare(a.Stream, b.Stream) })
		for _, c := range all {
			if c.Stream > after && !yield(c) {
				return
			}
		}
	}
}

func (f *fakeRelay) ClientConfigs() (out []inspect.ClientConfig) {
	for _, c := range f.Clients() {
		if c.FullNode != nil {
			out = append(out, inspect.ClientConfig{Stream: c.Stream, Node: c.FullNode, Types: func() []inspect.TypeConfig {
				return []inspect.TypeConfig{{URL: "t", Resources: func(yield func(inspect.ResourceStatus) bool) {
					for i := range 201 {
						if r := (session.Resource{Name: fmt.Sprint("r", i), State: inspect.StateSynced, NameStatus: inspect.StatusDoesNotExist}); !yield(inspect.ResourceStatus{Resource: r}) {
							return
						}
					}
				}}}
			}})
		}
	}
	return out
}

func (f *fakeRelay) Unacknowledged(node string, after uint64) iter.Seq2[uint64, []inspect.Unacknowledged] {
	return func(yield func(uint64, []inspect.Unacknowledged) bool) {
		for c := range f.ClientsAfter(after) {
			of := slices.DeleteFunc(slices.Clone(f.unacknowledged), func(u inspect.Unacknowledged) bool { return u.Node != node || u.Stream != c.Stream })
			if c.Node == node && !yield(c.Stream, of) {
				return
			}
		}
	}
}

func (f *fakeRelay) Snapshots(key xds.Key) ([]*snapshot.Snapshot, bool) {
	held, ok := f.held[key]
	return slices.Clone(held), ok
}

func (f *fakeRelay) Differences(u *inspect.Unacknowledged, most int) ([]snapshot.Difference, int, bool) {
	return f.differences[:min(len(f.differences), most)], max(0, len(f.differences)-most), f.differences != nil
}

func (f *fakeRelay) Changes(_ xds.Key, _ xds.TypeURL, version string, most int) ([]snapshot.Difference, int, bool) {
	return f.differences, 0, version == "2"
}

func (f *fakeRelay) TypeStates(wanted func(xds.Key, xds.TypeURL) bool) iter.Seq[inspect.TypeState] {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.states
	return func(yield func(inspect.TypeState) bool) {
		for _, s := range all {
			if wanted(s.Key, s.Type) && !yield(s) {
				return
			}
		}
	}
}

func (f *fakeRelay) Progress(of keystatus.Awaited, states func(func(xds.Key, xds.TypeURL) bool) iter.Seq[inspect.TypeState]) keystatus.Progress {
	p := keystatus.Progress{Key: of.Key.String(), Type: string(of.Type), Version: of.Version, Mark: of.Mark, Known: of.OrNewer}
	for range states(func(k xds.Key, t xds.TypeURL) bool { return k == of.Key && t == of.Type }) {
		p.Clients++
	}
	return p
}

func (f *fakeRelay) PreviewRekey(after uint64, keyOf subscriber.KeyOf) iter.Seq[fanout.RekeyPreview] {
	f.mu.Lock()
	defer f.mu.Unlock()
	nodes := f.nodes
	return func(yield func(fanout.RekeyPreview) bool) {
		for i, n := range nodes {
			m := fanout.RekeyPreview{Stream: uint64(i + 1), Node: n.ID, Peer: "10.0.0.1:1"}
			c := subscriber.Change{Type: xds.ClusterType, From: xds.NewKey("old")}
			if c.To, c.Refused = keyOf(n, expr.Peer{}, c.Type); c.From != c.To {
				m.Changes = []subscriber.Change{c}
			}
			if m.Stream > after && !yield(m) {
				return
			}
		}
	}
}

func (f *fakeRelay) Keys() []keystatus.Key {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Clone(f.keys)
	slices.SortFunc(all, func(a, b keystatus.Key) int { return cmp.Compare(a.Key, b.Key) })
	for i := range all {
		all[i].Nacks, all[i].Types = nil, slices.Clone(all[i].Types)
		for j := range all[i].Types {
			all[i].Types[j].Versions = nil
		}
	}
	return all
}

func (f *fakeRelay) Key(key xds.Key) (keystatus.Key, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.keys {
		if k.Key == key.String() {
			k.Types = slices.Clone(k.Types) // the caller counts in them
			for i := range k.Types {
				k.Types[i].Versions = slices.Clone(k.Types[i].Versions)
			}
			return k, true
		}
	}
	return keystatus.Key{}, false
}

func (f *fakeRelay) Roles() map[telemetry.KeyRole]int { return f.roles }

func (f *fakeRelay) Owner(key xds.Key) string {
	if f.members == nil {
		return ""
	}
	return f.members[len(key.String())%len(f.members)].Name
}

func (f *fakeRelay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s of a member", r.URL.Path)
}

func (f *fakeRelay) Members() []cluster.Member { return f.members }

func (f *fakeRelay) Used(key xds.Key) bool {
	_, ok := f.Key(key)
	return ok
}

// Nacks yields the NACKs of the keys, the newest of the first.
func (f *fakeRelay) Nacks(before uint64) iter.Seq[history.KeyNack] {
	f.mu.Lock()
	defer f.mu.Unlock()
	place := uint64(100)
	var all []history.KeyNack
	for _, k := range f.keys {
		for _, n := range k.Nacks {
			key, _ := xds.ParseKey(k.Key)
			if place--; before == 0 || place < before {
				all = append(all, history.KeyNack{Key: key, Place: place, Nack: n})
			}
		}
	}
	return func(yield func(history.KeyNack) bool) {
		for _, n := range all {
			if !yield(n) {
				return
			}
		}
	}
}

func (f *fakeRelay) UserAgents() []inspect.UserAgentCount { return []inspect.UserAgentCount{} }

func (f *fakeRelay) RecentRefusals() []refusal.Recent { return f.away }

func (f *fakeRelay) Origins() []upstream.OriginStatus { return f.origins }

func (f *fakeRelay) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// serverFixture is a Server on a loopback address.
type serverFixture struct {
	*testing.T
	*Server
	shown   *fakeRelay
	level   slog.LevelVar
	metrics *telemetry.Metrics
	drains  chan struct{} // receives one for each call of Drain
	url     string
	client  *http.Client
	stop    func() error
}

// rules that depend on the type
const rules = `
upstream: {origins: [{address: "127.0.0.1:1"}]}
aggregation:
  rules:
    - match: node.cluster.startsWith("edge-")
      types: [EDS]
      key: [node.cluster, node.locality.zone]
    - match: 'peer.uri_sans.exists(u, u == "spiffe://a")'
      key: '"proven"'
    - key: node.cluster
`

// compile compiles rules.
func compile(t *testing.T, text string) *aggregator.Rules {
	t.Helper()
	file := write(t, "relay.yaml", text)
	cfg := xdstest.Must(config.Load(file, nil))(t)
	r := xdstest.Must(aggregator.Compile(cfg))(t)
	return r
}

// write writes a file of a test.
func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	xdstest.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func newServer(t *testing.T, change func(*Options)) *serverFixture {
	t.Helper()
	metrics := xdstest.Must(telemetry.New(telemetry.Options{}))(t)
	r := &serverFixture{T: t, shown: &fakeRelay{}, metrics: metrics, drains: make(chan struct{}, 10)}
	compiled := compile(t, rules)
	o := Options{
		Name: "replica", Version: "v1",
		Clients: r.shown, Keys: r.shown, Origins: r.shown, Rules: func() Rules { return compiled },
		Metrics: metrics, Level: &r.level, Drain: func() { r.drains <- struct{}{} },
		Problems: func() []overview.Problem { return nil }, Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	r.Server = xdstest.Must(New(o))(t)
	return r
}

// serve makes a Server and runs it.
func serve(t *testing.T, change func(*Options)) *serverFixture {
	t.Helper()
	r := newServer(t, change)
	l := xdstest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	r.url = "http://" + l.Addr().String()
	r.client = &http.Client{
		Transport:     &http.Transport{},
		Timeout:       20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Server.Run(ctx, l) }()
	r.stop = sync.OnceValue(func() error {
		r.client.CloseIdleConnections()
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// reply is a response.
type reply struct {
	*http.Response
	body []byte
}

// do sends a request; headers are pairs of a name and a value.
func (r *serverFixture) do(method, path, body string, headers ...string) reply {
	r.Helper()
	req := xdstest.Must(http.NewRequest(method, r.url+path, bytes.NewReader([]byte(body))))(r)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	res := xdstest.Must(r.client.Do(req))(r)
	defer res.Body.Close()
	b := xdstest.Must(io.ReadAll(res.Body))(r)
	return reply{res, b}
}

// want fails unless path answers with status. It decodes the answer into v if that is given.
func (r *serverFixture) want(status int, method, path string, v any, headers ...string) reply {
	r.Helper()
	got := r.do(method, path, "", headers...)
	r.check(got, status, v)
	return got
}

func (r *serverFixture) get(path string, v any) reply {
	r.Helper()
	return r.want(http.StatusOK, http.MethodGet, path, v)
}

func (r *serverFixture) check(got reply, status int, v any) {
	r.Helper()
	what := got.Request.Method + " " + got.Request.URL.RequestURI()
	if got.StatusCode != status {
		r.Fatalf("%s: %s, want %d: %s", what, got.Status, status, got.body)
	}
	if v == nil {
		return
	}
	var err error
	switch typ := got.Header.Get("Content-Type"); typ {
	case "application/json":
		err = json.Unmarshal(got.body, v)
	case "application/yaml":
		err = yaml.Unmarshal(got.body, v)
	default:
		r.Fatalf("%s: content type %q", what, typ)
	}
	if err != nil {
		r.Fatalf("%s: %v: %s", what, err, got.body)
	}
}

// list is a page of a list.
type list[T any] struct {
	Items []T
	Next  string `json:"next_page_token"`
	Total *int
}

// pages gets a list page by page. The path has a query.
func pages[T any](r *serverFixture, path string) (all []T, each []list[T]) {
	r.Helper()
	for token := ""; each == nil || token != ""; {
		var p list[T]
		r.get(path+"&page_token="+token, &p)
		all, each, token = append(all, p.Items...), append(each, p), p.Next
	}
	return all, each
}

func keysOf(all []keystatus.Key) (names []string) {
	for _, k := range all {
		names = append(names, k.Key)
	}
	return names
}

func streamsOf(all []inspect.ClientStatus) (streams []uint64) {
	for _, c := range all {
		streams = append(streams, c.Stream)
	}
	return streams
}
