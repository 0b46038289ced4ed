package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"xdsrelay/internal/admin/sources"
	"xdsrelay/internal/cluster"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// operateCluster runs relays with these names, of 6 letters or more, as a cluster over mutual
// TLS. Each has an origin of its own, which has the same files.
func operateCluster(t testing.TB, names ...string) []*operated {
	t.Helper()
	// memberlist's goroutines end some seconds after the relays.
	t.Cleanup(func() { xdstest.Eventually(t, "memberlist has ended", func() error { return goleak.Find() }) })
	var gossip []string
	for range names {
		gossip = append(gossip, xdstest.FreeAddress(t))
	}
	join := "'" + strings.Join(gossip, "', '") + "'"
	if len(names) == 1 {
		join = "" // otherwise it would wait for another member
	}
	ca, dir := tlstest.NewAuthority(t), t.TempDir()
	cas := tlstest.File(t, dir, "ca.crt", ca.PEM())
	var all []*operated
	for i, name := range names {
		o := &operated{TB: t}
		cert, key := ca.Pair(t, tlstest.URI("spiffe://members/"+name)).Write(t, dir, name)
		o.configured(fmt.Sprintf(`name: %s
log: {level: error}
downstream: {address: '127.0.0.1:0', drain: 0s}
upstream: {origins: [{address: 'file:origin', name: files}], node: node, linger: 100ms}
aggregation: {rules: [{key: node.cluster}]}
cluster:
  {name: test, address: '%s', gossip: '%s', advertise: 127.0.0.1, join: [%s], tls: {cert_file: '%s', key_file: '%s', ca_file: '%s'},
   identity: 'peer.uri_sans.exists(u, u.startsWith("spiffe://members/"))'}
admin: {address: '127.0.0.1:0'}
`, name, xdstest.FreeAddress(t), gossip[i], join, cert, key, cas))
		o.relay = load(t, filepath.Join(o.dir, "relay.yaml"))
		o.admin = o.relay.AdminAddress()
		o.stop = xdstest.Run(t, func(ctx context.Context) error { return o.relay.Run(ctx, context.Background()) })
		all = append(all, o)
	}
	for _, o := range all {
		o.until([]string{"members"}, states(names, "ready")...)
	}
	return all
}

// states has, for each name, the beginning of its row in relay members.
func states(names []string, state string) (out []string) {
	for _, n := range names {
		out = append(out, n+"  "+state+" ")
	}
	return out
}

// keyOf returns a key that a member owns.
func keyOf(all []*operated, owner string) xds.Key {
	for i := 0; ; i++ {
		key := xds.NewKey(fmt.Sprintf("key-%d", i))
		if name, _ := all[0].relay.Member.Owner(key); name == owner {
			return key
		}
	}
}

// metrics returns the relay's metrics as text.
func (o *operated) metrics() string {
	o.Helper()
	text, err := xdstest.HTTPGet("http://" + o.admin + "/metrics")
	if err != nil {
		o.Fatal(err)
	}
	return string(text)
}

func TestMembers(t *testing.T) {
	all := operateCluster(t, "relay-1", "relay-2")
	key := keyOf(all, "relay-1").String()
	client := all[1].client("client", key, xds.Delta)
	client.take().answer("")
	_, out := all[1].run("members", "--no-headers")
	for i, want := range []string{"relay-1 ready 1 0 0 0 ", "relay-2 ready 0 1 0 1 "} {
		row := strings.Fields(strings.Split(out, "\n")[i])
		row = append(row[:2], row[3:]...) // without the age
		if got := strings.Join(row, " "); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, " -") {
			t.Errorf("%q, want %q", got, want)
		}
	}
	all[0].until([]string{"members", "--no-headers", "-o", "json"}, `"keys_owned": 1`, `"streams": 0`)

	// The key's role and source.
	for i, want := range []string{" files - client owner relay-1 -", " relay-1 - client follower relay-1 -"} {
		if _, out := all[i].run("keys", "-o", "wide"); !strings.Contains(out, "ROLE") || !strings.HasSuffix(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("%s, want %s", out, want)
		}
	}
	node := filepath.Join(all[0].dir, "node.yaml")
	xdstest.WriteFile(t, node, "id: n\ncluster: "+key+"\n")
	if code, out := all[1].run("explain", "--node", node); code != 0 || !strings.Contains(out, "\nkey      "+key+"\nowner    relay-1\n") {
		t.Errorf("%d %s", code, out)
	}

	// A change reaches the follower's client over the owner.
	all[0].gives("v2", "a", "two")
	client.take().answer("")
	past, cancel := context.WithCancel(context.Background())
	cancel()
	for i, want := range []string{`cluster_keys{role="owner"} 1`, `cluster_keys{role="follower"} 1`} {
		if err := all[i].relay.Member.CountKeys(past); err != nil {
			t.Fatal(err)
		}
		xdstest.Eventually(t, want, func() error {
			text := all[i].metrics()
			if !strings.Contains(text, "\nxdsrelay_"+want) || i == 0 && strings.Contains(text, "\nxdsrelay_cluster_hop_seconds_count 0\n") {
				return errors.New("not yet")
			}
			return nil
		})
	}

	all[0].stop()
	all[1].until([]string{"members"}, "relay-1  left ")
}

func TestMemberState(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		member sources.Member
		want   string
	}{
		{sources.Member{Member: cluster.Member{State: "alive", Ready: true}}, "ready 1m00s"},
		{sources.Member{Member: cluster.Member{State: "alive", Ready: true, Draining: true}}, "draining 1m00s"},
		{sources.Member{Member: cluster.Member{State: "alive"}}, "not ready 1m00s"},
		{sources.Member{Member: cluster.Member{State: "unusable", Ready: true}}, "unusable 1m00s"},
		{sources.Member{Member: cluster.Member{State: "dead", Ready: true}}, "dead 1m00s"},
	} {
		c.member.Since = now.Add(-time.Minute)
		if got := memberState(&c.member, now).Text; got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestNoCluster(t *testing.T) {
	o := operate(t, "")
	if code, out := o.run("members"); code != 1 || out != "relay: the relay is in no cluster: it has no cluster.name\n" {
		t.Errorf("%d %s", code, out)
	}
}
