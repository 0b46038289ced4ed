package browser

import (
	"net/url"
	"strings"
	"testing"

	"xdsrelay/internal/xdstest"

	"github.com/chromedp/chromedp"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"
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
	p.shows(".clients tbody tr:first-child", "edge-000", "NACKED", "CDS", "edge/eu-1")
	p.is("document.querySelectorAll('.clients tbody tr').length === 50")
	p.do(chromedp.Click(".pages a[rel=next]"))
	p.is("document.querySelectorAll('.clients tbody tr').length === 10")
	p.shows("caption", "60 clients")
	p.do(chromedp.Click(".pages a"))
	p.is("document.querySelectorAll('.clients tbody tr').length === 50")
	same()

	follow(".tiles a[href='clients?state=NACKED']", "/", "/ui/clients?state=NACKED", "1 client matches this filter", "edge-000")
	follow(".flow a[href='clients?state=SYNCED']", "/", "/ui/clients?state=SYNCED", "59 clients match this filter")
	follow("section[aria-label=Keys] a[href^='clients']", "/", "/ui/clients?key=edge%2Feu-1", "30 clients match this filter", "edge-000", "edge-002")
	follow("#origins a[href$='state=NACKED']", "/", "/ui/clients?type=CDS&state=NACKED", "1 client matches this filter")
	follow("tbody tr:nth-child(2) a[href^='clients']", "/ui/keys", "/ui/clients?key=edge%2Feu-2", "30 clients match this filter")
	follow(".facts a[href$='type=CDS']", "/ui/key?name=edge%2Feu-2&type=CDS", "/ui/clients?key=edge%2Feu-2&type=CDS", "30 clients match this filter")

	// The form changes the filter.
	same = p.marked()
	p.do(chromedp.SetValue("select[name=state]", "NACKED"), chromedp.SetValue("input[name=key]", "edge/eu-1"), chromedp.Click(".filter button"))
	p.shows("main", "1 client matches this filter", "edge-000")
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

// A client's view has what its node and its stream say, without secrets.
func TestClientShowsItsNode(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	n := node("edge-1", "edge", "eu-1")
	n.Locality.Region = "eu"
	n.UserAgentName = "envoy"
	n.UserAgentVersionType = &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{
		Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 40, Patch: 2}}}
	n.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{
		"team": structpb.NewStringValue("shop"), "token": structpb.NewStringValue("open-sesame")}}
	w.join(n, node("edge-2", "edge", "eu-1"))
	p := w.open()
	p.visit("/ui/node?name=edge-1")
	p.shows(".facts", "envoy 1.40.2", "eu / eu-1", "127.0.0.1:", "since ")
	p.do(chromedp.Click("details:has(pre) summary"))
	p.shows("details pre", `"team": "shop"`, `"token": "[redacted]"`)
	if text := eval[string](p, "document.body.textContent"); strings.Contains(text, "sesame") {
		t.Error("a secret is shown")
	}
	// It stays open while the view is updated.
	w.clusters("2", "web")
	p.shows("table", "2")
	p.is("document.querySelector('details[open] pre').checkVisibility()")
	p.do(chromedp.Click(".facts a[href*='user_agent=envoy']"))
	p.shows("main", "1 client matches this filter", "edge-1", "envoy 1.40.2")
	p.visit("/ui/clients")
	p.shows("section[aria-label='User agents']", "envoy 1.40.2", "not given")
	p.do(chromedp.Click("section[aria-label='User agents'] a"))
	p.shows("main", "1 client matches this filter", "edge-1")
}

// A browser removes . and .. from paths, also if they are encoded. So the page asks for them in another
// way.
func TestNamesThatAreDots(t *testing.T) {
	t.Parallel()
	w := serve(t, xdstest.Config{"aggregation.rules": []map[string]any{{"key": "node.cluster"}}})
	w.join(node(".", ".", ""), node("..", "..", ""), node("/..", "/..", ""))
	p := w.open()
	for name, key := range map[string]string{".": ".", "..": "..", "/..": `"/.."`} {
		p.visit("/ui/node?name=" + name)
		p.shows("h1", name)
		p.shows("main", "1 open stream", "SYNCED")
		p.visit("/ui/key?name=" + url.QueryEscape(key))
		p.shows("h1", name)
		p.shows("main", "web", "accounts")
	}
}

// Names show what they consist of, and do not change what is beside them.
func TestNamesThatHideSomething(t *testing.T) {
	t.Parallel()
	w := serve(t, xdstest.Config{"aggregation.rules": []map[string]any{{"key": "node.cluster"}}})
	const reversed, hebrew, blank = "a\u202eb", "\u05d0\u05d1", "\u00a0"
	w.join(node(reversed, "e\u200bdge", ""), node(hebrew, hebrew, ""), node(blank, "mesh", ""))
	p := w.open()
	p.visit("/ui/clients")
	p.shows(".clients", `a\u202eb`, `e\u200bdge`, hebrew, `"`+blank+`"`)
	p.is(`[...document.querySelectorAll('.clients bdi')].some((el) => el.textContent === '` + hebrew + `')`)
	p.is(`!/[\u202e\u200b]/.test(document.querySelector('main').innerText + [...document.querySelectorAll('[title]')].map((el) => el.title).join())`)
	p.do(chromedp.Click(`.clients a[title^='a']`))
	p.shows("h1 bdi", `a\u202eb`)
	p.shows("main", "1 open stream")
	p.is(`document.title === 'relay: a\\u202eb'`)
}
