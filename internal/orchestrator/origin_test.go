package orchestrator

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// A late joiner is served held resources, without a request to the origin, even when the origin is
// away.
func TestP53_LateJoinerIsServedHeldResources(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a := w.join("web", eds).want("x", "y")
		synctest.Wait()
		f := w.feed("web")
		f.sink.Status(upstream.Status{Connected: true, Origin: "origin"})
		f.update(t, eds, false, "x=1", "y=1")
		f.sink.Status(upstream.Status{Origin: "origin", Failed: true, Err: errors.New("refused")})
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

// A failed attempt concerns only clients that want what it carried. If nothing is carried because
// the origin ends each stream with it, its clients wait (P68).
func TestP53_FailedAttemptConcernsItsTypes(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a := w.join("web", eds).want("x")
		b := w.join("web", cds).want("*")
		both := w.join("web", eds).want("x", "y")
		synctest.Wait()
		f := w.feed("web")
		carried := &snapshot.Interest{Types: []snapshot.TypeInterest{{Type: eds, Names: xds.NewNameSet("x")}}}
		f.sink.Status(upstream.Status{Origin: "origin", Failed: true, Err: errors.New("ended"), Carried: carried})
		synctest.Wait()
		if r := a.refusal(); r == nil || strings.Contains(r.Error(), "can be reached") {
			t.Errorf("refusal: %v", r)
		}
		if b.refusal() != nil || both.refusal() != nil {
			t.Error("a client is refused although the attempt did not carry all that it wants")
		}
	})
	bubble(t, nil, func(w *registryFixture) {
		a := w.join("web", eds).want("x")
		synctest.Wait()
		w.feed("web").excluding.Store(true)
		pass(time.Minute)
		if r := a.refusal(); r != nil {
			t.Errorf("refusal: %v", r)
		}
	})
}

// Streams end only if no origin is reachable and nothing is held. While that lasts, joins are
// refused.
func TestP53_NothingHeldAndUnreachable(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a := w.join("web", eds).want("x")
		other := w.join("db", eds).want("x")
		synctest.Wait()
		f := w.feed("web")
		f.sink.Status(upstream.Status{Origin: "origin", Failed: true, Err: errors.New("connection refused")})
		r := a.refusal()
		if r == nil {
			t.Fatal("the stream was not ended")
		}
		equal(t, "code", r.Code, codes.Unavailable)
		equal(t, "reason", r.Reason, telemetry.OriginUnreachable)
		if !strings.Contains(r.Error(), "origin origin: connection refused") || !strings.Contains(r.Error(), "web") {
			t.Errorf("message: %s", r.Error())
		}
		equal(t, "key that is why", r.Key, "web")
		if other.refusal() != nil {
			t.Error("the other key's stream was ended as well")
		}
		if late := w.join("web", cds).want("*").refusal(); !errors.Is(late, r) {
			t.Errorf("the refusal of a later client: %v", late)
		}
		a.leave()
		if w.join("web", eds).want("x").refusal() == nil {
			t.Error("a client that joins after all have left is not refused")
		}
		f.sink.Status(upstream.Status{Connected: true, Origin: "origin"})
		f.update(t, eds, false, "x=1")
		b := w.join("web", eds).want("x")
		equal(t, "x", b.sees(subscription("x"), "x"), "1")
	})
}

// The reason why an origin is away is logged once. If the origin's line has it, the line about
// clients does not repeat it. The clients' refusals do.
func TestReasonOfAnAwayOriginIsLoggedOnce(t *testing.T) {
	for _, told := range []bool{false, true} {
		var log strings.Builder
		edit := func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) }
		bubble(t, edit, func(w *registryFixture) {
			a := w.join("web", eds).want("x")
			synctest.Wait()
			w.feed("web").sink.Status(upstream.Status{Failed: true, Origin: "o", Err: errors.New("connection refused"), Logged: told})
			synctest.Wait()
			if r := a.refusal(); r == nil || !strings.Contains(r.Error(), "connection refused") {
				t.Errorf("refused with %v", r)
			}
		})
		if text := log.String(); strings.Contains(text, "connection refused") == told || !strings.Contains(text, "the relay has none of the requested resources") || !strings.Contains(text, "origin=o") {
			t.Errorf("told %v: %s", told, text)
		}
	}
}

// A refusal has the reason of the newest attempt, and is made once per attempt.
func TestP53_RefusalHasTheNewestReason(t *testing.T) {
	w := newRegistryFixture(t, options(t))
	g, _ := w.manual(eds)
	_, m := w.subscriber(g, eds)
	m.Request(m.Intern(subscription("x")))
	now := time.Now()
	says := func(why string) *refusal.Refusal {
		t.Helper()
		g.step(now)
		r := g.refusal.Load()
		if r == nil || !strings.Contains(r.Error(), why) {
			t.Fatalf("refusal %v, want %s", r, why)
		}
		return r
	}
	g.firstUpstream().Status(upstream.Status{Failed: true, Err: errors.New("first")})
	r := says("first")
	now = now.Add(time.Minute)
	equal(t, "refusal, nothing new being known", says("first"), r)
	g.firstUpstream().Status(upstream.Status{Failed: true, Err: errors.New("first")})
	equal(t, "refusal, the failure being the same", says("first"), r)
	g.firstUpstream().Status(upstream.Status{Failed: true, Err: errors.New("second")})
	says("second")
}

// A subscriber that joined just before is ended as well, once the group has added it.
func TestP53_MemberOnItsWay(t *testing.T) {
	w := newRegistryFixture(t, options(t))
	g, _ := w.manual(eds)
	a, m := w.subscriber(g, eds)
	m.Request(m.Intern(subscription("x")))
	g.step(time.Now())
	b, late := w.subscriber(g, cds)
	g.firstUpstream().Status(upstream.Status{Failed: true})
	g.step(time.Now())
	late.Request(late.Intern(subscription("*")))
	g.step(time.Now())
	if a.ended == nil || b.ended == nil {
		t.Errorf("ended: %v and %v", a.ended, b.ended)
	}
}

func TestP53_NoStreamWithinFirstAnswerTimeout(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
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
			t.Error("a client without a subscription was ended")
		}
	})
}

// Silence of an origin on an open stream ends no client's stream.
func TestP53_SilenceEndsNothing(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a := w.join("web", eds).want("x")
		w.feed("web").sink.Status(upstream.Status{Connected: true})
		time.Sleep(time.Hour)
		if a.refusal() != nil {
			t.Error("ended by silence")
		}
		// A stream that is reopened at once ends none either.
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

// An empty answer counts as held.
func TestP53_EmptyAnswerIsHeld(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a := w.join("web", cds).want("*")
		f := w.feed("web")
		f.sink.Status(upstream.Status{Connected: true})
		f.update(t, cds, true)
		f.sink.Status(upstream.Status{Failed: true})
		time.Sleep(time.Minute)
		if a.refusal() != nil {
			t.Error("ended, though the origin had answered that there is nothing")
		}
	})
}

// An origin's statement that a name does not exist counts as held too.
func TestP53_AbsenceIsHeld(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		join := func(key string, us ...snapshot.Update) *testClient {
			a := w.join(key, eds).want("x", "y")
			w.feed(key).sink.Status(upstream.Status{Connected: true})
			for _, u := range us {
				w.feed(key).hand(t, u)
			}
			w.feed(key).sink.Status(upstream.Status{Failed: true})
			return a
		}
		stated := snapshot.Update{Type: eds, Removed: []string{"x"}}
		a, b := join("stated", stated), join("silent")
		if r := a.refusal(); r != nil {
			t.Errorf("ended, though the origin had stated that x does not exist: %v", r)
		}
		late := w.join("stated", eds).want("x")
		equal(t, "x for a late joiner", late.sees(subscription("x"), "x"), "-")
		late.leave()
		if b.refusal() == nil {
			t.Error("not ended, though the origin never answered")
		}
		// Once it is not wanted any more, it is no longer held.
		a.want("y")
		time.Sleep(10 * time.Second)
		if a.refusal() == nil {
			t.Error("not ended, though nothing that it wants is held")
		}
	})
}

// If the upstream stream ends for good, held resources stay, and clients without any are refused.
func TestP53_StreamEndedForGood(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
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

// The node sent upstream is the first client's, with the relay's own features, for as long as the
// key lives.
func TestP58_RepresentativeNode(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		first := &corev3.Node{
			Id: "first", Cluster: "web", UserAgentName: "envoy",
			ClientFeatures: []string{"envoy.lb.does_not_support_overprovisioning", "xds.config.resource-in-sotw"},
		}
		a, err := w.tryNode(first, "10.0.0.1", eds)
		if err != nil {
			t.Fatal(err)
		}
		var got corev3.Node
		if err := proto.Unmarshal(w.feed("web").node, &got); err != nil {
			t.Fatal(err)
		}
		first.ClientFeatures = []string{"xds.config.supports-resource-in-sotw", "xds.config.supports-resource-ttl"}
		if !proto.Equal(&got, first) {
			t.Errorf("node %v, want %v", &got, first)
		}
		b, err := w.tryNode(&corev3.Node{Id: "second", Cluster: "web", UserAgentName: "gRPC Go"}, "10.0.0.2", eds)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		st := w.status("web")
		equal(t, "unlike", st.OtherUserAgents, 1)
		equal(t, "names", st.Mixed.Names, [2]string{"envoy", "gRPC Go"})
		equal(t, "mixed keys", w.reg.opts.Metrics.MixedUserAgentKeys.Value(), 1)
		equal(t, "representative", st.Node.ID, "first")
		a.leave()
		equal(t, "streams", w.opened(), 1)
		st = w.status("web")
		equal(t, "representative once it left", st.Node.ID, "first")
		b.leave()
		st = w.status("web")
		equal(t, "unlike once it left", st.OtherUserAgents, 0)
		equal(t, "mixed keys once it left", w.reg.opts.Metrics.MixedUserAgentKeys.Value(), 0)
	})
}

// If the representative leaves before any stream was answered, a connected client replaces it: once
// in the time for a first answer.
func TestP58_RepresentativeThatLeftUnanswered(t *testing.T) {
	for name, answered := range map[string]bool{"never answered": false, "answered once": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(w *registryFixture) {
				join := func(id string) *testClient {
					c, err := w.tryNode(&corev3.Node{Id: id, Cluster: "web", UserAgentName: "envoy " + id}, "10.0.0.1", eds)
					if err != nil {
						t.Fatal(err)
					}
					return c.want("a")
				}
				sent := func() (id string) {
					synctest.Wait()
					return xds.NodeIDOf(w.feed("web").node)
				}
				odd := join("odd")
				pass(0)
				old := w.feed("web")
				w.feed("web").sink.Status(upstream.Status{Connected: true, Origin: "origin"})
				if answered {
					old.update(t, eds, false, "a=1")
				}
				b := join("b")
				odd.leave()
				pass(14 * time.Second)
				equal(t, "node in time", sent(), "odd")
				pass(2 * time.Second)
				if answered {
					equal(t, "node", sent(), "odd")
					equal(t, "streams", w.opened(), 1)
					return
				}
				equal(t, "node", sent(), "b")
				equal(t, "representative", w.status("web").Node.ID, "b")
				equal(t, "requested", w.feed("web").requested(eds), "a")
				equal(t, "mixed user agents", w.reg.opts.Metrics.MixedUserAgentKeys.Value(), 0)
				equal(t, "the old stream", old.over(), true)
				// The next one waits as long.
				c := join("c")
				b.leave()
				pass(10 * time.Second)
				equal(t, "node", sent(), "b")
				pass(6 * time.Second)
				equal(t, "node", sent(), "c")
				w.feed("web").sink.Status(upstream.Status{Connected: true, Origin: "origin"})
				w.feed("web").update(t, eds, false, "a=1")
				equal(t, "a", c.sees(subscription("a"), "a"), "1")
				c.leave()
				join("d")
				pass(time.Minute)
				equal(t, "node", sent(), "c")
				equal(t, "streams", w.opened(), 3)
			})
		})
	}
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
	}, func(w *registryFixture) {
		w.join("web", eds)
		var got corev3.Node
		if err := proto.Unmarshal(w.feed("web").node, &got); err != nil {
			t.Fatal(err)
		}
		equal(t, "id", got.Id, "relay")
		equal(t, "cluster", got.Cluster, "web")
		fail = true
		w.join("web", eds) // the key keeps its node
		_, err := w.try("db", eds)
		if r := refusalOf(t, err); r.Reason != telemetry.KeyError || !strings.Contains(r.Error(), "no such key: zone") {
			t.Errorf("refusal: %v", r)
		}
		equal(t, "streams", w.opened(), 1)
	})
}
