package integration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"golang.org/x/sys/unix"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// prints runs a command until it exits with 0 and its output has these texts.
func (r *relay) prints(args string, want ...string) (out string) {
	r.t.Helper()
	xdstest.Eventually(r.t, "relay "+args, func() error {
		code := 0
		if out, code = r.Run(strings.Fields(args)...); code != 0 {
			return fmt.Errorf("exit code %d", code)
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				return fmt.Errorf("no %q in:\n%s", w, out)
			}
		}
		return nil
	})
	return out
}

// openTerminal makes a pseudo terminal of this size. Programs write to its second file.
func openTerminal(t testing.TB, columns, rows uint16) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = errors.Join(unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0),
			unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}))
	}
	if err == nil {
		terminal, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = master.Close(), terminal.Close() })
	return master, terminal
}

// clearing begins each drawing of relay status --watch.
const clearing = "\x1b[H\x1b[2J"

// plainLines are the lines that a terminal shows, without colours.
func plainLines(text string) []string {
	text = regexp.MustCompile(`\x1b\[[0-9]*m`).ReplaceAllString(strings.ReplaceAll(text, "\r\n", "\n"), "")
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// onTerminal runs a command on a terminal until it exits, and returns what it printed there.
func (r *relay) onTerminal(columns uint16, args string) (out string, code int) {
	r.t.Helper()
	master, terminal := openTerminal(r.t, columns, 24)
	cmd := xdstest.Command(r.t, append(strings.Fields(args), "--admin", r.Admin)...)
	cmd.Stdout = terminal
	p := xdstest.StartProcess(r.t, "terminal", cmd, nil)
	read := make(chan string)
	go func() {
		b, _ := io.ReadAll(master) // it ends with an error when no process has the terminal open
		read <- string(b)
	}()
	<-p.Exited()
	_ = terminal.Close()
	return <-read, cmd.ProcessState.ExitCode()
}

// noisyRelay is a relay with 12 clients, of which one rejects a cluster.
func noisyRelay(t *testing.T) *relay {
	t.Helper()
	o := origin(t, xdstest.Linear)
	o.Put("edge", xdstest.Web(1)...)
	r := serve(t, o.Address, nil)
	for i := range 12 {
		s := xdstest.OpenStream(t, r.Address, methods[fleet.SotW])
		s.Ask(node(fmt.Sprint("a-rather-long-name-of-a-node-", i), "edge"), resource.ClusterType)
		if r := s.Next(); i == 7 {
			s.Nack(resource.ClusterType, r.Nonce, "no such field")
		}
	}
	r.prints("status", "11 STALE, 1 NACKED")
	return r
}

// On a terminal, relay status --watch draws again and again. A drawing that does not fit has only
// the first rows of the table. An error is shown above the last drawing.
func TestWatchOnATerminal(t *testing.T) {
	t.Parallel()
	r := noisyRelay(t)
	const columns, rows = 45, 14
	master, terminal := openTerminal(t, columns, rows)
	cmd := xdstest.Command(t, "status", "--watch", "--admin", r.Admin)
	cmd.Stdout = terminal
	p := xdstest.StartProcess(t, "watch", cmd, nil)
	in, first := bufio.NewReader(master), ""
	drawing := func() []string {
		t.Helper()
		for text := first; ; {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatalf("%v: %s", err, p.Log())
			}
			rest, begins := strings.CutPrefix(line, clearing)
			if begins && text != "" {
				first = rest
				return plainLines(text)
			}
			text += rest
		}
	}
	drawing()
	shown := drawing()
	// The last line but one needs two lines of the terminal, whose last line stays empty.
	if len(shown) != rows-2 || !strings.HasPrefix(shown[1], "NODE ") || !strings.HasPrefix(shown[2], "a-rather-long-na…  edge ") || !strings.Contains(shown[2], "NACKED ") ||
		!strings.Contains(shown[7], "STALE ") || shown[8] != "…" || shown[9] != "" || !strings.HasPrefix(shown[10], "12 streams; ") ||
		!strings.HasPrefix(shown[11], "! a-rather-long-name-of-a-node-7 rejects CDS") {
		t.Errorf("%d lines:\n%s", len(shown), strings.Join(shown, "\n"))
	}
	for _, line := range shown[:11] {
		if n := len([]rune(line)); n > columns {
			t.Errorf("%d characters: %q", n, line)
		}
	}
	r.Stop()
	for shown = drawing(); !strings.HasPrefix(shown[1], "relay: "); shown = drawing() {
	}
	all := strings.Join(shown, "\n")
	if !strings.HasPrefix(shown[1], "relay: --admin: nothing listens at ") || !strings.Contains(all, "\nthe state at 2") || !strings.Contains(all, "\nNODE ") ||
		!strings.Contains(all, "NACKED ") || !strings.HasPrefix(shown[len(shown)-1], "! a-rather-long-name-of-a-node-7 ") {
		t.Errorf("%s", all)
	}
	p.Signal(syscall.SIGINT)
	<-p.Exited()
	if err := p.Err(); err != nil {
		t.Error(err)
	}
	// Without a relay the command ends. It leaves the content of the terminal as it is.
	if out, code := r.onTerminal(columns, "status --watch"); code != 1 || out != "" {
		t.Errorf("%d %q", code, out)
	}
}
