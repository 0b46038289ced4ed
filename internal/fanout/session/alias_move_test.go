package session

import (
	"testing"

	"xdsrelay/internal/xds"
)

// A client has a resource by the wildcard, and asks for its name when the wildcard has lost
// it. The client is sent the removal, also if the name is another resource's alias by then
// (P26).
func TestP26_SubscribedAfterRemoval(t *testing.T) {
	w := newSessionFixture(t, xds.VHostType, xds.Delta)
	w.send(request{names: []string{"n0", "*"}})
	w.wild("n0", "n2")
	w.named("n0")
	w.want("n0 n2")
	w.wild("n0", "-n2")
	w.sub("n2")
	w.ack()
	w.accepts("-n2")
	w.wild("n0|n2")
	w.named("n0|n2")
	w.accepts("n0")
	w.want("")
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
