package integration

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// Nobody reads the relay's stderr, or its reader has gone. Clients get their changes, relay status
// says what is wrong, and SIGTERM ends the process.
func TestLogWithoutReader(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		gone bool
		says string
	}{
		"nobody reads":        {false, "stderr takes no log lines: nobody reads it"},
		"the reader has gone": {true, "broken pipe"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := origin(t, xdstest.Linear)
			o.Put("edge", xdstest.Cluster("a", 1))
			address, admin := xdstest.FreeAddress(t), xdstest.FreeAddress(t)
			config := xdstest.QuickConfig().With(xdstest.Config{
				"upstream.origins": xdstest.Origins(o.Address), "downstream.address": address, "admin.address": admin,
			})
			cmd := xdstest.Command(t, "serve", "--config", config.WriteFile(t))
			read := startUnread(t, cmd)
			xdstest.Eventually(t, "/ready", func() error { _, err := xdstest.HTTPGet("http://" + admin + "/ready"); return err })
			if c.gone {
				if err := read.Close(); err != nil {
					t.Fatal(err)
				}
			}
			client := client(t, address, fleet.ClientConfig{Node: node("n", "edge"), Variant: fleet.Delta})
			waitFor(t, client, "its cluster", has(xdstest.Cluster("a", 1)))
			post := http.Client{Timeout: xdstest.Patience}
			for range 100 { // more lines than the pipe has room for
				resp, err := post.Post("http://"+admin+"/logging?level=debug", "", nil)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close() // not read
			}
			o.Put("edge", xdstest.Cluster("a", 2))
			waitFor(t, client, "the change", has(xdstest.Cluster("a", 2)))
			xdstest.Eventually(t, "relay status", func() error {
				out, err := xdstest.Command(t, "status", "--admin", admin).CombinedOutput()
				if err != nil || !strings.Contains(string(out), c.says) {
					return fmt.Errorf("%w: no %q in:\n%s", err, c.says, out)
				}
				return nil
			})
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("the relay ended with %v", err)
				}
			case <-time.After(xdstest.Patience):
				t.Error("SIGTERM does not end the relay")
			}
		})
	}
}

// startUnread starts a command with a small pipe as its stderr, and returns the end to read from.
// The process is killed at the end of the test.
func startUnread(t *testing.T, cmd *exec.Cmd) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() }) // the test may have closed it
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = w
	err = cmd.Start()
	_ = w.Close() // the process has its own copy
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it may have ended
	return r
}
