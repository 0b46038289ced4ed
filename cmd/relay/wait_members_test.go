package main

import (
	"path/filepath"
	"strings"
	"testing"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// A real relay: the wait fails with the reason, unless --lost allows it.
func TestWaitWhenAClientLeaves(t *testing.T) {
	o := operate(t, "")
	one, two := o.client("one", "edge", xds.Delta), o.client("two", "edge", xds.SotW)
	one.take().answer("")
	two.take().answer("")
	o.until([]string{"status"}, "2 SYNCED")
	w := o.waiting("--version", "v2", "--settle", "300ms")
	may := o.waiting("--version", "v2", "--settle", "300ms", "--lost", "50")
	o.gives("v2", "a", "two")
	two.take()
	one.take().answer("")
	o.until([]string{"status"}, "1 SYNCED")
	two.leave()
	w.ends(exitUnreachable, "relay: 1 of 2 clients left during the wait and did not come back within 300ms; --lost allows 10 %", "too many clients left: 1 of 1 client")
	may.ends(0, "reached: 1 of 1 client")
}

// "a/b" of one element differs from a/b of two, and the wait keeps its key.
func TestWaitForAKeyThatReadsAlike(t *testing.T) {
	o := operate(t, "")
	o.restart(func(text string) string {
		return text + "aggregation:\n  rules:\n    - match: node.id.startsWith('two')\n      key: [\"'a'\", \"'b'\"]\n    - key: node.cluster\n"
	})
	o.client("one", "a/b", xds.Delta).take().answer("")
	o.until([]string{"status"}, "1 SYNCED")
	const want = `key a/b is not in use; "a/b" is in use, but is another key`
	o.waiting("--key", "a/b", "--version", "v1", "--timeout", "500ms").ends(exitLate, "relay: "+want, "not reached within 500ms: "+want)
	if code, out := o.run("status", "--key", "a/b"); code != 1 || out != "relay: "+want+"\n" {
		t.Errorf("%d %s", code, out)
	}
	o.waiting("--key", `"a/b"`, "--version", "v1").ends(0, "reached: 1 of 1")
	w := o.waiting("--key", "a/b", "--version", "v1")
	o.client("two", "x", xds.Delta).take().answer("")
	w.ends(0, "reached: 1 of 1")
}

// A token that is renewed during a wait is read again; one that was never valid ends it.
func TestWaitWhileTheTokenIsRenewed(t *testing.T) {
	o := operate(t, "")
	mine := filepath.Join(o.dir, "mine")
	xdstest.WriteFile(t, filepath.Join(o.dir, "token"), "the-first\n")
	xdstest.WriteFile(t, mine, "the-first\n")
	o.restart(func(text string) string { return strings.Replace(text, "admin: {", "admin: {token_file: token, ", 1) })
	one := o.client("one", "edge", xds.Delta)
	one.take().answer("")
	w := o.waiting("--version", "v2", "--token-file", mine)
	o.relay.Admin.SetToken("the-second")
	o.gives("v2", "a", "two")
	one.take().answer("")
	o.until([]string{"status", "--token-file", mine}, "rejects the token")
	replace(t, mine, "the-second\n")
	w.ends(0, "reached: 1 of 1")
	replace(t, mine, "the-third\n")
	o.waiting("--version", "v2", "--token-file", mine).ends(1, "rejects the token")
}
