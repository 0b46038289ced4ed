package main

import (
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// waiting is a run of relay wait.
type waiting struct {
	*operated
	ended chan string // has the output after the end
	code  atomic.Int32
}

// waiting runs relay wait for a version of the key edge. It returns after the first output, if any is
// expected.
func (o *operated) waiting(args ...string) *waiting { return o.waitingFor("edge", args...) }

// waitingFor is waiting for a version of a key.
func (o *operated) waitingFor(key string, args ...string) *waiting {
	w := &waiting{operated: o, ended: make(chan string, 1)}
	said := new(xdstest.Log)
	all := append([]string{"wait", "--every", "5ms", "--key", key, "--type", "CDS", "--admin", o.admin}, args...)
	go func() {
		w.code.Store(int32(run(all, said, said)))
		w.ended <- said.String()
	}()
	if !slices.Contains(args, "-o") {
		said.Until(o, 0, "\n")
	}
	o.Cleanup(func() {
		select {
		case <-w.ended:
		case <-time.After(30 * time.Second):
			o.Error("it waits for ever")
		}
	})
	return w
}

// ends fails unless the command ends with this code and these texts. It returns the output.
func (w *waiting) ends(want int32, texts ...string) (out string) {
	w.Helper()
	select {
	case out = <-w.ended:
		w.ended <- out
	case <-time.After(20 * time.Second):
		w.Fatal("it waits for ever")
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			w.Errorf("no %q in:\n%s", text, out)
		}
	}
	if code := w.code.Load(); code != want {
		w.Errorf("exit code %d, want %d:\n%s", code, want, out)
	}
	return out
}

// goesOn fails if the command has ended.
func (w *waiting) goesOn() {
	w.Helper()
	select {
	case out := <-w.ended:
		w.Fatalf("it does not wait any more: %s", out)
	default:
	}
}

func TestWait(t *testing.T) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		t.Run(v.String(), func(t *testing.T) {
			o := operate(t, "")
			one, two := o.client("one", "edge", v), o.client("two", "edge", v)
			one.take().answer("")
			two.take().answer("")
			o.until([]string{"status"}, "2 SYNCED")
			o.waiting("--version", "v1").ends(0, "reached: 2 of 2 clients (100.0 %)")

			// A version that comes later and takes its time.
			w := o.waiting("--version", "v2")
			half := o.waiting("--version", "v2", "--percent", "50", "-o", "json")
			o.gives("v2", "a", "two")
			one.take().answer("")
			half.ends(0, `"reached": 1`, `"percent": 50`)
			two.take()
			w.goesOn()
			two.answer("")
			w.ends(0, "the version has not arrived yet: the newest is v1", "reached: 2 of 2")

			// Not in time, and never seen.
			o.waiting("--version", "v9", "--timeout", "500ms").ends(exitLate, "not reached within 500ms: the version has not arrived yet")
			o.waiting("--version", "v2", "--clients", "3", "--timeout", "500ms").ends(exitLate, "not reached within 500ms: 2 of 2")

			// Refused: the wait ends, unless enough clients remain.
			w = o.waiting("--version", "v3")
			half = o.waiting("--version", "v3", "--percent", "50")
			o.gives("v3", "a", "three")
			one.take().answer("no")
			w.ends(exitUnreachable, "cannot be reached: too many clients reject the version: 0 of 2 clients (0.0 %)", "1 rejected it (one)")
			two.take().answer("")
			half.ends(0, "reached: 1 of 2 clients (50.0 %)")
		})
	}
}

// The wait goes on over a restart, and does not take the first client for all.
func TestWaitOverARestart(t *testing.T) {
	address := xdstest.FreeAddress(t)
	o := operate(t, address)
	o.client("one", "edge", xds.Delta).take().answer("")
	o.client("two", "edge", xds.Delta).take().answer("")
	o.until([]string{"status"}, "2 SYNCED")
	w := o.waiting("--version", "v2") // it has counted both
	o.stop()
	o.gives("v2", "a", "two")
	o.start()
	one := o.client("one", "edge", xds.Delta)
	one.take().answer("")
	o.until([]string{"status"}, "1 SYNCED")
	o.client("two", "edge", xds.Delta).take().answer("")
	w.ends(0, "reached: 2 of 2 clients")
}

func TestWaitFaults(t *testing.T) {
	for _, c := range [][]string{
		{`required flag(s) "key", "type", "version" not set`},
		{"--percent: must be over 0 and at most 100, but is 101", "--key", "k", "--type", "CDS", "--version", "v", "--percent", "101"},
		{"--timeout: must be over 0, but is 0s", "--key", "k", "--type", "CDS", "--version", "v", "--timeout", "0"},
		{"--lost: must be from 0 to 100, but is 101", "--key", "k", "--type", "CDS", "--version", "v", "--lost", "101"},
		{"--settle: must not be negative, but is -1s", "--key", "k", "--type", "CDS", "--version", "v", "--settle", "-1s"},
		{"--every: must be over 0, but is -1s", "--key", "k", "--type", "CDS", "--version", "v", "--every", "-1s"},
		{"--key: must not be empty", "--key", "", "--type", "CDS", "--version", "1"},
		{"--version: must not be empty", "--key", "k", "--type", "CDS", "--version", ""},
		{`must be a URL or a short name such as CDS`, "--key", "k", "--type", "x", "--version", "v"},
		{"nothing listens at http://127.0.0.1:1", "--key", "k", "--type", "CDS", "--version", "v", "--admin", "127.0.0.1:1", "--timeout", "50ms", "--every", "10ms"},
	} {
		code, out, errs := runRelay(append([]string{"wait"}, c[1:]...)...)
		if code != 1 || !strings.Contains(out+errs, c[0]) {
			t.Errorf("%v: %d %s%s", c, code, out, errs)
		}
	}
	// A client without a valid token does not wait.
	guarded := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- guarded.Serve(l) }()
	code, out, errs := runRelay("wait", "--key", "k", "--type", "CDS", "--version", "v", "--admin", l.Addr().String())
	if code != 1 || !strings.Contains(out+errs, "requires a token") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	code, out, errs = runRelay("wait", "--key", "k", "--type", "CDS", "--version", "v", "--admin", l.Addr().String(), "-o", "json")
	for _, want := range []string{`"result": "error"`, `requires a token`, `"key": "k"`} {
		if code != 1 || !strings.Contains(out, want) || strings.Contains(out, "0001") || !strings.Contains(errs, "requires a token") {
			t.Errorf("%d %s%s", code, out, errs)
		}
	}
	if err := guarded.Close(); err != nil {
		t.Error(err)
	}
	<-done
}

// A version that was replaced before the wait has to come again, unless --or-newer is set.
func TestWaitForAReplacedVersion(t *testing.T) {
	o := operate(t, "")
	one := o.client("one", "edge", xds.Delta)
	one.take().answer("")
	o.until([]string{"status"}, "SYNCED v1")
	o.gives("v2", "a", "two", "b", "one")
	one.take().answer("")
	o.until([]string{"status"}, "SYNCED v2")
	o.waiting("--version", "v1", "--timeout", "500ms").ends(exitUnreachable, "relay: version v1 was superseded before the wait began; waiting until it arrives again; --or-newer",
		"not reached within 500ms: superseded by v2 before the wait began")
	o.waiting("--version", "v1", "--timeout", "500ms", "-o", "json").ends(exitUnreachable, `"result": "superseded"`, `"superseded_by": "v2"`)
	o.waiting("--version", "v1", "--or-newer").ends(0, "reached: 1 of 1 client (100.0 %), superseded by v2, which also counts")

	// It comes again.
	w := o.waiting("--version", "v1")
	o.gives("v1", "a", "one", "b", "one")
	one.take()
	w.goesOn()
	one.answer("")
	w.ends(0, "reached: 1 of 1 client (100.0 %)\n")

	// A roll-back is a later version.
	o.waiting("--version", "v2", "--or-newer").ends(0, "reached: 1 of 1 client (100.0 %), superseded by v1, which also counts")

	// A newer version replaces it: clients that have that count.
	w = o.waiting("--version", "v4")
	o.gives("v4", "a", "four", "b", "one")
	one.take()
	o.until([]string{"status", "-o", "json"}, `"sent": "v4"`)
	o.gives("v5", "a", "five", "b", "one")
	o.until([]string{"status", "-o", "json"}, `"unsent": true`)
	one.answer("")
	one.take().answer("")
	w.ends(0, "reached: 1 of 1 client (100.0 %)")
}

// A key without clients is reported at once, and waited for.
func TestWaitForAKeyThatIsNotInUse(t *testing.T) {
	o := operate(t, "")
	o.waiting("--version", "v1", "--timeout", "500ms", "-o", "json").ends(exitLate, "relay: key edge is not in use; waiting for a client with this key\n", `"result": "timeout"`, `"key_in_use": false`)
	o.waiting("--version", "v1", "--timeout", "500ms").ends(exitLate, "not reached within 500ms: key edge is not in use")
	w := o.waiting("--version", "v1")
	o.client("one", "edge", xds.Delta).take().answer("")
	w.ends(0, "relay: key edge is not in use", "reached: 1 of 1 client")
}

// A real relay that drains ends streams one by one; the remaining ones are not all.
func TestWaitWhileARelayDrains(t *testing.T) {
	address := xdstest.FreeAddress(t)
	o := operate(t, address)
	o.restart(func(text string) string { return strings.Replace(text, "drain: 0s", "drain: 600ms", 1) })
	o.client("one", "edge", xds.Delta).take() // no answer
	o.client("two", "edge", xds.Delta).take().answer("")
	o.until([]string{"status"}, "1 SYNCED, 1 STALE")
	w := o.waiting("--version", "v1")
	o.stop()
	o.start()
	o.client("two", "edge", xds.Delta).take().answer("")
	o.until([]string{"status"}, "1 SYNCED")
	w.goesOn()
	o.client("one", "edge", xds.Delta).take().answer("")
	w.ends(0, "relay: the relay is stopping; waiting for it to come back", "reached: 2 of 2 clients")
}

// A real /progress says that the relay drains.
func TestProgressOfARelayThatDrains(t *testing.T) {
	o := operate(t, "")
	o.client("one", "edge", xds.Delta).take().answer("")
	o.until([]string{"status"}, "SYNCED")
	o.relay.Admin.SetReady(false)
	o.waiting("--version", "v1", "--timeout", "500ms").ends(exitLate, "relay: the relay is stopping", "not reached within 500ms: the relay is stopping")
}

// JSON has the reason for a failure, also without an answer of the relay.
func TestWaitSaysWhyAsData(t *testing.T) {
	o := operate(t, "")
	one := o.client("one", "edge", xds.Delta)
	one.take().answer("")
	o.until([]string{"status"}, "1 SYNCED")
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--key", "nobody", "--version", "v1"}, []string{`"result": "timeout"`, `"reason": "key nobody is not in use; waiting for a client with this key"`, `"key_in_use": false`}},
		{[]string{"--version", "v9"}, []string{`"reason": "the version has not arrived yet: the newest is v1; 1 client"`}},
		{[]string{"--version", "v1", "--clients", "2"}, []string{`"reason": "1 of 1 client (100.0 %), but --clients requires 2"`}},
	} {
		o.waiting(append(c.args, "--timeout", "200ms", "-o", "json")...).ends(exitLate, c.want...)
	}
	// A fault of the origin explains why no version comes.
	xdstest.WriteFile(t, filepath.Join(o.dir, "origin", "bad.yaml"), "resources: [{]")
	o.until([]string{"status"}, "bad.yaml")
	o.waiting("--version", "v9", "--timeout", "200ms", "-o", "json").ends(exitLate, `"reason": "the version has not arrived: origin file:origin has files that cannot be used: `, "bad.yaml")
	text := o.waiting("--version", "v1", "-o", "json").ends(0)
	if strings.Contains(text, "reason") {
		t.Errorf("reached, and yet there is a reason:\n%s", text)
	}
}
