package fanout

import (
	"log/slog"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// Each NACK is logged and given to the group, without secrets. Envoys print the same message with
// different words before it, which are removed.
func TestNacksAreLogged(t *testing.T) {
	const fleet = 20
	var log xdstest.Log
	r := newServerFixture(t, func(o *Options) { o.Log = slog.New(redact.Handler(slog.NewTextHandler(&log, nil))) })
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	cc := r.dial()
	said := strings.Repeat("no, ", 500) + `inline_string: "hunter2"`
	for i := range fleet {
		c := r.delta(cc)
		c.ask(xds.ClusterType)
		m := xdstest.Must(c.Recv())(t)
		c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce, ErrorDetail: &rpcstatus.Status{Code: 3, Message: []string{"goo.gle/debugproto  ", "goo.gle/debugonly "}[i%2] + said}})
		xdstest.NoError(t, c.CloseSend())
		c.ends()
	}
	r.groups.Mu.Lock()
	defer r.groups.Mu.Unlock()
	if len(r.groups.Nacks) != fleet {
		t.Errorf("%d NACKs are known, of %d", len(r.groups.Nacks), fleet)
	}
	for _, n := range r.groups.Nacks {
		if n.Message != r.groups.Nacks[0].Message {
			t.Errorf("%.40q and %.40q", n.Message, r.groups.Nacks[0].Message)
		}
	}
	if n := log.Count("client rejected a response"); n != fleet {
		t.Errorf("%d lines of %d NACKs", n, fleet)
	}
	if log.Count("hunter2") > 0 {
		t.Error("a secret is in a line")
	}
}
