package integration

import (
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// envoyNode returns the node that an Envoy 1.40.2 sends.
func envoyNode(id, cluster string) *corev3.Node {
	return &corev3.Node{Id: id, Cluster: cluster, UserAgentName: "envoy",
		UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{
			Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 40, Patch: 2}}}}
}

// An Envoy and grpc-go's own xDS client share a key. The log, the metric and relay status say so,
// also once the first has left.
func TestP58_ClientsOfDifferentKinds(t *testing.T) {
	t.Parallel()
	o := origin(t, xdstest.Linear)
	o.Put("mixed", serviceAt("greeter", xdstest.StartGRPCBackend(t, "blue").Port)...)
	r := serve(t, o.Address, xdstest.Config{"aggregation.rules": []map[string]any{{"key": "'mixed'"}}})
	conn := xdstest.Dial(t, r.Address, nil)
	envoy := xdstest.OpenStreamOn(t, conn, xdstest.DeltaMethod)
	envoy.Ask(envoyNode("envoy-1", "mixed"), resource.ClusterType)
	envoy.Ack()
	if n := r.Metric("mixed_user_agent_keys"); n != 0 {
		t.Errorf("%v keys with one client are mixed", n)
	}
	call(t, r.Address, "greeter").reaches("blue")
	r.WaitMetric(1, "mixed_user_agent_keys")

	const line = "! 1 key has nodes of different kinds, for example key mixed: envoy and gRPC Go"
	problems := func() string {
		out, err := xdstest.Command(t, "status", "--admin", r.Admin).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if out := problems(); !strings.Contains(out, line) {
		t.Errorf("relay status has no line %q:\n%s", line, out)
	}
	// The origin still sees the Envoy's node, so the key is wrong for the client that is left.
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	xdstest.Eventually(t, "the end of the Envoy's stream", xdstest.Holds(func() bool { return r.Metric("downstream_streams") == 1 }))
	if out := problems(); !strings.Contains(out, line) || !strings.Contains(out, "the node of a client that has left") {
		t.Errorf("once the Envoy has left, relay status has no line %q:\n%s", line, out)
	}
	if n := strings.Count(r.Log(), `msg="clients of a key differ in user agent" key=mixed user_agent=envoy other_user_agent="gRPC Go" node=grpc-1`); n != 1 {
		t.Errorf("%d warnings:\n%s", n, r.Log())
	}
}

// The relay shows the version of each client's program, and counts the clients by it.
func TestUserAgentVersions(t *testing.T) {
	t.Parallel()
	o := origin(t, xdstest.Linear)
	o.Put("edge", xdstest.Web(1)...)
	o.Put("grpc", serviceAt("greeter", xdstest.StartGRPCBackend(t, "blue").Port)...)
	r := serve(t, o.Address, withREST("delta", "10s"))
	for _, v := range variants {
		waitFor(t, client(t, r.Address, fleet.ClientConfig{Node: envoyNode("envoy-"+v.String(), "edge"), Variant: v, Behaviour: fleet.Envoy}),
			"what the origin has", hasAll(xdstest.Web(1)...))
	}
	if got := r.ask(http.DefaultClient, envoyNode("envoy-rest", "edge"), resource.ClusterType, ""); got.status != http.StatusOK {
		t.Errorf("the poll was answered with %d", got.status)
	}
	call(t, r.Address, "greeter").reaches("blue")

	type agent struct {
		Node    string `json:"node"`
		Name    string `json:"user_agent"`
		Version string `json:"user_agent_version"`
	}
	seen := map[string]string{}
	for _, c := range list[agent](r, "/clients") {
		seen[c.Node] = c.Name + " " + c.Version
	}
	want := map[string]string{"envoy-sotw": "envoy 1.40.2", "envoy-delta": "envoy 1.40.2", "envoy-rest": "envoy 1.40.2", "grpc-1": "gRPC Go " + grpc.Version}
	if !maps.Equal(seen, want) {
		t.Errorf("/clients has %v, want %v", seen, want)
	}

	var info struct {
		UserAgents []struct {
			Name    string `json:"name"`
			Version string `json:"version"`
			Clients int    `json:"clients"`
		} `json:"user_agents"`
	}
	if err := r.GetJSON("/server_info", &info); err != nil {
		t.Fatal(err)
	}
	// A REST client counts once for each set of names that it polls for.
	if a := info.UserAgents; len(a) != 2 || a[0].Name != "envoy" || a[0].Version != "1.40.2" || a[0].Clients < 3 ||
		a[1].Name != "gRPC Go" || a[1].Version != grpc.Version || a[1].Clients != 1 {
		t.Errorf("/server_info has %+v", a)
	}

	wide, _ := r.Run("status", "-o", "wide")
	head := strings.Fields(strings.Split(wide, "\n")[0])
	if got := strings.Join(head[len(head)-5:], " "); got != "USER AGENT STREAM PEER CONNECTED" {
		t.Errorf("the last columns are %s:\n%s", got, wide)
	}
	if row := regexp.MustCompile(`(?m)^envoy-delta +edge +delta .* envoy 1\.40\.2 +\d+ +127\.0\.0\.1:\d+ +\d+s$`); !row.MatchString(wide) {
		t.Errorf("no row of envoy-delta:\n%s", wide)
	}
	if table, _ := r.Run("status"); strings.Contains(table, "USER AGENT") {
		t.Errorf("the default table is wide:\n%s", table)
	}
}
