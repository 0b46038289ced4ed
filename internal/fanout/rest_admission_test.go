package fanout

import (
	"net/http"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/rest/resttest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// A poll that is held when the identity rule changes gets no answer that the new rule
// does not allow. Others get theirs.
func TestP6_HeldPollsAreAdmittedAgain(t *testing.T) {
	policy := &listener.Policy{Key: "downstream", Secrets: config.SecretsMTLS}
	r := newREST(t, nil, policy)
	publishAll(r.serverFixture, "a", "edge")
	c := r.HTTP("http1")
	ask := func(id, version string) <-chan *resttest.Reply {
		out := make(chan *resttest.Reply, 1)
		go func() {
			n := &corev3.Node{Id: id, Cluster: "edge"}
			got, err := r.Post(xdstest.Context(t), c, "/v3/discovery:clusters", resttest.Body(t, resttest.Request(n, xds.ClusterType, version)))
			if err != nil {
				t.Error(err)
			}
			out <- got
		}()
		return out
	}
	has := r.Response(<-ask("n", "")).VersionInfo
	barred, stays := ask("n", has), ask("m", has)
	r.waiting(2)
	r.srv.Rekey(0) // nothing changed
	policy.Reconfigure(mustIdentity(t, `node.id != "n"`), config.SecretsMTLS)
	r.srv.Rekey(0)
	publishAll(r.serverFixture, "b", "edge")
	if f := r.Refused(<-barred, http.StatusForbidden); f.Reason != string(telemetry.Identity) {
		t.Errorf("%+v", f)
	}
	r.counted(telemetry.Identity, 1)
	if got := r.Holds(<-stays); got != "a b " {
		t.Errorf("who stays holds %q", got)
	}
}
