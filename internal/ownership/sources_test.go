package ownership

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"xdsrelay/internal/cluster"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeCluster has the members of a list as candidates, in its order.
type fakeCluster struct {
	mu      sync.Mutex
	members []cluster.Member
	changed chan struct{}
}

func (c *fakeCluster) Candidates(xds.Key) (out []*cluster.Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.members {
		if m := &c.members[i]; m.State == telemetry.MemberAlive {
			out = append(out, m)
		}
	}
	return out
}
func (c *fakeCluster) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *fakeCluster) Members() []cluster.Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members
}

// set makes these the members, the best first. "me" is this relay, and "-x" a member that is dead.
func (c *fakeCluster) set(names string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
	c.members = nil
	for _, name := range strings.Fields(names) {
		m := cluster.Member{Name: name, Address: name + ":1", Self: name == "me", State: telemetry.MemberAlive}
		if dead, ok := strings.CutPrefix(name, "-"); ok {
			m.Name, m.Address, m.State = dead, dead+":1", telemetry.MemberDead
		}
		c.members = append(c.members, m)
	}
}

type fixture struct {
	*Table
	cluster *fakeCluster
	client  *upstream.Client
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{cluster: &fakeCluster{changed: make(chan struct{})}}
	f.Table = New(Options{Cluster: f.cluster, Compat: func() string { return "c1" }, Credentials: insecure.NewCredentials()})
	var err error
	f.client, err = upstream.New(upstream.Options{Origins: []upstream.OriginOptions{{Name: "o1", Address: "o1:1"}, {Name: "o2", Address: "o2:1"}}, Order: f.Order})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) set(names string) {
	f.cluster.set(names)
	f.refresh(true)
}

// refresh looks at the members, and starts nothing.
func (f *fixture) refresh(changed bool) {
	_ = f.update(f.client, func(o *upstream.Origin) *member { return &member{o, func() {}} }, changed)
}

var key = xds.NewKey("a", "key")

func (f *fixture) want(t *testing.T, want string) {
	t.Helper()
	order, _ := f.Origins(key)
	var got []string
	for _, o := range order {
		got = append(got, o.Name)
	}
	if strings.Join(got, " ") != want {
		t.Errorf("order %v, want %s", got, want)
	}
}

func TestOrder(t *testing.T) {
	f := newFixture(t)
	f.want(t, "o1 o2")
	for _, c := range []struct{ candidates, order string }{
		{"me", "o1 o2"},
		{"me b c", "o1 o2 b"},
		{"b me c", "b o1 o2"},
		{"b c me", "b c o1 o2"},
		{"b c", "b c o1 o2"}, // this relay is not ready
		{"-b me c", "o1 o2 c"},
	} {
		f.set(c.candidates)
		f.want(t, c.order)
	}
}

// A key that is served to a member is asked for at origins only, until the last such stream ends. Its
// order, and no other key's, is announced.
func TestServedKeys(t *testing.T) {
	f := newFixture(t)
	f.set("b c me")
	_, changed := f.Origins(key)
	_, other := f.Origins(xds.NewKey("other"))
	j := f.Joiner(registry{})
	refused := j.Join(subscriber.Info{Key: key})
	if _, err := refused.Subscribe(xds.SecretType, nil); err == nil {
		t.Fatal("not refused")
	}
	f.want(t, "b c o1 o2")
	if closed(changed) {
		t.Error("a member that is refused announces the order")
	}
	one, two := j.Join(subscriber.Info{Key: key}), j.Join(subscriber.Info{Key: key})
	for _, c := range []subscriber.Client{one, two} {
		if _, err := c.Subscribe(xds.ClusterType, nil); err != nil {
			t.Fatal(err)
		}
	}
	if !closed(changed) || closed(other) {
		t.Error("the key's order was not announced, or another key's was")
	}
	f.want(t, "o1 o2")
	one.Leave()
	one.Leave()
	f.want(t, "o1 o2")
	_, changed = f.Origins(key)
	two.Leave()
	if !closed(changed) {
		t.Error("the key's order was not announced at the end")
	}
	f.want(t, "b c o1 o2")
}

// registry is a Joiner whose clients do nothing.
type registry struct{ subscriber.Joiner }

func (registry) Join(subscriber.Info) subscriber.Client { return nobody{} }

type nobody struct{ subscriber.Client }

func (nobody) Leave() {}

func (nobody) Subscribe(typ xds.TypeURL, _ subscriber.Waker) (subscriber.Subscriber, error) {
	if typ == xds.SecretType {
		return nil, errors.New("refused")
	}
	return nil, nil
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A change of the cluster announces the order of all keys. A periodic look announces nothing.
func TestChangesAreAnnounced(t *testing.T) {
	f := newFixture(t)
	f.set("b me")
	_, changed := f.Origins(key)
	f.refresh(false)
	if closed(changed) {
		t.Error("announced without a change")
	}
	f.set("c me")
	if !closed(changed) {
		t.Error("not announced")
	}
	f.want(t, "c o1 o2")
}

// A change is announced also if it comes at the same time as the tick.
func TestChangesAtTheTick(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			ctx, end := context.WithCancel(t.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer end()
			var changed <-chan struct{}
			for range 10 { // one of them may come between the tick and what Run does then
				running.Go(func() {
					time.Sleep(removeEvery)
					f.cluster.set("-b me")
				})
			}
			running.Go(func() { _ = f.Run(ctx, f.client, slog.Default()) }) // it returns nil
			time.Sleep(removeEvery - 1)
			_, changed = f.Origins(key)
			time.Sleep(time.Second)
			if !closed(changed) {
				t.Fatal("a change of the members was not announced")
			}
		})
	}
}

// A member that returns with another address is another origin, and the old one is removed.
func TestMembersReturn(t *testing.T) {
	f := newFixture(t)
	f.set("b me")
	before, _ := f.Origins(key)
	f.cluster.members[0].Address = "other:1"
	f.refresh(true)
	after, _ := f.Origins(key)
	if before[0] == after[0] || after[0].Address != "other:1" || len(f.members) != 1 {
		t.Errorf("%s became %s; %d members", before[0].Address, after[0].Address, len(f.members))
	}
}

func TestRelayKey(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct {
		key, compat string
		want        codes.Code
	}{
		{key.String(), "c1", codes.OK},
		{key.String(), "c2", codes.FailedPrecondition},
		{"", "c1", codes.InvalidArgument},
		{`"`, "c1", codes.InvalidArgument},
	} {
		got, refused := f.RelayKey(metadata.Pairs(keyHeader, c.key, compatHeader, c.compat))
		switch {
		case c.want == codes.OK && (refused != nil || got != key):
			t.Errorf("%+v: %s, %v", c, got, refused)
		case c.want != codes.OK && (refused == nil || refused.Code != c.want):
			t.Errorf("%+v: %v", c, refused)
		}
	}
}

// The metadata of a stream to a member is what that member's RelayKey reads.
func TestMetadataOfAMember(t *testing.T) {
	f := newFixture(t)
	f.set("b me")
	order, _ := f.Origins(key)
	as, err := order[0].Identify(key)
	if err != nil {
		t.Fatal(err)
	}
	got, refused := f.RelayKey(as.Metadata)
	if refused != nil || got != key {
		t.Errorf("%s, %v", got, refused)
	}
	if !slices.Equal(as.Metadata.Get(compatHeader), []string{"c1"}) {
		t.Error("no compat")
	}
}
