package browser

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"xdsrelay/internal/xdstest"

	"github.com/chromedp/chromedp"
)

// axe is the source of axe-core. The test runs it in the page through the debugger, which the page's
// policy does not concern.
func axe(t testing.TB) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(xdstest.PythonEnv(t), "lib", "python3*", "site-packages", "axe_playwright_python", "axe.min.js"))
	if err != nil || len(found) != 1 {
		t.Fatalf("axe-core in the virtual environment: found %q, error %v", found, err)
	}
	source, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// findings are the serious and critical violations that axe-core finds in the page, each with the
// first element.
const findings = `axe.run({ resultTypes: ['violations'] }).then((r) => r.violations
  .filter((v) => v.impact === 'serious' || v.impact === 'critical')
  .map((v) => v.impact + ' ' + v.id + ': ' + v.nodes.length + ' times, ' + v.nodes[0].html.slice(0, 160) + ' ' + (v.nodes[0].any[0]?.message ?? '')))`

// axe-core finds nothing serious in any view, on a desk in light and on a phone in dark, and with a
// relay that does not answer.
func TestAxeFindsNothingSerious(t *testing.T) {
	t.Parallel()
	source := axe(t)
	w := serve(t, nil)
	g := w.throughGateway()
	w.join(edge(6)...)
	w.nacking("cluster web: no such transport socket")
	w.clusters("2", "web", "new")
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("open-sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, locked := w.open(), serve(t, xdstest.Config{"admin.token_file": token}).open()
	p.expect("400", "404", "502", "ERR_")
	locked.expect("401")
	for width, scheme := range map[int64]string{1280: "light", 360: "dark"} {
		p.prefers(scheme)
		locked.prefers(scheme)
		p.size(width)
		locked.size(width)
		check := func(p *tab, what string) {
			t.Helper()
			p.is("document.querySelector('h1') && !document.querySelector('main .loading')")
			if !eval[bool](p, "'axe' in window") {
				eval[bool](p, source+"\n;true")
			}
			if wrong := eval[[]string](p, findings); len(wrong) > 0 {
				t.Errorf("%s, %s, %d px:\n%s", what, scheme, width, strings.Join(wrong, "\n"))
			}
		}
		for _, view := range allViews {
			p.visit(view)
			p.shows("#live", "live")
			p.is("document.querySelector('h1') && document.getElementById('nacked').hidden === false")
			eval[bool](p, "document.querySelectorAll('details').forEach((d) => { d.open = true }), true")
			check(p, view)
			back := g.away()
			p.shows("#lost", "The relay does not answer.")
			check(p, view+" of a relay that does not answer")
			back()
		}
		for _, v := range []struct{ path, text string }{
			{"/ui/clients?state=NACKED&key=edge%2Feu-1&type=CDS", "1 client matches this filter"},
			{"/ui/clients?state=NOT_SENT", "No client matches this filter"},
			{"/ui/clients?type=nonsense", "type: must be a URL"},
			{"/ui/key?name=none", "Not found"},
			{"/ui/nonsense", "There is no such page"},
		} {
			p.visit(v.path)
			p.shows("main", v.text)
			check(p, v.path)
		}
		p.visit("/ui/where")
		for _, ask := range []struct{ node, text string }{
			{`{"cluster": "edge", "locality": {"zone": "` + strings.Repeat("long-zone-", 30) + `"}}`, "key edge/long"},
			{`{"cluster": "nobody"}`, "the relay refuses the node"},
			{`{"colour": 1}`, `unknown field "colour"`},
		} {
			p.do(chromedp.SetValue("#node", ask.node), chromedp.Click("button.first"))
			p.shows("#explained", ask.text)
			check(p, ask.text)
		}
		p.do(chromedp.SendKeys("#search", "edge"))
		p.shows("#found", "edge-000")
		check(p, "the search")
		locked.visit("/")
		locked.do(chromedp.SendKeys("#token", "wrong"), chromedp.Click("button.first"))
		locked.shows("#wrong", "not the token")
		check(locked, "the login form")
	}
}
