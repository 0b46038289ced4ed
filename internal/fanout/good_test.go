package fanout

import (
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"xdsrelay/internal/xds"
)

// ledger is a world with a record of what is good.
type ledger struct {
	*world
	good  xds.Good
	acked bool
}

func eachLedger(t *testing.T, url xds.TypeURL, f func(*ledger)) {
	each(t, url, func(w *world) { f(&ledger{world: w}) })
}

// takes and refuses answer the newest response, and report whether something else
// is good by it.
func (l *ledger) takes(names ...string) bool {
	l.t.Helper()
	return l.answered(l.send(request{names: l.list(names), ack: -1}))
}

func (l *ledger) refuses(names ...string) bool {
	l.t.Helper()
	return l.answered(l.send(request{names: l.list(names), nack: -1}))
}

func (l *ledger) answered(out Outcome) bool {
	if out.Verdict != Acked {
		return false
	}
	g := l.s.improves(&l.good, out.answered, !l.acked)
	l.acked = true
	return g.in != nil && g.note()
}

// kept fails unless this is good: "a" by name, "*a" by the wildcard, and "all" if
// the wildcard's are all of an answer.
func (l *ledger) kept(want string) {
	l.t.Helper()
	took, all := l.good.Collect(l.cur, false, l.now)
	var got []string
	for _, t := range took {
		s := l.describe(t.Resource)
		if t.Wild {
			s = "*" + s
		}
		got = append(got, s)
	}
	slices.Sort(got)
	if all {
		got = append(got, "all")
	}
	if s := strings.Join(got, " "); s != want {
		l.t.Fatalf("kept %q, want %q", s, want)
	}
}

// What is kept for when the origin is away is what a client took, not what it was
// sent, nor what it refused.
func TestP53_GoodIsWhatAClientTook(t *testing.T) {
	eachLedger(t, xds.ClusterType, func(l *ledger) {
		l.wild("a", "b")
		l.sub("*")
		l.want("a b")
		l.kept("")
		if !l.takes("*") {
			t.Fatal("nothing is good by it")
		}
		l.kept("*a *b all")
		l.wild("a=2", "-b", "c")
		if l.s.variant == xds.SotW {
			l.want("a=2 c")
		} else {
			l.want("a=2 c -b")
		}
		l.refuses("*")
		l.kept("*a *b all") // nobody took that b is gone, nor a=2 and c
		l.wild("a=33")
		if l.s.variant == xds.SotW {
			l.want("a=33 c")
		} else {
			l.want("a=33 c -b")
		}
		l.takes("*")
		l.kept("*a=33 *c all")
	})
}

// By names, clients have parts of what is held: each is good once one took it.
func TestP53_GoodByNames(t *testing.T) {
	eachLedger(t, xds.EndpointType, func(l *ledger) {
		l.named("a", "b")
		l.sub("a")
		l.want("a")
		if !l.takes("a") {
			t.Fatal("nothing is good by it")
		}
		l.kept("a")
		l.named("a=2", "b=2")
		l.want("a=2")
		l.kept("a")
		if !l.takes("a") {
			t.Fatal("nothing is good by it")
		}
		l.kept("a=2")
		// What changed since is not what was taken.
		l.named("a=33")
		l.want("a=33")
		l.named("a")
		l.takes("a")
		l.kept("a=33")
	})
}

// A client that reconnects is not sent what it has: it took that elsewhere, and
// says so by the first response that it takes. An empty set would be kept else.
func TestP27_WhatAClientBringsIsGood(t *testing.T) {
	l := &ledger{world: newWorld(t, xds.ClusterType, xds.Delta)}
	l.wild("a", "b")
	initial := map[string]string{}
	for _, n := range []string{"a", "b"} {
		initial[n] = l.resource(n).Version.String()
	}
	l.send(request{names: []string{"*"}, initial: initial})
	l.want("(empty)")
	l.takes()
	l.kept("*a *b all")
}

// What has a TTL, or is not to be cached, is nobody's to keep.
func TestP62_P63_NotEverythingIsKept(t *testing.T) {
	eachLedger(t, xds.EndpointType, func(l *ledger) {
		r := l.resource("a").Renew(time.Hour, l.now)
		l.builder.Apply(xds.Update{Type: l.typ.URL, Origin: "o", Changed: []*xds.Resource{r, l.resource("b")}, Received: l.now})
		l.cur, _ = l.builder.Snapshot(l.cur, 1)
		l.sub("a", "b")
		l.want("a b")
		l.takes("a", "b")
		l.kept("b")
	})
}

// Each stream of a fleet that takes the same response costs a look, and nothing is
// noted twice.
func TestGoodIsNotedOnce(t *testing.T) {
	eachLedger(t, xds.ClusterType, func(l *ledger) {
		l.wild("a")
		l.sub("*")
		l.want("a")
		l.takes("*")
		if g := l.s.improves(&l.good, l.frame.manifest, false); g.in != nil {
			t.Error("it is noted again")
		}
	})
}

// An answer to an earlier response says nothing of what was sent after it (P19).
func TestP53_ALateAnswerIsOfWhatItAnswers(t *testing.T) {
	for _, by := range []string{"*", "a"} {
		l := &ledger{world: newWorld(t, xds.ClusterType, xds.Delta)}
		say := l.wild
		if by == "a" {
			say = l.named
		}
		say("a")
		l.sub(by)
		l.want("a")
		l.pass(ackTimeout)
		say("a=2")
		l.want("a=2")
		l.answered(l.send(request{ack: 1}))
		l.kept("")
		l.answered(l.send(request{ack: 2}))
		if by == "a" {
			l.kept("a=2")
		} else {
			l.kept("*a=2 all")
		}
	}
}

// kept is what of a type is good in the group, after so many improvements.
func (g *group) kept(r *rig, improved int, typ xds.TypeURL) string {
	r.t.Helper()
	r.eventually(func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.improved == improved
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	took, all := g.good[typ].Collect(g.state.Snapshot(typ), false, time.Now())
	var out []string
	for _, t := range took {
		out = append(out, t.Resource.Name)
	}
	if all {
		out = append(out, "all")
	}
	return strings.Join(out, " ")
}

// Streams tell of what is taken, once for all that take the same.
func TestP53_StreamsTellWhatIsTaken(t *testing.T) {
	r := newRig(t, nil)
	r.house.keeps = true
	g := r.house.group("edge")
	g.publish(update(t, xds.ClusterType, "a", "b"))
	conn := r.dial()
	for range 3 {
		c := r.delta(conn)
		c.ask(xds.ClusterType, "*")
		got := c.recv()
		c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: got.TypeUrl, ResponseNonce: got.Nonce})
	}
	r.eventually(r.inStep)
	if got := g.kept(r, 1, xds.ClusterType); got != "a b all" {
		t.Errorf("kept %q", got)
	}
}

// Who polls with the version of an answer has taken it (P71); who refuses it has
// not.
func TestP53_PollsTellWhatIsTaken(t *testing.T) {
	r := newREST(t, func(o *Options) { o.LongPoll = time.Millisecond })
	r.house.keeps = true
	g := r.house.group("edge")
	g.publish(update(t, xds.ClusterType, "a", "b"), update(t, xds.EndpointType, "x", "y"))
	c := r.web("h2c")
	m := r.response(r.ask(c, xds.ClusterType, ""))
	e := r.response(r.ask(c, xds.EndpointType, "", "x"))
	g.mu.Lock()
	early := g.improved
	g.mu.Unlock()
	if early > 0 {
		t.Error("what was given counts as taken")
	}
	r.ask(c, xds.ClusterType, m.VersionInfo)
	r.ask(c, xds.ClusterType, m.VersionInfo)
	if got := g.kept(r.rig, 1, xds.ClusterType); got != "a b all" {
		t.Errorf("kept %q", got)
	}
	r.ask(c, xds.EndpointType, e.VersionInfo, "x")
	if got := g.kept(r.rig, 2, xds.EndpointType); got != "x" {
		t.Errorf("kept %q", got)
	}
}

// What is under the wildcard as well as by name is good as both, whoever took it:
// else the one of which that is not known would stay as old as it was written down,
// and clients that ask by name would be taken back to it.
func TestP53_GoodIsWhatItIsInBothParts(t *testing.T) {
	eachLedger(t, xds.ClusterType, func(l *ledger) {
		l.wild("a", "b")
		l.named("a")
		l.sub("a")
		l.want("a")
		l.takes("a")
		l.kept("a")
		l.wild("a=2")
		l.named("a=2")
		l.want("a=2")
		l.takes("a")
		l.kept("a=2")
		// The two need not be in step (P50).
		l.wild("a=33")
		l.named("a")
		l.want("a")
		l.takes("a")
		l.kept("a")
	})
}
