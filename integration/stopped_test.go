package integration

import (
	"slices"
	"syscall"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
)

// P57: a relay whose process was stopped, or its machine suspended, has not listened
// meanwhile: what the origin has answered in time is there, and takes nothing for absent.
func TestP57_ARelayThatWasStopped(t *testing.T) {
	t.Parallel()
	for i, v := range variants {
		f := newFake(t)
		r := serve(t, f.addr, settings{"upstream.variant": upstreams[i]})
		s := raw(t, r.addr, fleet.Delta)
		send(t, s, ask(fleet.Delta, node("a", "edge"), xds.EndpointType, "a"))
		asks := func(name string) func(request) bool {
			return func(r request) bool { return slices.Contains(r.Names, name) }
		}
		f.waitRequest(t, "the first name", asks("a"))
		f.send(t, response(v, xds.EndpointType, "1", entryOf(endpoints("a", 1))))
		first := new(discoveryv3.DeltaDiscoveryResponse)
		if err := s.RecvMsg(first); err != nil {
			t.Fatal(err)
		}
		send(t, s, ask(fleet.Delta, nil, xds.EndpointType, "b"))
		f.waitRequest(t, "another name", asks("b"))
		<-time.After(500 * time.Millisecond)
		f.send(t, response(v, xds.EndpointType, "2", entryOf(endpoints("a", 2))))
		f.waitAnswer(t, "2")
		r.signal(syscall.SIGSTOP)
		f.send(t, response(v, xds.EndpointType, "3", entryOf(endpoints("b", make([]int, 20000)...))))
		<-time.After(2 * time.Second)
		r.signal(syscall.SIGCONT)
		f.waitAnswer(t, "3")
		if n := r.metric(t, "upstream_absent_guesses_total"); n > 0 {
			t.Errorf("%v names are taken for absent", n)
		}
	}
}
