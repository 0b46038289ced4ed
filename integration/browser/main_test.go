package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"go.uber.org/goleak"
)

// patience is how long a test waits for something that has to come. It is only
// ever spent by tests that fail.
const patience = 30 * time.Second

var (
	binary  string          // the relay
	browser context.Context // whose tabs tests open
)

func TestMain(m *testing.M) {
	code, err := testMain(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func testMain(m *testing.M) (code int, err error) {
	scratch, err := os.MkdirTemp("", "relay-page-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	chromium := findChromium()
	if chromium == "" {
		if os.Getenv("CI") != "" {
			return 1, errors.New("there is no Chromium, and CI is set: apt-get install chromium")
		}
		fmt.Println("skipped: there is no Chromium here; apt-get install chromium, or name one by CHROMIUM")
		return 0, nil
	}
	binary = filepath.Join(scratch, "relay")
	build := exec.Command("go", "build", "-o", binary, "./cmd/relay")
	build.Dir = filepath.Join("..", "..") // by the relay's own go.mod
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the relay: %w\n%s", err, out)
	}

	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium), chromedp.UserDataDir(filepath.Join(scratch, "profile")),
		// It is looked at by nobody else, and as root there is no other way.
		chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(time.Minute))
	all, stop := chromedp.NewExecAllocator(context.Background(), options...)
	var closed context.CancelFunc
	browser, closed = chromedp.NewContext(all)
	if err := chromedp.Do(browser); err != nil {
		stop()
		return 1, fmt.Errorf("start %s: %w", chromium, err)
	}
	code = m.Run()
	err = chromedp.Cancel(browser) // waits until it has ended
	closed()
	stop()
	if code == 0 && err == nil {
		err = goleak.Find()
	}
	return code, err
}

// findChromium is the browser's path; empty if there is none.
func findChromium() string {
	if path := os.Getenv("CHROMIUM"); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// until waits for a state that no event tells: check is asked every few
// milliseconds until it gives no error.
func until(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s: %v", what, err)
		}
	}
}
