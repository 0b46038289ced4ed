package hostile

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// publisher is an origin of honest clients.
type publisher interface {
	publish() time.Time // changes the probe, and returns when
}

// crowd are the honest clients. Each has a connection and a stream, half of them in each variant.
type crowd struct {
	*fleet.Fleet
	origin publisher

	mu   sync.Mutex
	left map[*fleet.Client]bool // clients without the last published change
	took []time.Duration        // times of the clients that have it
	at   time.Time              // when it was published
	all  chan struct{}          // closed when all clients have it
}

func newCrowd(t testing.TB, o publisher, at target, n int) *crowd {
	t.Helper()
	c := &crowd{origin: o, left: make(map[*fleet.Client]bool)}
	var err error
	c.Fleet, err = fleet.New(fleet.Config{
		Target: at.XDS, Clients: n, DeltaShare: 0.5, Ramp: 200 * time.Millisecond,
		Nodes: func(i int) *corev3.Node { return &corev3.Node{Id: fmt.Sprint("honest-", i), Cluster: honest} },
		Client: fleet.ClientConfig{Behaviour: fleet.Raw, DiscardBodies: true,
			Subscribe: []fleet.Subscription{{Type: xds.ClusterType}}, OnApplied: c.applied},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the clients' end
		if v := c.Violations(); len(v) > 0 {
			t.Errorf("honest clients saw the relay break the protocol: %q", v)
		}
	})
	xdstest.Run(t, c.Run)
	if err := c.WaitAll(xdstest.Context(t), func(c *fleet.Client) bool { return c.Len(xds.ClusterType) > 0 }); err != nil {
		t.Fatal(err)
	}
	return c
}

// applied records that a client has applied a response.
func (c *crowd) applied(who *fleet.Client, _ xds.TypeURL, _ string, received time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.left[who] {
		return
	}
	delete(c.left, who)
	c.took = append(c.took, received.Sub(c.at))
	if len(c.left) == 0 {
		close(c.all)
	}
}

// round publishes a change and waits until all clients have it. It returns the time until 99 % of
// them had it.
func (c *crowd) round() (time.Duration, error) {
	all := make(chan struct{})
	c.mu.Lock()
	c.all, c.took = all, c.took[:0]
	for _, who := range c.Clients() {
		c.left[who] = true
	}
	// Under the lock, so that no client applies the change before its time is recorded.
	c.at = c.origin.publish()
	c.mu.Unlock()
	timer := time.NewTimer(xdstest.Patience)
	defer timer.Stop()
	select {
	case <-all:
	case <-timer.C:
		c.mu.Lock()
		defer c.mu.Unlock()
		return 0, fmt.Errorf("%d of %d honest clients did not get a change within %s", len(c.left), len(c.Clients()), xdstest.Patience)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.took)
	return c.took[(len(c.took)*99+99)/100-1], nil
}

// pause is the time between two rounds, as changes are rare.
const pause = 20 * time.Millisecond

// rounds runs several rounds, one after the other.
func (c *crowd) rounds(t testing.TB, n int) []time.Duration {
	t.Helper()
	var out []time.Duration
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for range n {
		p99, err := c.round()
		if err != nil {
			t.Error(err)
			return out
		}
		out = append(out, p99)
		<-tick.C
	}
	return out
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

// broken is the number of honest clients' streams that ended.
func (c *crowd) broken() uint64 { return c.Counters().Reconnects }
