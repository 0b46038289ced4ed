package main

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// waiting runs relay wait until it ends. It returns after the first output, if any is expected.
func (o *operated) waiting(args ...string) (ended chan string, code *atomic.Int32) {
	return o.waitingFor("edge", args...)
}

// waitingFor is waiting for a version of a key.
func (o *operated) waitingFor(key string, args ...string) (ended chan string, code *atomic.Int32) {
	ended, code = make(chan string, 1), new(atomic.Int32)
	said := new(xdstest.Log)
	all := append([]string{"wait", "--every", "5ms", "--key", key, "--type", "CDS", "--admin", o.admin}, args...)
	go func() {
		code.Store(int32(run(all, said, said)))
		ended <- said.String()
	}()
	if !slices.Contains(args, "-o") {
		said.Until(o, 0, "\n")
	}
	o.Cleanup(func() {
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			o.Error("it waits for ever")
		}
	})
	return ended, code
}

// ends fails unless the command ends with this code and these texts.
func (o *operated) ends(ended chan string, code *atomic.Int32, want int32, texts ...string) {
	o.Helper()
	select {
	case out := <-ended:
		ended <- out
		for _, text := range texts {
			if !strings.Contains(out, text) {
				o.Errorf("no %q in:\n%s", text, out)
			}
		}
		if code.Load() != want {
			o.Errorf("exit code %d, want %d:\n%s", code.Load(), want, out)
		}
	case <-time.After(20 * time.Second):
		o.Fatal("it waits for ever")
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
			ended, code := o.waiting("--version", "v1")
			o.ends(ended, code, 0, "reached: 2 of 2 clients (100.0 %)")

			// A version that comes later and takes its time.
			ended, code = o.waiting("--version", "v2")
			half, halfCode := o.waiting("--version", "v2", "--percent", "50", "-o", "json")
			o.gives("v2", "a", "two")
			one.take().answer("")
			o.ends(half, halfCode, 0, `"reached": 1`, `"percent": 50`)
			two.take()
			select {
			case out := <-ended:
				t.Fatalf("one of two is enough: %s", out)
			default:
			}
			two.answer("")
			o.ends(ended, code, 0, "the version has not arrived yet: the newest is v1", "reached: 2 of 2")

			// Not in time, and never seen.
			ended, code = o.waiting("--version", "v9", "--timeout", "500ms")
			o.ends(ended, code, exitLate, "not reached within 500ms: the version has not arrived yet")
			ended, code = o.waiting("--version", "v2", "--clients", "3", "--timeout", "500ms")
			o.ends(ended, code, exitLate, "not reached within 500ms: 2 of 2")

			// Refused: the wait ends, unless enough clients remain.
			ended, code = o.waiting("--version", "v3")
			half, halfCode = o.waiting("--version", "v3", "--percent", "50")
			o.gives("v3", "a", "three")
			one.take().answer("no")
			o.ends(ended, code, exitUnreachable, "cannot be reached: too many clients reject the version: 0 of 2 clients (0.0 %)", "1 rejected it (one)")
			two.take().answer("")
			o.ends(half, halfCode, 0, "reached: 1 of 2 clients (50.0 %)")
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
	said := new(xdstest.Log)
	ended := make(chan int, 1)
	go func() {
		ended <- run([]string{"wait", "--every", "5ms", "--key", "edge", "--type", "CDS", "--version", "v2", "--admin", address}, said, said)
	}()
	said.Until(t, 0, "\n") // it has counted both
	o.stop()
	o.gives("v2", "a", "two")
	o.start()
	one := o.client("one", "edge", xds.Delta)
	one.take().answer("")
	o.until([]string{"status"}, "1 SYNCED")
	o.client("two", "edge", xds.Delta).take().answer("")
	select {
	case code := <-ended:
		if out := said.String(); code != 0 || !strings.Contains(out, "reached: 2 of 2 clients") {
			t.Errorf("%d %s", code, out)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("it waits for ever:\n%s", said.String())
	}
}

func TestWaitFaults(t *testing.T) {
	for _, c := range [][]string{
		{`required flag(s) "key", "type", "version" not set`},
		{"--percent: must be over 0 and at most 100, but is 101", "--key", "k", "--type", "CDS", "--version", "v", "--percent", "101"},
		{"--timeout: must be over 0, but is 0s", "--key", "k", "--type", "CDS", "--version", "v", "--timeout", "0"},
		{"--lost: must be from 0 to 100, but is 101", "--key", "k", "--type", "CDS", "--version", "v", "--lost", "101"},
		{"--settle: must not be negative, but is -1s", "--key", "k", "--type", "CDS", "--version", "v", "--settle", "-1s"},
		{"--every: must be over 0, but is -1s", "--key", "k", "--type", "CDS", "--version", "v", "--every", "-1s"},
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
	ended, code := o.waiting("--version", "v1", "--timeout", "500ms")
	o.ends(ended, code, exitUnreachable, "relay: version v1 was superseded before the wait began; waiting until it arrives again; --or-newer",
		"not reached within 500ms: superseded by v2 before the wait began")
	ended, code = o.waiting("--version", "v1", "--timeout", "500ms", "-o", "json")
	o.ends(ended, code, exitUnreachable, `"result": "superseded"`, `"superseded_by": "v2"`)
	ended, code = o.waiting("--version", "v1", "--or-newer")
	o.ends(ended, code, 0, "reached: 1 of 1 client (100.0 %), superseded by v2, which also counts")

	// It comes again.
	ended, code = o.waiting("--version", "v1")
	o.gives("v1", "a", "one", "b", "one")
	one.take()
	select {
	case out := <-ended:
		t.Fatalf("it is not taken yet: %s", out)
	default:
	}
	one.answer("")
	o.ends(ended, code, 0, "reached: 1 of 1 client (100.0 %)\n")

	// A roll-back is a later version.
	ended, code = o.waiting("--version", "v2", "--or-newer")
	o.ends(ended, code, 0, "reached: 1 of 1 client (100.0 %), superseded by v1, which also counts")

	// A newer version replaces it: clients that have that count.
	ended, code = o.waiting("--version", "v4")
	o.gives("v4", "a", "four", "b", "one")
	one.take()
	o.until([]string{"status", "-o", "json"}, `"sent": "v4"`)
	o.gives("v5", "a", "five", "b", "one")
	o.until([]string{"status", "-o", "json"}, `"unsent": true`)
	one.answer("")
	one.take().answer("")
	o.ends(ended, code, 0, "reached: 1 of 1 client (100.0 %)")
}

// A key without clients is reported at once, and waited for.
func TestWaitForAKeyThatIsNotInUse(t *testing.T) {
	o := operate(t, "")
	ended, code := o.waiting("--version", "v1", "--timeout", "500ms", "-o", "json")
	o.ends(ended, code, exitLate, "relay: key edge is not in use; waiting for a client with this key\n", `"result": "timeout"`, `"key_in_use": false`)
	ended, code = o.waiting("--version", "v1", "--timeout", "500ms")
	o.ends(ended, code, exitLate, "not reached within 500ms: key edge is not in use")
	ended, code = o.waiting("--version", "v1")
	o.client("one", "edge", xds.Delta).take().answer("")
	o.ends(ended, code, 0, "relay: key edge is not in use", "reached: 1 of 1 client")
}

// A real relay that drains ends streams one by one; the remaining ones are not all.
func TestWaitWhileARelayDrains(t *testing.T) {
	address := xdstest.FreeAddress(t)
	o := operate(t, address)
	o.stop()
	file := filepath.Join(o.dir, "relay.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Replace(text, []byte("drain: 0s"), []byte("drain: 600ms"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	o.start()
	o.client("one", "edge", xds.Delta).take() // no answer
	o.client("two", "edge", xds.Delta).take().answer("")
	o.until([]string{"status"}, "1 SYNCED, 1 STALE")
	ended, code := o.waiting("--version", "v1")
	o.stop()
	o.start()
	o.client("two", "edge", xds.Delta).take().answer("")
	o.until([]string{"status"}, "1 SYNCED")
	select {
	case out := <-ended:
		t.Fatalf("one of two is enough: %s", out)
	default:
	}
	o.client("one", "edge", xds.Delta).take().answer("")
	o.ends(ended, code, 0, "relay: the relay is stopping; waiting for it to come back", "reached: 2 of 2 clients")
}

// A real /progress says that the relay drains.
func TestProgressOfARelayThatDrains(t *testing.T) {
	o := operate(t, "")
	o.client("one", "edge", xds.Delta).take().answer("")
	o.until([]string{"status"}, "SYNCED")
	o.relay.Admin.SetReady(false)
	ended, code := o.waiting("--version", "v1", "--timeout", "500ms")
	o.ends(ended, code, exitLate, "relay: the relay is stopping", "not reached within 500ms: the relay is stopping")
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
		ended, code := o.waiting(append(c.args, "--timeout", "200ms", "-o", "json")...)
		o.ends(ended, code, exitLate, c.want...)
	}
	// A fault of the origin explains why no version comes.
	if err := os.WriteFile(filepath.Join(o.dir, "origin", "bad.yaml"), []byte("resources: [{]"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.until([]string{"status"}, "bad.yaml")
	ended, code := o.waiting("--version", "v9", "--timeout", "200ms", "-o", "json")
	o.ends(ended, code, exitLate, `"reason": "the version has not arrived: origin file:origin has files that cannot be used: `, "bad.yaml")
	ended, code = o.waiting("--version", "v1", "-o", "json")
	o.ends(ended, code, 0)
	text := <-ended
	ended <- text
	if strings.Contains(text, "reason") {
		t.Errorf("reached, and yet there is a reason:\n%s", text)
	}
}
