package rest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/rest/resttest"
	"xdsrelay/internal/fanout/session/sessiontest"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// snapshotOf makes one of a type; wild says that it answers the wildcard.
func snapshotOf(t *testing.T, url xds.TypeURL, wild bool, specs ...string) *snapshot.Snapshot {
	w := sessiontest.New(t, url)
	w.Say(wild, nil, specs...)
	return w.Cur
}

func wants(wild bool, names ...string) *snapshot.Subscription {
	return &snapshot.Subscription{Wildcard: wild, Names: xds.NewNameSet(names...)}
}

// A version is made from the names asked for and the contents that they have,
// and of nothing else; it is the same for ever.
func TestP71_Versions(t *testing.T) {
	of := func(s *snapshot.Snapshot, sub *snapshot.Subscription) string {
		_, v := answerFor(s, sub)
		return v
	}
	base := snapshotOf(t, xds.EndpointType, false, "a", "b", "c=2")
	v := of(base, wants(false, "a", "b"))
	if v != "cf672a338ee2c2ff9f03becc3a650422" {
		t.Errorf("the version was another one in all builds before: %s", v)
	}
	for name, same := range map[string]string{
		"another history":         of(snapshotOf(t, xds.EndpointType, false, "b", "c", "a=2", "a"), wants(false, "a", "b")),
		"another order of names":  of(base, wants(false, "b", "a")),
		"what was not asked for":  of(snapshotOf(t, xds.EndpointType, false, "a", "b", "d"), wants(false, "a", "b")),
		"the name in two answers": of(snapshotOf(t, xds.EndpointType, false, "a", "b"), wants(false, "a", "b", "a")),
	} {
		if same != v {
			t.Errorf("%s: %s, want %s", name, same, v)
		}
	}
	later := sessiontest.New(t, xds.EndpointType)
	later.Say(false, nil, "a", "b")
	later.Say(false, nil, "-b")
	seen := map[string]string{v: "the first"}
	for name, other := range map[string]string{
		"another name":       of(base, wants(false, "a", "c")),
		"one name less":      of(base, wants(false, "a")),
		"an absent name":     of(base, wants(false, "a", "b", "x")),
		"other content":      of(snapshotOf(t, xds.EndpointType, false, "a=2", "b"), wants(false, "a", "b")),
		"one gone":           of(later.Cur, wants(false, "a", "b")),
		"nothing":            of(snapshotOf(t, xds.EndpointType, false), wants(false, "a", "b")),
		"a wildcard":         of(snapshotOf(t, xds.ClusterType, true, "a", "b"), wants(true)),
		"a wildcard and it":  of(snapshotOf(t, xds.ClusterType, true, "a", "b"), wants(true, "a", "b")),
		"names run together": of(snapshotOf(t, xds.EndpointType, false), wants(false, "ab")),
	} {
		if first, ok := seen[other]; ok {
			t.Errorf("%s has the version of %s", name, first)
		}
		seen[other] = name
	}
}

// When there is an answer: of a wildcard once the origin has answered that, of
// a full-state type by name once anything is known, of others once anything is
// there.
func TestP71_PollWaitsForAnAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		s     *snapshot.Snapshot
		sub   *snapshot.Subscription
		ready bool
	}{
		"wildcard, unanswered":            {snapshotOf(t, xds.ClusterType, false, "a"), wants(true), false},
		"wildcard and a name, unanswered": {snapshotOf(t, xds.ClusterType, false, "a"), wants(true, "a"), false},
		"wildcard, answered with nothing": {snapshotOf(t, xds.ClusterType, true), wants(true), true},
		"full state, all pending":         {snapshotOf(t, xds.ClusterType, false, "x"), wants(false, "a"), false},
		"full state, one absent":          {snapshotOf(t, xds.ClusterType, false, "-a"), wants(false, "a", "b"), true},
		"full state, one there":           {snapshotOf(t, xds.ClusterType, false, "a"), wants(false, "a", "b"), true},
		"other, all pending":              {snapshotOf(t, xds.RouteType, false), wants(false, "a"), false},
		"other, absent":                   {snapshotOf(t, xds.RouteType, false, "-a"), wants(false, "a"), false},
		"other, one there":                {snapshotOf(t, xds.RouteType, false, "a", "-b"), wants(false, "a", "b"), true},
		"other, nothing asked for":        {snapshotOf(t, xds.RouteType, false, "a"), wants(false), false},
	} {
		if ready, _ := answerFor(tc.s, tc.sub); ready != tc.ready {
			t.Errorf("%s: %v", name, ready)
		}
	}
}

// A poll with the current version is held until what it asks for changes, and
// answered with all of it then; what else changes is nothing to it.
func TestP71_HeldUntilAChange(t *testing.T) {
	resttest.EachProtocol(t, func(t *testing.T, protocol string) {
		r := newREST(t, nil)
		g := r.groups.Group("edge")
		g.Publish(update(t, xds.EndpointType, "a", "b", "c"), update(t, xds.ClusterType, "x"))
		c := r.HTTP(protocol)
		m := r.Response(r.Ask(c, xds.EndpointType, "", "a", "b"))
		held := r.Begin(xdstest.Context(t), c, xds.EndpointType, m.VersionInfo, "a", "b")
		r.waiting(1)
		g.Publish(update(t, xds.EndpointType, "c=2"))
		g.Publish(update(t, xds.ClusterType, "y"))
		g.Publish(update(t, xds.EndpointType, "a")) // what it is already
		// Of another version, the answer shows that all this has been seen.
		if got := r.Holds(r.Ask(c, xds.EndpointType, "old", "a", "b")); got != "a b " {
			t.Fatalf("holds %q", got)
		}
		select {
		case got := <-held:
			t.Fatalf("answered without a change: %d %s", got.Status, got.Body)
		default:
		}
		g.Publish(update(t, xds.EndpointType, "a=2"))
		got := <-held
		if text := r.Holds(got); text != "a b " {
			t.Errorf("holds %q", text)
		}
		if next := r.Response(got); next.VersionInfo == m.VersionInfo {
			t.Error("the version is the old one")
		}
	})
}

// A thousand polls that ask the same cost one encoding, and a body has a hold on
// its snapshot's memory only. Polls that have the version cost none.
func TestP71_OneEncoding(t *testing.T) {
	r := newREST(t, nil)
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.ClusterType, names(100)...))
	snap := g.State.Snapshot(xds.ClusterType)
	sub := g.Intern(wants(true))
	a := documentsOf(snap).document(snap, sub)
	if a.done != nil {
		t.Fatal("looking at it encodes it")
	}
	var all sync.WaitGroup
	bodies := make([][]byte, 1000)
	for i := range bodies {
		all.Go(func() {
			var err error
			again := documentsOf(snap).document(snap, sub)
			if bodies[i], err = r.srv.encoded(context.Background(), snap, sub, again, &telemetry.TypeMetrics{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, b := range bodies {
		if &b[0] != &bodies[0][0] {
			t.Fatal("encoded more than once")
		}
	}
}

// The bodies of a snapshot are bounded, in bytes and in number; the newest is
// kept, whatever its size.
func TestP71_AnswersAreBounded(t *testing.T) {
	s, _ := newServer(t, nil)
	snap := snapshotOf(t, xds.EndpointType, false, names(100)...)
	have := documentsOf(snap)
	for _, n := range names(100) {
		for i := range 100 {
			sub := wants(false, n, fmt.Sprint(i))
			a := have.document(snap, sub)
			xdstest.Must(s.encoded(context.Background(), snap, sub, a, &telemetry.TypeMetrics{}))(t)
		}
	}
	if len(have.costs) != have.cells.Len() || have.cells.Len() > maxDocuments || have.cost > have.max {
		t.Errorf("%d answers, %d costs of %d bytes, over %d", have.cells.Len(), len(have.costs), have.cost, have.max)
	}
	have.max = 1
	sub := wants(false, names(100)...)
	a := have.document(snap, sub)
	body, err := s.encoded(context.Background(), snap, sub, a, &telemetry.TypeMetrics{})
	if err != nil || have.cells.Len() != 1 || have.document(snap, sub) != a || int64(len(body)) > have.cost {
		t.Errorf("%v: %d answers of %d bytes", err, have.cells.Len(), have.cost)
	}
}

// A client that goes ends its poll at once, and frees its place, but not the
// interest: the group has it until twice long_poll after.
func TestP71_PollEndsWithItsClient(t *testing.T) {
	resttest.EachProtocol(t, func(t *testing.T, protocol string) {
		r := newREST(t, func(o *options) { o.Limits.Streams = 1 })
		ctx, cancel := context.WithCancel(xdstest.Context(t))
		held := r.Begin(ctx, r.HTTP(protocol), xds.ClusterType, "")
		r.waiting(1)
		r.eventually(func() bool { return r.subscribers("edge") == 1 })
		cancel()
		<-held
		r.waiting(0)
		if n := r.subscribers("edge"); n != 1 {
			t.Errorf("%d subscribers", n)
		}
		r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
		if got := r.Holds(r.Ask(r.HTTP(protocol), xds.ClusterType, "")); got != "a " {
			t.Errorf("holds %q", got)
		}
	})
}

// A client that rejects an answer and says so is not sent it again, until
// something changes (P15); that is recorded (P17). A NACK of something else is
// not.
func TestP71_NACK(t *testing.T) {
	r := newREST(t, nil)
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.ClusterType, "a"))
	c := r.HTTP("http1")
	first := r.Response(r.Ask(c, xds.ClusterType, ""))
	g.Publish(update(t, xds.ClusterType, "a=2"))
	second := r.Response(r.Ask(c, xds.ClusterType, first.VersionInfo))
	nack := func(nonce string) <-chan *resttest.Reply {
		q := resttest.Request(resttest.Node("n"), xds.ClusterType, first.VersionInfo)
		q.ResponseNonce, q.ErrorDetail = nonce, &statuspb.Status{Code: 3, Message: "no"}
		out := make(chan *resttest.Reply, 1)
		go func() {
			got, err := r.Post(xdstest.Context(t), c, "/v3/discovery:clusters", resttest.Body(t, q))
			if err != nil {
				got = nil
			}
			out <- got
		}()
		return out
	}
	held := nack(second.Nonce)
	r.waiting(1)
	r.eventually(func() bool { return r.srv.clients()[0].Types[0].State == inspect.StateNacked })
	g.Publish(update(t, xds.ClusterType, "a=33"))
	if got := r.Response(<-held); got.VersionInfo == second.VersionInfo {
		t.Error("it was given what it refused")
	}
	if got := r.Response(<-nack(second.Nonce)); got.VersionInfo == second.VersionInfo { // of an earlier one
		t.Error("it was given what it refused")
	}
	r.groups.Mu.Lock()
	defer r.groups.Mu.Unlock()
	if len(r.groups.Nacks) != 1 || r.groups.Nacks[0] != (subscriber.Nack{Version: second.VersionInfo, Code: 3, Message: "no", Node: "n", At: r.groups.Nacks[0].At, Gen: 2}) {
		t.Errorf("%v", r.groups.Nacks)
	}
	if o := r.groups.Offers[0]; o.Has != 1 || o.Of != 2 || o.Lineage == 0 || o.Sub == nil || o.Names != nil {
		t.Errorf("it rejected %+v", o)
	}
}

// Documents count as memory that may be old.
func TestP16_DocumentsMayBeOld(t *testing.T) {
	a, c := &Documents{costs: make(map[*document]int64)}, new(document)
	before := snapshot.SupersededBytes()
	a.max = 1 << 20
	if a.charge(c, 1000); snapshot.SupersededBytes()-before < 1000 {
		t.Errorf("%d bytes more", snapshot.SupersededBytes()-before)
	}
}

// An error of a name that a poll asks for is news, and is part of the answer. Errors of other names
// are not. An error alone is no answer of a type for which clients reject empty answers.
func TestP39_ErrorsInPolls(t *testing.T) {
	r := newREST(t, nil)
	g := r.groups.Group("edge")
	c := r.HTTP("http1")
	g.Publish(update(t, xds.EndpointType, "a"))
	m := r.Response(r.Ask(c, xds.EndpointType, "", "a", "b"))
	if len(m.ResourceErrors) > 0 {
		t.Fatalf("errors: %v", m.ResourceErrors)
	}
	held := r.Begin(xdstest.Context(t), c, xds.EndpointType, m.VersionInfo, "a", "b")
	r.waiting(1)

	// Details of a type that this program does not know have no JSON.
	said := func(name string, details ...*anypb.Any) *xds.ResourceError {
		return sessiontest.New(t, xds.EndpointType).Parse(&discoveryv3.DeltaDiscoveryResponse{
			TypeUrl: string(xds.EndpointType), ResourceErrors: []*discoveryv3.ResourceError{{
				ResourceName: &discoveryv3.ResourceName{Name: name},
				ErrorDetail:  &statuspb.Status{Code: int32(codes.PermissionDenied), Message: "no " + name, Details: details},
			}},
		}).Errors[0]
	}
	g.Publish(snapshot.Update{Type: xds.EndpointType, Errors: []*xds.ResourceError{said("c")}})
	g.Publish(snapshot.Update{Type: xds.EndpointType, Errors: []*xds.ResourceError{said("b", &anypb.Any{TypeUrl: "acme/X", Value: []byte{8, 1}})}})
	got := <-held
	if text := r.Holds(got); text != "a " {
		t.Errorf("holds %q", text)
	}
	m = r.Response(got)
	if len(m.ResourceErrors) != 1 || m.ResourceErrors[0].ResourceName.GetName() != "b" ||
		m.ResourceErrors[0].ErrorDetail.GetCode() != int32(codes.PermissionDenied) || m.ResourceErrors[0].ErrorDetail.GetMessage() != "no b" {
		t.Errorf("errors: %v", m.ResourceErrors)
	}

	// The next resource ends it.
	g.Publish(update(t, xds.EndpointType, "b"))
	if m = r.Response(r.Ask(c, xds.EndpointType, m.VersionInfo, "a", "b")); len(m.ResourceErrors) > 0 || len(m.Resources) != 2 {
		t.Errorf("%v", m)
	}
	w := sessiontest.New(t, xds.SecretType)
	w.Fail(false, "a")
	if ready, _ := answerFor(w.Cur, wants(false, "a")); ready {
		t.Error("an error alone is an answer")
	}
}

// otherVersion is one that no poller of the test gave.
const otherVersion = "0123456789abcdef0123456789abcdef"

// partOf publishes what has come of an answer so far: one of several resources.
func (r *restFixture) partOf(typ xds.TypeURL, wildcard bool) {
	u := update(r.t, typ, "a", "b")
	u.Changed = u.Changed[:1]
	u.Wildcard, u.Partial = wildcard, wildcard
	r.groups.Group("edge").Publish(u)
}

// A client that polls with a version of before the relay's start is not given a part of the
// answer to the wildcard. One without a version is.
func TestP67_PollsWithStateGetNoPart(t *testing.T) {
	r := newREST(t, func(o *options) { o.LongPoll = time.Second })
	r.partOf(xds.ClusterType, true)
	if got := r.Ask(r.HTTP("http1"), xds.ClusterType, otherVersion); got.Status != 304 {
		t.Errorf("with state: %d %s", got.Status, got.Body)
	}
	if got := r.Ask(r.HTTP("http1"), xds.ClusterType, ""); got.Status != 200 {
		t.Errorf("without state: %d %s", got.Status, got.Body)
	}
}

// The group wakes a poll with state when the answer becomes complete, which is no news for a
// poll without. So they are two pollers.
func TestP67_PollsWithStateSubscribeWithState(t *testing.T) {
	r := newREST(t, func(o *options) { o.LongPoll = time.Second })
	r.partOf(xds.ClusterType, true)
	resumes := r.Begin(xdstest.Context(t), r.HTTP("http1"), xds.ClusterType, otherVersion)
	r.waiting(1) // before the other poll: a version that was given to it is no state
	r.Ask(r.HTTP("http1"), xds.ClusterType, "")
	<-resumes
	g := r.groups.Group("edge")
	g.Mu.Lock()
	defer g.Mu.Unlock()
	states := make(map[bool]int)
	for m := range g.Subscribers {
		states[m.Subscribed.Resumes]++
	}
	if states[true] != 1 || states[false] != 1 || len(g.Subscribers) != 2 {
		t.Errorf("%d pollers, by state: %v", len(g.Subscribers), states)
	}
}

// For a full-state type a client that resumes waits for all names, at most for
// snapshot.NamesWait.
func TestP67_PollsWithStateWaitForNames(t *testing.T) {
	r := newREST(t, func(o *options) { o.LongPoll = 2 * snapshot.NamesWait })
	r.partOf(xds.ListenerType, false)
	began := time.Now()
	if got := r.Ask(r.HTTP("http1"), xds.ListenerType, otherVersion, "a", "b"); got.Status != 200 || time.Since(began) < snapshot.NamesWait {
		t.Errorf("after %v: %d %s", time.Since(began), got.Status, got.Body)
	}
}

// Only clients without a version are given what comes from the store.
func TestP66_PollsWithStateGetNothingStored(t *testing.T) {
	r := newREST(t, func(o *options) { o.LongPoll = time.Second })
	g := r.groups.Group("edge")
	u := update(t, xds.ClusterType, "a")
	u.Wildcard, u.Origin, u.Received = true, "origin", time.Now()
	b := snapshot.NewBuilder(xds.TypeOf(xds.ClusterType))
	b.ApplyStored(u)
	s, _ := b.Snapshot(nil, 1)
	g.Mu.Lock()
	g.Gen, g.Builders[xds.ClusterType], g.Snaps = 1, b, append(g.Snaps, s)
	g.State = snapshot.NewState(1, 1, g.Snaps)
	g.Mu.Unlock()
	if got := r.Ask(r.HTTP("http1"), xds.ClusterType, otherVersion); got.Status != 304 {
		t.Errorf("with state: %d %s", got.Status, got.Body)
	}
	if got := r.Ask(r.HTTP("http1"), xds.ClusterType, ""); got.Status != 200 {
		t.Errorf("without state: %d %s", got.Status, got.Body)
	}
}

// Polls for listeners and routes with state wait while clusters are withheld from another poll of
// the key, for 15 s at most. Polls without state do not wait.
func TestP67_PollsForRoutesWaitForClusters(t *testing.T) {
	r := newREST(t, func(o *options) { o.LongPoll = time.Minute })
	r.partOf(xds.ClusterType, true)
	whole := update(t, xds.ListenerType, "a")
	whole.Wildcard = true
	r.groups.Group("edge").Publish(whole)
	clusters := r.Begin(xdstest.Context(t), r.HTTP("http1"), xds.ClusterType, otherVersion)
	r.waiting(1)
	listeners := r.Begin(xdstest.Context(t), r.HTTP("http1"), xds.ListenerType, otherVersion)
	r.waiting(2)
	if got := r.Ask(r.HTTP("http1"), xds.ListenerType, ""); got.Status != 200 {
		t.Errorf("without state: %d %s", got.Status, got.Body)
	}
	select {
	case got := <-listeners:
		t.Errorf("before the clusters: %d %s", got.Status, got.Body)
	default:
	}
	complete := update(t, xds.ClusterType, "a", "b")
	complete.Wildcard = true
	r.groups.Group("edge").Publish(complete)
	if got := <-clusters; got.Status != 200 {
		t.Errorf("clusters: %d %s", got.Status, got.Body)
	}
	if got := <-listeners; got.Status != 200 {
		t.Errorf("listeners: %d %s", got.Status, got.Body)
	}
}

// The wait for clusters that are requested by name ends after 5 s.
func TestP67_PollsForRoutesWaitForNamedClustersFor5s(t *testing.T) {
	r := newREST(t, func(o *options) { o.LongPoll = time.Minute })
	whole := update(t, xds.ListenerType, "a")
	whole.Wildcard = true
	r.groups.Group("edge").Publish(whole)
	r.Begin(xdstest.Context(t), r.HTTP("http1"), xds.ClusterType, otherVersion, "gone")
	r.waiting(1)
	began := time.Now()
	if got := r.Ask(r.HTTP("http1"), xds.ListenerType, otherVersion); got.Status != 200 || time.Since(began) < snapshot.NamesWait {
		t.Errorf("after %v: %d %s", time.Since(began), got.Status, got.Body)
	}
}
