package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// Each count leads to the clients behind it: the worst first, filtered and paged by the relay.
func TestEachCountLeadsToItsClients(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	w.nacking("no such cluster")
	w.join(edge(60)...)
	p := w.open()
	p.visit("/")
	p.shows(".tiles", "60", "59")
	same := p.marked()
	follow := func(from, view, query string, texts ...string) {
		t.Helper()
		p.do(chromedp.Navigate(p.base + view))
		p.is("document.querySelector(`" + from + "`)")
		p.do(chromedp.Click(from))
		p.shows("h1", "Clients")
		p.shows("main", texts...)
		p.is("location.pathname + location.search === '" + query + "'")
	}
	p.do(chromedp.Click(".tiles > div:nth-child(1) dd > a"))
	p.shows("caption", "60 clients, the worst first; 50 of them on this page")
	p.shows("tbody tr:first-child", "edge-000", "NACKED", "CDS", "edge/eu-1")
	p.is("document.querySelectorAll('tbody tr').length === 50")
	p.do(chromedp.Click(".pages a[rel=next]"))
	p.is("document.querySelectorAll('tbody tr').length === 10")
	p.shows("caption", "60 clients")
	p.do(chromedp.Click(".pages a"))
	p.is("document.querySelectorAll('tbody tr').length === 50")
	same()

	follow(".tiles a[href='/ui/clients?state=NACKED']", "/", "/ui/clients?state=NACKED", "1 client of this filter", "edge-000")
	follow(".flow a[href='/ui/clients?state=SYNCED']", "/", "/ui/clients?state=SYNCED", "59 clients of this filter")
	follow("section[aria-label=Keys] a[href^='/ui/clients']", "/", "/ui/clients?key=edge%2Feu-1", "30 clients of this filter", "edge-000", "edge-002")
	follow("#origins a[href$='state=NACKED']", "/", "/ui/clients?type=CDS&state=NACKED", "1 client of this filter")
	follow("tbody tr:nth-child(2) a[href^='/ui/clients']", "/ui/keys", "/ui/clients?key=edge%2Feu-2", "30 clients of this filter")
	follow(".facts a[href$='type=CDS']", "/ui/keys/edge%2Feu-2?type=CDS", "/ui/clients?key=edge%2Feu-2&type=CDS", "30 clients of this filter")

	// The form changes the filter.
	same = p.marked()
	p.do(chromedp.SetValue("select[name=state]", "NACKED"), chromedp.SetValue("input[name=key]", "edge/eu-1"), chromedp.Click(".filter button"))
	p.shows("main", "1 client of this filter", "edge-000")
	p.is("location.search === '?state=NACKED&key=edge%2Feu-1&type=CDS'")
	p.do(chromedp.SetValue("select[name=type]", "EDS"), chromedp.Click(".filter button"))
	p.shows("main", "No client matches this filter")
	p.do(chromedp.Click(".filter a"))
	p.shows("main", "60 clients")
	// The list stays current.
	w.nacking("")
	w.clusters("2", "web")
	p.is("!document.querySelector('tbody .state.nacked')")
	same()
	// A fault in the filter leaves the form.
	p.expect("400")
	p.visit("/ui/clients?type=nonsense")
	p.shows("[role=alert]", "type")
	p.is("document.querySelector('.filter')")
}
