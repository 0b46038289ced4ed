package orchestrator

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

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

func TestP53_NoStreamWithinFirstAnswerTimeout(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		idle := w.join("quiet", eds)
		a, silent := w.join("web", eds).want("x"), w.join("silent", eds).want("x")
		connect(w.feed("silent"))
		time.Sleep(15*time.Second - 1)
		equal(t, "ended early", a.refusal(), nil)
		time.Sleep(time.Nanosecond)
		if r := a.refusal(); r == nil || r.Reason != telemetry.OriginUnreachable {
			t.Errorf("refusal: %v", r)
		}
		time.Sleep(time.Hour)
		w.feed("silent").sink.Status(upstream.Status{Err: errors.New("EOF")}) // and is opened again at once
		equal(t, "ended by silence", silent.refusal(), nil)
		equal(t, "a client without a subscription", idle.refusal(), nil)
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
