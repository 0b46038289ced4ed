package fanout

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// Who is sent away is counted by reason for a minute, with the last one's words, and
// then forgotten.
func TestWhoIsSentAwayLately(t *testing.T) {
	var s sentAways
	now := time.Unix(1e9, 0)
	if got := s.status(now); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	unmapped := Refuse(codes.PermissionDenied, telemetry.Unmapped, "no rule")
	unreached := Refuse(codes.Unavailable, telemetry.OriginUnreachable, "%s", strings.Repeat("ä", maxSentAwayText))
	unreached.Key = "edge"
	s.note(unmapped, "a", now)
	now = now.Add(sentAwayHalf)
	s.note(unmapped, "b", now)
	s.note(unreached, "c", now)
	want := []SentAway{
		{Reason: "unmapped", Count: 2, Node: "b", Error: "no rule", At: now},
		{Reason: "origin_unreachable", Count: 1, Node: "c", Key: "edge", Error: strings.Repeat("ä", maxSentAwayText/2), At: now},
	}
	if got := s.status(now); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	now = now.Add(sentAwayHalf)
	want[0].Count = 1
	want[0], want[1] = want[1], want[0] // as many of each: by name
	if got := s.status(now); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := s.status(now.Add(sentAwayHalf)); len(got) != 0 {
		t.Errorf("%+v are known of a minute ago", got)
	}
	s.note(unmapped, "d", now.Add(24*time.Hour))
	if got := s.status(now.Add(24 * time.Hour)); len(got) != 1 || got[0].Count != 1 {
		t.Errorf("%+v", got)
	}
}

// Only a part of a long node ID is logged and answered.
func TestRefusalsOfLongNames(t *testing.T) {
	var log xdstest.Log
	r := newServerFixture(t, func(o *Options) { o.Log = log.Logger() })
	r.addr = r.listen(&listener.Gate{Key: "downstream", Identity: mustIdentity(t, "false"), Secrets: config.SecretsMTLS})
	c := r.delta(nil)
	c.must(&discoveryv3.DeltaDiscoveryRequest{Node: node(strings.Repeat("n", 100_000)), TypeUrl: string(xds.ClusterType)})
	s := c.ends()
	if s.Code() != codes.PermissionDenied || len(s.Message()) > 1000 {
		t.Errorf("ended with %v and %d bytes: %.200s", s.Code(), len(s.Message()), s.Message())
	}
	r.eventually(func() bool { return log.Count("ended a stream") > 0 })
	if n := log.Count("n"); n > 1000 {
		t.Errorf("%d letters of the id are logged", n)
	}
}

// The log names the node of a client whose first request is refused, in at most maxNodeText bytes.
func TestRefusalsOfFirstRequestsNameTheNode(t *testing.T) {
	long := strings.Repeat("n", 1000)
	for name, of := range map[string]struct {
		names  []string
		node   string
		reason telemetry.Reason
		status int // of a poll
	}{
		"many":  {[]string{"a", "b", "c"}, "envoy-1", telemetry.LimitNamesPerStream, http.StatusRequestEntityTooLarge},
		"long":  {[]string{strings.Repeat("x", 3000)}, "envoy-2", telemetry.NameBytes, http.StatusBadRequest},
		"large": {nil, long, telemetry.LimitNodeBytes, http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			var log xdstest.Log
			r := newREST(t, func(o *Options) {
				o.Log = log.Logger()
				o.Limits.NamesPerStream, o.Limits.NodeBytes = 2, 500
			})
			if of.reason == telemetry.NameBytes {
				s := *r.srv.settings()
				s.Limits.NamesPerStream = 0
				r.srv.Reconfigure(s)
			}
			c := r.delta(nil)
			c.must(&discoveryv3.DeltaDiscoveryRequest{Node: node(of.node), TypeUrl: string(xds.EndpointType), ResourceNamesSubscribe: of.names})
			_ = c.ends()
			is := of.node[:min(len(of.node), maxNodeText)]
			r.eventually(func() bool { return log.Count(`msg="ended a stream" node=`+is+" ") == 1 })
			away := func() bool {
				return slices.ContainsFunc(r.srv.SentAway(), func(a SentAway) bool { return a.Reason == of.reason.String() && a.Node == is })
			}
			if !away() {
				t.Errorf("%+v", r.srv.SentAway())
			}
			r.refused(<-r.beginAs(xdstest.Context(t), r.web("http1"), node(of.node), xds.EndpointType, "", of.names...), of.status)
			if log.Count(`msg="refused a poll" node=`+is+" ") != 1 {
				t.Error(&log)
			}
		})
	}
}
