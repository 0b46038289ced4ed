//go:build linux

package loadtest

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"

	"xdsrelay/internal/xdstest"
)

// A stamped load assignment contains when it was to change, on the machine's clock in nanoseconds, and
// its number.
const (
	stamp       = "stamp-"
	stampFormat = stamp + "%020d-%06d"
)

// stamped is load assignment i, which was to change at a time.
func (l load) stamped(i int, at int64) *endpointv3.ClusterLoadAssignment {
	text := fmt.Sprintf(stampFormat, at, i)
	if pad := l.Bytes - 150; pad > 0 {
		text += strings.Repeat("x", pad)
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: clusterName(i), Endpoints: []*endpointv3.LocalityLbEndpoints{{
		LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Hostname: text,
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: "10.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 8000},
			}}},
		}}}},
	}}}
}

// feed makes rate changes a second for so many seconds: of the first load assignment of each key, then
// of the second one, and so on. It answers by how much it was late, in nanoseconds.
func feed(t testing.TB, keys *cache.MuxCache, l load) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rate, _ := strconv.Atoi(r.FormValue("rate")) // from this program
		seconds, _ := strconv.Atoi(r.FormValue("seconds"))
		began, late := monotonic(), int64(0)
		for n := range rate * seconds {
			due := began + int64(n)*int64(time.Second)/int64(rate)
			if ahead := due - monotonic(); ahead > 0 {
				xdstest.Pause(t, time.Duration(max(ahead, 1e6))) // several changes are due after it
			} else {
				late = max(late, -ahead)
			}
			i := n / l.Keys % l.Clusters
			if err := keys.Caches[l.nodeCluster(n%l.Keys)].(*cache.LinearCache).UpdateResource(clusterName(i), l.stamped(i, due)); err != nil {
				t.Error(err)
			}
		}
		_, _ = fmt.Fprint(w, late) // the test reports a missing answer
	}
}

// lags records how far streams are behind: the time since the first change that they do not have. Safe
// for concurrent use.
type lags struct {
	load   load
	period atomic.Int64     // between two changes of a load assignment
	stamps [][]atomic.Int64 // the newest ones that each stream has
	counts [1 << 16]atomic.Int64
}

func newLags(l load) *lags {
	g := &lags{load: l, stamps: make([][]atomic.Int64, l.Clients)}
	for i := range g.stamps {
		g.stamps[i] = make([]atomic.Int64, l.Names)
	}
	return g
}

// of is the part of stream i; nil without lags.
func (g *lags) of(i int) []atomic.Int64 {
	if g == nil {
		return nil
	}
	return g.stamps[i]
}

// begin begins anew, with so many changes a second.
func (g *lags) begin(rate int) {
	g.period.Store(int64(g.load.Keys*g.load.Clusters) * int64(time.Second) / int64(rate))
	for i := range g.counts {
		g.counts[i].Store(0)
	}
	for _, s := range g.stamps {
		for i := range s {
			s[i].Store(0)
		}
	}
}

// record records the load assignments of a response.
func (g *lags) record(body []byte, stamps []atomic.Int64) {
	now := monotonic()
	for {
		at := bytes.Index(body, []byte(stamp))
		if at < 0 {
			return
		}
		body = body[at:]
		var changed int64
		var i int
		if _, err := fmt.Sscanf(string(body[:len(stamp)+27]), stampFormat, &changed, &i); err != nil {
			return // it is not of this test, and is missed at the end
		}
		body = body[len(stamp):]
		missed := changed
		if last := stamps[i%len(stamps)].Swap(changed); last > 0 {
			missed = last + g.period.Load()
		}
		ms := (now - missed) / int64(time.Millisecond)
		g.counts[min(max(ms, 0), int64(len(g.counts)-1))].Add(1)
	}
}

// current checks that each stream has all changes since a time.
func (g *lags) current(since int64) error {
	behind := 0
	for _, s := range g.stamps {
		for i := range s {
			if s[i].Load() < since {
				behind++
			}
		}
	}
	if behind > 0 {
		return fmt.Errorf("%d load assignments at clients are old", behind)
	}
	return nil
}

// quantile is the lag that this part of the received load assignments do not exceed.
func (g *lags) quantile(q float64) float64 {
	total, sum := g.received(), int64(0)
	for ms := range g.counts {
		if sum += g.counts[ms].Load(); sum > 0 && float64(sum) >= q*total {
			return float64(ms+1) * float64(time.Millisecond)
		}
	}
	return 0
}

func (g *lags) received() float64 {
	sum := int64(0)
	for ms := range g.counts {
		sum += g.counts[ms].Load()
	}
	return float64(sum)
}

// feedSeconds is how long the changes of one rate last.
const feedSeconds = 15

// measureBusy measures how far streams are behind, while load assignments change all the time.
func measureBusy(b *bench) {
	rates, seconds := []int{1000, 2500, 5000, 10_000}, feedSeconds
	if b.small {
		rates, seconds = []int{200}, 1
	}
	s := b.startReplicas(nameLinear, 1, false)
	relay, all := s.relays[0], []*contender{s.relays[0], s.origin}
	g := newLags(b.load)
	relay.crowd = relay.join(crowdSettings{load: b.load, lags: g})
	for _, rate := range rates {
		relay.settle()
		g.begin(rate)
		responses := relay.metric("xdsrelay_downstream_responses_total")
		begin, before, own := monotonic(), b.used(all...), cpu(b, os.Getpid())
		late, err := strconv.Atoi(string(s.origin.get(fmt.Sprintf("/feed?rate=%d&seconds=%d", rate, seconds))))
		if err != nil {
			b.Fatal(err)
		}
		end := monotonic()
		now, ownNow := b.used(all...), cpu(b, os.Getpid())
		share := func(d time.Duration) float64 { return 100 * float64(d) / float64(end-begin) }
		xdstest.Eventually(b, "clients have all changes", func() error {
			return g.current(begin + int64(seconds)*int64(time.Second) - g.period.Load())
		})
		b.print(fmt.Sprintf("relay/rate=%d", rate),
			value{g.quantile(0.5), "p50-ns"}, value{g.quantile(0.99), "p99-ns"}, value{g.quantile(1), "longest-ns"},
			value{float64(late), "origin-late-ns"}, value{g.received() / float64(seconds), "assignments/s"},
			value{(relay.metric("xdsrelay_downstream_responses_total") - responses) / float64(seconds), "responses/s"},
			value{share(now[0] - before[0]), "cpu-%core"}, value{share(now[1] - before[1]), "origin-%core"}, value{share(ownNow - own), "clients-%core"})
	}
}
