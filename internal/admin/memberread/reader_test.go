package memberread

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"xdsrelay/config"
	"xdsrelay/internal/cluster"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// members are those of a list.
type members []cluster.Member

func (m members) Members() []cluster.Member { return m }

// serve makes a relay that lets members with an identity read, and returns its address.
func serve(t *testing.T, identity string) string {
	t.Helper()
	rule := xdstest.Must(expr.NewIdentity(identity))(t)
	metrics := xdstest.Must(telemetry.New(telemetry.Options{}))(t)
	l := xdstest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	r := &Reader{Local: func() http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Type", "text/x")
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprintf(w, "%s %s %v", req.Method, req.URL, ForMember(req.Context()))
		})
	}}
	s := grpc.NewServer(grpc.Creds(listener.Credentials(func() bool { return false })))
	r.Register(s)
	done := make(chan error, 1)
	go func() {
		done <- s.Serve(listener.New(l, &listener.Policy{Key: "cluster", Identity: rule, Secrets: config.SecretsDeny},
			listener.NewAdmission(config.Limits{}), refusal.NewLog(slog.New(slog.DiscardHandler), metrics), 0))
	}()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestReader(t *testing.T) {
	if ForMember(t.Context()) {
		t.Error("any request is one of a member")
	}
	closed := xdstest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	_ = closed.Close()
	r := &Reader{Credentials: insecure.NewCredentials(), Cluster: members{
		{Name: "one", State: telemetry.MemberDead},
		{Name: "one", Address: serve(t, "true"), State: telemetry.MemberUnusable},
		{Name: "strict", Address: serve(t, "false"), State: telemetry.MemberAlive},
		{Name: "silent", Address: closed.Addr().String(), State: telemetry.MemberAlive},
		{Name: "dead", State: telemetry.MemberDead},
		{Name: "twice", State: telemetry.MemberUnusable},
		{Name: "twice", Self: true, State: telemetry.MemberAlive},
		{Name: "later", State: telemetry.MemberUnusable, Problem: "another protocol version"},
	}}
	for path, want := range map[string]string{
		"/members/one/keys/a%2Fb%25?x=1&y=a%20b": "418 text/x GET /keys/a%2Fb%25?x=1&y=a%20b true",
		"/members/one":                           "418 text/x GET / true",
		"/members/none/keys":                     `404 application/json {"error":"\"none\": no member has this name"}`,
		"/members/dead/keys":                     `504 application/json {"error":"member dead is dead"}`,
		"/members/twice/keys":                    `504 application/json {"error":"2 members have the name twice"}`,
		"/members/later/keys":                    `504 application/json {"error":"member later is unusable: another protocol version"}`,
		"/members/silent/keys":                   `504 application/json {"error":"member silent does not answer: dial tcp `,
		"/members/strict/keys":                   `504 application/json {"error":"member strict does not answer: cluster.identity: `,
	} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if got := fmt.Sprintf("%d %s %s", w.Code, w.Header().Get("Content-Type"), w.Body); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
