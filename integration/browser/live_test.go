package browser

import (
	"strings"
	"syscall"
	"testing"

	"xdsrelay/internal/xdstest"

	"github.com/chromedp/chromedp"
)

// The list of keys stays current while it is open.
func TestKeysAreCurrent(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	p := w.open()
	p.visit("/ui/keys")
	p.shows("main", "No key is in use")
	same := p.marked()
	w.join(edge(4)...)
	p.shows("table", "2 keys, the worst first", "edge/eu-1", "edge/eu-2")
	p.is("document.querySelector('td.n a').textContent === '2'")
	same()
}

func TestPageFindsTheRelayAgain(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	leave := w.join(edge(2)...)
	p := w.open()
	p.expect("ERR_") // a network error
	p.visit("/ui/fleet")
	p.shows("#live", "live")
	same := p.marked()
	leave()
	w.stop()
	p.shows("#live", "not connected")
	p.shows("#lost", "The relay does not answer. This page shows the state as of ")
	p.is("/as of \\d\\d:\\d\\d:\\d\\d\\.$/.test(document.getElementById('lost').textContent) && getComputedStyle(document.querySelector('main')).filter === 'grayscale(1)'")
	p.shows(".tiles", "2")
	w.start(xdstest.Config{"admin.address": strings.TrimPrefix(w.admin, "http://")})
	w.join(edge(3)...)
	p.shows("#live", "live")
	p.shows(".tiles", "3")
	p.is("document.getElementById('lost').hidden && getComputedStyle(document.querySelector('main')).filter === 'none'")
	same()
}

// A view that could not be read shows by itself once the relay answers, or once its key exists.
func TestFailedViewIsReadAgain(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	p := w.open()
	p.expect("ERR_", "404")
	p.visit("/ui/key?name=edge%2Feu-1")
	p.shows("main", "Not found", "not in use")
	same := p.marked()
	eval[bool](p, "document.querySelector('.failed button').focus() === undefined")
	leave := w.join(node("other", "mesh", "eu-1"))
	p.is("performance.getEntriesByType('resource').filter((e) => e.name.includes('/keys/edge')).length > 1")
	p.is("document.activeElement.matches('.failed button')") // the same error does not move the focus
	leave()
	leave = w.join(edge(2)...)
	p.shows("section[aria-label=Clients]", "edge-000")

	leave()
	w.stop()
	p.shows("#lost", "The relay does not answer.")
	p.do(chromedp.Click("header nav a[href='clients']"))
	p.shows("main", "The page could not be loaded", "the relay cannot be reached")
	w.start(xdstest.Config{"admin.address": strings.TrimPrefix(w.admin, "http://")})
	w.join(edge(3)...)
	p.shows("caption", "3 clients")
	same()
}

// A relay that hangs keeps its connections open.
func TestPageNoticesThatTheRelayHangs(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	w.join(edge(2)...)
	p := w.open()
	p.visit("/ui/fleet")
	p.shows(".tiles", "2")
	w.signal(syscall.SIGSTOP)
	t.Cleanup(func() { w.signal(syscall.SIGCONT) })
	p.shows("#lost", "The relay does not answer. This page shows the state as of ")
	w.signal(syscall.SIGCONT)
	p.shows("#live", "live")
	p.is("document.getElementById('lost').hidden")
}
