package browser

import (
	"testing"

	"xdsrelay/internal/xdstest"

	"github.com/chromedp/chromedp"
)

// The resources that a node has not accepted are loaded page by page. A node with many streams is
// shown completely.
func TestDifferencesOnManyStreams(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	for range 21 {
		w.join(node("many", "edge", "eu-1"))
	}
	w.nacking("no such thing")
	w.clusters("2", "web", "new")
	p := w.open()
	p.visit("/ui/node?name=many")
	p.is("(document.querySelector('main').innerText.match(/NACKED/g) ?? []).length >= 21")
	p.do(chromedp.Click("summary"))
	p.is("document.querySelectorAll('.difference').length === 20")
	p.do(chromedp.Click(".differences .pages button"))
	p.is("document.querySelectorAll('.difference').length === 21 && !document.querySelector('.differences .pages')")
}

// If the origin does not answer a client's subscription, the client is shown without resources.
func TestSubscriptionWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	w := &fixture{TB: t, origin: xdstest.StartScriptedOrigin(t).Address}
	w.start(nil)
	w.begin(func() { t.Error("it was given something") }, node("waits", "edge", "eu-1"))
	p := w.open()
	p.visit("/ui/node?name=waits")
	p.shows("main", "NOT SENT")
	p.do(chromedp.Click("summary"))
	p.shows(".difference", "NOT SENT", "the origin has not answered these requested names yet", "all resources (*)")
}
