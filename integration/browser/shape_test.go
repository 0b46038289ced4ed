package browser

import (
	"strings"
	"testing"
)

var allViews = []string{"/ui/fleet", "/ui/clients", "/ui/keys", "/ui/key?name=edge%2Feu-1&type=CDS", "/ui/node?name=edge-000", "/ui/nacks", "/ui/where"}

// collisions are the pairs of labels in drawings of which one covers the other.
const collisions = `[...document.querySelectorAll('svg')].flatMap((svg) => {
  const all = [...svg.querySelectorAll('text')].filter((t) => t.textContent).map((t) => ({ text: t.textContent, at: t.getBoundingClientRect() }));
  return all.flatMap((a, i) => all.slice(i + 1)
    .filter((b) => a.at.left < b.at.right && b.at.left < a.at.right && a.at.top + 2 < b.at.bottom && b.at.top + 2 < a.at.bottom)
    .map((b) => a.text + ' and ' + b.text));
})`

// No view is wider than a telephone; tables are cards there, and no labels of drawings collide. On a
// desk no table hides a column, also with long names.
func TestPageFitsATelephone(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	w.join(append(edge(6), node("sidecar~10.0.0.1~productpage-v1-abcdefgh.bookinfo~bookinfo.svc.cluster.local", "productpage-with-a-long-name.bookinfo", "europe-west4-a"))...)
	w.nacking(strings.Repeat("a-long-message-without-a-blank/", 20))
	w.clusters("2", "web", strings.Repeat("long-name-", 20))
	p := w.open()
	for _, width := range []int64{360, 820, 1280} {
		p.size(width)
		for _, view := range allViews {
			p.visit(view)
			p.shows("#live", "live")
			p.is("document.querySelector('h1') && !document.querySelector('main .loading')")
			if view == "/ui/nacks" || view == "/ui/node?name=edge-000" {
				p.shows("main", "a-long-message")
			}
			p.is("document.documentElement.scrollWidth <= innerWidth")
			if got := eval[int](p, "document.documentElement.scrollWidth"); got > int(width) {
				t.Errorf("%s is %d wide at %d", view, got, width)
			}
			for _, pair := range eval[[]string](p, collisions) {
				t.Errorf("%s at %d: %s", view, width, pair)
			}
			for _, table := range eval[[]string](p, "[...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.querySelector('caption').textContent)") {
				if width == 1280 {
					t.Errorf("%s hides columns of the table %q", view, table)
				}
			}
			if cards := eval[bool](p, "[...document.querySelectorAll('tbody tr')].every((tr) => getComputedStyle(tr).display === 'block')"); width == 360 && !cards {
				t.Errorf("%s at %d: a row is not a card", view, width)
			}
		}
	}
}

// audit finds problems for users without sight or without a mouse.
const audit = `(() => {
  const wrong = [];
  const name = (e) => e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.[0]?.textContent || (e.id && document.querySelector('label[for="' + e.id + '"]')?.textContent);
  if (document.querySelectorAll('h1').length !== 1) wrong.push('there is not one h1');
  if (!document.documentElement.lang) wrong.push('no language');
  for (const e of document.querySelectorAll('input, textarea, select, button, a[href], [role=img], nav')) if (!name(e)) wrong.push('no name: ' + e.outerHTML.slice(0, 90));
  for (const t of document.querySelectorAll('table')) {
    if (!t.caption?.textContent) wrong.push('a table without a caption');
    for (const h of t.querySelectorAll('th')) if (!h.scope) wrong.push('a header without a scope');
    if (!t.querySelector('thead th')) wrong.push('a table without headers');
  }
  for (const e of document.querySelectorAll('[tabindex]')) if (e.tabIndex > 0) wrong.push('an order of its own');
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  for (const id of new Set(ids)) if (ids.filter((i) => i === id).length > 1) wrong.push('twice: ' + id);
  // Contrast of each text with what is behind it.
  const probe = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = (colour) => { probe.clearRect(0, 0, 1, 1); probe.fillStyle = colour; probe.fillRect(0, 0, 1, 1); return probe.getImageData(0, 0, 1, 1).data; };
  const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((s, c, i) => s + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255]; };
  for (const e of document.querySelectorAll('body *:not(svg *):not(svg)')) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility() || e.classList.contains('skip') || e.closest('.unseen')) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) wrong.push('contrast ' + ratio.toFixed(1) + ': ' + e.outerHTML.slice(0, 90));
  }
  return [...new Set(wrong)];
})()`

func TestAccessibility(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	w.join(edge(6)...)
	w.nacking("no")
	w.clusters("2", "web")
	p := w.open()
	for _, scheme := range []string{"light", "dark"} {
		p.prefers(scheme)
		for _, view := range allViews {
			p.visit(view)
			p.shows("#live", "live")
			p.is("document.querySelector('h1') && !document.querySelector('main .loading')")
			for _, wrong := range eval[[]string](p, audit) {
				t.Errorf("%s, %s: %s", view, scheme, wrong)
			}
		}
	}
	// The focused element is visible as such.
	p.visit("/ui/keys")
	p.shows("table", "edge/eu-1")
	p.is("(() => { const a = document.querySelector('tbody a'); a.focus({ focusVisible: true }); return getComputedStyle(a).outlineStyle === 'solid' })()")
}

// drawings draws a fleet of 20,000 clients repeatedly, as if all of them were changing. It returns
// the median time of a drawing, the number of elements, and whether they stay the same.
const drawings = `import('/assets/flow.js').then(({ Flow }) => {
  const el = document.querySelector('.drawing');
  el.hidden = false;
  const flow = new Flow(el, new AbortController().signal);
  const key = (i, n) => ({ key: 'edge/zone-' + i, clients: 800, connected: i % 9 > 0, origin: 'files', nacks: 0, resources: 100,
    states: { synced: 700 - n, stale: n, not_sent: 50 + (i * n) % 7, nacked: 50 - (i * n) % 7 } });
  const overview = (n) => ({ clients: 20000, keys: 100, origins: [{ name: 'files', streams: 100 }, { name: 'other', away: true, streams: 0 }],
    states: { synced: 5000, stale: 5000, not_sent: 5000, nacked: 5000 },
    top: Array.from({ length: 24 }, (_, i) => key(i, n)), rest: { ...key(0, n), key: '', keys: 76 } });
  flow.draw(overview(0));
  const first = el.querySelector('.ribbon');
  const took = Array.from({ length: 61 }, (_, n) => {
    const began = performance.now();
    flow.draw(overview(n + 1));
    el.getBoundingClientRect();
    return performance.now() - began;
  }).sort((a, b) => a - b);
  return { ms: took[30], elements: el.querySelectorAll('*').length, ribbons: el.querySelectorAll('.ribbon').length, same: el.querySelector('.ribbon') === first };
})`

func TestDrawingIsSmooth(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	w.join(edge(2)...)
	p := w.open()
	p.visit("/ui/fleet")
	p.shows(".tiles", "2")
	got := eval[struct {
		MS                float64
		Elements, Ribbons int
		Same              bool
	}](p, drawings)
	t.Logf("one drawing takes %.1f ms, with %d elements", got.MS, got.Elements)
	// Five times a frame, because the test machine is slow and busy.
	if got.MS > 80 || got.Elements > 600 || got.Ribbons != 25*5 || !got.Same {
		t.Errorf("%+v", got)
	}
}
