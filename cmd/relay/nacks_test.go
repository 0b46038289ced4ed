package main

import (
	"encoding/json"
	"strings"
	"testing"

	"xdsrelay/internal/admin"
	"xdsrelay/internal/xds"
)

func TestNacks(t *testing.T) {
	o := operate(t, "")
	c, other := o.client("b\x1bad", "edge", xds.SotW), o.client("web-0", "mesh", xds.Delta)
	c.take().answer("")
	other.take().answer("")
	o.until([]string{"status"}, "2 SYNCED")
	for _, args := range [][]string{{"nacks"}, {"nacks", "--key", "edge"}} {
		if code, out := o.run(args...); code != 0 || out != "no client rejected a response\n" {
			t.Errorf("%v: %d %s", args, code, out)
		}
	}
	if code, out := o.run("nacks", "--key", "nobody"); code != 1 || out != "relay: key nobody is not in use\n" {
		t.Errorf("%d %s", code, out)
	}

	o.gives("v2", "a", "two", "b", "one")
	c.take().answer("cluster a: I do\nnot like it")
	o.until([]string{"status", "--key", "edge"}, "1 NACKED") // set after the NACK is in the list
	row := func(key string) string {
		t.Helper()
		out := o.until([]string{"nacks", "--key", key}, "MESSAGE\n"+key)
		return strings.Join(strings.Fields(strings.Split(out, "\n")[1]), " ")
	}
	if got := row("edge"); !strings.HasPrefix(got, "edge CDS v2 1 1 1 ") || !strings.HasSuffix(got, "s b\\x1bad cluster a: I do not like it") {
		t.Errorf("%q", got)
	}
	other.take().answer("nor do I")
	row("mesh")
	code, out := o.run("nacks", "-o", "json")
	var list struct{ Items []admin.Nack }
	if err := json.Unmarshal([]byte(out), &list); code != 0 || err != nil || len(list.Items) != 2 ||
		list.Items[0].Key != "mesh" || list.Items[1].Message != "cluster a: I do\nnot like it" {
		t.Errorf("%d %v %s", code, err, out)
	}
	if code, out := o.run("nacks", "--key", "mesh", "-o", "yaml"); code != 0 || !strings.Contains(out, `message: "nor do I"`) || strings.Contains(out, "like") {
		t.Errorf("%d %s", code, out)
	}

	// The client accepts what comes next.
	o.gives("v3", "a", "three", "b", "one")
	c.take().answer("")
	o.until([]string{"status", "--key", "edge"}, "SYNCED v3")
	if got := row("edge"); !strings.HasPrefix(got, "edge CDS v2 1 1 0 ") {
		t.Errorf("%q", got)
	}
}
