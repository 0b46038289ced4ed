package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"xdsrelay/internal/xds"
)

// A real relay: the wait fails with the reason, unless --lost allows it.
func TestWaitWhenAClientLeaves(t *testing.T) {
	o := operate(t, "")
	one, two := o.client("one", "edge", xds.Delta), o.client("two", "edge", xds.SotW)
	one.take().answer("")
	two.take().answer("")
	o.until([]string{"status"}, "2 SYNCED")
	ended, code := o.waiting("--version", "v2", "--settle", "300ms")
	may, mayCode := o.waiting("--version", "v2", "--settle", "300ms", "--lost", "50")
	o.gives("v2", "a", "two")
	two.take() // one leaves
	one.take()
	o.until([]string{"status", "-o", "json"}, `"sent": "v2"`)
	two.leave()
	o.until([]string{"status"}, "1 stream")
	one.answer("")
	o.ends(ended, code, exitUnreachable, "relay: 1 of 2 clients left during the wait and did not come back within 300ms; --lost allows 10 %", "too many clients left: 1 of 1 client")
	o.ends(may, mayCode, 0, "reached: 1 of 1 client")
}

// "a/b" of one element differs from a/b of two, and the wait keeps its key.
func TestWaitForAKeyThatReadsAlike(t *testing.T) {
	o := operate(t, "")
	o.stop()
	file := filepath.Join(o.dir, "relay.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, "aggregation:\n  rules:\n    - match: node.id.startsWith('two')\n      key: [\"'a'\", \"'b'\"]\n    - key: node.cluster\n"...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	o.start()
	o.client("one", "a/b", xds.Delta).take().answer("")
	o.until([]string{"status"}, "1 SYNCED")
	const want = `key a/b is not in use; "a/b" is in use, but is another key`
	ended, code := o.waiting("--key", "a/b", "--version", "v1", "--timeout", "500ms")
	o.ends(ended, code, exitLate, "relay: "+want, "not reached within 500ms: "+want)
	if code, out := o.run("status", "--key", "a/b"); code != 1 || out != "relay: "+want+"\n" {
		t.Errorf("%d %s", code, out)
	}
	ended, code = o.waiting("--key", `"a/b"`, "--version", "v1")
	o.ends(ended, code, 0, "reached: 1 of 1")
	ended, code = o.waiting("--key", "a/b", "--version", "v1")
	o.client("two", "x", xds.Delta).take().answer("")
	o.ends(ended, code, 0, "reached: 1 of 1")
}

// A token that is renewed during a wait is read again; one that was never valid ends it.
func TestWaitWhileTheTokenIsRenewed(t *testing.T) {
	o := operate(t, "")
	o.stop()
	file, token := filepath.Join(o.dir, "relay.yaml"), filepath.Join(o.dir, "token")
	writes := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	writes(file, string(bytes.Replace(text, []byte("admin: {"), []byte("admin: {token_file: token, "), 1)))
	writes(token, "the-first\n")
	mine := filepath.Join(o.dir, "mine")
	writes(mine, "the-first\n")
	o.start()
	one := o.client("one", "edge", xds.Delta)
	one.take().answer("")
	ended, code := o.waiting("--version", "v2", "--token-file", mine)
	o.relay.Admin.SetToken("the-second")
	o.gives("v2", "a", "two")
	one.take().answer("")
	o.until([]string{"status", "--token-file", mine}, "rejects the token")
	writes(mine, "the-second\n")
	o.ends(ended, code, 0, "reached: 1 of 1")
	writes(mine, "the-third\n")
	ended, code = o.waiting("--version", "v2", "--token-file", mine)
	o.ends(ended, code, 1, "rejects the token")
}
