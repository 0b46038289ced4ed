package main

import (
	"strings"
	"testing"

	"xdsrelay/internal/xds"
)

// Status and wait ask all members, through the one that is asked. A member that does not answer is named,
// and wait does not succeed.
func TestAllMembers(t *testing.T) {
	all := operateCluster(t, "relay-1", "relay-2")
	key := keyOf(all, "relay-1").String()
	one, two := all[0].client("node-1", key, xds.SotW), all[1].client("node-2", key, xds.Delta)
	one.take().answer("")
	two.take().answer("")
	all[0].until([]string{"status", "--members"}, "NODE", "MEMBER", "node-1", "relay-1", "node-2", "relay-2", "2 streams; types on them: 2 SYNCED")
	for _, o := range all {
		o.gives("v2", "a", "two", "b", "one")
	}
	wait := []string{"wait", "--members", "--key", key, "--type", "CDS", "--version", "v2", "--every", "5ms"}
	one.take().answer("")
	if code, out := all[0].run(append(wait, "--timeout", "300ms")...); code != 2 || !strings.Contains(out, "1 of 2 clients") {
		t.Errorf("%d %s", code, out)
	}
	if code, out := all[0].run("status", "--members", "-o", "json", "--node", "node-2"); code != 0 || strings.Count(out, `"member": "relay-2"`) != 1 || strings.Contains(out, "node-1") {
		t.Errorf("%d %s", code, out)
	}
	two.take().answer("")
	if code, out := all[1].run(append(wait, "--timeout", "20s", "--clients", "2")...); code != 0 || !strings.Contains(out, "2 of 2 clients") {
		t.Errorf("%d %s", code, out)
	}
	all[0].gives("v3", "a", "three", "b", "one")
	all[1].gives("v3", "a", "three", "b", "one")
	w := all[0].waitingFor(key, "--members", "--version", "v3", "--timeout", "2s")
	all[1].relay.Member.GRPC.Stop() // gossip goes on
	one.take().answer("")
	two.take().answer("")
	w.ends(2, "not reached within 2s", "not all members answer; trying again: no answer of relay-2")
	const named = "no answer of relay-2: member relay-2 does not answer: "
	if code, out := all[0].run(append(wait, "--timeout", "300ms", "--or-newer")...); code != 1 || !strings.Contains(out, named) {
		t.Errorf("%d %s", code, out)
	}
	if code, out := all[0].run("status", "--members"); code != 1 || !strings.Contains(out, named) || !strings.Contains(out, "node-1") {
		t.Errorf("%d %s", code, out)
	}
	if code, out := all[0].run("members"); code != 1 || !strings.Contains(out, named) || !strings.Contains(out, "relay-2  ready ") {
		t.Errorf("%d %s", code, out)
	}
	// Asked alone, the first has all its clients.
	if code, out := all[0].run("wait", "--key", key, "--type", "CDS", "--version", "v2", "--or-newer", "--timeout", "20s"); code != 0 {
		t.Errorf("%d %s", code, out)
	}
}
