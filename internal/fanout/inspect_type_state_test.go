package fanout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/xds"
)

// teller is a client of either variant that asks for clusters and answers when it
// is told to.
type teller struct {
	t       *testing.T
	delta   *client
	sotw    *sotw
	url     xds.TypeURL
	nonce   string
	version string
}

func (r *serverFixture) teller(t *testing.T, v xds.Variant) *teller {
	c := &teller{t: t, url: xds.ClusterType}
	if v == xds.Delta {
		c.delta = r.delta(nil)
	} else {
		c.sotw = r.sotw(nil)
	}
	return c
}

// eachWithEndpoints runs f for each variant with a group that has these endpoints, and a client of
// endpoints.
func eachWithEndpoints(t *testing.T, names []string, f func(t *testing.T, v xds.Variant, r *serverFixture, g *subscribertest.Group, c *teller)) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			r := newServerFixture(t, nil)
			g := r.groups.Group("edge")
			g.Publish(update(t, xds.EndpointType, names...))
			c := r.teller(t, v)
			c.url = xds.EndpointType
			f(t, v, r, g, c)
		})
	}
}

// say sends a request: an answer to the response before, a NACK if it has a text.
func (c *teller) say(refused string, names ...string) {
	c.t.Helper()
	var e *rpcstatus.Status
	if refused != "" {
		e = &rpcstatus.Status{Code: 3, Message: refused}
	}
	if c.delta != nil {
		c.delta.must(&discoveryv3.DeltaDiscoveryRequest{Node: node("n"), TypeUrl: string(c.url), ResponseNonce: c.nonce, ErrorDetail: e, ResourceNamesSubscribe: names})
		return
	}
	if err := c.sotw.Send(&discoveryv3.DiscoveryRequest{Node: node("n"), TypeUrl: string(c.url), ResponseNonce: c.nonce, VersionInfo: c.version, ErrorDetail: e, ResourceNames: names}); err != nil {
		c.t.Fatal(err)
	}
}

// recv takes a response and does not answer.
func (c *teller) recv() {
	c.t.Helper()
	if c.delta != nil {
		m, err := c.delta.Recv()
		if err != nil {
			c.t.Fatal(err)
		}
		c.nonce = m.Nonce
		return
	}
	m, err := c.sotw.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	c.nonce, c.version = m.Nonce, m.VersionInfo
}

// is waits until the only client's only type is in the state.
func (r *serverFixture) is(state string) inspect.TypeStatus {
	r.t.Helper()
	var at inspect.TypeStatus
	r.eventually(func() bool {
		all := r.srv.Clients()
		if len(all) != 1 || len(all[0].Types) != 1 {
			return false
		}
		at = all[0].Types[0]
		return at.State == state
	})
	return at
}

// counts are those of the newest version.
func (r *serverFixture) counts() string {
	g := r.groups.Group("edge")
	g.Mu.Lock()
	defer g.Mu.Unlock()
	c := g.Snaps[0].Progress.Counts()
	took := uint32(0)
	for _, n := range c.AckTimes {
		took += n
	}
	return fmt.Sprintf("%d changed, %d removed, %d sent, %d acknowledged, %d refused, %d timed", c.Changed, c.Removed, c.Sent, c.Acked, c.Nacked, took)
}

// stands is the only client's only type's state.
func (r *serverFixture) stands() (out inspect.TypeState) {
	for s := range r.srv.TypeStates(func(xds.Key, xds.TypeURL) bool { return true }) {
		out = s
	}
	return out
}

func (r *serverFixture) gen() uint64 {
	g := r.groups.Group("edge")
	g.Mu.Lock()
	defer g.Mu.Unlock()
	return g.Snaps[0].Gen
}

// A type goes through all states, and says since when it is in one.
func TestStatesOfAType(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			r := newServerFixture(t, nil)
			g := r.groups.Group("edge")
			c := r.teller(t, v)
			began := time.Now().Add(-time.Second)
			c.say("")
			if at := r.is(inspect.StateNotSent); at.Since.Before(began) || at.Unsent {
				t.Errorf("%+v", at)
			}
			g.Publish(update(t, xds.ClusterType, "a"))
			c.recv()
			at := r.is(inspect.StateStale)
			if at.PendingACKSince == nil || !at.Since.Equal(*at.PendingACKSince) || at.PendingACKSeconds < 0 || at.Unsent {
				t.Errorf("%+v", at)
			}
			if s := r.stands(); s.Has != 0 || s.Nack != nil {
				t.Errorf("%+v", s)
			}
			c.say("")
			at = r.is(inspect.StateSynced)
			if at.PendingACKSince != nil || at.PendingACKSeconds != 0 || at.Acked != at.Sent || at.Since.Before(began) {
				t.Errorf("%+v", at)
			}
			if got := r.counts(); got != "1 changed, 0 removed, 1 sent, 1 acknowledged, 0 refused, 1 timed" {
				t.Error(got)
			}
			if s := r.stands(); s.Has != r.gen() {
				t.Errorf("has %d of %d", s.Has, r.gen())
			}

			g.Publish(update(t, xds.ClusterType, "a=2"))
			c.recv()
			c.say("no")
			at = r.is(inspect.StateNacked)
			if at.Nack == nil || at.Nack.Message != "no" || !at.Since.Equal(at.Nack.At) || at.PendingACKSince != nil {
				t.Errorf("%+v", at)
			}
			if s := r.stands(); s.Has != r.gen()-1 || !s.Final || s.Nack == nil || s.Nack.Message != "no" {
				t.Errorf("%+v", s)
			}
			if got := r.counts(); got != "1 changed, 0 removed, 1 sent, 0 acknowledged, 1 refused, 0 timed" {
				t.Error(got)
			}
		})
	}
}

// A client that acknowledged something else since still counts as NACKED, until it has what it
// rejected (P15).
func TestARefusalStandsUntilItIsTaken(t *testing.T) {
	r := newServerFixture(t, nil)
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.ClusterType, "a", "b"))
	c := r.teller(t, xds.Delta)
	c.say("")
	c.recv()
	c.say("")
	r.is(inspect.StateSynced)
	g.Publish(update(t, xds.ClusterType, "a=2"))
	c.recv()
	c.say("no")
	r.is(inspect.StateNacked)
	g.Publish(update(t, xds.ClusterType, "b=2"))
	c.recv()
	c.say("") // of b alone
	r.eventually(func() bool { return r.srv.Clients()[0].Types[0].Acks == 2 })
	if at := r.is(inspect.StateNacked); at.Nack.Message != "no" {
		t.Errorf("%+v", at)
	}
	if s := r.stands(); s.Has != r.gen()-2 || !s.Final {
		t.Errorf("%+v of %d", s, r.gen())
	}
	g.Publish(update(t, xds.ClusterType, "a=3"))
	c.recv()
	c.say("")
	r.is(inspect.StateSynced)
	if s := r.stands(); s.Has != r.gen() || s.Final || s.Nack != nil {
		t.Errorf("%+v of %d", s, r.gen())
	}
}

// A type is STALE while the newest snapshot has something for it that was not sent, also if another
// response delays it. What the snapshot has for others does not count.
func TestP19_WhatIsNotSentYetIsStale(t *testing.T) {
	eachWithEndpoints(t, []string{"a", "b"}, func(t *testing.T, v xds.Variant, r *serverFixture, g *subscribertest.Group, c *teller) {
		c.say("", "a")
		c.recv()
		g.Publish(update(t, xds.EndpointType, "a=2")) // waits for the answer
		if at := r.is(inspect.StateStale); !at.Unsent || at.PendingACKSince == nil {
			t.Errorf("%+v", at)
		}
		ack := func() {
			if v == xds.SotW {
				c.say("", "a")
			} else {
				c.say("")
			}
		}
		ack()
		c.recv()
		ack()
		if at := r.is(inspect.StateSynced); at.Unsent {
			t.Errorf("%+v", at)
		}
		g.Publish(update(t, xds.EndpointType, "b=2"))
		if at := r.is(inspect.StateSynced); at.Unsent {
			t.Errorf("%+v", at)
		}
		// Nothing was sent for it, and it is in step with it.
		if s := r.stands(); s.Has != r.gen() {
			t.Errorf("has %d of %d", s.Has, r.gen())
		}
		if got := r.counts(); got != "1 changed, 0 removed, 0 sent, 0 acknowledged, 0 refused, 0 timed" {
			t.Error(got)
		}
	})
}

// A change that settles is in no State yet, so no client has it.
func TestWhatSettlesIsNotSentYet(t *testing.T) {
	r := newServerFixture(t, nil)
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.ClusterType, "a"))
	c := r.teller(t, xds.Delta)
	c.say("")
	c.recv()
	c.say("")
	r.is(inspect.StateSynced)
	g.Settle(update(t, xds.ClusterType, "a=2"))
	if at := r.is(inspect.StateStale); !at.Unsent || at.PendingACKSince != nil {
		t.Errorf("%+v", at)
	}
	if s := r.stands(); s.Has != r.gen()-1 {
		t.Errorf("has %d of %d", s.Has, r.gen())
	}
}

// A client that already has everything (P27) is sent nothing. It is in step, and the group is told
// what it has, as of an ACK (P66).
func TestP27_P66_AClientThatBroughtEverythingIsSynced(t *testing.T) {
	r := newServerFixture(t, nil)
	r.groups.Group("edge").Publish(update(t, xds.RouteType, "r"))
	first := r.delta(nil)
	first.ask(xds.RouteType, "r")
	m := first.recv()
	if err := first.CloseSend(); err != nil {
		t.Fatal(err)
	}
	r.eventually(func() bool { return len(r.srv.Clients()) == 0 })
	c := r.delta(nil)
	c.must(&discoveryv3.DeltaDiscoveryRequest{
		Node: node("n"), TypeUrl: string(xds.RouteType), ResourceNamesSubscribe: []string{"r"},
		InitialResourceVersions: map[string]string{"r": m.Resources[0].Version},
	})
	if at := r.is(inspect.StateSynced); at.Sends != 0 {
		t.Errorf("%+v", at)
	}
	if s := r.stands(); s.Has != r.gen() {
		t.Errorf("has %d of %d", s.Has, r.gen())
	}
	want, g := []uint64{r.gen()}, r.groups.Group("edge")
	r.eventually(func() bool {
		g.Mu.Lock()
		defer g.Mu.Unlock()
		for m := range g.Subscribers {
			return slices.Equal(m.AckedGens, want)
		}
		return false
	})
}

// Pages of clients are in order, and whole.
func TestClientsAfter(t *testing.T) {
	r := newServerFixture(t, nil)
	for range 5 {
		r.delta(nil).ask(xds.ClusterType)
	}
	r.eventually(func() bool { return len(r.srv.Clients()) == 5 })
	var all, paged []uint64
	for c := range r.srv.ClientsAfter(0) {
		all = append(all, c.Stream)
	}
	after := uint64(0)
	for range 5 {
		for c := range r.srv.ClientsAfter(after) {
			paged, after = append(paged, c.Stream), c.Stream
			break
		}
	}
	if fmt.Sprint(all) != fmt.Sprint(paged) || len(all) != 5 || all[0] >= all[4] {
		t.Errorf("%v and page by page %v", all, paged)
	}
}

// A client does not have what is too large to be sent, nor a version that includes it.
func TestWhatIsTooLargeIsNotHad(t *testing.T) {
	r, _ := smallServer(t, 1, time.Minute)
	g := r.groups.Group("edge")
	long := strings.Repeat("l", 100)
	g.Publish(update(t, xds.EndpointType, "a", long))
	c := r.delta(nil)
	c.ask(xds.EndpointType, "a", long)
	r.eventually(func() bool {
		all := r.srv.Clients()
		return len(all) == 1 && len(all[0].Types) == 1 && all[0].Types[0].State == inspect.StateNotSent && all[0].Types[0].Unsent && all[0].Types[0].Oversized != nil
	})
	if s := r.stands(); s.Has != 0 {
		t.Errorf("it has generation %d of %d, without what is too large", s.Has, r.gen())
	}
}

// A stream whose names a newer stream of its node requests on another connection is marked as
// older. The node has often lost its connection.
func TestOlderStreamsAreMarked(t *testing.T) {
	r := newServerFixture(t, nil)
	first, second := r.dial(), r.dial()
	opened := 0
	open := func(on *grpc.ClientConn, name string) {
		r.delta(on).ask(xds.ClusterType, name)
		opened++
		r.eventually(func() bool {
			all := r.srv.Clients()
			return len(all) == opened && len(all[opened-1].Types) == 1 && all[opened-1].Types[0].Names == 1
		})
	}
	open(first, "a")
	open(first, "b")
	open(first, "b")
	open(second, "a")
	open(second, "c")
	var older []bool
	for c := range r.srv.ClientsAfter(0) {
		older = append(older, c.Types[0].Older)
	}
	if want := []bool{true, false, false, false, false}; !slices.Equal(older, want) {
		t.Errorf("%v, want %v", older, want)
	}
}
