package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"xdsrelay/internal/upstream/upstreamtest"
	"xdsrelay/internal/xds"
)

// cluster is a relay with one origin and members, in memory.
type cluster struct {
	*relay
	net     *inMemory
	order   *testOrder
	origin  *fakeOrigin
	members []*fakeOrigin
	at      []*Origin // of the members
	end     []context.CancelFunc
	running sync.WaitGroup
}

func withMembers(t *testing.T, n int, test func(t *testing.T, c *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		net := &inMemory{t: t, at: make(map[string]*bufconn.Listener)}
		c := &cluster{net: net, origin: net.origin("origin")}
		c.relay = newRelay(t, xds.Delta, Options{Dialer: net.dial}, addressOf("origin"))
		c.order = c.ordered()
		for i := range n {
			name := string(rune('a' + i))
			c.members = append(c.members, net.origin(name))
			m, err := c.client.NewMember(OriginOptions{Name: name, Address: addressOf(name), Domain: "members", ContentVersions: true})
			if err != nil {
				t.Fatal(err)
			}
			c.at = append(c.at, m)
			ctx, end := context.WithCancel(t.Context())
			c.end = append(c.end, end)
			c.running.Go(func() {
				if err := m.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		c.launch()
		test(t, c)
		for _, end := range c.end {
			end()
		}
		c.running.Wait()
	})
}

// moves returns the counts of moves by reason.
func (c *cluster) moves(t *testing.T) string {
	t.Helper()
	families, err := c.client.opts.Metrics.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		if f.GetName() == "xdsrelay_cluster_moves_total" {
			for _, m := range f.Metric { // by reason
				out = append(out, fmt.Sprintf("%s=%v", m.Label[0].GetValue(), m.Counter.GetValue()))
			}
		}
	}
	return strings.Join(out, " ")
}

// A key lists to another member all that it holds, by versions made from the content, and changes
// to a better member only after it was better for a while.
func TestMembers_Move(t *testing.T) {
	withMembers(t, 2, func(t *testing.T, c *cluster) {
		c.order.set(testKey, c.at[0], c.client.origins[0])
		_, sink := c.stream(upstreamtest.All(cds))
		a := c.members[0].opens()
		a.send(resp{Type: cds, Version: "1", Resources: clusters("x", "y")})
		sink.from(t, cds, "a")
		began := time.Now()
		c.order.set(testKey, c.at[1], c.at[0], c.client.origins[0])
		b := c.members[1].opens()
		if d := time.Since(began); d < settleAfter || d > settleAfter+time.Second {
			t.Errorf("the key asked a better member after %v", d)
		}
		asked := b.request()
		for _, r := range []string{"x", "y"} {
			if want := r + "=" + sink.Newest(cds).Resource(r).Version.String(); !strings.Contains(asked, want) {
				t.Errorf("the request does not list %s: %s", want, asked)
			}
		}
		b.send(resp{Type: cds, Version: "1", Removed: []string{"y"}})
		sink.from(t, cds, "b")
		sink.UntilNames(t, cds, "x")

		c.at[1].SetDraining(true)
		began = time.Now()
		c.order.set(testKey, c.at[0], c.at[1], c.client.origins[0])
		c.members[0].opens().send(resp{Type: cds, Version: "1"})
		sink.from(t, cds, "a")
		if d := time.Since(began); d > time.Second {
			t.Errorf("the key left a member that drains after %v", d)
		}
		if got := c.moves(t); got != "draining=1 preferred=1 switched=0" {
			t.Errorf("moves: %s", got)
		}
	})
}

// A key moves to a better member only once that was reachable for a while.
func TestMembers_MoveToOneThatIsReachable(t *testing.T) {
	withMembers(t, 2, func(t *testing.T, c *cluster) {
		c.order.set(testKey, c.at[0], c.client.origins[0])
		_, sink := c.stream(upstreamtest.All(cds))
		c.members[0].opens().send(resp{Type: cds, Version: "1", Resources: clusters("x")})
		sink.from(t, cds, "a")
		synctest.Wait() // the kept connection to the second member is up
		c.at[1].disconnected()
		c.order.set(testKey, c.at[1], c.at[0], c.client.origins[0])
		time.Sleep(2 * settleAfter)
		c.at[1].connected()
		began := time.Now()
		c.members[1].opens()
		if d := time.Since(began); d < settleAfter || d > settleAfter+time.Second {
			t.Errorf("the key asked a member %v after it could be reached", d)
		}
	})
}

// After one failure a key tries the next member. If it holds something, it goes to origins only
// after a while.
func TestMembers_Fail(t *testing.T) {
	for _, holds := range []bool{true, false} {
		withMembers(t, 2, func(t *testing.T, c *cluster) {
			c.order.set(testKey, c.at[0], c.at[1], c.client.origins[0])
			_, sink := c.stream(upstreamtest.All(cds))
			c.at[0].mu.Lock()
			c.at[0].responding++ // to other keys: unlike an origin, a member without anything to send would not end a stream
			c.at[0].mu.Unlock()
			a := c.members[0].opens()
			if holds {
				a.send(resp{Type: cds, Version: "1", Resources: clusters("x")})
				sink.from(t, cds, "a")
			}
			began := time.Now()
			a.done <- errors.New("refused")
			refusing := make(chan bool)
			defer close(refusing)
			for _, m := range c.members {
				go func() {
					for {
						select {
						case s := <-m.streams:
							s.done <- errors.New("refused")
						case <-refusing:
							return
						}
					}
				}()
			}
			c.origin.opens().send(resp{Type: cds, Version: "1", Resources: clusters("x")})
			sink.from(t, cds, addressOf("origin"))
			if d := time.Since(began); holds && d < directAfter || !holds && d > 5*time.Second || d > 2*directAfter {
				t.Errorf("holds something: %v; the key asked the origin after %v", holds, d)
			}
			if got := c.moves(t); !strings.HasPrefix(got, "draining=0 preferred=0 switched=") || strings.HasSuffix(got, "=0") {
				t.Errorf("moves: %s", got)
			}
		})
	}
}

// While no source can be reached, a key does not go round at once, also if streams of other keys still
// live on connections that have not broken yet. Otherwise the minute would not pass.
func TestMembers_AllFail(t *testing.T) {
	withMembers(t, 2, func(t *testing.T, c *cluster) {
		for i, m := range c.at {
			m.mu.Lock()
			m.responding++
			m.mu.Unlock()
			c.net.remove(m.Name)
			c.members[i].server.Stop() // it may be connected already
		}
		c.net.remove("origin")
		c.origin.server.Stop()
		c.order.set(testKey, c.at[0], c.at[1], c.client.origins[0])
		_, sink := c.stream(upstreamtest.All(cds))
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := sink.lastStatus(); !s.Failed {
			t.Errorf("status %+v", s)
		}
	})
}

// A member whose Run ends ends its streams.
func TestMembers_End(t *testing.T) {
	withMembers(t, 1, func(t *testing.T, c *cluster) {
		c.order.set(testKey, c.at[0], c.client.origins[0])
		_, sink := c.stream(upstreamtest.All(cds))
		c.members[0].opens().send(resp{Type: cds, Version: "1", Resources: clusters("x")})
		sink.from(t, cds, "a")
		c.end[0]()
		synctest.Wait()
		if n := c.at[0].Streams(); n > 0 {
			t.Errorf("%d streams", n)
		}
	})
}
