//go:build linux

package loadtest

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"xdsrelay/internal/xdstest"
)

// measureNames measures what one changed load assignment costs go-control-plane, if all names of a key
// are on one delta stream, or spread over several. Only one of the streams has the name that changes.
func measureNames(b *bench) {
	spread := []int{1, 5, 20, 100}
	if b.small {
		spread = spread[:2]
	}
	for _, name := range []string{nameLinear, nameSnapshot} {
		for _, streams := range spread {
			c := b.start(name, nil)
			conn, err := grpc.NewClient(c.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
			if err != nil {
				b.Fatal(err)
			}
			var first discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
			each := b.load.Names / streams
			for i := range streams {
				st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(b.Context())
				req := &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Cluster: b.load.nodeCluster(0)}, TypeUrl: b.load.typ()}
				for n := range each {
					req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, clusterName(i*each+n))
				}
				if err == nil {
					err = st.Send(req)
				}
				if err != nil {
					b.Fatal(err)
				}
				b.receive(st)
				if i == 0 {
					first = st
				}
			}
			for r := range warmups + b.rounds {
				c.gen++
				push, before := c.next(c.gen), c.settle()
				begin := monotonic()
				push()
				b.receive(first)
				took, used := monotonic()-begin, c.settle()-before
				if r >= warmups {
					b.print(fmt.Sprintf("%s/streams=%d", name, streams), value{float64(used), "cpu-ns/change"}, value{float64(took), "latency-ns"})
				}
			}
			if err := conn.Close(); err != nil {
				b.Error(err)
			}
			c.Stop()
		}
	}
}

// receive receives a response, and acknowledges it.
func (b *bench) receive(st discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient) {
	b.Helper()
	got, err := st.Recv()
	if err == nil {
		err = st.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: got.TypeUrl, ResponseNonce: got.Nonce})
	}
	if err != nil {
		b.Fatal(err)
	}
}

// linear starts the linear cache in a process of its own, or a relay with it as the origin.
func (b *bench) linear(name string) (c, origin *contender) {
	b.Helper()
	origin = b.start(nameLinear, nil)
	if c = origin; name == nameRelay {
		c = b.start(nameRelay, xdstest.Config{"upstream.origins": xdstest.Origins(origin.addr)})
		c.next = origin.next
	}
	return c, origin
}

// measureColdStart measures the time until the last of many clients that connect at once has its load
// assignments. No two clients share a name, and the relay has requested none before. Its origin is
// the linear cache in a process of its own, which the same clients then ask directly.
func measureColdStart(b *bench) {
	for range b.rounds {
		took := make(map[string]float64)
		for _, name := range []string{nameLinear, nameRelay} {
			c, origin := b.linear(name)
			w := c.join(crowdSettings{load: b.load, later: true})
			used, ofOrigin := -c.settle(), -origin.settle()
			begin := monotonic()
			w.start()
			took[name] = float64(c.await(w, 0).last - begin)
			used += c.settle()
			ofOrigin += origin.settle()
			b.print(name, value{took[name], "latency-ns"}, value{float64(used), "cpu-ns"},
				value{float64(ofOrigin), "origin-cpu-ns"}, value{took[name] / took[nameLinear], "latency/linear"})
			w.close()
			c.Stop()
			if c != origin {
				origin.Stop()
			}
		}
	}
}
