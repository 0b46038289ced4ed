package conformance

import (
	"bufio"
	"io"
	"os/exec"
	"strings"
	"testing"

	"xdsrelay/internal/xdstest"
)

// waiting is a running `relay wait`.
type waiting struct {
	c     *trial
	cmd   *exec.Cmd
	lines *bufio.Reader
	said  string
}

// wait starts `relay wait` for a version of a type of the trial's key.
func (c *trial) wait(r *relay, k kind, version string) *waiting {
	c.Helper()
	w := &waiting{c: c, cmd: xdstest.Command(c, "wait", "--admin", r.Admin, "--key", c.key, "--type", string(k), "--version", version,
		"--timeout", xdstest.Patience.String(), "--every", "20ms")}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		c.Fatal(err)
	}
	w.cmd.Stderr = w.cmd.Stdout
	if err := w.cmd.Start(); err != nil {
		c.Fatal(err)
	}
	w.lines = bufio.NewReader(out)
	return w
}

// begun returns once the command has asked the relay.
func (w *waiting) begun() {
	w.c.Helper()
	line, err := w.lines.ReadString('\n')
	if w.said += line; err != nil {
		w.c.Fatalf("relay wait: %v: %s", err, w.said)
	}
}

// exits checks the exit code.
func (w *waiting) exits(want int) {
	w.c.Helper()
	rest, _ := io.ReadAll(w.lines)
	_ = w.cmd.Wait() // the exit code shows it
	if got := w.cmd.ProcessState.ExitCode(); got != want {
		w.c.Fatalf("relay wait exits with %d, want %d: %s%s", got, want, w.said, rest)
	}
}

// Behind another relay `relay wait` has no false failures. A NACK fails the wait for the rejected
// version, but not for the roll-back or a later version. A NACK that the next response of the same
// version ends does not fail it either. The relay between acknowledges by itself.
func TestWaitBehindAnotherRelay(t *testing.T) {
	eachOwn(t, onADS, func(t *testing.T, at place) {
		control := newTestControl(t)
		first := own(t, at.up, xdstest.Config{"downstream.removal_delay": "0s"}, control.addr)
		second := own(t, at.up, xdstest.Config{"downstream.removal_delay": "0s"}, first.Address)
		c := on(t, at, second, control)
		c.site.manual(cds)
		cl := c.client("one")
		cl.sub(cds)
		c.site.request(t, cds, 1)
		origin := c.site.stream(t, 1)
		send := func(version, all string, change ...string) {
			if at.up == "sotw" {
				change = strings.Fields(all)
			}
			origin.reply(t, cds, version, change...)
		}

		send("v1", "a=1", "a=1")
		cl.take(cds, "a=1")
		c.wait(first, cds, "v1").exits(0)
		c.wait(second, cds, "v1").exits(0)

		send("v2", "a=1 bad=1", "bad=1")
		rejected := map[bool]string{true: "bad=1", false: "a=1 bad=1"}[cl.delta]
		cl.nack(cl.want(cds, rejected))
		c.wait(first, cds, "v2").exits(0)
		c.wait(second, cds, "v2").exits(3)

		back := []*waiting{c.wait(first, cds, "v3"), c.wait(second, cds, "v3")}
		for _, w := range back {
			w.begun()
		}
		send("v3", "a=1", "-bad") // the roll-back
		unanswered := cl.next(cds)
		xdstest.Eventually(t, "v3 at the second relay", func() error {
			var p struct{ Clients, Nacking, Pending int }
			if err := second.GetJSON("/progress/"+c.key+"?type=CDS&version=v3", &p); err != nil {
				return err
			}
			if p.Clients != 1 || p.Pending != 1 {
				return errorf("%+v", p)
			}
			return nil
		})
		cl.ack(unanswered)
		for _, w := range back {
			w.exits(0)
		}

		send("v4", "a=2", "a=2")
		cl.nack(cl.next(cds))
		good := c.wait(second, cds, "v5")
		good.begun()
		send("v4", "a=3", "a=3") // the rest of the same version
		cl.take(cds, "a=3")
		c.wait(second, cds, "v4").exits(0)
		send("v5", "a=4", "a=4")
		cl.take(cds, "a=4")
		good.exits(0)
		c.wait(first, cds, "v5").exits(0)
	})
}

// A name without an answer does not keep a client from having a version.
func TestP57_WaitIgnoresPendingNames(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.manual(eds)
		cl := c.client("one")
		cl.sub(eds, "x", "y")
		c.site.request(c, eds, 1)
		c.site.stream(c, 1).reply(c, eds, "v1", "x=1")
		cl.take(eds, "x=1")
		c.wait(c.relay, eds, "v1").exits(0)
	})
}
