package admin

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"runtime/trace"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"xdsrelay/config"
	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/admin/overview"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

func TestWithoutTokenOnlyLoopback(t *testing.T) {
	run := func(r *serverFixture, address string) error {
		t.Helper()
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Skipf("this host has no %s: %v", address, err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		err = r.Server.Run(ctx, l)
		if c, dial := net.Dial("tcp", l.Addr().String()); dial == nil {
			_ = c.Close()
			t.Errorf("%s is still open", address)
		}
		return err
	}
	for _, address := range []string{"0.0.0.0:0", ":0"} {
		err := run(newServer(t, nil), address)
		if err == nil || !strings.Contains(err.Error(), "needs admin.token_file, because the address is not loopback") {
			t.Errorf("%s: %v", address, err)
		}
		withToken := newServer(t, func(o *Options) { o.Config.TokenFile = write(t, "token", "t") })
		if err := run(withToken, address); err != nil {
			t.Errorf("%s with a token: %v", address, err)
		}
	}
	if err := run(newServer(t, nil), "127.0.0.1:0"); err != nil {
		t.Errorf("loopback: %v", err)
	}
}

func TestTLS(t *testing.T) {
	ca, dir := tlstest.NewAuthority(t), t.TempDir()
	renew := func(name string) (files config.AdminTLS) {
		files.CertFile, files.KeyFile = ca.Pair(t, tlstest.CN(name), tlstest.Loopback()).Write(t, dir, "admin")
		return files
	}
	files := renew("first")
	r := serve(t, func(o *Options) { o.Config.TLS = files })
	plain := r.do("GET", "/live", "")
	if plain.StatusCode == 200 {
		t.Error("plaintext is answered")
	}
	r.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}, ForceAttemptHTTP2: true}
	r.url = strings.Replace(r.url, "http:", "https:", 1)
	if got := r.get("/live", nil); got.TLS == nil || got.ProtoMajor != 1 {
		t.Errorf("%s over %v", got.Proto, got.TLS)
	}

	renew("second")
	r.Server.Certificates().Reload()
	r.client.CloseIdleConnections()
	if got := r.get("/live", nil).TLS.PeerCertificates[0].Subject.CommonName; got != "second" {
		t.Errorf("after a renewal it shows %q", got)
	}
	o := newServer(t, nil).opts
	o.Config.TLS = config.AdminTLS{CertFile: files.CertFile, KeyFile: files.CertFile}
	if _, err := New(o); err == nil || !strings.HasPrefix(err.Error(), "admin.tls: ") {
		t.Errorf("a certificate for a key: %v", err)
	}
}

// Run ends with all connections, also idle and slow ones.
func TestRunEnds(t *testing.T) {
	r := serve(t, nil)
	r.get("/live", nil)
	idle := xdstest.Must(net.Dial("tcp", strings.TrimPrefix(r.url, "http://")))(t)
	defer idle.Close()
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		if res, err := r.client.Get(r.url + "/debug/pprof/trace?seconds=600"); err == nil {
			_ = res.Body.Close()
		}
	}()
	for !trace.IsEnabled() {
		r.get("/live", nil)
	}
	begun := time.Now()
	xdstest.NoError(t, r.stop())
	if trace.IsEnabled() {
		t.Error("the trace goes on")
	}
	<-cut
	if took := time.Since(begun); took > 2*grace+5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// Run does not return before its handlers have, although it cuts their connections.
func TestRunWaitsForWhatItServes(t *testing.T) {
	r := serve(t, nil)
	r.shown.block, r.shown.asked = make(chan struct{}), make(chan struct{}, 1)
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		if res, err := r.client.Get(r.url + "/clients"); err == nil {
			_ = res.Body.Close()
		}
	}()
	<-r.shown.asked
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.stop() // reported by the cleanup
	}()
	<-cut
	select {
	case <-ended:
		t.Error("Run returned while a request was read for")
	case <-time.After(100 * time.Millisecond):
	}
	close(r.shown.block)
	<-ended
}

func TestRunTellsThatTheListenerFailed(t *testing.T) {
	r := newServer(t, nil)
	l := xdstest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	_ = l.Close()
	if err := r.Server.Run(context.Background(), l); err == nil || !strings.HasPrefix(err.Error(), "admin 127.0.0.1:") {
		t.Errorf("%v", err)
	}
}

// visitor reads a page's events.
type visitor struct {
	*serverFixture
	body   *http.Response
	lines  *bufio.Scanner
	cancel context.CancelFunc
}

func (r *serverFixture) listen(headers ...string) *visitor {
	r.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req := xdstest.Must(http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/events", nil))(r)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	// No timeout: it would cover the whole answer.
	res := xdstest.Must((&http.Client{Transport: r.client.Transport}).Do(req))(r)
	r.Cleanup(func() { cancel(); res.Body.Close() })
	return &visitor{serverFixture: r, body: res, lines: bufio.NewScanner(res.Body), cancel: cancel}
}

// next returns the next event; false: there are no more.
func (l *visitor) next() (overview.Overview, bool) {
	l.Helper()
	for l.lines.Scan() {
		if data, ok := strings.CutPrefix(l.lines.Text(), "data: "); ok {
			var o overview.Overview
			xdstest.NoError(l, json.Unmarshal([]byte(data), &o))
			return o, true
		}
	}
	return overview.Overview{}, false
}

var streams atomic.Uint64

func synced(node, key string) inspect.ClientStatus {
	return inspect.ClientStatus{Stream: streams.Add(1), Node: node, Variant: "sotw", Types: []inspect.TypeStatus{{Type: string(xds.ClusterType), Key: key, State: inspect.StateSynced}}}
}

func TestPagesAreToldWhatChanges(t *testing.T) {
	r := serve(t, nil)
	r.shown.set(func() {
		r.shown.clients = []inspect.ClientStatus{synced("a", "k")}
		r.shown.keys = []keystatus.Key{{Key: "k"}}
	})
	l := r.listen()
	if typ := l.body.Header.Get("Content-Type"); l.body.StatusCode != 200 || typ != "text/event-stream" {
		t.Fatalf("%s, %s", l.body.Status, typ)
	}
	if o, ok := l.next(); !ok || o.Clients != 1 || o.States.Synced != 1 || o.Relay.Name != "replica" || o.Relay.State != "starting" {
		t.Fatalf("%+v", o)
	}
	r.shown.set(func() {
		r.shown.clients = append(r.shown.clients, synced("b", "k"))
		r.shown.clients[0].Types[0].State = inspect.StateNacked
	})
	// The next event has the change: without a change there is none.
	if o, ok := l.next(); !ok || o.Clients != 2 || o.States.Nacked != 1 {
		t.Errorf("%+v", o)
	}
}

func TestPagesEndWithTheRelay(t *testing.T) {
	r := serve(t, nil)
	l := r.listen()
	if _, ok := l.next(); !ok {
		t.Fatal("no event")
	}
	xdstest.NoError(t, r.stop())
	if _, ok := l.next(); ok {
		t.Error("there is more")
	}
	if err := l.lines.Err(); err != nil {
		t.Errorf("cut instead of ended: %v", err)
	}
}

func TestPagesAreNotManyAndLeaveRoomAgain(t *testing.T) {
	r := serve(t, nil)
	var all []*visitor
	for range overview.MaxPages {
		l := r.listen()
		if _, ok := l.next(); !ok {
			t.Fatal("no event")
		}
		all = append(all, l)
	}
	if res := r.want(http.StatusServiceUnavailable, http.MethodGet, "/events", nil); !strings.Contains(string(res.body), "too many open pages") {
		t.Errorf("%s", res.body)
	}
	all[0].cancel()
	// The relay notices it at its next write.
	for range 100 {
		if l := r.listen(); l.body.StatusCode == http.StatusOK {
			return
		}
		all[1].lines.Scan()
	}
	t.Error("there is no room again")
}

func TestWithATokenEventsNeedItAndThePageDoesNot(t *testing.T) {
	token := write(t, "token", "first")
	r := serve(t, func(o *Options) { o.Config = config.Admin{TokenFile: token} })
	for _, path := range []string{"/events", "/find?text=a", "/"} {
		r.want(http.StatusUnauthorized, http.MethodGet, path, nil)
	}
	for _, path := range []string{"/ui/fleet", "/ui/key?name=a%2Fb"} {
		if got := r.do(http.MethodGet, path, "", "Accept", "text/html"); got.StatusCode != 200 || !strings.Contains(string(got.body), "<!doctype html>") ||
			got.Header.Get("Content-Security-Policy") == "" {
			t.Errorf("%s: %s", path, got.Status)
		}
	}
	r.get("/assets/app.js", nil)
	l := r.listen("Authorization", "Bearer first")
	if _, ok := l.next(); !ok {
		t.Fatal("no event")
	}
	// A stream with the old token ends.
	r.SetToken("second")
	r.shown.set(func() { r.shown.clients = []inspect.ClientStatus{synced("a", "k")} })
	if o, ok := l.next(); ok {
		t.Errorf("%+v", o)
	}
}

func TestPageIsForBrowsers(t *testing.T) {
	r := serve(t, nil)
	if got := r.get("/", nil); !strings.HasPrefix(got.Header.Get("Content-Type"), "text/plain") || !strings.Contains(string(got.body), "/events") || got.Header.Get("Vary") != "Accept" {
		t.Errorf("curl gets %s", got.body)
	}
	if got := r.do(http.MethodGet, "/assets/"+filepath.Base("nothing.js"), ""); got.StatusCode != http.StatusNotFound {
		t.Error(got.Status)
	}
	r.want(http.StatusMethodNotAllowed, http.MethodPost, "/events", nil)
	r.want(http.StatusMethodNotAllowed, http.MethodPost, "/ui/fleet", nil)
	// A page with another name that resolves here gets no data.
	r.want(http.StatusForbidden, http.MethodGet, "/events", nil, "Host", "evil.example")
}

// The history has no samples yet. Those that it will have come from the metrics.
func TestHistory(t *testing.T) {
	r := serve(t, nil)
	if got := r.get("/history", nil); !strings.Contains(string(got.body), `"items": []`) {
		t.Errorf("%s", got.body)
	}
	m := r.Server.opts.Metrics
	m.Streams[telemetry.SotW].Add(3)
	m.Streams[telemetry.REST].Add(1)
	states := telemetry.NewClientStates()
	states.Count(xds.ClusterType, telemetry.ClientType{State: telemetry.ClientSynced})
	states.Count(xds.EndpointType, telemetry.ClientType{State: telemetry.ClientSynced})
	states.Count("acme.Unknown", telemetry.ClientType{State: telemetry.ClientNacked})
	m.SetClientStates(states)
	of := m.Type(xds.ClusterType)
	of.Responses[telemetry.SotW].Add(5)
	of.Responses[telemetry.Delta].Inc()
	of.Acks.Add(4)
	of.Nacks.Inc()
	want := overview.Numbers{Clients: 4, States: overview.States{Synced: 2, Nacked: 1}, Totals: overview.Totals{Responses: 6, Acks: 4, Nacks: 1}}
	if got := overview.ReadNumbers(m); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
