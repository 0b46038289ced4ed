package session

import (
	"testing"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// The removal of a resource is sent to the clients that have it, although its name is another
// resource's alias by now, or was one before (P26).
func TestP26_AliasTakesTheNameOfARemovedResource(t *testing.T) {
	t.Run("by name", func(t *testing.T) {
		w := newSessionFixture(t, xds.VHostType, xds.Delta)
		w.sub("r/a")
		w.named("r/a")
		w.accepts("r/a")
		w.named("r/v|r/a", "-r/a")
		w.accepts("r/v -r/a")
		w.want("")
		w.named("-r/v")
		w.want("-r/a -r/v")
	})
	t.Run("which it was before", func(t *testing.T) {
		w := newSessionFixture(t, xds.VHostType, xds.Delta)
		w.sub("r/a")
		w.named("r/a", "r/v|r/a")
		w.accepts("r/a r/v")
		w.named("-r/a") // of the resource, not of the alias
		w.accepts("-r/a")
		w.named("r/v|r/a=2")
		w.want("r/v=2")
	})
	t.Run("by the wildcard", func(t *testing.T) {
		w := newSessionFixture(t, xds.VHostType, xds.Delta)
		w.sub("*")
		w.wild("r/a")
		w.accepts("r/a")
		w.wild("r/v|r/a", "-r/a")
		w.want("r/v -r/a")
	})
	t.Run("by the wildcard, later", func(t *testing.T) {
		w := newSessionFixture(t, xds.VHostType, xds.Delta)
		w.sub("*")
		w.wild("r/a", "r/v|r/a")
		w.accepts("r/a r/v")
		w.wild("-r/a")
		w.want("-r/a")
	})
	t.Run("by the wildcard, and asked for since", func(t *testing.T) {
		w := newSessionFixture(t, xds.VHostType, xds.Delta)
		w.sub("*")
		w.wild("r/a")
		w.accepts("r/a")
		w.wild("r/v|r/a", "-r/a")
		w.sub("r/a")
		w.want("r/v -r/a")
	})
	t.Run("ahead of an ACK", func(t *testing.T) {
		w := newSessionFixture(t, xds.VHostType, xds.Delta)
		w.named("r/a")
		w.sub("r/a")
		w.want("r/a")
		w.named("r/v|r/a", "-r/a")
		w.sub("r/a")
		w.accepts("r/v -r/a")
		w.want("")
	})
	t.Run("refused", func(t *testing.T) { // P15
		w := newSessionFixture(t, xds.VHostType, xds.Delta)
		w.sub("r/a")
		w.named("r/a")
		w.accepts("r/a")
		w.named("r/v|r/a", "-r/a")
		w.rejects("r/v -r/a")
		w.named("r/v|r/a=2")
		w.want("r/v=2 -r/a")
	})
	t.Run("given up beside the wildcard", func(t *testing.T) { // P24
		w := newSessionFixture(t, xds.ClusterType, xds.Delta)
		w.wild("v|a")
		w.named("a")
		w.sub("*", "a")
		w.accepts("a v")
		w.unsub("a")
		w.want("v -a")
	})
}

// A resource that expired does not count as gone because its name leads elsewhere. It is gone
// once the origin says so (P62).
func TestP62_ExpiredUnderAnAlias(t *testing.T) {
	w := newSessionFixture(t, xds.VHostType, xds.Delta)
	w.sub("r/a")
	w.named("r/a")
	w.accepts("r/a")
	r := w.Resource("r/a=2")
	r.Uncacheable = true
	w.Builder.Apply(snapshot.Update{Type: w.Type.URL, Origin: "o", Changed: []*xds.Resource{r}, Received: w.Now})
	w.named()
	w.accepts("r/a=2")
	w.Builder.Apply(snapshot.Update{Type: w.Type.URL, Ended: true}) // the stream that had it
	w.named()
	w.want("")
	w.named("r/v|r/a") // the next one speaks of another first
	w.accepts("r/v")
	w.named("-r/a")
	w.want("-r/a")
}

// A client that brings such a resource is sent its removal (P27). So is a client that had it
// for an alias that no held resource has any more.
func TestP27_ClientVersionUnderAnAlias(t *testing.T) {
	t.Run("of another resource", func(t *testing.T) {
		for _, names := range []string{"r/a", "*"} {
			w := newSessionFixture(t, xds.VHostType, xds.Delta)
			w.origin(names == "*", "r/v|r/a")
			w.send(request{names: []string{names}, initial: map[string]string{"r/a": "1"}})
			w.accepts("r/v -r/a")
			w.want("")
		}
	})
	t.Run("that leads nowhere", func(t *testing.T) {
		w := newSessionFixture(t, xds.ClusterType, xds.Delta)
		w.named("-a", "b")
		w.send(request{names: []string{"a", "b"}, initial: map[string]string{"v": "1"}})
		w.accepts("b -a -v")
		w.want("")
	})
	t.Run("that is a name by now", func(t *testing.T) {
		w := newSessionFixture(t, xds.ClusterType, xds.Delta)
		w.named("a")
		w.send(request{names: []string{"a"}, initial: map[string]string{"v": "1"}})
		w.want("a -v")
	})
}

// A client has a resource by the wildcard and asks for it by an alias. It ends the wildcard
// before it is sent the removal. The removal is still sent (P26).
func TestP26_SubscribedByAliasAfterRemoval(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.send(request{names: []string{"n0", "*"}})
	w.wild("n0", "n1|a0")
	w.named("n0")
	w.want("n0 n1")
	w.wild("n0", "-n1")
	w.ack()
	w.sub("a0")
	w.unsub("*")
	w.want("")
	w.named("-a0")
	w.want("-a0 -n1")
}

// A client gives up a name and drops the resource to which the name led. When it asks for the
// name again, it does not count as having that resource (P26).
func TestP26_AliasMovesBeforeResubscription(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.named("n0", "x|n2")
		w.sub("n0", "x")
		w.want("n0 x")
		if w.s.form.Variant == xds.SotW {
			w.ack("n0", "a1")
			w.want("")
			w.send(request{names: []string{"n0", "a1", "n2"}})
		} else {
			w.ack()
			w.unsub("x")
			w.sub("a1")
			w.want("")
			w.sub("n2")
		}
		w.named("x|a1", "-n2")
		w.want(w.either("x", "x -n2"))
	})
}

// The same holds for a name by which it is sent something again while a response is in flight.
func TestP26_AliasThatComesBack(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("n0|n2", "n1")
	w.sub("n0")
	w.accepts("n0")
	w.sub("n1")
	w.want("n1")
	w.unsub("n0")
	w.named("n2")
	w.named("-n0")
	w.sub("n2")
	w.want("n2")
	w.named("n0|n2")
	w.ack()
	w.want("n0")
}

// A client already has a resource and asks for it again before it is answered. It is sent the
// removal, although the name is another resource's alias by then (P27).
func TestP27_ClientVersionOfAResubscribedName(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.send(request{names: []string{"n0", "n2"}, initial: map[string]string{"n2": "v"}})
	w.sub("n2")
	w.named("n0|n2", "-n2")
	w.accepts("n0 -n2")
	w.want("")
}

// SotW: a name that is unsubscribed beside the wildcard, and that the wildcard does not have, is
// answered by the full set without it. What the wildcard has, or what was never there, needs
// no response (P22).
func TestP22_UnsubscribedBesideTheWildcard(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.SotW)
	w.send(request{names: []string{"*", "a", "b", "c"}})
	w.wild("b")
	w.named("a", "-c", "b")
	w.want("a b")
	w.ack("*", "a", "b")
	w.want("")
	w.send(request{names: []string{"*", "a"}, ack: 1})
	w.want("")
	w.send(request{names: []string{"*"}, ack: 1})
	w.accepts("b")
	w.want("")
}
