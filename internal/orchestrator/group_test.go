package orchestrator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

const (
	cds = xds.ClusterType
	eds = xds.EndpointType
	rds = xds.RouteType
)

// One stream for a key, asking for the union; where wildcard and names meet,
// for the wildcard alone, which then speaks for the names.
func TestP50_OneStreamAsksForTheUnion(t *testing.T) {
	bubble(t, nil, func(w *world) {
		a, b := w.join("web", eds), w.join("web", eds)
		a.want("x", "y")
		b.want("y", "z")
		w.join("web", cds).want("*")
		w.join("db", eds).want("q")
		synctest.Wait()
		f := w.feed("web")
		equal(t, "streams", w.opened(), 2)
		equal(t, "asked of EDS", f.asks(eds), "x y z")
		equal(t, "asked of CDS", f.asks(cds), "*")
		equal(t, "asked for the other key", w.feed("db").asks(eds), "q")

		f.update(t, eds, false, "x=1", "y=1", "z")
		sub := subscription("x", "y", "z")
		c := w.join("web", eds).want("*")
		synctest.Wait()
		equal(t, "asked with a wildcard", f.asks(eds), "*")
		equal(t, "before the wildcard's answer", a.sees(sub, "x"), "1")
		f.update(t, eds, true, "x=2", "z=2", "other=2")
		equal(t, "x", a.sees(sub, "x"), "2")
		equal(t, "y, which the wildcard left out", a.sees(sub, "y"), "-")
		equal(t, "z, which was absent", b.sees(sub, "z"), "2")
		// What was asked by name, and comes late, is not what counts now.
		f.update(t, eds, false, "x=1")
		equal(t, "x", a.sees(sub, "x"), "2")

		c.leave()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		equal(t, "asked without the wildcard", f.asks(eds), "x y z")
		equal(t, "x, kept under its name", a.sees(sub, "x"), "2")
		equal(t, "y, of which nobody has spoken since", a.sees(sub, "y"), "?")
		equal(t, "held", f.sink.Held(eds).Len(), 2)
		// An answer to the wildcard that was on its way is nobody's.
		f.update(t, eds, true, "y=3")
		equal(t, "y", a.sees(sub, "y"), "?")
	})
}

// A client that gives up its names does not end the others' interest, and does
// not become a wildcard (xds-relay#147).
func TestP51_GivingUpNamesEndsOnesOwnInterest(t *testing.T) {
	bubble(t, nil, func(w *world) {
		a, b := w.join("web", eds).want("x", "y"), w.join("web", eds).want("y")
		synctest.Wait()
		f := w.feed("web")
		f.update(t, eds, false, "x=1", "y=1")
		a.woken()
		b.woken()
		a.want()
		equal(t, "a is woken once it is indexed", a.woken(), 1)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		equal(t, "asked", f.asks(eds), "y")
		f.update(t, eds, false, "y=2")
		equal(t, "a, which wants nothing", a.woken(), 0)
		equal(t, "b", b.woken(), 1)
		equal(t, "what nobody asked a for", a.sees(subscription(), "y"), "?")
	})
}

// One member's doings neither wake nor disturb another.
func TestP16_MembersDoNotDisturbEachOther(t *testing.T) {
	bubble(t, func(o *Options) { o.Limits.NamesPerKey = 10 }, func(w *world) {
		a := w.join("web", eds).want("a")
		synctest.Wait()
		f := w.feed("web")
		f.update(t, eds, false, "a=1")
		a.woken()
		state := a.State()

		b := w.join("web", eds).want("b")
		b.Nacked(nack("1", "bad"))
		b.want("b", "c")
		f.update(t, eds, false, "b=1")
		b.want(names("n", 11)...) // too many
		synctest.Wait()
		if b.refusal() == nil {
			t.Error("b is not ended")
		}
		b.leave()
		time.Sleep(time.Minute)
		equal(t, "a", a.woken(), 0)
		if a.refusal() != nil {
			t.Errorf("a is ended: %v", a.refusal())
		}
		if a.State().Snapshot(eds).Held("a") != state.Snapshot(eds).Held("a") {
			t.Error("a's resource is another one")
		}
	})
}

// New names go upstream merged and at once; what nobody wants stays for linger.
func TestP52_LingerThenForgotten(t *testing.T) {
	bubble(t, nil, func(w *world) {
		a := w.join("web", eds).want("x", "y")
		stay := w.join("web", cds).want("*")
		synctest.Wait()
		f := w.feed("web")
		f.update(t, eds, false, "x=1", "y=1")
		said := f.said()

		a.want("y")
		time.Sleep(9 * time.Second)
		synctest.Wait()
		equal(t, "within linger", f.asks(eds), "x y")
		// Wanted again: as if nothing had been.
		a.want("x", "y")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		equal(t, "wanted again", f.said(), said)
		// The time runs from the last time that it was given up.
		a.want("y")
		time.Sleep(9 * time.Second)
		a.want("x", "y")
		time.Sleep(100 * time.Millisecond)
		a.want("y")
		time.Sleep(9 * time.Second)
		synctest.Wait()
		equal(t, "given up again", f.said(), said)
		time.Sleep(time.Second)
		synctest.Wait()
		equal(t, "after linger", f.asks(eds), "y")
		if f.sink.Held(eds).Known("x") {
			t.Error("x is still known")
		}

		stay.want()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		equal(t, "the wildcard within linger", f.asks(cds), "*")
		time.Sleep(time.Second)
		synctest.Wait()
		equal(t, "the wildcard after linger", f.asks(cds), "")
	})
}

func TestP52_NewNamesAreMerged(t *testing.T) {
	w := newWorld(t, options(t))
	g, _ := w.manual(eds)
	var clients []*client
	for _, name := range names("n", 50) {
		c, m := w.member(g, eds)
		clients = append(clients, c)
		g.post(m, func(l *letter) { l.sub = g.interned.get(subscription(name)) })
	}
	g.step(time.Now())
	equal(t, "told the origin", w.feeds[0].said(), 1)
	equal(t, "asked", w.feeds[0].asks(eds), strings.Join(names("n", 50), " "))
	for _, c := range clients {
		equal(t, "woken", c.wakes, 1)
	}
}

// A type that nobody wants any more leaves no trace, and a new one begins anew.
func TestP65_ForgottenAtOnce(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.join("web", cds).want("*")
		a := w.join("web", eds).want("x", "*")
		synctest.Wait()
		f := w.feed("web")
		f.update(t, cds, true, "c=1")
		f.update(t, eds, true, "x=1", "y=1")
		a.leave()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		equal(t, "asked", f.asks(eds), "")
		if s := f.sink.Held(eds); s != nil {
			t.Errorf("%d resources are held", s.Len())
		}
		st, _ := w.reg.Key(xds.NewKey("web"))
		equal(t, "types", len(st.Types), 1)
		// A response that was on its way.
		f.update(t, eds, true, "x=1")
		b := w.join("web", eds).want("x")
		equal(t, "x", b.sees(subscription("x"), "x"), "?")
		f.update(t, eds, true, "x=1", "y=1")
		f.update(t, eds, false, "x=2", "y=2", "z")
		equal(t, "x", b.sees(subscription("x"), "x"), "2")
		equal(t, "unasked", f.sink.Held(eds).Len(), 1)
		if f.sink.Held(eds).Known("z") {
			t.Error("an absence is known that nobody asked about")
		}
	})
}

// A late joiner is served from what is held, without a word to the origin, also
// when the origin is away.
func TestP53_LateJoinerIsServedFromWhatIsHeld(t *testing.T) {
	bubble(t, nil, func(w *world) {
		a := w.join("web", eds).want("x", "y")
		synctest.Wait()
		f := w.feed("web")
		f.sink.Status(upstream.Status{Connected: true, Origin: "origin"})
		f.update(t, eds, false, "x=1", "y=1")
		f.sink.Status(upstream.Status{Origin: "origin", Failed: true, Err: errors.New("refused"), Attempts: 3})
		time.Sleep(time.Hour)
		said := f.said()
		b, err := w.try("web", eds)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "before it asked", b.State().Snapshot(eds).Len(), 2)
		b.want("x")
		equal(t, "woken once indexed", b.woken(), 1)
		equal(t, "x", b.sees(subscription("x"), "x"), "1")
		equal(t, "told the origin", f.said(), said)
		if a.refusal() != nil || b.refusal() != nil {
			t.Error("a stream was ended, though something is held")
		}
		equal(t, "state", b.State(), a.State())
	})
}

// For want of an origin streams end only if nothing is held and it cannot be
// reached; joins are refused while that lasts.
func TestP53_NothingHeldAndUnreachable(t *testing.T) {
	bubble(t, nil, func(w *world) {
		a := w.join("web", eds).want("x")
		other := w.join("db", eds).want("x")
		synctest.Wait()
		f := w.feed("web")
		f.sink.Status(upstream.Status{Origin: "origin", Failed: true, Err: errors.New("connection refused"), Attempts: 1})
		r := a.refusal()
		if r == nil {
			t.Fatal("the stream was not ended")
		}
		equal(t, "code", r.Code, codes.Unavailable)
		equal(t, "reason", r.Reason, telemetry.OriginUnreachable)
		if !strings.Contains(r.Error(), "connection refused") || !strings.Contains(r.Error(), "web") {
			t.Errorf("message: %s", r.Error())
		}
		if other.refusal() != nil {
			t.Error("the other key's stream was ended as well")
		}
		if _, err := w.try("web", cds); err == nil || !errors.Is(err, r) {
			t.Errorf("join: %v", err)
		}
		a.leave()
		if _, err := w.try("web", eds); err == nil {
			t.Error("a join is not refused once all have left")
		}
		f.sink.Status(upstream.Status{Connected: true, Origin: "origin"})
		synctest.Wait()
		b := w.join("web", eds).want("x")
		f.update(t, eds, false, "x=1")
		equal(t, "x", b.sees(subscription("x"), "x"), "1")
	})
}

func TestP53_NoStreamWithinFirstAnswerTimeout(t *testing.T) {
	bubble(t, nil, func(w *world) {
		idle := w.join("quiet", eds)
		a := w.join("web", eds).want("x")
		time.Sleep(15*time.Second - 1)
		if a.refusal() != nil {
			t.Error("ended too early")
		}
		time.Sleep(time.Nanosecond)
		if r := a.refusal(); r == nil || r.Reason != telemetry.OriginUnreachable {
			t.Errorf("refusal: %v", r)
		}
		if idle.refusal() != nil {
			t.Error("a client that wants nothing was ended")
		}
	})
}

// An origin that is silent on an open stream ends nothing.
func TestP53_SilenceEndsNothing(t *testing.T) {
	bubble(t, nil, func(w *world) {
		a := w.join("web", eds).want("x")
		w.feed("web").sink.Status(upstream.Status{Connected: true})
		time.Sleep(time.Hour)
		if a.refusal() != nil {
			t.Error("ended by silence")
		}
		// Nor does a stream that is opened again at once.
		w.feed("web").sink.Status(upstream.Status{Err: errors.New("EOF")})
		synctest.Wait()
		w.feed("web").sink.Status(upstream.Status{Connected: true})
		time.Sleep(time.Hour)
		if a.refusal() != nil {
			t.Error("ended by a reconnect")
		}
		w.join("web", eds).want("x")
	})
}

// An empty answer is something that is held.
func TestP53_AnEmptyAnswerIsHeld(t *testing.T) {
	bubble(t, nil, func(w *world) {
		a := w.join("web", cds).want("*")
		f := w.feed("web")
		f.sink.Status(upstream.Status{Connected: true})
		f.update(t, cds, true)
		f.sink.Status(upstream.Status{Failed: true})
		time.Sleep(time.Minute)
		if a.refusal() != nil {
			t.Error("ended, though the origin had said that there is nothing")
		}
	})
}

// A stream that ends for good leaves what is held, and refuses where nothing is.
func TestP53_StreamEndedForGood(t *testing.T) {
	bubble(t, nil, func(w *world) {
		a, b := w.join("held", eds).want("x"), w.join("bare", eds).want("x")
		w.feed("held").update(t, eds, false, "x=1")
		w.feed("held").fail <- errors.New("broken")
		w.feed("bare").fail <- errors.New("broken")
		if a.refusal() != nil {
			t.Error("ended, though something is held")
		}
		if r := b.refusal(); r == nil || !strings.Contains(r.Error(), "broken") {
			t.Errorf("refusal: %v", r)
		}
	})
}

// The node sent upstream is the first client's, with the relay's own features,
// for as long as the key lives.
func TestP58_RepresentativeNode(t *testing.T) {
	bubble(t, nil, func(w *world) {
		first := &corev3.Node{
			Id: "first", Cluster: "web", UserAgentName: "envoy",
			ClientFeatures: []string{"envoy.lb.does_not_support_overprovisioning", xds.FeatureTTL},
		}
		a, err := w.tryNode(first, "10.0.0.1", eds)
		if err != nil {
			t.Fatal(err)
		}
		var got corev3.Node
		if err := proto.Unmarshal(w.feed("web").node, &got); err != nil {
			t.Fatal(err)
		}
		first.ClientFeatures = []string{xds.FeatureSotWResource}
		if !proto.Equal(&got, first) {
			t.Errorf("node %v, want %v", &got, first)
		}
		b, err := w.tryNode(&corev3.Node{Id: "second", Cluster: "web", UserAgentName: "gRPC Go"}, "10.0.0.2", eds)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		st, _ := w.reg.Key(xds.NewKey("web"))
		equal(t, "unlike", st.OtherUserAgents, 1)
		equal(t, "representative", st.Node, "first")
		a.leave()
		equal(t, "streams", w.opened(), 1)
		st, _ = w.reg.Key(xds.NewKey("web"))
		equal(t, "representative once it left", st.Node, "first")
		b.leave()
		st, _ = w.reg.Key(xds.NewKey("web"))
		equal(t, "unlike once it left", st.OtherUserAgents, 0)
	})
}

func TestP58_NodeByConfiguration(t *testing.T) {
	fail := false
	bubble(t, func(o *Options) {
		o.Node = func(n *xds.Node) ([]byte, error) {
			if fail {
				return nil, errors.New("no such key: zone")
			}
			return proto.Marshal(&corev3.Node{Id: "relay", Cluster: n.Cluster})
		}
	}, func(w *world) {
		w.join("web", eds)
		var got corev3.Node
		if err := proto.Unmarshal(w.feed("web").node, &got); err != nil {
			t.Fatal(err)
		}
		equal(t, "id", got.Id, "relay")
		equal(t, "cluster", got.Cluster, "web")
		fail = true
		w.join("web", eds) // the key has its node
		_, err := w.try("db", eds)
		if r := refusalOf(t, err); r.Reason != telemetry.KeyError || !strings.Contains(r.Error(), "no such key: zone") {
			t.Errorf("refusal: %v", r)
		}
		equal(t, "streams", w.opened(), 1)
	})
}

// A member is moved to another track and back; members of the first see what
// they saw, and only they are woken by what is published there.
func TestTracks(t *testing.T) {
	bubble(t, nil, func(w *world) {
		a, b := w.join("web", eds).want("x"), w.join("web", eds).want("x")
		synctest.Wait()
		f, g := w.feed("web"), a.of().group
		f.update(t, eds, false, "x=1")
		old := pin(a.State())
		f.update(t, eds, false, "x=2")
		a.woken()
		b.woken()
		sub := subscription("x")

		g.move(b.of(), old)
		equal(t, "b back", b.sees(sub, "x"), "1")
		equal(t, "b is woken by the move", b.woken(), 1)
		equal(t, "a", a.sees(sub, "x"), "2")
		equal(t, "a is not", a.woken(), 0)
		back := b.State().Snapshot(eds).Changes(a.State().Snapshot(eds), sub)
		equal(t, "the way back", strings.Join(back, " "), "x")

		f.update(t, eds, false, "x=3")
		equal(t, "b stays", b.sees(sub, "x"), "1")
		equal(t, "b is not woken", b.woken(), 0)
		equal(t, "a goes on", a.sees(sub, "x"), "3")
		equal(t, "a is woken", a.woken(), 1)
		equal(t, "when the State is there", a.saw, a.State().Gen)

		g.move(b.of(), g.stable)
		equal(t, "b forward", b.sees(sub, "x"), "3")
		equal(t, "b is woken by the move", b.woken(), 1)
		f.update(t, eds, false, "x=4")
		equal(t, "b is woken again", b.woken(), 1)

		// A track that is shown another State wakes its own.
		g.move(a.of(), old)
		synctest.Wait()
		a.woken()
		c := w.join("web", eds).want("y")
		g.move(c.of(), old)
		c.woken()
		g.show(old, g.stable.state.Load()) // its goroutine waits
		equal(t, "a", a.woken(), 1)
		equal(t, "b, on the other track", b.woken(), 0)
		equal(t, "c, which wants something else", c.woken(), 0)
	})
}

// A State holds all types, and its generation counts what was published.
func TestStateGenerations(t *testing.T) {
	bubble(t, nil, func(w *world) {
		a, b := w.join("web", cds).want("*"), w.join("web", eds).want("x")
		synctest.Wait()
		if a.State() != nil {
			t.Error("a State before anything is known")
		}
		f := w.feed("web")
		f.update(t, cds, true, "c=1")
		f.update(t, eds, false, "x=1")
		s := b.State()
		equal(t, "same State", a.State(), s)
		equal(t, "generation", s.Gen, 2)
		equal(t, "CDS since", s.Snapshot(cds).StateGen, 1)
		equal(t, "EDS since", s.Snapshot(eds).StateGen, 2)
		a.woken()
		b.woken()

		// A version alone is news for nobody, but it is shown.
		f.hand(t, xds.Update{Type: eds, Origin: "origin", Version: "v7"})
		equal(t, "version", b.State().Snapshot(eds).Version, "v7")
		equal(t, "a", a.woken(), 0)
		equal(t, "b", b.woken(), 0)
		// What is equal to what is held makes no State at all.
		s = b.State()
		f.hand(t, xds.Update{Type: eds, Origin: "origin", Version: "v7", Changed: []*xds.Resource{s.Snapshot(eds).Held("x")}})
		equal(t, "nothing new", b.State(), s)
	})
}

// An answer that flips wakes everyone, also when it is empty (P11), and those
// who learn by it that a name is absent.
func TestP11_FirstAnswerWakesEvenIfEmpty(t *testing.T) {
	bubble(t, nil, func(w *world) {
		a, b, c := w.join("web", cds).want("*"), w.join("web", cds).want("x"), w.join("web", cds).want()
		for _, c := range []*client{a, b, c} {
			c.woken()
		}
		w.feed("web").update(t, cds, true)
		equal(t, "wildcard", a.woken(), 1)
		equal(t, "by name", b.woken(), 1)
		equal(t, "nothing", c.woken(), 0)
		equal(t, "x", b.sees(subscription("x"), "x"), "-")
		w.feed("web").update(t, cds, true)
		equal(t, "wildcard, the second time", a.woken(), 0)
	})
}

// With settle, changes wait for more, but first answers do not; what is applied
// is held at once.
func TestSettle(t *testing.T) {
	bubble(t, func(o *Options) { o.Settle = time.Second }, func(w *world) {
		a := w.join("web", eds).want("x", "y", "z")
		f, sub := w.feed("web"), subscription("x", "y", "z")
		f.update(t, eds, false, "x=1")
		equal(t, "the first answer", a.sees(sub, "x"), "1")
		f.update(t, eds, false, "y=1")
		equal(t, "a name first known", a.sees(sub, "y"), "1")
		a.woken()

		f.update(t, eds, false, "x=2")
		time.Sleep(600 * time.Millisecond)
		f.update(t, eds, false, "y=2")
		equal(t, "held", content(f.sink.Held(eds).Held("y")), "2")
		equal(t, "before it settled", a.sees(sub, "x")+a.sees(sub, "y"), "11")
		equal(t, "woken before", a.woken(), 0)
		time.Sleep(400 * time.Millisecond) // from the first change
		equal(t, "settled", a.sees(sub, "x")+a.sees(sub, "y"), "22")
		equal(t, "woken once", a.woken(), 1)

		// There and back again within the time is no change.
		f.update(t, eds, false, "x=3")
		f.update(t, eds, false, "x=2")
		time.Sleep(2 * time.Second)
		equal(t, "there and back", a.woken(), 0)

		// A first answer takes along what waits.
		f.update(t, eds, false, "x=4")
		f.update(t, eds, false, "z")
		equal(t, "taken along", a.sees(sub, "x")+a.sees(sub, "z"), "4-")
	})
}

// An Update whose group is over does not wait for ever.
func TestUpdateOfAGroupThatIsOver(t *testing.T) {
	bubble(t, func(o *Options) { o.IdleTTL = 0 }, func(w *world) {
		a := w.join("web", eds).want("x")
		f := w.feed("web")
		a.leave()
		if f.alive() {
			t.Error("the stream still runs")
		}
		if err := f.sink.Update(context.Background(), xds.Update{Type: eds}); !errors.Is(err, errOver) {
			t.Errorf("Update: %v", err)
		}
	})
}

// The mailbox has a member once, whatever it does, and the last word counts.
func TestMailboxIsBounded(t *testing.T) {
	w := newWorld(t, options(t))
	g, _ := w.manual(eds)
	c, m := w.member(g, eds)
	for i := range 1000 {
		m.Subscribe(m.Intern(subscription(names("n", 1000)[i])))
	}
	equal(t, "mail", len(g.mail.queue), 1)
	g.step(time.Now())
	equal(t, "woken", c.wakes, 1)
	equal(t, "asked", w.feeds[0].asks(eds), "n-000999")
	equal(t, "indexed", strings.Join(slices.Collect(g.views[0].names.All()), " "), "n-000999")
}
