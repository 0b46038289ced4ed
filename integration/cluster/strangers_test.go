package main

import (
	"crypto/x509"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

// Relays that are configured wrongly start beside a cluster. The log says what is wrong, a client of
// such a relay is served, and those of the members lose nothing.
func TestStrangers(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	key := e.writeKeys("another", gossipKey())
	other := tlstest.NewAuthority(t)
	pair := func(a *tlstest.Authority, name, uri string, more ...tlstest.Option) map[string]any {
		cert, key := a.Pair(t, append(more, tlstest.URI(uri))...).Write(t, e.dir, name)
		return map[string]any{"cert_file": cert, "key_file": key, "ca_file": e.writeCA(name, e.ca)}
	}
	inAnHour := func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(time.Hour), time.Now().AddDate(1, 0, 0)
	}
	nobody := xdstest.FreeAddress(t)
	cases := []struct {
		name   string
		config xdstest.Config
		logs   []string // of the stranger
		told   []string // in the log of a member
	}{
		{"label", xdstest.Config{"cluster.name": "another"},
			[]string{"cannot join a member", "cluster.name"}, []string{"cannot gossip with a peer", "it has another cluster.name"}},
		{"gossip-key", xdstest.Config{"cluster.gossip_key_file": key},
			[]string{"cannot join a member", "gossip key"}, []string{"cannot gossip with a peer", "it has another gossip key or none"}},
		{"certificate", xdstest.Config{"cluster.tls": pair(other, "unknown", "spiffe://demo/relay")},
			[]string{"client TLS handshake failed", "listener=cluster", "bad certificate"},
			[]string{"member is away", "member=certificate", "signed by unknown authority"}},
		{"identity", xdstest.Config{"cluster.tls": pair(e.authority, "client", "spiffe://demo/client")},
			[]string{"client TLS handshake failed", "listener=cluster", "bad certificate"}, []string{"member is away", "member=identity", "cluster.identity"}},
		{"expired", xdstest.Config{"cluster.tls": pair(e.authority, "old", "spiffe://demo/relay", tlstest.Expired())},
			[]string{"certificate has expired", "of=cluster.tls"}, []string{"member is away", "member=expired", "certificate has expired"}},
		{"clock", xdstest.Config{"cluster.tls": pair(e.authority, "early", "spiffe://demo/relay", inAnHour)},
			[]string{"certificate is not valid yet", "of=cluster.tls"}, []string{"member is away", "member=clock", "is before"}},
		{"compat", xdstest.Config{"upstream.node": `Node{id: "another", cluster: node.cluster}`},
			[]string{"cluster member is unusable", "member=a", "another compat"}, []string{"cluster member is unusable", "member=compat", "another compat"}},
		{"only-itself", nil, []string{"cluster.join names only this relay"}, nil},
		{"unreachable", xdstest.Config{"cluster.join": []string{nobody}}, []string{"cannot join a member", nobody}, nil},
		{"second-b", xdstest.Config{"name": "b"}, []string{"cluster member is unusable", "member=b", "a newer start of the same name"},
			[]string{"cluster member is unusable", "member=b", "a newer start of the same name"}},
	}
	var cmds []*exec.Cmd
	for _, c := range cases {
		m := &member{name: c.name, host: "127.0.0.1", address: xdstest.FreeAddress(t), gossip: gossipAddress(t)}
		config := e.config(m).With(c.config)
		if c.name == "only-itself" {
			config["cluster.join"] = []string{m.gossip}
		}
		cmds = append(cmds, e.command(m, config))
	}
	strangers := xdstest.StartRelays(t, cmds...)
	var clients []*client
	for i, c := range cases {
		clients = append(clients, e.client(strangers[i].Address, c.name, keys[i%len(keys)], fleet.Variant(i%2)))
	}
	// A member's gossip port is asked for a web page.
	if _, err := http.Get("http://" + e.members[0].gossip); err == nil || strings.Contains(err.Error(), "refused") {
		t.Errorf("HTTP at the gossip port: %v, want a connection that ends", err)
	}
	e.members[0].Relay.WaitLog(t, 1, "cannot gossip with a peer", "another protocol")
	for i, c := range cases {
		strangers[i].WaitLog(t, 1, c.logs...)
		e.members[0].Relay.WaitLog(t, 1, c.told...)
	}
	e.reachesAll()
	for _, c := range clients {
		c.has(t, xdstest.Web(e.version)...)
	}
	// A renewed certificate is enough: the members then use the relay.
	for _, name := range []string{"old", "early"} {
		pair(e.authority, name, "spiffe://demo/relay")
	}
	for _, r := range e.members {
		r.Relay.WaitLog(t, 1, "member is back", "member=expired")
		r.Relay.WaitLog(t, 1, "member is back", "member=clock")
	}
	for _, r := range strangers {
		r.Stop()
	}
	e.oneStreamPerKey()
	e.reachesAll()
	for _, m := range e.members {
		e.ended(m, 0)
	}
}
