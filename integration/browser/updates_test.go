package browser

import (
	"testing"

	"xdsrelay/internal/xdstest"

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

	p.visit("/ui/key?name=edge%2Feu-1&type=CDS")
	p.shows("section[aria-label=Versions]", "The last 2 versions")
	p.is("document.querySelectorAll('section[aria-label=Versions] tbody a.bad').length === 2")
	p.do(chromedp.Click("section[aria-label=Versions] tbody tr:first-child a.bad"))
	p.shows("h1", "NACKs of edge/eu-1 CDS version 2", "all NACKs")
	p.shows(".cards", "the second reason")
	p.is("document.querySelectorAll('.cards > li').length === 1")
	p.do(chromedp.Click("h1 a.aside"))
	p.is("document.querySelectorAll('.cards > li').length === 2")

	p.visit("/ui/node?name=one")
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
func TestNodeThatHasGone(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	leave := w.join(node("one", "edge", "eu-1"))
	p := w.open()
	p.expect("404")
	p.visit("/ui/node?name=one")
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
	p.visit("/ui/node?name=one")
	p.do(chromedp.Click("section[aria-label=Differences] summary"))
	p.shows(".difference", "the first reason")
	w.nacking("the second reason")
	w.clusters("2", "newer")
	p.shows(".nack", "the second reason")
	p.shows(".difference", "the second reason", "+name: newer")
	p.is("!document.querySelector('.differences').textContent.includes('the first reason')")
}

// The list of resources of a key follows the key's version. The text in the field and open resources stay.
func TestResourcesOfAKeyAreUpdated(t *testing.T) {
	t.Parallel()
	w := &fixture{TB: t, dir: t.TempDir()}
	w.origin = "file://" + w.dir
	w.listener()
	w.start(xdstest.Config{"upstream.first_answer_timeout": "1s"})
	w.begin(func() {}, node("one", "edge", "eu-1"))
	p := w.open()
	p.visit("/ui/fleet")
	p.shows("#origins", "LDS")
	p.visit("/ui/key?name=edge%2Feu-1&type=CDS")
	p.shows("section[aria-label=Resources]", "Resources of CDS", "The relay has no resource of this type.")
	w.clusters("1", "api-1", "api-2", "web")
	p.shows(".resources", "api-1", "api-2", "web")
	p.do(chromedp.SendKeys("section[aria-label=Resources] input", "api"))
	p.is("document.querySelectorAll('.resources li').length === 2")
	p.do(chromedp.Click(".resources li:nth-child(2) summary"))
	p.shows(".resources pre", `"name": "api-2"`, `"connect_timeout": "1s"`)

	w.publish("clusters.yaml", "type_url: "+clusterType+"\nversion_info: \"2\"\nresources:\n"+
		"  - {\"@type\": "+clusterType+", name: api-2, type: STATIC, connect_timeout: 7s}\n"+
		"  - {\"@type\": "+clusterType+", name: api-3, type: STATIC, connect_timeout: 1s}\n"+
		"  - {\"@type\": "+clusterType+", name: web, type: STATIC, connect_timeout: 1s}\n")
	p.shows(".resources", "api-2", "api-3")
	p.is("[...document.querySelectorAll('.resources summary .long')].map((e) => e.textContent).join() === 'api-2,api-3'")
	p.shows(".resources details[open] pre", `"name": "api-2"`, `"connect_timeout": "7s"`)
	p.is("document.querySelectorAll('.resources details[open]').length === 1")
	p.is("document.querySelector('section[aria-label=Resources] input').value === 'api'")
}

// A version leads to the resources that it changed. A key opens on the type that clients reject.
func TestChangesOfAVersion(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	w.listener()
	w.join(edge(2)...)
	w.clusters("2", "web", "new")
	p := w.open()
	p.visit("/ui/key?name=edge%2Feu-1&type=CDS")
	p.shows("section[aria-label=Versions] tbody tr:nth-child(2)", "1")
	p.do(chromedp.Click("section[aria-label=Versions] tbody tr:first-child td[data-label=Changed] a"))
	p.shows("section[aria-label=Changes]", "What version 2 changed", "new", "+name: new", "api", "removed")
	p.is("!document.querySelector('section[aria-label=Changes]').innerText.includes('web')")
	w.nacking("no such thing")
	w.clusters("3", "web", "newer")
	p.visit("/ui/keys")
	p.shows("tbody tr:first-child", "edge/eu-1")
	p.is("document.querySelector('tbody tr:first-child .bar .nacked')")
	p.shows("caption", "2 keys, the worst first")
	p.do(chromedp.SetValue("input[name=find]", "eu-2"), chromedp.Click("form.filter button"))
	p.shows("caption", "1 key, the worst first")
	p.visit("/ui/key?name=edge%2Feu-1")
	p.shows(".tabs [aria-current]", "CDS")
	p.size(390)
	p.is("document.querySelector('section[aria-label=Clients]').getBoundingClientRect().top < document.querySelector('section[aria-label=Versions]').getBoundingClientRect().top")
	// A client names the rule that gave its key, and leads to the resources that it requested.
	p.visit("/ui/node?name=edge-000")
	p.shows("td[data-label=Key]", "edge/eu-1", "aggregation.rules[0]")
	p.do(chromedp.Click("section[aria-label=Names] summary"))
	p.shows("section[aria-label=Names]", "CDS", "newer", "NACKED", "LDS", "web")
	p.do(chromedp.Click("section[aria-label=Names] a[title=newer]"))
	p.shows("h1", "edge/eu-1")
	p.is("[...document.querySelectorAll('.resources summary .long')].map((e) => e.textContent).join() === 'newer'")
	p.do(chromedp.NavigateBack())
	p.do(chromedp.Click("main a[href^=where]"))
	p.shows("#explained", "edge-000", "key edge/eu-1", "match")
}
