package fanout

import (
	"testing"

	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	extensionservice "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	listenerservice "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	routeservice "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	runtimeservice "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	secretservice "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// services are the per-type services as go-control-plane's own stubs name them.
var services = map[string]grpc.ServiceDesc{
	"CDS":  clusterservice.ClusterDiscoveryService_ServiceDesc,
	"EDS":  endpointservice.EndpointDiscoveryService_ServiceDesc,
	"LDS":  listenerservice.ListenerDiscoveryService_ServiceDesc,
	"RDS":  routeservice.RouteDiscoveryService_ServiceDesc,
	"SRDS": routeservice.ScopedRoutesDiscoveryService_ServiceDesc,
	"VHDS": routeservice.VirtualHostDiscoveryService_ServiceDesc,
	"SDS":  secretservice.SecretDiscoveryService_ServiceDesc,
	"RTDS": runtimeservice.RuntimeDiscoveryService_ServiceDesc,
	"ECDS": extensionservice.ExtensionConfigDiscoveryService_ServiceDesc,
}

// open opens a stream of a per-type service.
func (r *serverFixture) open(service, method string) grpc.ClientStream {
	r.t.Helper()
	st, err := r.dial().NewStream(xdstest.Context(r.t), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+service+"/"+method)
	if err != nil {
		r.t.Fatal(err)
	}
	return st
}

// Each type has its service, in the variants that its stubs have, and a client
// on it is in the group of those on the aggregated one. An empty type_url means
// the service's type.
func TestP4_Services(t *testing.T) {
	for _, typ := range xds.Types() {
		t.Run(typ.Short, func(t *testing.T) {
			r := newServerFixture(t, nil)
			r.addr = r.listen(&listener.Policy{Secrets: config.SecretsAllow})
			u := update(t, typ.URL, "a")
			u.Wildcard = false
			r.groups.Group("edge").Publish(u)
			desc := services[typ.Short]
			if desc.ServiceName != typ.Service {
				t.Fatalf("service %s, want %s", typ.Service, desc.ServiceName)
			}
			methods := map[string]bool{typ.SotW: true, typ.Delta: true, "": true}
			for _, s := range desc.Streams {
				if !methods[s.StreamName] {
					t.Fatalf("no method %s", s.StreamName)
				}
			}
			if typ.SotW != "" {
				st := r.open(typ.Service, typ.SotW)
				if err := st.SendMsg(&discoveryv3.DiscoveryRequest{Node: node("n"), ResourceNames: []string{"a"}}); err != nil {
					t.Fatal(err)
				}
				got := new(discoveryv3.DiscoveryResponse)
				if err := st.RecvMsg(got); err != nil || got.TypeUrl != string(typ.URL) || len(got.Resources) != 1 {
					t.Fatalf("%v, %v", got, err)
				}
			}
			st := r.open(typ.Service, typ.Delta)
			got := new(discoveryv3.DeltaDiscoveryResponse)
			for _, url := range []string{"", string(typ.URL)} {
				if err := st.SendMsg(&discoveryv3.DeltaDiscoveryRequest{Node: node("n"), TypeUrl: url, ResourceNamesSubscribe: []string{"a"}}); err != nil {
					t.Fatal(err)
				}
				if err := st.RecvMsg(got); err != nil || said(got) != "a " {
					t.Fatalf("%v, %v", got, err)
				}
			}
		})
	}
}

// Another type on a per-type service is refused.
func TestP2_OtherType(t *testing.T) {
	r := newServerFixture(t, nil)
	cds := xds.TypeOf(xds.ClusterType)
	c := &client{t, &grpc.GenericClientStream[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]{ClientStream: r.open(cds.Service, cds.Delta)}}
	c.ask(xds.EndpointType, "a")
	r.wantEnd(c, codes.InvalidArgument, telemetry.TypeMismatch)
}
