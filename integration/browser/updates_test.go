package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// A number of NACKs leads to the NACKs of its type and version.
func TestNumbersOfNACKsLeadToThem(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	w.nacking("the first reason")
	w.join(node("one", "edge", "eu-1"), node("two", "edge", "eu-1"))
	w.nacking("the second reason")
	w.clusters("2", "web")
	p := w.open()
	p.visit("/ui/nacks")
	p.shows(".cards", "the first reason", "the second reason")

	p.visit("/ui/keys/edge%2Feu-1?type=CDS")
	p.shows("section[aria-label=Versions]", "The last 2 versions")
	p.is("document.querySelectorAll('section[aria-label=Versions] tbody a.bad').length === 2")
	p.do(chromedp.Click("section[aria-label=Versions] tbody tr:first-child a.bad"))
	p.shows("h1", "NACKs of edge/eu-1 CDS version 2", "all NACKs")
	p.shows(".cards", "the second reason")
	p.is("document.querySelectorAll('.cards > li').length === 1")
	p.do(chromedp.Click("h1 a.aside"))
	p.is("document.querySelectorAll('.cards > li').length === 2")

	p.visit("/ui/nodes/one")
	p.do(chromedp.Click("main tbody a.bad"))
	p.shows("h1", "NACKs of edge/eu-1 CDS", "all NACKs")
	p.is("document.querySelectorAll('.cards > li').length === 2 && new URLSearchParams(location.search).get('type') === 'CDS'")
	p.visit("/ui/nacks?key=edge%2Feu-1&type=LDS")
	p.shows("main", "The relay has no such NACK.")
}

// Rows of one version count as one version.
func TestVersionsOfAMessageAreCountedOnce(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	w.nacking("no such thing")
	w.join(node("one", "edge", "eu-1"))
	w.join(node("two", "edge", "eu-2"))
	p := w.open()
	p.visit("/ui/nacks")
	p.shows(".cards > li > div", "2 keys · 1 version · 2 times")
}

// The page of a node that has gone says so, and shows the node when it is back.
func TestANodeThatHasGone(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	leave := w.join(node("one", "edge", "eu-1"))
	p := w.open()
	p.expect("404")
	p.visit("/ui/nodes/one")
	p.shows("main", "1 open stream")
	same := p.marked()
	leave()
	p.shows("main", "No stream of this node is open.", "This page updates by itself.")
	p.is("!document.querySelector('main table') && document.querySelector('.alarms').textContent === ''")
	w.join(node("one", "edge", "eu-1"))
	p.shows("main", "1 open stream", "SYNCED")
	same()
}

// Open differences of a node follow its state.
func TestOpenDifferencesAreUpdated(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	w.nacking("the first reason")
	w.join(node("one", "edge", "eu-1"))
	p := w.open()
	p.visit("/ui/nodes/one")
	p.do(chromedp.Click("section[aria-label=Differences] summary"))
	p.shows(".difference", "the first reason")
	w.nacking("the second reason")
	w.clusters("2", "newer")
	p.shows(".nack", "the second reason")
	p.shows(".difference", "the second reason", "+name: newer")
	p.is("!document.querySelector('.differences').textContent.includes('the first reason')")
}
