package browser

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// Malicious texts of clients and origins.
const (
	evilNode    = `<img src=x onerror="window.hacked='node'">"'&amp;<script>window.hacked='node'</script>`
	evilCluster = `<b onmouseover=window.hacked=1>edge</b>`
	evilName    = `<svg/onload=window.hacked='resource'>'"` + "`${1}`"
	evilMessage = `</p><iframe srcdoc="<script>parent.hacked='nack'</script>"></iframe> {{7*7}} ` + "\u202eabc"
)

// Each view shows all texts of clients and origins as plain text.
func TestTextsOfOthersAreTexts(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	w.clusters("1", "web", strings.ReplaceAll(evilName, `"`, `\"`))
	w.join(node(evilNode, evilCluster, "z"), node("plain", evilCluster, "z"))
	w.nacking(evilMessage)
	w.clusters("<i>2</i>", "web", "another", strings.ReplaceAll(evilName, `"`, `\"`))
	p := w.open()
	p.visit("/")
	p.shows(".tiles", "NACKed")
	p.is("document.querySelector('.flow .ribbon.nacked')")
	key := eval[string](p, "document.querySelector('section[aria-label=Keys] tbody a').textContent")
	if !strings.Contains(key, "<b onmouseover") {
		t.Errorf("the key is %q", key)
	}
	p.unharmed()
	p.do(chromedp.Click("section[aria-label=Keys] tbody a"))
	p.shows("h1", evilCluster)
	p.shows("main", evilNode, "plain", "<i>2</i>")
	p.unharmed()
	p.visit("/ui/keys")
	p.shows("table", evilCluster)
	p.unharmed()
	p.visit("/ui/clients?user_agent=" + url.QueryEscape(evilNode))
	p.shows("main", "No client matches")
	p.unharmed()
	p.visit("/ui/clients")
	p.shows(".clients", evilNode, evilCluster)
	p.unharmed()
	p.visit("/ui/nacks")
	p.shows(".cards", strings.SplitN(evilMessage, " {{", 2)[0], "{{7*7}}", evilNode)
	p.unharmed()
	p.visit("/ui/node?name=" + url.QueryEscape(evilNode))
	p.shows("h1", evilNode)
	p.shows("main", "NACKED", "</p><iframe")
	p.unharmed()
	p.do(chromedp.KeyEvent("x"), slash, chromedp.KeyEvent("onerror"))
	p.shows("#found", evilNode)
	p.unharmed()
	p.visit("/ui/where")
	p.expect("400")
	body, _ := json.Marshal(map[string]any{"id": evilNode, "cluster": evilCluster, "locality": map[string]string{"zone": evilName}})
	p.do(chromedp.SetValue("#node", string(body)), chromedp.Click("button.first"))
	p.shows("#explained", evilName[:20], "<b onmouseover")
	p.do(chromedp.SetValue("#node", `{"`+"<img src=x onerror=window.hacked=1>"+`": 1}`), chromedp.Click("button.first"))
	p.shows("#explained [role=alert]", "<img src=x")
	p.unharmed()
	p.visit("/ui/key?name=" + url.QueryEscape(evilName) + "&type=" + url.QueryEscape(evilName) + "#" + url.PathEscape(evilName))
	p.shows("[role=alert]", "key")
	p.unharmed()
}

// unharmed fails the test if a text has become anything else.
func (t *tab) unharmed() {
	t.Helper()
	if got := eval[string](t, "String(window.hacked)"); got != "undefined" {
		t.Errorf("ran what was a text: %s", got)
	}
	if n := eval[int](t, "document.querySelectorAll('img, iframe, b[onmouseover], main script, svg[onload], [onerror]').length"); n != 0 {
		t.Errorf("%d elements are made of texts", n)
	}
}

// The browser itself would block it: text used as markup or script, a request to another server,
// inline styles and scripts.
func TestPolicyHolds(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	p := w.open()
	p.visit("/ui/where")
	p.shows("h1", "Which key")
	p.expect("Content Security Policy", "TrustedHTML", "Trusted", "blocked", "Refused", "violates", "elsewhere.invalid")
	for what, attempt := range map[string]string{
		"markup":          "document.querySelector('main').innerHTML = '<i>x</i>'",
		"script":          "(() => { const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; document.body.append(s); if (!window.hacked) throw new Error('refused'); })()",
		"another script":  "(() => { const s = document.createElement('script'); s.src = 'https://elsewhere.invalid/a.js'; document.body.append(s); })()",
		"a string as one": "setTimeout('window.hacked = 1', 0)",
	} {
		got := eval[string](p, fmt.Sprintf("(() => { try { %s; return 'done' } catch (e) { return e.name } })()", attempt))
		if got == "done" {
			t.Errorf("%s: the browser let it happen", what)
		}
	}
	if got := eval[string](p, "fetch('https://elsewhere.invalid/').then(() => 'done', (e) => e.name)"); got == "done" {
		t.Error("it may ask others")
	}
	if got := eval[string](p, "(() => { const d = document.createElement('div'); d.setAttribute('style', 'color: rgb(1, 2, 3)'); document.body.append(d); return getComputedStyle(d).color })()"); got == "rgb(1, 2, 3)" {
		t.Error("a style that is written in holds")
	}
	p.unharmed()
}
