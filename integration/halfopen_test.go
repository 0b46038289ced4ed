package integration

import (
	"fmt"
	"testing"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// The relay's keepalive finds dead connections to the origin that were not closed (P54): one for each
// stream, with streams_per_connection: 1. Clients keep their streams, and get what changed meanwhile.
func TestHalfOpenUpstream(t *testing.T) {
	t.Parallel()
	o := origin(t, xdstest.Linear)
	p := xdstest.StartProxy(t, o.Address)
	r := serve(t, p.Address, xdstest.Config{
		"upstream.keepalive": map[string]any{"time": "1s", "timeout": "200ms"}, "upstream.streams_per_connection": 1,
	})
	var clients []*fleet.Client
	for i, v := range variants {
		key := fmt.Sprint("edge-", i)
		o.Put(key, xdstest.Web(1)...)
		clients = append(clients, client(t, r.Address, fleet.ClientConfig{Node: node("n", key), Variant: v, Behaviour: fleet.Envoy}))
	}
	waitAll(t, clients, "what the origin has", hasAll(xdstest.Web(1)...))
	if open, _ := o.Connections(); open != len(clients) {
		t.Errorf("%d connections for %d keys", open, len(clients))
	}
	p.HangOpen()
	for i := range variants {
		o.Put(fmt.Sprint("edge-", i), xdstest.Web(2)...)
	}
	waitAll(t, clients, "what changed meanwhile", hasAll(xdstest.Web(2)...))
	oneStream(t, clients...)
}

// The relay's keepalive finds a client's dead connection that was not closed. Its stream is no
// longer counted. Other clients are not affected. The client reconnects and receives the current
// state.
func TestHalfOpenDownstream(t *testing.T) {
	t.Parallel()
	o := origin(t, xdstest.Linear)
	o.Put("edge", xdstest.Web(1)...)
	r := serve(t, o.Address, xdstest.Config{"downstream.keepalive": map[string]any{"time": "1s", "timeout": "200ms"}})
	honest := envoys(t, r.Address, "edge")
	p := xdstest.StartProxy(t, r.Address)
	var dead []*fleet.Client
	for _, v := range variants {
		dead = append(dead, client(t, p.Address, fleet.ClientConfig{Node: node("dead-"+v.String(), "edge"), Variant: v, Behaviour: fleet.Envoy}))
	}
	waitAll(t, append(dead, honest...), "what the origin has", hasAll(xdstest.Web(1)...))
	p.HangOpen()
	o.Put("edge", xdstest.Web(2)...)
	waitAll(t, honest, "a change", hasAll(xdstest.Web(2)...))
	for _, v := range variants {
		xdstest.Eventually(t, "the end of its stream", xdstest.Holds(func() bool { return r.Metric("downstream_streams", "variant", v.String()) == 1 }))
	}
	waitAll(t, dead, "what it had", hasAll(xdstest.Web(1)...))
	p.Cut() // now the clients notice too
	waitAll(t, dead, "what changed meanwhile", hasAll(xdstest.Web(2)...))
	for _, c := range dead {
		if s := c.Counters().Streams; s != 2 {
			t.Errorf("%s needed %d streams", c, s)
		}
	}
	oneStream(t, honest...)
}

// oneStream fails the test if a client needed more than one stream.
func oneStream(t testing.TB, clients ...*fleet.Client) {
	t.Helper()
	for _, c := range clients {
		if n := c.Counters().Streams; n != 1 {
			t.Errorf("%s needed %d streams: %v", c, n, c.LastError())
		}
	}
}
