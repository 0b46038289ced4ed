package orchestrator

import (
	"testing"
	"time"

	"xdsrelay/internal/fanout/tokens"
)

// The next stream has the token that expires last of the clients that are connected. A client may
// leave before the group has added it.
func TestBearerIsConnected(t *testing.T) {
	o := options(t)
	o.ByToken = true
	w := newRegistryFixture(t, o)
	g, _ := w.manual(eds)
	join := func(valid time.Duration) *clientType {
		_, ct := w.subscriber(g, eds)
		ct.client.Token = &tokens.Token{Expires: time.Now().Add(valid)}
		return ct
	}
	first := join(time.Hour)
	g.bearerJoined(first) // as the registry does for a new group
	equal(t, "before it is added", g.bearer.Load(), first)
	g.removeSubscriber(first)
	equal(t, "after it left", g.bearer.Load(), nil)

	short, long := join(time.Minute), join(time.Hour)
	g.addSubscriber(short)
	g.addSubscriber(long)
	equal(t, "of two", g.bearer.Load(), long)
	g.removeSubscriber(long)
	equal(t, "of one", g.bearer.Load(), short)
	g.removeSubscriber(short)
	equal(t, "of none", g.bearer.Load(), nil)
}
