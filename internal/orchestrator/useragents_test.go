package orchestrator

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/xds"
)

// A key whose first client has left still has that client's node. The log has one line when the
// clients begin to differ.
func TestP58_MixedUserAgents(t *testing.T) {
	var log bytes.Buffer
	bubble(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) }, func(w *registryFixture) {
		join := func(id, agent string) *testClient {
			c, err := w.tryNode(&corev3.Node{Id: id, Cluster: "web", UserAgentName: agent}, "10.0.0.1", eds)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return c
		}
		join("a", "envoy").leave()
		join("b", "gRPC Go")
		join("c", "gRPC Go")
		st := w.status("web")
		equal(t, "names", st.Mixed.Names, [2]string{"envoy", "gRPC Go"})
		equal(t, "subscribers", st.OtherUserAgents, 2)
		equal(t, "keys", w.reg.opts.Metrics.MixedUserAgentKeys.Value(), 1)
	})
	if n := strings.Count(log.String(), `level=WARN msg="clients of a key differ in user agent" key=web user_agent=envoy other_user_agent="gRPC Go" node=b`); n != 1 {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
}

// A node that upstream.node makes is no client. The gauge falls when the registry ends.
func TestP58_MixedUserAgentsWithConfiguredNode(t *testing.T) {
	var keys interface{ Value() int }
	bubble(t, func(o *Options) {
		keys = o.Metrics.MixedUserAgentKeys
		o.Node = func(*xds.Node) ([]byte, error) {
			return proto.Marshal(&corev3.Node{Id: "relay", UserAgentName: "relay"})
		}
	}, func(w *registryFixture) {
		for _, agent := range []string{"envoy", "envoy", "gRPC Go"} {
			equal(t, "keys", keys.Value(), 0)
			if _, err := w.tryNode(&corev3.Node{Id: "a", Cluster: "web", UserAgentName: agent}, "10.0.0.1", eds); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		equal(t, "keys", keys.Value(), 1)
		equal(t, "names", w.status("web").Mixed.Names, [2]string{"envoy", "gRPC Go"})
	})
	equal(t, "keys after the end", keys.Value(), 0)
}
