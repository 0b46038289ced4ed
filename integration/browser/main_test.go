package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"

	"github.com/chromedp/chromedp"
)

var browser context.Context // the tests open tabs in it

func TestMain(m *testing.M) {
	chromium := findChromium()
	switch {
	case chromium != "":
		os.Exit(xdstest.Main(&inBrowser{m, chromium}))
	case os.Getenv("CI") != "":
		fmt.Fprintln(os.Stderr, "there is no Chromium, and CI is set: apt-get install chromium")
		os.Exit(1)
	}
	fmt.Println("skipped: there is no Chromium here; apt-get install chromium, or name one by CHROMIUM")
}

// inBrowser runs the tests while a browser runs.
type inBrowser struct {
	tests    *testing.M
	chromium string
}

// Run implements the interface that xdstest.Main needs.
func (b *inBrowser) Run() int {
	code, err := b.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func (b *inBrowser) run() (code int, err error) {
	profile, err := os.MkdirTemp("", "relay-page-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(profile)) }()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(b.chromium), chromedp.UserDataDir(profile),
		// It visits no other site, and cannot run as root otherwise.
		chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(time.Minute))
	all, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	var closed context.CancelFunc
	browser, closed = chromedp.NewContext(all)
	defer closed()
	if err := chromedp.Do(browser); err != nil {
		return 1, fmt.Errorf("start %s: %w", b.chromium, err)
	}
	code = b.tests.Run()
	return code, chromedp.Cancel(browser) // waits until it has ended
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
