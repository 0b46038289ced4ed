package session

import (
	"testing"

	"xdsrelay/internal/xds"
)

// A resource that is removed is taken back from those who have it, though its
// name is another one's alias by now, or was one before.
func TestP26_AnAliasTakesTheNameOfARemovedResource(t *testing.T) {
	t.Run("by name", func(t *testing.T) {
		w := newSessionFixture(t, xds.VHostType, xds.Delta)
		w.sub("r/a")
		w.named("r/a")
		w.want("r/a")
		w.ack()
		w.named("r/v|r/a", "-r/a")
		w.want("r/v -r/a")
		w.ack()
		w.want("")
		w.named("-r/v")
		w.want("-r/a -r/v")
	})
	t.Run("which it was before", func(t *testing.T) {
		w := newSessionFixture(t, xds.VHostType, xds.Delta)
		w.sub("r/a")
		w.named("r/a", "r/v|r/a")
		w.want("r/a r/v")
		w.ack()
		w.named("-r/a") // of the resource, not of the alias
		w.want("-r/a")
		w.ack()
		w.named("r/v|r/a=2")
		w.want("r/v=2")
	})
	t.Run("by the wildcard", func(t *testing.T) {
		w := newSessionFixture(t, xds.VHostType, xds.Delta)
		w.sub("*")
		w.wild("r/a")
		w.want("r/a")
		w.ack()
		w.wild("r/v|r/a", "-r/a")
		w.want("r/v -r/a")
	})
	t.Run("by the wildcard, later", func(t *testing.T) {
		w := newSessionFixture(t, xds.VHostType, xds.Delta)
		w.sub("*")
		w.wild("r/a", "r/v|r/a")
		w.want("r/a r/v")
		w.ack()
		w.wild("-r/a")
		w.want("-r/a")
	})
	t.Run("ahead of an ACK", func(t *testing.T) {
		w := newSessionFixture(t, xds.VHostType, xds.Delta)
		w.named("r/a")
		w.sub("r/a")
		w.want("r/a")
		w.named("r/v|r/a", "-r/a")
		w.sub("r/a")
		w.want("r/v -r/a")
		w.ack()
		w.want("")
	})
	t.Run("refused", func(t *testing.T) { // P15
		w := newSessionFixture(t, xds.VHostType, xds.Delta)
		w.sub("r/a")
		w.named("r/a")
		w.want("r/a")
		w.ack()
		w.named("r/v|r/a", "-r/a")
		w.want("r/v -r/a")
		w.nack()
		w.named("r/v|r/a=2")
		w.want("r/v=2 -r/a")
	})
	t.Run("given up beside the wildcard", func(t *testing.T) { // P24
		w := newSessionFixture(t, xds.ClusterType, xds.Delta)
		w.wild("v|a")
		w.named("a")
		w.sub("*", "a")
		w.want("a v")
		w.ack()
		w.unsub("a")
		w.want("v -a")
	})
}

// What the wildcard removes is gone for a client that has yet to be answered for the
// name (P32), also if the answer is another resource, by the name or by an alias.
func TestP26_TheWildcardRemovesANameBeforeItIsAnswered(t *testing.T) {
	for _, c := range []struct{ wild, answer, want string }{
		{"a", "v|a", "v"},
		{"v|a", "a", "a"},
	} {
		w := newSessionFixture(t, xds.ClusterType, xds.Delta)
		w.wild(c.wild)
		w.sub("*", "a")
		w.want(c.wild[:1])
		w.ack()
		w.wild("-" + c.wild[:1])
		w.want("-" + c.wild[:1])
		w.ack()
		w.named(c.answer)
		w.want(c.want)
	}
}

// What lapsed is not gone because its name has led elsewhere since; then it is
// said to be.
func TestP62_LapsedUnderAnAlias(t *testing.T) {
	w := newSessionFixture(t, xds.VHostType, xds.Delta)
	w.sub("r/a")
	w.named("r/a")
	w.want("r/a")
	w.ack()
	r := w.Resource("r/a=2")
	r.Uncacheable = true
	w.Builder.Apply(xds.Update{Type: w.Type.URL, Origin: "o", Changed: []*xds.Resource{r}, Received: w.Now})
	w.named()
	w.want("r/a=2")
	w.ack()
	w.Builder.Apply(xds.Update{Type: w.Type.URL, Ended: true}) // the stream that brought it
	w.named()
	w.want("")
	w.named("r/v|r/a") // the next one speaks of another first
	w.want("r/v")
	w.ack()
	w.named("-r/a")
	w.want("-r/a")
}

// So a full set goes out without it.
func TestP30_AnAliasTakesTheNameOfARemovedResource(t *testing.T) {
	t.Run("by the wildcard", func(t *testing.T) {
		w := newSessionFixture(t, xds.ClusterType, xds.SotW)
		w.sub()
		w.wild("r/a", "r/v|r/a")
		w.want("r/a r/v")
		w.ack()
		w.wild("-r/a")
		w.want("r/v")
	})
	t.Run("by name", func(t *testing.T) {
		w := newSessionFixture(t, xds.ClusterType, xds.SotW)
		w.sub("r/a")
		w.named("r/a", "r/v|r/a")
		w.want("r/a r/v")
		w.ack("r/a")
		w.named("r/v|r/a", "-r/a")
		w.want("r/v")
	})
}

// And a client that brings it is told (P27), and what it had for an alias of
// which nothing that is held tells any more.
func TestP27_BroughtUnderAnAlias(t *testing.T) {
	t.Run("of another resource", func(t *testing.T) {
		for _, names := range []string{"r/a", "*"} {
			w := newSessionFixture(t, xds.VHostType, xds.Delta)
			w.origin(names == "*", "r/v|r/a")
			w.send(request{names: []string{names}, initial: map[string]string{"r/a": "1"}})
			w.want("r/v -r/a")
			w.ack()
			w.want("")
		}
	})
	t.Run("that leads nowhere", func(t *testing.T) {
		w := newSessionFixture(t, xds.ClusterType, xds.Delta)
		w.named("-a", "b")
		w.send(request{names: []string{"a", "b"}, initial: map[string]string{"v": "1"}})
		w.want("b -a -v")
		w.ack()
		w.want("")
	})
	t.Run("that is a name by now", func(t *testing.T) {
		w := newSessionFixture(t, xds.ClusterType, xds.Delta)
		w.named("a")
		w.send(request{names: []string{"a"}, initial: map[string]string{"v": "1"}})
		w.want("a -v")
	})
}

// What a glob led to is given up with it: asked for again, it is sent when it
// comes again, though nothing else was sent in between (P23).
func TestP28_AGlobGivenUpAndAskedForAgain(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("xdstp://o/T/c/x")
	w.sub(collection)
	w.want("xdstp://o/T/c/x")
	w.ack()
	w.unsub(collection)
	w.Builder.ForgetBut(xds.NewNameSet(), collection)
	w.sub(collection)
	w.named("xdstp://o/T/c/y")
	w.want("xdstp://o/T/c/y")
	w.named("xdstp://o/T/c/x")
	w.ack()
	w.want("xdstp://o/T/c/x")
}

// Another alias that is asked for since, and not answered yet, keeps nobody from
// hearing that what the first one led to is gone.
func TestP26_AskedForByAnotherAliasMeanwhile(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.sub("n0", "n2")
	w.named("v|n2|a0", "-n0")
	w.want("v -n0")
	w.named("n0", "-v", "-n2")
	w.ack()
	w.sub("a0")
	w.want("n0 -n2 -v")
	w.ack()
	w.named("-a0")
	w.want("-a0")
}
