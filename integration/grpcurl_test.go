package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// grpcurlTool builds the version that tools/grpcurl pins.
var grpcurlTool = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("go", "tool", "-modfile=tools/grpcurl/go.mod", "-n", "grpcurl")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		said := ""
		if e := (*exec.ExitError)(nil); errors.As(err, &e) {
			said = string(e.Stderr)
		}
		return "", fmt.Errorf("build grpcurl: %w\n%s", err, said)
	}
	return strings.TrimSpace(string(out)), nil
})

// grpcurl runs it and returns its output, including standard error if it fails.
func grpcurl(t testing.TB, args ...string) (string, error) {
	t.Helper()
	tool, err := grpcurlTool()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(xdstest.Context(t), tool, append([]string{"-max-time", "20"}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("grpcurl %s: %w: %s%s", strings.Join(args, " "), err, &out, &errs)
	}
	return out.String(), nil
}

// says fails the test unless grpcurl succeeds and prints all of these.
func says(t testing.TB, args []string, want ...string) string {
	t.Helper()
	out, err := grpcurl(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range want {
		if !strings.Contains(out, w) {
			t.Fatalf("grpcurl %s does not print %q:\n%s", strings.Join(args, " "), w, out)
		}
	}
	return out
}

// failsWith fails the test unless grpcurl fails and prints this.
func failsWith(t testing.TB, want string, args ...string) {
	t.Helper()
	if out, err := grpcurl(t, args...); err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("grpcurl %s: %v, want %s\n%s", strings.Join(args, " "), err, want, out)
	}
}

// operators is the relay's gRPC address for operators.
func (r *relay) operators() string {
	r.t.Helper()
	m := regexp.MustCompile(`admin_grpc=(\S+)`).FindStringSubmatch(r.Log())
	if m == nil || m[1] == "off" {
		r.t.Fatal("there is no address for operators")
	}
	return m[1]
}

const csdsService = "envoy.service.status.v3.ClientStatusDiscoveryService"

// csdsResource is a GenericXdsConfig as grpcurl prints it.
type csdsResource struct {
	TypeURL      string         `json:"typeUrl"`
	Name         string         `json:"name"`
	Version      string         `json:"versionInfo"`
	Config       map[string]any `json:"xdsConfig"`
	LastUpdated  string         `json:"lastUpdated"`
	ConfigStatus string         `json:"configStatus"`
	ClientStatus string         `json:"clientStatus"`
	Error        *struct {
		Details string         `json:"details"`
		Version string         `json:"versionInfo"`
		At      string         `json:"lastUpdateAttempt"`
		Failed  map[string]any `json:"failedConfiguration"`
	} `json:"errorState"`
}

// csds calls CSDS by grpcurl, and returns each resource by node, name and type.
func csds(t testing.TB, request, call string, args ...string) map[string]csdsResource {
	t.Helper()
	out, err := grpcurl(t, append(slices.Concat([]string{"-d", request}, args), csdsService+"/"+call)...)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Config []struct {
			Node struct {
				ID string `json:"id"`
			} `json:"node"`
			Scope     string         `json:"clientScope"`
			Resources []csdsResource `json:"genericXdsConfigs"`
		} `json:"config"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	all := map[string]csdsResource{}
	for _, c := range answer.Config {
		for _, r := range c.Resources {
			all[c.Node.ID+" "+r.Name+" "+r.TypeURL[strings.LastIndex(r.TypeURL, ".")+1:]] = r
		}
	}
	return all
}

// nodeIs selects a node by its id.
func nodeIs(id string) string {
	return `{"node_matchers": [{"node_id": {"exact": "` + id + `"}}]}`
}

// The real grpcurl lists and describes the services, checks health, and reads the state of clients
// of both variants: ACKs, NACKs, and subscriptions to missing resources.
func TestGRPCurl(t *testing.T) {
	t.Parallel()
	o := origin(t, xdstest.Caches[0])
	o.Put("edge", xdstest.Web(1)...)
	r := serve(t, o.Address, xdstest.Config{"admin.grpc_address": "127.0.0.1:0"})
	at := r.operators()

	list := strings.Fields(says(t, []string{"-plaintext", at, "list"}))
	slices.Sort(list)
	if want := []string{csdsService, "grpc.channelz.v1.Channelz", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}; !slices.Equal(list, want) {
		t.Errorf("it lists %q, want %q", list, want)
	}
	says(t, []string{"-plaintext", at, "describe", csdsService}, "rpc FetchClientStatus", "rpc StreamClientStatus")
	says(t, []string{"-plaintext", at, "describe", "envoy.config.cluster.v3.Cluster"}, "load_assignment")
	for _, service := range append(list, "") {
		says(t, []string{"-plaintext", "-d", `{"service": "` + service + `"}`, at, "grpc.health.v1.Health/Check"}, `"SERVING"`)
	}
	says(t, []string{"-plaintext", at, "grpc.channelz.v1.Channelz/GetServers"}, "callsStarted")

	for _, v := range variants {
		id := "nacks-" + v.String()
		client(t, r.Address, fleet.ClientConfig{Node: node(id, "edge"), Variant: v, Behaviour: fleet.Raw,
			Nack: func(typ xds.TypeURL, _ []fleet.Resource) error {
				if typ == resource.ClusterType {
					return errors.New("no such cluster, please")
				}
				return nil
			},
			Subscribe: []fleet.Subscription{{Type: resource.ClusterType}, {Type: resource.EndpointType, Names: []string{"web", "nothing"}}}})
		var got map[string]csdsResource
		xdstest.Eventually(t, "the client's answers", func() error {
			got = csds(t, nodeIs(id), "FetchClientStatus", "-plaintext", at)
			states := map[string]string{}
			for k, g := range got {
				states[strings.TrimPrefix(k, id+" ")] = g.ClientStatus + " " + g.ConfigStatus
			}
			want := map[string]string{"web Cluster": "NACKED ERROR", "web ClusterLoadAssignment": "ACKED SYNCED",
				"nothing ClusterLoadAssignment": "REQUESTED NOT_SENT"} // P57: the origin does not answer it
			if !maps.Equal(states, want) {
				return fmt.Errorf("%s: %v, want %v", id, states, want)
			}
			return nil
		})
		rejected, accepted := got[id+" web Cluster"], got[id+" web ClusterLoadAssignment"]
		if e := rejected.Error; e == nil || e.Details != "no such cluster, please" || e.Version == "" || e.At == "" || e.Failed["name"] != "web" || rejected.Config != nil {
			t.Errorf("%s: %+v", id, rejected)
		}
		if accepted.Config["clusterName"] != "web" || accepted.Version == "" || accepted.LastUpdated == "" || accepted.Error != nil {
			t.Errorf("%s: %+v", id, accepted)
		}
		if other := csds(t, nodeIs(id), "StreamClientStatus", "-plaintext", at); len(other) != len(got) {
			t.Errorf("%s: the stream says %v", id, other)
		}
	}
	says(t, []string{"-plaintext", at, "grpc.channelz.v1.Channelz/GetTopChannels"}, `"target"`)
	// Some of the clients, selected by their ids; and unsupported matchers.
	if got := csds(t, `{"node_matchers": [{"node_id": {"suffix": "-delta"}}], "exclude_resource_contents": true}`, "FetchClientStatus", "-plaintext", at); len(got) != 3 {
		t.Errorf("%v", got)
	}
	if got := csds(t, `{}`, "FetchClientStatus", "-plaintext", at); len(got) != 6 {
		t.Errorf("%v", got)
	}
	failsWith(t, "InvalidArgument", "-plaintext", "-d", `{"node_matchers": [{"node_id": {"custom": {"name": "x"}}}]}`, at, csdsService+"/FetchClientStatus")
}

// protoset is a file with the descriptors of the health service, for servers without reflection.
func protoset(t testing.TB) string {
	t.Helper()
	b, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{
		protodesc.ToFileDescriptorProto(grpc_health_v1.File_grpc_health_v1_health_proto)}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "health")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// P4: each discovery service of the relay is healthy by its name, and so is the whole relay. Once
// the relay drains, none is for those that watch, and the relay accepts no connections.
func TestGRPCurlHealthOfEachService(t *testing.T) {
	t.Parallel()
	o := origin(t, xdstest.Caches[0])
	o.Put("edge", xdstest.Web(1)...)
	r := serve(t, o.Address, xdstest.Config{"downstream.drain": "1m"})
	set := protoset(t)
	services := []string{"", "grpc.health.v1.Health"}
	for _, typ := range xds.Types() {
		services = append(services, typ.Service)
	}
	services = append(services, "envoy.service.discovery.v3.AggregatedDiscoveryService")
	slices.Sort(services)
	if len(services) != 12 {
		t.Fatalf("services: %q", services)
	}
	check := func(service string) []string {
		return []string{"-plaintext", "-protoset", set, "-d", `{"service": "` + service + `"}`, r.Address, "grpc.health.v1.Health/Check"}
	}
	for _, s := range services {
		says(t, check(s), `"SERVING"`)
	}
	failsWith(t, "NotFound", check("grpc.reflection.v1.ServerReflection")...)
	failsWith(t, "", "-plaintext", r.Address, "list") // clients have no reflection
	var list struct {
		Statuses map[string]any `json:"statuses"`
	}
	out := says(t, []string{"-plaintext", "-protoset", set, r.Address, "grpc.health.v1.Health/List"})
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	if all := slices.Sorted(maps.Keys(list.Statuses)); !slices.Equal(all, services) {
		t.Errorf("health is of %q, want %q", all, services)
	}
	health := grpc_health_v1.NewHealthClient(xdstest.Dial(t, r.Address, nil))
	var watches []grpc.ServerStreamingClient[grpc_health_v1.HealthCheckResponse]
	becomes := func(want grpc_health_v1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for i, w := range watches {
			if got, err := w.Recv(); err != nil || got.Status != want {
				t.Errorf("%q is %v, %v, want %v", services[i], got, err, want)
			}
		}
	}
	for _, s := range services {
		w, err := health.Watch(xdstest.Context(t), &grpc_health_v1.HealthCheckRequest{Service: s})
		if err != nil {
			t.Fatal(err)
		}
		watches = append(watches, w)
	}
	becomes(grpc_health_v1.HealthCheckResponse_SERVING)
	// Connected clients keep the relay draining.
	for i := range 3 {
		c := client(t, r.Address, fleet.ClientConfig{Node: node(fmt.Sprint("n", i), "edge"), Variant: fleet.Delta, Behaviour: fleet.Envoy})
		waitFor(t, c, "what there is", hasAll(xdstest.Web(1)...))
	}
	r.Signal(syscall.SIGTERM)
	becomes(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	r.notReady()
	failsWith(t, "", append([]string{"-connect-timeout", "1"}, check("")...)...)
	r.Signal(syscall.SIGTERM) // no longer healthy
}
