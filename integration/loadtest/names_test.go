//go:build linux

package loadtest

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/sys/unix"
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
// the linear cache in a process of its own, which the same clients then ask directly. In the second
// half of the rounds, the server has one processor for itself, as on a machine of its own. The clients
// and the relay's origin have another one.
func measureColdStart(b *bench) {
	took, rounds := make(map[string]float64), 2*b.rounds
	if b.small {
		rounds = b.rounds
	}
	for r := range rounds {
		for _, name := range []string{nameLinear, nameRelay} {
			c, origin := b.linear(name)
			shown := name
			if r >= b.rounds {
				shown += "/apart"
				b.pin(origin.PID(), 1)
				b.pin(c.PID(), 0) // of linear, both are one
				b.pin(os.Getpid(), 1)
			}
			w := c.join(crowdSettings{load: b.load, later: true})
			used, ofOrigin := -c.settle(), -origin.settle()
			begin := monotonic()
			w.start()
			took[name] = float64(c.await(w, 0).last - begin)
			used += c.settle()
			ofOrigin += origin.settle()
			b.print(shown, value{took[name], "latency-ns"}, value{float64(used), "cpu-ns"},
				value{float64(ofOrigin), "origin-cpu-ns"}, value{took[name] / took[nameLinear], "latency/linear"})
			w.close()
			c.Stop()
			if c != origin {
				origin.Stop()
			}
			if shown != name {
				b.pin(os.Getpid(), 0, 1)
			}
		}
	}
}

// pin lets all threads of a process run on these processors only, and the threads that they start.
func (b *bench) pin(pid int, processors ...int) {
	b.Helper()
	var set unix.CPUSet
	for _, p := range processors {
		set.Set(p)
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, thread := range threads {
		id, _ := strconv.Atoi(thread.Name()) // the kernel writes numbers
		err = errors.Join(err, unix.SchedSetaffinity(id, &set))
	}
	if err != nil {
		b.Fatal(err)
	}
}
