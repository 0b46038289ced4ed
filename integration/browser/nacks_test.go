package browser

import (
	"net/url"
	"testing"

	"xdsrelay/internal/xdstest"

	"github.com/chromedp/chromedp"
)

func TestNackAppears(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	w.join(edge(4)...)
	p := w.open()
	p.visit("/ui/nacks")
	p.shows("main", "No client has sent a NACK")
	same := p.marked()
	w.nacking("cluster web: no such transport socket")
	w.clusters("2", "web", "api", "new")
	p.shows(".cards", "cluster web: no such transport socket", "edge/eu-1", "CDS", "edge-000")
	p.shows(".cards", "1 client still rejects it")
	p.shows("#nacked", "1")
	p.do(chromedp.Click(".cards summary"))
	p.shows(".cards .difference", "new", `+name: new`, `"1s"`)
	p.is("document.querySelector('.diff .add')")
	// A new row leaves open rows as they are.
	w.nacking("cluster web: another reason")
	w.clusters("3", "web", "api", "newer")
	p.shows(".cards", "another reason", "no such transport socket")
	p.is("document.querySelectorAll('.cards > li').length === 2 && document.querySelectorAll('.cards details[open]').length === 1")
	same()
	p.do(chromedp.Click(".cards a[href^='node?']"))
	p.shows("main", "edge-000", "NACKED", "another reason")
	p.do(chromedp.Click("summary"))
	p.shows(".difference", "newer", "another reason")
	p.visit("/")
	p.is("document.querySelector('.flow .ribbon.nacked')")
	p.shows(".flow", "NACKED")
	p.visit("/ui/nacks")
	p.shows(".cards", "still rejects it")
	// A message is one group. A group that is rejected comes before one that is not.
	p.is("document.querySelectorAll('.cards > li').length === 2 && document.querySelector('.cards > li:nth-child(2)').className === 'over'")
	w.nacking("cluster web: no such transport socket")
	w.clusters("4", "web", "api", "new")
	p.shows(".cards > li:nth-child(1) > div", "no such transport socket", "1 client still rejects it", "1 key", "2 versions", "2 times")
	p.is("document.querySelectorAll('.cards > li').length === 2 && document.querySelectorAll('.cards > li:nth-child(1) .rows > li.over').length === 1")
	p.shows(".cards > li.over", "another reason")
	w.nacking("")
	w.clusters("5", "web", "api")
	p.shows(".cards > li:nth-child(1)", "no client rejects it any more")
	p.shows(".cards > li:nth-child(2)", "no client rejects it any more")
	// The resources are still there, although the client has accepted newer ones.
	p.do(chromedp.Click(".cards > li:nth-child(1) .rows > li:nth-child(2) summary"))
	p.shows(".cards > li:nth-child(1) .difference", "new", `+name: new`)
	p.do(chromedp.Click(".cards > li:nth-child(2) summary"))
	p.shows(".cards > li:nth-child(2) .difference", `+name: newer`)
}

// The view of NACKs leads to the clients. If it shows a part of the list, it says so.
func TestNACKsLeadToClients(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	w.nacking("no such thing")
	w.join(node("one", "edge", "eu-1"), node("two", "edge", "eu-2"))
	w.join(node("three", "edge", "eu-2"))
	p := w.open()
	p.visit("/ui/nacks")
	p.shows(".cards > li > div", "2 clients still reject it", "2 keys")
	p.is("document.querySelector('main > div .help').hidden")
	p.do(chromedp.Click(".cards > li > div a"))
	p.is("location.search === '?type=CDS&state=NACKED'")
	p.shows("caption", "2 clients match this filter")
	p.visit("/ui/nacks")
	p.do(chromedp.Click(".rows a[href$='key=edge%2Feu-2&type=CDS&state=NACKED']"))
	p.shows("caption", "1 client matches this filter")
	p.shows(".clients", "three")
	p.do(chromedp.Click("#nacked"))
	p.shows("caption", "2 clients match this filter")

	var first struct {
		Next string `json:"next_page_token"`
	}
	if err := xdstest.HTTPGetJSON(w.admin+"/nacks?limit=1", &first); err != nil {
		t.Fatal(err)
	}
	p.visit("/ui/nacks?page_token=" + url.QueryEscape(first.Next))
	p.shows(".help", "1 NACK on this page, grouped by message.")
}
