package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/terminal"
	"xdsrelay/internal/xds"
)

// A version that crashes clients is not reached, whatever the rest have; a few clients may leave.
func TestWaitWhenClientsVanish(t *testing.T) {
	type answer struct {
		after            time.Duration // since the answer before
		clients, reached int
		restarted        bool
		unknown, unused  bool
	}
	const second = time.Second
	for name, c := range map[string]struct {
		answers []answer
		reached bool
		gone    int
	}{
		"a moment ago":           {[]answer{{0, 100, 0, false, true, false}, {second, 40, 40, false, false, false}}, false, 0},
		"at once":                {[]answer{{0, 100, 20, false, false, false}, {second, 40, 40, false, false, false}}, false, 0},
		"and come back":          {[]answer{{0, 100, 20, false, false, false}, {second, 40, 40, false, false, false}, {20 * second, 100, 99, false, false, false}}, true, 0},
		"for good":               {[]answer{{0, 100, 20, false, false, false}, {second, 40, 40, false, false, false}, {settle, 40, 40, false, false, false}}, false, 60},
		"one by one":             {[]answer{{0, 100, 0, false, false, false}, {30 * second, 96, 0, false, false, false}, {30 * second, 92, 0, false, false, false}, {30 * second, 88, 88, false, false, false}, {30 * second, 84, 84, false, false, false}, {settle, 84, 84, false, false, false}}, false, 16},
		"few, a moment ago":      {[]answer{{0, 100, 0, false, false, false}, {second, 91, 91, false, false, false}}, false, 0},
		"few, for good":          {[]answer{{0, 100, 0, false, false, false}, {second, 91, 91, false, false, false}, {settle, 91, 91, false, false, false}}, true, 0},
		"before the version":     {[]answer{{0, 100, 0, false, true, false}, {second, 40, 0, false, true, false}, {settle, 40, 0, false, true, false}, {second, 40, 40, false, false, false}}, true, 0},
		"all of them":            {[]answer{{0, 100, 20, false, false, false}, {second, 0, 0, false, true, true}, {settle, 0, 0, false, true, true}}, false, 100},
		"to another relay":       {[]answer{{0, 100, 20, false, false, false}, {10 * second, 30, 30, true, false, false}, {settle, 30, 30, false, false, false}}, true, 0},
		"after they came to all": {[]answer{{0, 100, 20, false, false, false}, {second, 110, 110, false, false, false}}, true, 0},
		"while a few come":       {[]answer{{0, 100, 20, false, false, false}, {second, 40, 40, false, false, false}, {30 * second, 60, 60, false, false, false}, {30 * second, 60, 60, false, false, false}}, false, 40},
	} {
		t.Run(name, func(t *testing.T) {
			w := &waiter{percent: 99, clients: 1, settle: settle, lost: 10}
			now := time.Unix(1e9, 0)
			started := now
			for _, a := range c.answers {
				if now = now.Add(a.after); a.restarted {
					started = now
				}
				w.record(keystatus.Progress{Started: started, InUse: !a.unused, Known: !a.unknown, Clients: a.clients, Reached: a.reached, Pending: a.clients - a.reached}, now)
			}
			if w.reached() != c.reached || w.gone() != c.gone {
				t.Errorf("reached: %v, want %v; gone: %d, want %d: %+v", w.reached(), c.reached, w.gone(), c.gone, w.members)
			}
		})
	}
}

// After a time without answers, clients have the whole settle time to come back.
func TestWaitWhenClientsVanishUnseen(t *testing.T) {
	w := &waiter{percent: 99, clients: 1, settle: settle, lost: 10}
	now := time.Unix(1e9, 0)
	w.record(keystatus.Progress{InUse: true, Known: true, Clients: 100, Reached: 20}, now)
	w.away = context.DeadlineExceeded
	now = now.Add(2 * settle)
	w.record(keystatus.Progress{InUse: true, Known: true, Clients: 40, Reached: 40}, now)
	if w.reached() || w.gone() > 0 {
		t.Errorf("reached: %v, gone: %d", w.reached(), w.gone())
	}
	if text := w.text(); !strings.Contains(text, "60 more left recently") {
		t.Error(text)
	}
	w.record(w.last, now.Add(settle))
	var out bytes.Buffer
	w.out, w.format = &out, terminal.FormatJSON
	if err := w.end(isLost, "", exitError(exitUnreachable)); err != exitError(exitUnreachable) || !strings.Contains(out.String(), `"clients_expected": 40`) || !strings.Contains(out.String(), `"clients_gone": 60`) {
		t.Errorf("%v %s", err, &out)
	}
}

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
	o.relay.admin.SetToken("the-second")
	o.gives("v2", "a", "two")
	one.take().answer("")
	o.until([]string{"status", "--token-file", mine}, "rejects the token")
	writes(mine, "the-second\n")
	o.ends(ended, code, 0, "reached: 1 of 1")
	writes(mine, "the-third\n")
	ended, code = o.waiting("--version", "v2", "--token-file", mine)
	o.ends(ended, code, 1, "rejects the token")
}
