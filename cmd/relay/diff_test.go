package main

import (
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/admin"
	"xdsrelay/internal/xds"
)

// A type without a key is not shown as one that waits for the origin.
func TestDiffOfATypeWithoutAKey(t *testing.T) {
	var out strings.Builder
	printUnacknowledged(&out, "web-0", []admin.Unacknowledged{{Type: "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", State: "NOT SENT", NoKey: "unmapped_later_type"}}, time.Now())
	if got := out.String(); got != "web-0 RDS has no key and gets no response: reason unmapped_later_type\n" {
		t.Errorf("%q", got)
	}
}

// relay diff takes the node as an argument or as --node.
func TestDiffOfAnArgument(t *testing.T) {
	o := operate(t, "")
	o.client("web-0", "edge", xds.Delta).take()
	_, want := o.run("diff", "--node", "web-0", "-o", "json")
	if code, out := o.run("diff", "web-0", "-o", "json"); code != 0 || out != want || !strings.Contains(out, "web-0") {
		t.Errorf("%d %s, want %s", code, out, want)
	}
	for want, args := range map[string][]string{
		"relay: diff: takes NODE or --node, but has both\n": {"web-0", "--node", "web-0"},
		"relay: diff: needs the id of one node\n":           {},
		`relay: no client has the node id ""`:               {"--node", ""},
	} {
		if code, out := o.run(append([]string{"diff"}, args...)...); code != 1 || !strings.HasPrefix(out, want) {
			t.Errorf("%v: %d %s", args, code, out)
		}
	}
	if got, files := completed(t, "diff", "--admin", o.admin, "we"); len(got) != 1 || got[0] != "web-0" || files {
		t.Errorf("%q %v", got, files)
	}
	if got, files := completed(t, "diff", "--admin", o.admin, "web-0", ""); len(got) != 0 || files {
		t.Errorf("%q %v", got, files)
	}
}
