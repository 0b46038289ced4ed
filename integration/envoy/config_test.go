package envoy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/xdstest"
)

// config is what an Envoy has in use, by type URL and resource name. Endpoints
// are those of active clusters, as a list of ports.
type config map[string]map[string]proto.Message

// config returns what this Envoy has in use of listeners, routes, clusters and
// endpoints.
func (e *envoy) config() (config, error) {
	c := config{lds: {}, rds: {}, cds: {}, eds: {}}
	all, err := e.dumped()
	if err != nil {
		return nil, err
	}
	for _, h := range all {
		if c[h.url] == nil || h.body == nil {
			continue
		}
		text, err := json.Marshal(h.body)
		if err != nil {
			return nil, err
		}
		var body anypb.Any
		if err := protojson.Unmarshal(text, &body); err != nil {
			return nil, fmt.Errorf("%s %s: %w", h.url, h.name, err)
		}
		if c[h.url][h.name], err = body.UnmarshalNew(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// ports returns the ports of a load assignment's endpoints. Envoy's dump adds
// defaults to the rest of it.
func ports(m *endpointv3.ClusterLoadAssignment) []uint32 {
	var out []uint32
	for _, group := range m.GetEndpoints() {
		for _, e := range group.GetLbEndpoints() {
			out = append(out, e.GetEndpoint().GetAddress().GetSocketAddress().GetPortValue())
		}
	}
	slices.Sort(out)
	return out
}

// differences lists how a config differs from the one that it should be.
func (c config) differences(want config) []string {
	var out []string
	for url := range want {
		short := url[strings.LastIndexByte(url, '.')+1:]
		for name, w := range want[url] {
			got := c[url][name]
			assignment, isEndpoints := w.(*endpointv3.ClusterLoadAssignment)
			switch {
			case got == nil:
				out = append(out, fmt.Sprintf("%s %s is missing", short, name))
			case isEndpoints:
				if g, w := ports(got.(*endpointv3.ClusterLoadAssignment)), ports(assignment); !slices.Equal(g, w) {
					out = append(out, fmt.Sprintf("%s %s has ports %v, want %v", short, name, g, w))
				}
			case !proto.Equal(got, w):
				out = append(out, fmt.Sprintf("%s %s is\n%v\nwant\n%v", short, name, got, w))
			}
		}
		for name := range c[url] {
			if want[url][name] == nil {
				out = append(out, fmt.Sprintf("%s %s is still there", short, name))
			}
		}
	}
	return out
}

// mustHave waits until this Envoy has exactly this configuration.
func (e *envoy) mustHave(want config) {
	e.t.Helper()
	xdstest.Eventually(e.t, e.node+"'s configuration", func() error {
		got, err := e.config()
		if err != nil {
			return err
		}
		if d := got.differences(want); len(d) > 0 {
			return fmt.Errorf("%d differences, the first: %s", len(d), d[0])
		}
		return nil
	})
}

// waitCluster waits until this Envoy has exactly this cluster in use, warmed.
func (e *envoy) waitCluster(want *clusterv3.Cluster) {
	e.t.Helper()
	xdstest.Eventually(e.t, e.node, func() error {
		got, err := e.config()
		if err != nil {
			return err
		}
		if c := got[cds][want.GetName()]; c == nil || !proto.Equal(c, want) {
			return fmt.Errorf("cluster %s is %v, want %v; there are %q",
				want.GetName(), c, want, slices.Sorted(maps.Keys(got[cds])))
		}
		return nil
	})
}

// waitGone waits until a cluster is deleted.
func (e *envoy) waitGone(cluster string) {
	e.t.Helper()
	xdstest.Eventually(e.t, e.node, func() error {
		got, err := e.config()
		if err == nil && got[cds][cluster] != nil {
			err = fmt.Errorf("still has the cluster %s", cluster)
		}
		return err
	})
}
