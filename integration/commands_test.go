package integration

import (
	"bufio"
	"errors"
	"fmt"
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

// The commands of an operator, on clients of relay simulate and on some that reject a cluster.
func TestCommandsOfOperators(t *testing.T) {
	t.Parallel()
	o := origin(t, xdstest.Linear)
	o.Put("edge", xdstest.Web(1)...)
	r := serve(t, o.Address, nil)
	simulate := xdstest.StartProcess(t, "simulate", xdstest.Command(t, "simulate", "--relay", r.Address, "--clients", "6", "--delta"), nil)
	for i := range 3 {
		s := xdstest.OpenStream(t, r.Address, methods[fleet.SotW])
		s.Ask(node(fmt.Sprint("nacks-", i), "edge"), resource.ClusterType)
		s.Nack(resource.ClusterType, s.Next().Nonce, "no such field")
	}
	r.prints("status --summary", "9 clients; types on them: 24 SYNCED, 3 NACKED\n", "\nedge  9        24      0         0      3\n")
	r.prints("status", "9 streams; types on them: 24 SYNCED, 3 NACKED\n", " rejects CDS version ", ": no such field (2 more like this)\n", "edge-005  edge  delta ")
	if out := r.prints("status --state NACKED --type CDS --no-headers"); strings.Count(out, "\n") != 3 || strings.Contains(out, "NODE") || !strings.HasPrefix(out, "nacks-0  edge  sotw  NACKED ") {
		t.Errorf("%s", out)
	}
	r.prints("status --state STALE", "none of 9 streams is STALE\n")
	r.prints("keys", "\nedge  9        24      0         0      3 ")
	r.prints("nacks", "no such field")
	r.prints("origins", "ORIGIN", o.Address)
	r.prints("diff nacks-1", "the client rejected version ", "no such field")
	r.prints("health", "is live\n")
	r.prints("status --node edge-001 -o wide", "CONNECTED", "127.0.0.1:")

	if err := simulate.Terminate(); err != nil {
		t.Error(err)
	}
	if !regexp.MustCompile(`6 of 6 connected, 6 complete, [0-9]+ ACKs, 0 NACKs, 0 errors\n`).MatchString(simulate.Log()) {
		t.Errorf("%s", simulate.Log())
	}
	r.Stop()
	if out, code := r.Run("health"); code != 1 || out != "" {
		t.Errorf("%d %s", code, out)
	}
}

// openTerminal makes a pseudo terminal of this size. Programs write to its second file.
func openTerminal(t *testing.T, columns, rows uint16) (master, terminal *os.File) {
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

// On a terminal, relay status --watch draws again and again. Lines and tables fit the terminal.
func TestStatusOnATerminal(t *testing.T) {
	t.Parallel()
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
	const columns, rows = 45, 10
	master, terminal := openTerminal(t, columns, rows)
	cmd := xdstest.Command(t, "status", "--watch", "--admin", r.Admin)
	cmd.Stdout = terminal
	p := xdstest.StartProcess(t, "watch", cmd, nil)
	in := bufio.NewReader(master)
	var shown []string
	for drawings := 0; drawings < 3; {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("%v: %s", err, p.Log())
		}
		if text, begins := strings.CutPrefix(line, "\x1b[H\x1b[2J"); begins {
			if drawings++; drawings == 3 {
				break
			}
			shown, line = nil, text
		}
		shown = append(shown, regexp.MustCompile(`\x1b\[[0-9]*m`).ReplaceAllString(strings.TrimSuffix(line, "\r\n"), ""))
	}
	// The third line needs two lines of the terminal, whose last line stays empty.
	if len(shown) != rows-2 || !strings.HasPrefix(shown[1], "12 streams; ") || !strings.HasPrefix(shown[2], "! a-rather-long-name-of-a-node-7 rejects CDS") ||
		!strings.HasPrefix(shown[4], "NODE ") || !strings.HasPrefix(shown[5], "a-rather-long-na…  edge ") || !strings.Contains(shown[5], "NACKED ") || !strings.Contains(shown[6], "STALE ") {
		t.Errorf("%d lines:\n%s", len(shown), strings.Join(shown, "\n"))
	}
	for _, line := range shown[4:] {
		if n := len([]rune(line)); n > columns {
			t.Errorf("%d characters: %q", n, line)
		}
	}
	p.Signal(syscall.SIGINT)
	<-p.Exited()
	if err := p.Err(); err != nil {
		t.Error(err)
	}
}
