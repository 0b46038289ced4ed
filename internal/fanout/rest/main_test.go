package rest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/rest/resttest"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// options of a server under test.
type options struct {
	Options
	LongPoll  time.Duration
	RESTBytes int64
	Limits    config.Limits
}

// newServer makes a server and its groups, and starts nothing.
func newServer(t testing.TB, change func(*options)) (*Server, *subscribertest.Joiner) {
	t.Helper()
	m := xdstest.Must(telemetry.New(telemetry.Options{Prefix: "xdsrelay"}))(t)
	o := options{LongPoll: 30 * time.Second, RESTBytes: 1 << 30}
	if change != nil {
		change(&o)
	}
	groups := new(subscribertest.Joiner)
	log := slog.New(slog.DiscardHandler)
	var ids atomic.Uint64
	o.Joiner, o.Metrics, o.Log, o.Refusals = groups, m, log, refusal.NewLog(log, m)
	o.Admission, o.Nodes = listener.NewAdmission(o.Limits), new(xds.NodeTable)
	o.Options.LongPoll = func() time.Duration { return o.LongPoll }
	o.Options.Limits = func() *config.Limits { return &o.Limits }
	o.Options.RESTBytes = func() int64 { return o.RESTBytes }
	o.RulesVersion = func() uint64 { return 0 }
	o.NextID = func() uint64 { return ids.Add(1) }
	o.Identifier = func(s *snapshot.Snapshot) string { return "replica/" + s.Origin }
	o.DocumentsOf = documentsOf
	return New(o.Options), groups
}

// documentsOf keeps the documents of a snapshot with it.
func documentsOf(s *snapshot.Snapshot) *Documents {
	return s.Derived(func() any { return new(Documents) }).(*Documents)
}

// restFixture is a server behind a listener, with its clients.
type restFixture struct {
	resttest.Client
	t       testing.TB
	groups  *subscribertest.Joiner
	srv     *Server
	metrics *telemetry.Metrics
}

// newREST serves behind these policies; without any, behind one that admits every client.
func newREST(t *testing.T, change func(*options), policies ...*listener.Policy) *restFixture {
	t.Helper()
	srv, groups := newServer(t, func(o *options) {
		o.LongPoll = time.Hour
		if change != nil {
			change(o)
		}
	})
	return serve(t, srv, groups, policies...)
}

func serve(t *testing.T, srv *Server, groups *subscribertest.Joiner, policies ...*listener.Policy) *restFixture {
	t.Helper()
	if len(policies) == 0 {
		policies = []*listener.Policy{{Key: "downstream", Secrets: config.SecretsMTLS}}
	}
	l := xdstest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx, l, nil, Ping{Every: time.Minute, Timeout: time.Minute}, policies...) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &restFixture{resttest.Client{T: t, Base: "http://" + l.Addr().String()}, t, groups, srv, srv.opts.Metrics}
}

// clients is what is shown of the pollers.
func (s *Server) clients() []inspect.ClientStatus {
	return inspect.New(func() (all []inspect.Client) {
		for _, p := range s.Pollers() {
			all = append(all, p)
		}
		return all
	}).Clients()
}

// waiting waits until so many polls were read and are not answered.
func (r *restFixture) waiting(n int) {
	r.t.Helper()
	r.eventually(func() bool { return len(r.srv.polls.all()) == n && r.srv.OpenPolls() == n })
}

func (r *restFixture) eventually(ok func() bool) {
	r.t.Helper()
	xdstest.Eventually(r.t, "the condition", func() error {
		if !ok() {
			return errors.New("does not hold")
		}
		return nil
	})
}

// subscribers counts those of a group.
func (r *restFixture) subscribers(cluster string) int { return r.groups.Group(cluster).Count() }

// metric waits until the metrics have this line.
func (r *restFixture) metric(line string) {
	r.t.Helper()
	xdstest.Eventually(r.t, line, func() error {
		w := httptest.NewRecorder()
		r.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if !strings.Contains(w.Body.String(), line+"\n") {
			return errors.New("the metrics do not have it")
		}
		return nil
	})
}

// counted waits until so many were refused for this reason.
func (r *restFixture) counted(reason telemetry.Reason, n int) {
	r.t.Helper()
	r.metric(fmt.Sprintf("xdsrelay_refused_total{reason=%q} %d", string(reason), n))
}

// update makes an Update of plain resources.
var update = subscribertest.Update

func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("name-%04d", i)
	}
	return out
}
