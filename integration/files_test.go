package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// directory is an origin that is a directory.
type directory struct {
	t    testing.TB
	path string
}

// write writes a file with a DiscoveryResponse of these resources, by an atomic rename, as JSON or
// YAML depending on its name.
func (d *directory) write(file string, resources ...types.Resource) {
	d.t.Helper()
	r := new(discoveryv3.DiscoveryResponse)
	for _, m := range resources {
		url, _ := xdstest.NameOf(m)
		r.TypeUrl = string(url)
		r.Resources = append(r.Resources, xdstest.Pack(m))
	}
	text, err := protojson.Marshal(r)
	if err == nil && filepath.Ext(file) == ".yaml" {
		var tree any
		if err = yaml.Unmarshal(text, &tree); err == nil {
			text, err = yaml.Marshal(tree)
		}
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.raw(file, string(text))
}

// raw writes a file of any text.
func (d *directory) raw(file, text string) {
	d.t.Helper()
	path := filepath.Join(d.path, file)
	err := os.WriteFile(path+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *directory) remove(file string) {
	d.t.Helper()
	if err := os.Remove(filepath.Join(d.path, file)); err != nil {
		d.t.Fatal(err)
	}
}

// P80: the resources in a directory's files reach the clients of every key, as do changes,
// additions and removals. An unreadable file removes nothing.
func TestP80_Files(t *testing.T) {
	t.Parallel()
	for _, upstream := range upstreams { // has no effect here
		t.Run(upstream, func(t *testing.T) {
			t.Parallel()
			d := &directory{t: t, path: t.TempDir()}
			d.write("clusters.json", xdstest.Cluster("web", 1))
			d.write("endpoints.yaml", xdstest.Endpoints("web", 8001))
			d.write("listeners.yaml", xdstest.Listener("in", "in", 1))
			d.write("routes.json", xdstest.Routes("in", "web", 1))
			r := serve(t, "file://"+d.path, xdstest.Config{"upstream.variant": upstream})
			clients := append(envoys(t, r.Address, "edge"), envoys(t, r.Address, "core")...)
			waitAll(t, clients, "the files", hasAll(xdstest.Web(1)...))

			d.write("clusters.json", xdstest.Cluster("web", 2))
			waitAll(t, clients, "a change", has(xdstest.Cluster("web", 2)))
			d.write("more.yaml", xdstest.Cluster("api", 1)) // merged with the other file of its type
			d.write("more-endpoints.json", xdstest.Endpoints("api", 9000))
			waitAll(t, clients, "another file", hasAll(xdstest.Cluster("web", 2), xdstest.Cluster("api", 1), xdstest.Endpoints("api", 9000)))
			d.remove("more.yaml")
			waitAll(t, clients, "a removal", all(has(xdstest.Cluster("web", 2)), hasNot(resource.ClusterType, "api")))

			d.raw("clusters.json", `{"resources": [ broken`)
			r.WaitMetric(1, "upstream_rejected_total", "reason", "unreadable")
			d.write("endpoints.yaml", xdstest.Endpoints("web", 8002))
			waitAll(t, clients, "what comes after", all(has(xdstest.Endpoints("web", 8002)), has(xdstest.Cluster("web", 2))))
			d.write("clusters.json", xdstest.Cluster("web", 3))
			waitAll(t, clients, "the file mended", has(xdstest.Cluster("web", 3)))
			for _, c := range clients {
				if n := c.Counters().Streams; n != 1 {
					t.Errorf("%s needed %d streams", c, n)
				}
			}
		})
	}
}

// `relay serve` without arguments works in the repository. It uses config/relay.yaml, whose origin
// is the demo's directory. The test only changes the addresses, by environment variables. With
// demo-grpc as its origin, it serves a gRPC process.
func TestDefaultConfiguration(t *testing.T) {
	t.Parallel()
	env := []string{"RELAY_DOWNSTREAM_ADDRESS=127.0.0.1:0", "RELAY_ADMIN_ADDRESS=127.0.0.1:0", "RELAY_DOWNSTREAM_DRAIN=100ms"}
	r := start(t, "..", env, "serve")
	forGRPC := start(t, "..", env, "serve", "--upstream.origins", `[{address: "file:config/demo-grpc"}]`)
	for i, v := range variants {
		e := client(t, r.Address, fleet.ClientConfig{Node: node(fmt.Sprint("envoy-", i), "demo"), Variant: v, Behaviour: fleet.Envoy})
		g := client(t, forGRPC.Address, fleet.ClientConfig{Node: node(fmt.Sprint("grpc-", i), "demo-grpc"), Variant: v,
			Behaviour: fleet.GRPC, Listener: "demo.example"})
		waitFor(t, e, "the demo's resources", func(c *fleet.Client) bool {
			return c.Complete() && c.Len(resource.ClusterType) > 0 && c.Len(resource.EndpointType) > 0 && c.Len(resource.ListenerType) > 0 && c.Len(resource.RouteType) > 0
		})
		waitFor(t, g, "the demo's service", func(c *fleet.Client) bool { return c.Complete() && c.Len(resource.EndpointType) == 1 })
	}
}
