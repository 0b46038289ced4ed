package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"xdsrelay/internal/xdstest"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// tab is a tab of the browser, with its own storage.
type tab struct {
	testing.TB
	ctx  context.Context
	base string

	mu       sync.Mutex
	console  []string // warnings and worse
	requests []string
	expected []string // parts of expected console messages
}

// open opens a tab. At the end of the test no request may have gone to another server than the
// relay, and the console may only have expected messages.
func (f *fixture) open() *tab {
	f.Helper()
	ctx, done := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t := &tab{TB: f.TB, ctx: ctx, base: f.admin}
	if err := chromedp.Do(ctx); err != nil {
		f.Fatal(err)
	}
	said, asked := chromedp.Console(ctx), chromedp.Events(ctx, network.RequestWillBeSent)
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		f.Fatal(err)
	}
	var looking sync.WaitGroup
	looking.Go(func() {
		for m, err := range said {
			if err != nil {
				return
			}
			if m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleWarning || m.IsException() {
				t.mu.Lock()
				t.console = append(t.console, fmt.Sprintf("%s %s (%s)", m.Source, m, m.URL))
				t.mu.Unlock()
			}
		}
	})
	looking.Go(func() {
		for e, err := range asked {
			if err != nil {
				return
			}
			t.mu.Lock()
			t.requests = append(t.requests, e.Request.URL)
			t.mu.Unlock()
		}
	})
	f.Cleanup(func() {
		if f.Failed() {
			if page, err := chromedp.Run(ctx, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText")); err == nil {
				f.Logf("the page:\n%s", page)
			}
		}
		done()
		looking.Wait()
		t.checkRequests()
	})
	t.size(1280)
	return t
}

func (t *tab) checkRequests() {
	t.Helper()
	for _, url := range t.requests {
		if !strings.HasPrefix(url, t.base+"/") {
			t.Errorf("asked for %s", url)
		}
	}
	if len(t.requests) == 0 {
		t.Error("no requests were recorded")
	}
next:
	for _, m := range t.console {
		for _, e := range t.expected {
			if strings.Contains(m, e) {
				continue next
			}
		}
		t.Errorf("the console says: %s", m)
	}
}

// do runs steps.
func (t *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, xdstest.Patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

// eval returns the value of an expression in the page, and awaits a promise.
func eval[T any](t *tab, expression string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, xdstest.Patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// size sets the window's width.
func (t *tab) size(width int64) {
	t.Helper()
	t.do(chromedp.EmulateViewport(width, 860))
}

// prefers sets the colour scheme of the system, and turns animations off.
func (t *tab) prefers(scheme string) {
	t.Helper()
	_, err := chromedp.Call(t.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (t *tab) visit(path string) {
	t.Helper()
	t.do(chromedp.Navigate(t.base + path))
}

// shows waits until the page, or the part that a selector names, has all these texts.
func (t *tab) shows(selector string, texts ...string) {
	t.Helper()
	sel, _ := json.Marshal(selector)
	xdstest.Eventually(t, selector, func() error {
		got := eval[string](t, fmt.Sprintf("[...document.querySelectorAll(%s)].map((e) => e.innerText ?? e.textContent).join('\\n')", sel))
		for _, text := range texts {
			if !strings.Contains(got, text) {
				return fmt.Errorf("there is no %q in %q", text, got)
			}
		}
		return nil
	})
}

// is waits until an expression is true.
func (t *tab) is(expression string) {
	t.Helper()
	xdstest.Eventually(t, expression, func() error {
		if !eval[bool](t, "!!("+expression+")") {
			return fmt.Errorf("it is not so")
		}
		return nil
	})
}

// marked marks the page. The returned function checks that the page was not reloaded since.
func (t *tab) marked() (same func()) {
	t.Helper()
	eval[bool](t, "window.marked = true")
	return func() {
		t.Helper()
		if !eval[bool](t, "window.marked === true") {
			t.Error("the page was reloaded")
		}
	}
}

// expect allows console messages with one of these parts.
func (t *tab) expect(parts ...string) { t.expected = append(t.expected, parts...) }
