package fanout

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// Only a part of a long node ID is logged and answered.
func TestRefusalsOfLongNames(t *testing.T) {
	var log xdstest.Log
	r := newServerFixture(t, func(o *Options) { o.Log = log.Logger() })
	r.addr = r.listen(&listener.Policy{Key: "downstream", Identity: mustIdentity(t, "false"), Secrets: config.SecretsMTLS})
	c := r.delta(nil)
	c.must(&discoveryv3.DeltaDiscoveryRequest{Node: node(strings.Repeat("n", 100_000)), TypeUrl: string(xds.ClusterType)})
	s := c.ends()
	if s.Code() != codes.PermissionDenied || len(s.Message()) > 1000 {
		t.Errorf("ended with %v and %d bytes: %.200s", s.Code(), len(s.Message()), s.Message())
	}
	r.eventually(func() bool { return log.Count("client stream ended") > 0 })
	if n := log.Count("n"); n > 1000 {
		t.Errorf("%d letters of the id are logged", n)
	}
}

// The log names the node of a client whose first request is refused, in at most refusal.MaxNode
// bytes.
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
			is := of.node[:min(len(of.node), refusal.MaxNode)]
			r.eventually(func() bool { return log.Count(`msg="client stream ended" node=`+is+" ") == 1 })
			away := func() bool {
				return slices.ContainsFunc(r.srv.RecentRefusals(), func(a refusal.Recent) bool { return a.Reason == string(of.reason) && a.Node == is })
			}
			if !away() {
				t.Errorf("%+v", r.srv.RecentRefusals())
			}
			r.Refused(<-r.BeginAs(xdstest.Context(t), r.HTTP("http1"), node(of.node), xds.EndpointType, "", of.names...), of.status)
			if log.Count(`msg="client poll refused" node=`+is+" ") != 1 {
				t.Error(&log)
			}
		})
	}
}
