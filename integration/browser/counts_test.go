package browser

import (
	"fmt"
	"testing"

	"xdsrelay/internal/xdstest"

	"github.com/chromedp/chromedp"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// links are the numbers of the page that lead to clients.
const links = `[...document.querySelectorAll('.tiles a, .flow a.group, section[aria-label=Keys] a, #origins a, .tabs a.count, #nacked')]
  .map((a) => ({ href: a.getAttribute('href'), n: Number((a.querySelector('.more') ?? a).textContent) })).filter((a) => a.href.startsWith('clients'))`

// Each number of clients is the length of the list behind it. The client that rejects its clusters has
// listeners that are synced. Each client has two keys, and counts once where keys do not matter.
func TestEachNumberIsTheLengthOfItsList(t *testing.T) {
	t.Parallel()
	w := serve(t, xdstest.Config{"aggregation.rules": []map[string]any{
		{"types": []string{"LDS"}, "key": "'listeners'"},
		{"key": []string{"node.cluster", "node.locality.zone"}},
	}})
	w.listener()
	w.nacking("no")
	w.join(edge(5)...)
	p := w.open()
	p.visit("/")
	p.shows(".tiles", "5", "4 acknowledged", "1\nShow the NACKs")
	p.shows("#origins", "LDS")
	p.is("document.querySelectorAll('#origins a').length === 3") // CDS SYNCED and NACKED, LDS SYNCED
	type link struct {
		Href string
		N    int
	}
	all := eval[[]link](p, links)
	p.visit("/ui/key?name=edge%2Feu-1&type=CDS")
	p.shows(".tabs .count", "1")
	all = append(all, eval[[]link](p, links)...)
	want := 1 + 3 + 2 + 4 + 3 + 1 + 1 // header, tiles, groups of the drawing, keys, types; header, tab
	if len(all) != want {
		t.Errorf("%d numbers lead to clients, want %d: %v", len(all), want, all)
	}
	for _, l := range all {
		p.visit("/ui/" + l.Href)
		p.shows("caption", "client")
		if n := eval[int](p, "document.querySelectorAll('.clients tbody tr').length"); n != l.N {
			t.Errorf("%d leads to %s with %d clients", l.N, l.Href, n)
		}
	}
}

// No filter selects the clients that have sent no request. Their number is no link.
func TestClientsWithoutAKey(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	xdstest.OpenStream(t, w.down, xdstest.SotWMethod)
	p := w.open()
	p.visit("/")
	p.shows(".flow", "no key", "NOT SENT")
	p.shows("section[aria-label=Keys] tbody", "no key")
	p.is("!document.querySelector('section[aria-label=Keys] tbody a') && document.querySelectorAll('.flow a[href]').length === 2") // the origin and NOT SENT
	p.do(chromedp.Click(".flow a.group"))
	p.shows("caption", "1 client matches this filter")
}

// A node with many streams is shown page by page, the worst stream first.
func TestNodeWithManyStreams(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	var nodes []*corev3.Node
	for range 60 {
		nodes = append(nodes, node("many", "edge", "eu-1"))
	}
	w.nacking("no")
	w.join(nodes...)
	p := w.open()
	p.visit("/ui/node?name=many")
	p.shows("main", "60 open streams, the worst first; 50 of them on this page")
	p.is("document.querySelectorAll('main table').length === 50 && document.querySelector('main table .state').textContent.includes('NACKED')")
	p.do(chromedp.Click(".pages a[rel=next]"))
	p.shows("main", "60 open streams, the worst first; 10 of them on this page")
	p.is("document.querySelectorAll('main table').length === 10 && !document.querySelector('main table .nacked')")
	p.do(chromedp.Click(".pages a"))
	p.is("document.querySelectorAll('main table').length === 50")
}

// The tile of the origins leads to their table, and the keys without a stream to an origin to their list.
func TestOriginsAndTheirKeys(t *testing.T) {
	t.Parallel()
	origin := serve(t, nil)
	w := &fixture{TB: t, origin: origin.down}
	w.start(nil)
	w.join(edge(2)...)
	p := w.open()
	p.visit("/")
	p.shows(".tiles", "none is away")
	p.do(chromedp.EmulateViewport(1280, 300), chromedp.Click(".tiles a[href$='#origins']"))
	p.is("document.getElementById('origins').getBoundingClientRect().top < 100")
	p.visit("/ui/keys?disconnected=true")
	p.shows("main", "Each key with clients has a stream to an origin.")
	origin.stop()
	p.visit("/")
	p.shows(".tiles", "2 not connected to an origin", "1 away")
	p.do(chromedp.Click(".tiles a[href$='disconnected=true']"))
	p.shows("h1", "Keys without a stream to an origin")
	for i := range 2 {
		p.shows("table", fmt.Sprintf("edge/eu-%d", i+1), "not connected", "connection refused")
	}
	p.is("document.querySelector('.scroll').scrollWidth <= document.querySelector('.scroll').clientWidth")
	p.size(390)
	p.is("[...document.querySelectorAll('td small')].length === 2 && document.documentElement.scrollWidth <= innerWidth")
}

// The keys without a row of their own share one. Its NACKs lead to the NACKed clients of all keys. In
// the drawing its box is red if one of its keys has no stream to an origin.
func TestOtherKeys(t *testing.T) {
	t.Parallel()
	origin := serve(t, nil)
	w := &fixture{TB: t, origin: origin.down}
	w.start(nil)
	w.nacking("no")
	for i := range 30 {
		w.join(node(fmt.Sprint("n-", i), "edge", fmt.Sprint("zone-", i)))
	}
	p := w.open()
	p.visit("/")
	p.shows("section[aria-label=Keys] tbody tr:last-child", "6 other keys")
	p.shows("section[aria-label=Keys] tbody tr:last-child td:last-child", "6")
	p.is("document.querySelector(\".flow a.box:not(.lost)[href='keys']\")")
	origin.stop()
	p.is("document.querySelector(\".flow a.box.lost[href='keys']\")?.textContent.includes('6 other keys')")
	p.do(chromedp.Click("section[aria-label=Keys] tbody tr:last-child td:last-child a[title*='of all keys']"))
	p.shows("caption", "30 clients match this filter")
}
