package session

import (
	"fmt"
	"strings"
	"testing"

	"xdsrelay/internal/xds"
)

var statusNames = map[NameStatus]string{StatusRequested: "requested", StatusDoesNotExist: "absent", StatusAcked: "acked", StatusNacked: "nacked", StatusReceivedError: "error", StatusUnknown: "unknown"}

// stands describes what the client has of each name, as "a=2:acked/SYNCED".
func (w *sessionFixture) stands(acks int) string {
	s := w.s.Copy()
	var out []string
	for _, known := range s.Known(w.Cur) {
		r, is := s.Resource(known, w.Cur, acks > 0)
		if !is {
			continue
		}
		name := r.Name
		if r.Has != nil {
			name = w.Describe(r.Has)
		}
		if r.Nacked != nil {
			name += "!" + w.Describe(r.Nacked)
		}
		out = append(out, fmt.Sprintf("%s:%s/%s", name, statusNames[r.NameStatus], r.State))
	}
	return strings.Join(out, " ")
}

func (w *sessionFixture) states(acks int, want string) {
	w.T.Helper()
	if got := w.stands(acks); got != want {
		w.T.Fatalf("is\n%s, want\n%s", got, want)
	}
}

// What a client answered about a name is what is shown of it, from its first request on.
func TestStatusOfNames(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.sub("a", "b")
		w.states(0, "a:requested/NOT SENT b:requested/NOT SENT")
		w.named("a")
		w.states(0, "a:requested/NOT SENT b:requested/NOT SENT")
		w.want("a")
		w.states(0, "a:requested/STALE b:requested/NOT SENT")
		w.ack()
		w.states(1, "a:acked/SYNCED b:requested/NOT SENT")

		w.named("a=2", "-b")
		// P31: in SotW an absent name has no response.
		w.states(1, "a:acked/STALE b:"+w.either("absent/SYNCED", "requested/NOT SENT"))
		w.want(w.either("a=2", "a=2 -b"))
		w.states(1, "a:unknown/STALE b:absent/"+w.either("SYNCED", "STALE"))
		w.nack()
		w.states(1, "a!a=2:nacked/NACKED b:absent/SYNCED")
		// P15: it is sent again once it changes, and counts as rejected until that is acknowledged.
		w.named("a=33")
		w.states(1, "a!a=2:nacked/NACKED b:absent/SYNCED")
		w.want(w.either("a=33", "a=33 -b"))
		w.states(1, "a:unknown/STALE b:absent/"+w.either("SYNCED", "STALE"))
		w.ack()
		w.states(2, "a=33:acked/SYNCED b:absent/SYNCED")
		if w.s.form.Variant == xds.Delta {
			w.unsub("b")
			w.states(2, "a=33:acked/SYNCED")
		}
	})
}

// A client that asked for a name just now was sent nothing of it, whatever other clients were
// sent.
func TestStatusOfANewSubscription(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.named("a", "b")
		w.sub("a")
		w.accepts("a")
		w.more("b")
		w.states(1, "a:acked/SYNCED b:requested/NOT SENT")
		w.want("b")
		w.states(1, "a:acked/SYNCED b:unknown/STALE")
		w.ack()
		w.states(2, "a:acked/SYNCED b:acked/SYNCED")
	})
	// P12: a stale request asks for its names all the same.
	w := newSessionFixture(t, xds.EndpointType, xds.SotW)
	w.named("a", "b")
	w.sub("a")
	w.want("a")
	w.sub("a", "b")
	w.states(0, "a:requested/STALE b:requested/NOT SENT")
}

// A wildcard asks for all that there is. What was removed is not shown.
func TestStatusOfAWildcard(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		w.sub()
		w.states(0, "")
		w.wild("a", "b")
		w.states(0, "a:requested/NOT SENT b:requested/NOT SENT")
		w.accepts("a b")
		w.wild("c", "-b")
		w.states(1, "a:acked/SYNCED b:acked/STALE c:requested/NOT SENT")
		w.next()
		w.nack()
		w.states(1, w.either("a!a:nacked/NACKED", "a:acked/SYNCED")+" c!c:nacked/NACKED") // a NACK of a full set does not say which
	})
}

// An error stands in place of the resource. NOT_FOUND is an absence (P39).
func TestStatusOfErrors(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.named("a")
		w.sub("a", "b")
		w.accepts("a")
		w.Fail(false, "a", "b")
		w.next()
		w.ack()
		w.states(2, "a:error/SYNCED b:error/SYNCED")
	})
}

// An alias exists if it leads to a resource (P26).
func TestStatusOfAliases(t *testing.T) {
	w := newSessionFixture(t, xds.VHostType, xds.Delta)
	w.sub("alias")
	w.states(0, "alias:requested/NOT SENT")
	w.named("v|alias")
	w.next()
	w.ack()
	w.states(1, "v:acked/SYNCED")
}

// A client waits for a resource that it has no more because its TTL is over (P62), although it
// had the resource at the last look.
func TestP62_ExpiredNameIsUnanswered(t *testing.T) {
	for _, v := range variants {
		w := newSessionFixture(t, xds.EndpointType, v)
		w.timely()
		w.Living(false, ttl, "x")
		w.sub("x", "y")
		w.accepts("x")
		w.named("-y")
		waits := func(when string, want bool) {
			t.Helper()
			look := NewComparisonCache()
			if is := look.AnyUnanswered(w.s, w.Cur); is != want {
				t.Errorf("%s, %s: waits %v, want %v", v, when, is, want)
			}
		}
		w.next()
		waits("it has x", false)
		w.Pass(ttl)
		w.lapse()
		w.next()
		waits("x has lapsed", true)
		w.Living(false, ttl, "x")
		waits("x is back", false)
	}
}

// The periodic count compares a client with names once, and then only looks at newer changes.
func TestCountsCompareOnce(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("a", "b")
	w.sub("a")
	w.accepts("a")
	compared := func(when string, unsent bool, comparisons int) {
		t.Helper()
		look := NewComparisonCache()
		if is := look.Unsent(w.s, w.Cur); is != unsent || len(look.pending) != comparisons {
			t.Errorf("%s: unsent %v after %d comparisons, want %v after %d", when, is, len(look.pending), unsent, comparisons)
		}
	}
	w.linger = []string{"b"}
	w.named("b=2")
	compared("another name changed", false, 1)
	compared("nothing changed", false, 0)
	w.named("b=33")
	compared("another name changed again", false, 0)
	w.named("a=2")
	compared("its name changed", true, 1)
	compared("it is still not sent", true, 1)
	w.accepts("a=2")
	compared("it has everything", false, 0)
	w.named("b")
	w.sub("b")
	w.want("b")
	w.named("b=2")
	compared("the new name changed", true, 1)
}

// A NACK says what its response offered, and which generation the client has.
func TestP17_NACKHasItsOffer(t *testing.T) {
	for _, c := range []struct {
		typ   xds.TypeURL
		v     xds.Variant
		names string // of the offer; a full-state response has none
	}{
		{xds.ClusterType, xds.SotW, "[]"},
		{xds.ClusterType, xds.Delta, "[a b]"},
		{xds.EndpointType, xds.SotW, "[a b]"},
		{xds.EndpointType, xds.Delta, "[a b]"},
	} {
		w := newSessionFixture(t, c.typ, c.v)
		publish, names := w.named, []string{"a", "b", "c"}
		if c.typ == xds.ClusterType {
			publish, names = w.wild, nil
		}
		w.sub(names...)
		publish("a", "c")
		w.next()
		w.ack()
		has := w.Cur.Gen
		publish("a=2", "b")
		w.next()
		offered := w.Cur
		out := w.nack()
		o := out.Rejected
		if o == nil {
			t.Fatalf("%s %s: nothing", c.typ, c.v)
		}
		if o.Has != has || o.Of != offered.Gen || o.Lineage != offered.Lineage || fmt.Sprint(o.Names) != c.names || !o.Sub.Covers("a") {
			t.Errorf("%s %s: %+v", c.typ, c.v, o)
		}
		// The client still has the same if it rejects the next version too.
		publish("a=33")
		w.next()
		if o := w.nack().Rejected; o == nil || o.Has != has || o.Of != w.Cur.Gen {
			t.Errorf("%s %s, the next one: %+v", c.typ, c.v, o)
		}
		publish("a=444")
		w.next()
		if o := w.ack().Rejected; o != nil {
			t.Errorf("%s %s: an ACK rejects %+v", c.typ, c.v, o)
		}
	}
}
