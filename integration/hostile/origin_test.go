package hostile

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// honest is the cluster, and so the key, of the honest clients. Attackers use hostile, or a name
// that begins with it.
const honest = "honest"

// bulk is the size of a resource of the hostile key, in bytes. It waits in the relay for a client
// that does not read.
const bulk = 256 << 10

// origin is a minimal delta control plane.
type origin struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	addr string

	mu     sync.Mutex
	gen    int
	honest map[chan int]bool // streams that subscribe to the honest key's clusters
}

func newOrigin(t testing.TB) *origin {
	t.Helper()
	o := &origin{honest: make(map[chan int]bool), gen: 1}
	o.addr = xdstest.ServeADS(t, o, grpc.WriteBufferSize(4<<10), grpc.ReadBufferSize(0))
	return o
}

// publish changes the honest key's probe, and returns the time.
func (o *origin) publish() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gen++
	now := time.Now()
	for ch := range o.honest {
		select {
		case <-ch: // an older value that was not sent yet
		default:
		}
		ch <- o.gen
	}
	return now
}

func probe(gen int) *discoveryv3.Resource {
	return pack("probe", strconv.Itoa(gen), &clusterv3.Cluster{Name: "probe", ConnectTimeout: durationpb.New(time.Duration(gen) * time.Millisecond)})
}

var ballast = sync.OnceValue(func() *discoveryv3.Resource {
	large := structpb.NewStringValue(string(make([]byte, bulk)))
	return pack("ballast", "1", &clusterv3.Cluster{Name: "ballast", Metadata: &corev3.Metadata{
		FilterMetadata: map[string]*structpb.Struct{"x": {Fields: map[string]*structpb.Value{"y": large}}}}})
})

// secrets is a listener of the honest clients' key with as many secrets as the relay searches a NACK
// for: 256 KiB.
var secrets = sync.OnceValue(func() *discoveryv3.Resource {
	values := make(map[string]*structpb.Value)
	for i := range 6500 {
		values[fmt.Sprint("password-", i)] = structpb.NewStringValue(secretValue(i))
	}
	return pack("secrets", "1", &listenerv3.Listener{Name: "secrets", Metadata: &corev3.Metadata{
		FilterMetadata: map[string]*structpb.Struct{"x": {Fields: values}}}})
})

func secretValue(i int) string { return fmt.Sprintf("hunter-%x-%d", i*i, i) }

func pack(name, version string, m proto.Message) *discoveryv3.Resource {
	return &discoveryv3.Resource{Name: name, Version: version, Resource: xdstest.Pack(m)}
}

func (o *origin) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	asked, pushes := xdstest.Receive(s), make(chan int, 1)
	nonce, cluster := 0, ""
	send := func(typ string, rs ...*discoveryv3.Resource) error {
		nonce++
		return s.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: typ, Nonce: strconv.Itoa(nonce), Resources: rs})
	}
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.honest, pushes)
	}()
	begun := make(map[string]bool)
	for {
		select {
		case q, ok := <-asked:
			if !ok {
				return nil
			}
			if q.Node != nil {
				cluster = q.Node.Cluster
			}
			if begun[q.TypeUrl] {
				continue
			}
			begun[q.TypeUrl] = true
			if q.TypeUrl == string(xds.ListenerType) {
				if err := send(q.TypeUrl, secrets()); err != nil {
					return err
				}
			}
			if q.TypeUrl != string(xds.ClusterType) {
				continue
			}
			o.mu.Lock()
			gen := o.gen
			if cluster == honest {
				o.honest[pushes] = true
			}
			o.mu.Unlock()
			all := []*discoveryv3.Resource{probe(gen)}
			if cluster == "hostile" {
				all = append(all, ballast())
			}
			if err := send(q.TypeUrl, all...); err != nil {
				return err
			}
		case gen := <-pushes:
			if err := send(string(xds.ClusterType), probe(gen)); err != nil {
				return err
			}
		}
	}
}
