package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

func TestFleetIsLive(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	w.join(edge(12)...)
	p := w.open()
	p.visit("/")
	p.shows(".tiles", "12", "100 %", "none is away", "6 SotW, 6 delta")
	p.shows(".flow", "files", "edge/eu-1", "SYNCED")
	p.is("document.querySelectorAll('.flow .ribbon.synced').length === 2 && document.querySelectorAll('.flow .up.connected').length === 2")
	p.shows("table", "edge/eu-1", "edge/eu-2", "CDS", "connected")

	same := p.marked()
	leave := w.join(node("new-1", "mesh", "eu-1"), node("new-2", "mesh", "eu-1"))
	p.shows(".tiles", "14")
	p.shows(".flow", "mesh/eu-1")
	leave()
	p.shows(".tiles", "12")
	same()
}

// A refused client is not in the list of clients, but its refusal is shown.
func TestRefusedClientIsShown(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	p := w.open()
	p.visit("/")
	p.shows(".tiles", "0", "without clients")
	p.shows("#origins", "connected") // before a client uses it
	w.refuse()
	p.shows(".alarms", "The relay refused or ended 1 stream in the last minute; reason unmapped, last node lost-1: ", "no aggregation rule matches this node", "(last ", "Refused clients get nothing", "Look up the reason unmapped")
}

// An origin that the relay cannot reach is shown before any client comes.
func TestWrongOriginIsShown(t *testing.T) {
	t.Parallel()
	w := serve(t, xdstest.Config{"upstream.origins": []map[string]any{{"address": "127.0.0.1:1", "name": "wrong"}}})
	p := w.open()
	p.visit("/")
	p.shows(".alarms", "Origin wrong has never been reached: dial tcp 127.0.0.1:1: connect: connection refused", "The relay refuses new clients")
	p.shows("#origins", "wrong", "never reached")
	p.shows(".tiles", "1 away")
}

// Invalid files of an origin keep the previous content, and are shown. Problems with the same
// consequence and next step share a banner.
func TestUnusableFilesAreShown(t *testing.T) {
	t.Parallel()
	w := &fixture{TB: t, dir: t.TempDir()}
	w.clusters("1", "web")
	dirs, origins := []string{w.dir}, []map[string]any{{"address": "file://" + w.dir, "name": "files"}}
	for i := range 4 {
		dir := t.TempDir()
		dirs, origins = append(dirs, dir), append(origins, map[string]any{"address": "file://" + dir, "name": fmt.Sprint("others-", i)})
	}
	w.start(xdstest.Config{"upstream.origins": origins})
	w.join(edge(1)...)
	p := w.open()
	p.visit("/")
	p.shows("#origins", "connected")
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "bad.yaml"), []byte("resources: [\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.shows(".alarms", "Origin files has files that cannot be used", "Origin others-1 has files that cannot be used", "bad.yaml", "yaml: line 1", "Next: Repair the files.")
	p.is("[...document.querySelectorAll('.problem')].filter((e) => e.textContent.includes('Repair the files.')).length === 1")
	p.do(chromedp.Click(".problem summary"))
	p.shows(".problem details[open]", "2 more like this", "Origin others-2", "Origin others-3")
}

// Settings of the relay's file that are not in force are shown, too.
func TestUnappliedSettingsAreShown(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("open-sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := serve(t, xdstest.Config{"admin.token_file": token})
	p := w.open()
	p.expect("401")
	p.visit("/")
	p.shows("#login", "requires a token")
	p.do(chromedp.SetValue("#token", "ópen"), chromedp.Click("button.first"))
	p.shows("#wrong", "only ASCII characters")
	p.do(chromedp.SetValue("#token", "open-sesame"), chromedp.Click("button.first"))
	p.shows(".tiles", "0")
	text, err := os.ReadFile(w.config)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(w.config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	renamed := strings.Replace(string(text), "relay-under-test", "another", 1)
	write(renamed)
	p.shows(".alarms", "new values that need a restart: name")
	write(renamed + "log: [\n")
	p.shows(".alarms", "has faults and is not in force: ", "a [ or { is not closed")
	// So is an invalid token file. The previous token still opens the page.
	if err := os.WriteFile(token, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.shows(".alarms", "Admin.token_file: its new content cannot be used: ", "must have one token")
}

// A certificate that expires soon, and rules that need --force, show with the time since which they
// do. New rules change the keys of all 20 clients.
func TestExpiryAndForceAreShown(t *testing.T) {
	t.Parallel()
	w := &fixture{TB: t, dir: t.TempDir()}
	w.origin = "file://" + w.dir
	w.clusters("1", "web")
	certs := t.TempDir()
	ca := tlstest.NewAuthority(t)
	cert, key := ca.Pair(t, tlstest.CN("relay"), tlstest.ExpiresIn(72*time.Hour)).Write(t, certs, "relay")
	old, oldKey := ca.Pair(t, tlstest.CN("old"), tlstest.ExpiresIn(-5*time.Minute)).Write(t, certs, "old")
	trust := tlstest.File(t, certs, "ca", ca.PEM())
	w.start(xdstest.Config{"upstream.origins": []map[string]any{
		{"address": w.origin, "name": "files"},
		{"address": "127.0.0.1:1", "name": "spare", "tls": map[string]any{"ca_file": trust, "cert_file": cert, "key_file": key}},
		{"address": "127.0.0.1:1", "name": "last", "tls": map[string]any{"ca_file": trust, "cert_file": old, "key_file": oldKey}},
	}})
	var nodes []*corev3.Node
	for i := range 20 {
		nodes = append(nodes, node(fmt.Sprint("n-", i), "edge", "eu-1"))
	}
	w.join(nodes...)
	p := w.open()
	p.visit("/")
	p.shows(".alarms", "The certificate of origin spare expires at 20", "From then on the origin rejects the relay", "Renew its files.")
	p.shows(".alarms", "The certificate of origin last expired at 20", "(began 5 min ago)")
	text, err := os.ReadFile(w.config)
	if err != nil {
		t.Fatal(err)
	}
	moved := strings.Replace(string(text), "node.locality.zone", `"'moved'"`, 1)
	if err := os.WriteFile(w.config, []byte(moved), 0o600); err != nil {
		t.Fatal(err)
	}
	p.shows(".alarms", "The configuration file is not in force: ", "the new rules change the key of 20 of 20 clients", "(began ", "or run relay reload --force.")
}

// A node's view has the version of its program. A key with programs of two kinds is a problem.
func TestUserAgents(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	envoy, grpc := node("envoy-1", "edge", "eu-1"), node("grpc-1", "edge", "eu-1")
	envoy.UserAgentName, grpc.UserAgentName = "envoy", "gRPC Go"
	envoy.UserAgentVersionType = &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{
		Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 40, Patch: 2}}}
	grpc.UserAgentVersionType = &corev3.Node_UserAgentVersion{UserAgentVersion: "1.85.0"}
	w.join(envoy)
	p := w.open()
	p.visit("/ui/node?name=envoy-1")
	p.shows(".facts", "User agent", "envoy 1.40.2")
	leave := w.join(grpc)
	p.visit("/ui/node?name=grpc-1")
	p.shows(".facts", "User agent", "gRPC Go 1.85.0")
	p.visit("/")
	p.shows(".alarms", "1 key has nodes of different kinds, for example key edge/eu-1: envoy and gRPC Go")
	p.do(chromedp.Click(".alarms strong a"))
	p.is("location.search === '?name=edge%2Feu-1'")
	p.shows(".facts", " and others")
	p.do(chromedp.Click(".facts > div:nth-child(4) a"))
	p.shows(".clients", "envoy 1.40.2", "gRPC Go 1.85.0")
	p.visit("/")
	leave()
	p.is("!document.querySelector('.alarms').textContent.includes('different kinds')")
}

func TestChangeOfTheOriginShowsByItself(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	w.join(edge(6)...)
	p := w.open()
	p.visit("/ui/key?name=edge%2Feu-1&type=CDS")
	p.shows("h1", "edge/eu-1")
	p.shows(".tabs", "CDS", "1")
	p.shows("section[aria-label=Clients]", "edge-000", "edge-004", "SYNCED")
	same := p.marked()
	w.clusters("2", "web", "api", "new-one")
	p.shows(".tabs a[aria-current]", "CDS 2")
	p.shows("section[aria-label=Versions]", "Convergence of version 2", "100 % of 3 clients have it", "The last 2 versions of CDS")
	p.is("document.querySelectorAll('.curve .line').length === 1 && document.querySelectorAll('.curve circle.synced').length === 2")
	p.is(`/p50 ≤ \d+ \w+.*p99 ≤ \d+ \w+/.test(document.querySelector('.curve').textContent)`)
	// One was changed and one removed, and all three clients accepted it.
	p.shows("section[aria-label=Versions] tbody tr:first-child", "2", "1", "3")
	same()
}

func TestResourcesOfAKey(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	var names []string
	for i := range 60 {
		names = append(names, fmt.Sprintf("cluster-%02d", i))
	}
	w.clusters("1", names...)
	w.join(edge(2)...)
	p := w.open()
	p.visit("/ui/key?name=edge%2Feu-1&type=CDS")
	p.shows(".resources", "cluster-00", "cluster-49")
	p.is("document.querySelectorAll('.resources li').length === 50")
	p.do(chromedp.Click("section[aria-label=Resources] .pages button"))
	p.shows(".resources", "cluster-59")
	p.is("document.querySelectorAll('.resources li').length === 10")
	p.do(chromedp.SendKeys("section[aria-label=Resources] input", "-17"))
	p.shows(".resources", "cluster-17")
	p.is("document.querySelectorAll('.resources li').length === 1 && location.search.includes('find=-17')")
	p.do(chromedp.Click(".resources summary"))
	p.shows(".resources pre", `"name": "cluster-17"`, `"connect_timeout": "1s"`)
	p.do(chromedp.Reload()) // the search is in the address
	p.shows(".resources", "cluster-17")
	p.is("document.querySelectorAll('.resources li').length === 1")
	eval[bool](p, "!document.querySelector('section[aria-label=Resources] input').select()")
	p.do(chromedp.SendKeys("section[aria-label=Resources] input", "nothing-has-this"))
	p.shows("section[aria-label=Resources]", "No resource has this in its name")
}

func TestWhereANodeGoes(t *testing.T) {
	t.Parallel()
	w := serve(t, xdstest.Config{"aggregation.rules": []map[string]any{
		{"match": `node.cluster != "nobody"`, "key": []string{"node.cluster", "node.locality.zone"}},
		{"match": `node.metadata.TEAM == "a"`, "key": "'a'"}}})
	w.join(edge(3)...)
	w.refuse()
	p := w.open()
	p.visit("/ui/where")
	p.shows("section[aria-label=Rules]", "What the rules do to 3 clients", "aggregation.rules[1] (", ") gives no key to any node of 3 clients.")
	const row = "[...document.querySelectorAll('section[aria-label=Rules] tbody tr:nth-child(%d) td')].map((e) => e.textContent).slice(2, 6).join(' ')"
	p.is(fmt.Sprintf(row+" === '3 2 0 –'", 1))
	p.is(fmt.Sprintf(row+".startsWith('0 0 1 lost-1 ')", 2))
	p.do(chromedp.SendKeys("#node", `{"id": "a", "cluster": "edge", "locality": {"zone": "eu-9"}}`), chromedp.Click("button.first"))
	p.shows("#explained", "edge/eu-9", "aggregation.rules[0]", `node.cluster != "nobody"`, "node.locality.zone", `"eu-9"`, "match")
	p.do(chromedp.SetValue("#node", `{"cluster": "nobody"}`), chromedp.Click("button.first"))
	p.shows("#explained", "the relay refuses the node", "no match")
	// YAML, and a whole bootstrap.
	p.do(chromedp.SetValue("#node", "cluster: mesh\nlocality:\n  zone: eu-8\n"), chromedp.Click("button.first"))
	p.shows("#explained", "key mesh/eu-8")
	p.do(chromedp.SetValue("#node", "admin: {}\nnode:\n  cluster: edge\n  locality: {zone: eu-7}\nstatic_resources:\n  clusters: []\n"),
		chromedp.SetValue("#peer", `{"address": "10.0.0.1"}`), chromedp.Click("button.first"))
	p.shows("#explained", "edge/eu-7")
	p.expect("400")
	p.do(chromedp.SetValue("#peer", "adress: 10.0.0.1"), chromedp.Click("button.first"))
	p.shows("#explained [role=alert]", "peer: ", "unknown field adress")
	p.is("(document.getElementById('peer').value = '') === ''")
	p.do(chromedp.SetValue("#node", `{"cluster": `), chromedp.Click("button.first"))
	p.shows("#explained [role=alert]", "line 1: ", "is not closed")
	p.do(chromedp.SetValue("#node", `{"colour": 1}`), chromedp.Click("button.first"))
	p.shows("#explained [role=alert]", "colour")
}

// slash is the key as users press it. It has no effect if the page handles it. KeyEvent would
// insert the sign in any case.
func slash(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
	for _, typ := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp} {
		p := input.DispatchKeyEventParams{Type: typ, Key: "/", Code: "Slash"}
		if typ == input.DispatchKeyEventTypeKeyDown {
			p.Text = "/"
		}
		if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent, p); err != nil {
			return chromedp.Void{}, err
		}
	}
	return chromedp.Void{}, nil
}

func TestSearchByKeyboard(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	w.join(edge(8)...)
	p := w.open()
	p.visit("/")
	p.shows("#live", "live")
	same := p.marked()
	p.do(slash)
	p.is("document.activeElement.id === 'search'")
	p.do(chromedp.KeyEvent("edge"))
	p.shows("#found", "edge/eu-1", "edge/eu-2", "edge-000")
	p.is("document.querySelector('#found [aria-selected=true]').textContent.includes('edge/eu-1')")
	// Results that come late keep what an arrow key chose.
	p.do(chromedp.KeyEvent(kb.ArrowDown))
	eval[bool](p, "document.getElementById('key-1').className = 'old', document.getElementById('search').dispatchEvent(new Event('input'))")
	p.is("document.querySelector('#found .old') === null")
	p.is("document.querySelector('#found [aria-selected=true]').textContent.includes('edge/eu-2')")
	p.do(chromedp.KeyEvent(kb.Enter))
	p.shows("h1", "edge/eu-2")
	p.is("location.pathname + location.search === '/ui/key?name=edge%2Feu-2'")
	p.do(slash, chromedp.KeyEvent("EDGE-005"))
	p.shows("#found", "edge-005")
	p.do(chromedp.KeyEvent(kb.Enter))
	p.shows("h1", "edge-005")
	p.do(slash, chromedp.KeyEvent("nobody-has-this"))
	p.shows("#found", "No key or node")
	p.do(chromedp.KeyEvent(kb.Escape))
	p.is("document.getElementById('found').hidden")
	same()
	p.do(chromedp.NavigateBack())
	p.shows("h1", "edge/eu-2")
}

func TestEveryViewIsAnAddress(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	w.join(edge(4)...)
	p := w.open()
	for _, v := range []struct{ path, selector, text string }{
		{"/", ".tiles", "Clients"},
		{"/ui/fleet", ".tiles", "Clients"},
		{"/ui/clients?state=SYNCED", "table", "edge-003"},
		{"/ui/keys", "table", "edge/eu-2"},
		{"/ui/key?name=edge%2Feu-2", "h1", "edge/eu-2"},
		{"/ui/key?name=edge%2Feu-2&type=CDS", ".tabs a[aria-current]", "CDS"},
		{"/ui/node?name=edge-001", "main", "edge/eu-2"},
		{"/ui/nacks", "main", "No client has sent a NACK"},
		{"/ui/where", "h1", "Which key does a node get?"},
		{"/ui/nonsense", "main", "There is no such page"},
	} {
		p.visit(v.path)
		p.shows(v.selector, v.text)
		p.do(chromedp.Reload())
		p.shows(v.selector, v.text)
	}
	// There and back, without reloading the page.
	p.visit("/ui/fleet")
	p.shows(".tiles", "Clients")
	same := p.marked()
	p.do(chromedp.Click("header nav a[href='keys']"))
	p.shows("table", "edge/eu-1")
	p.do(chromedp.Click("tbody a"))
	p.shows("h1", "edge/eu-1")
	p.do(chromedp.NavigateBack(), chromedp.NavigateBack())
	p.shows(".tiles", "Clients")
	same()
	p.expect("404")
	p.visit("/ui/key?name=not%2Fthere")
	p.shows("[role=alert]", "not in use")
}

func TestDarkAndLight(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	p := w.open()
	dark := "getComputedStyle(document.body).backgroundColor === 'rgb(15, 20, 27)'"
	p.prefers("dark")
	p.visit("/ui/where")
	p.is(dark)
	p.prefers("light")
	p.is("!(" + dark + ")")
	p.do(chromedp.Click("#theme"))
	p.is(dark)
	p.do(chromedp.Reload())
	p.shows("h1", "Which key")
	p.is(dark)
	p.prefers("dark")
	p.do(chromedp.Click("#theme"))
	p.is("!(" + dark + ")")
}

func TestWithATokenOneSignsIn(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("open-sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := serve(t, xdstest.Config{"admin.token_file": token})
	w.join(edge(4)...)
	p := w.open()
	p.expect("401")
	p.visit("/ui/key?name=edge%2Feu-1")
	p.shows("#login", "requires a token")
	p.do(chromedp.SendKeys("#token", "wrong"), chromedp.Click("button.first"))
	p.shows("#wrong", "not the token")
	p.do(chromedp.SetValue("#token", "open-sesame"), chromedp.Click("button.first"))
	p.shows("h1", "edge/eu-1")
	p.shows("#live", "live")
	p.do(chromedp.Reload())
	p.shows("h1", "edge/eu-1")
	if eval[string](p, "document.cookie + JSON.stringify(localStorage)") != "{}" {
		t.Error("something is kept longer than the tab, or sent by itself")
	}
	p.do(chromedp.Click("#forget"))
	p.shows("#login", "requires a token")
	if kept := eval[string](p, "JSON.stringify(sessionStorage)"); strings.Contains(kept, "sesame") {
		t.Errorf("kept after signing out: %s", kept)
	}
	p.do(chromedp.Reload())
	p.shows("#login", "requires a token")
	// No address contains the token.
	for _, url := range p.requests {
		if strings.Contains(url, "sesame") {
			t.Errorf("asked for %s", url)
		}
	}
}

// A page that was just opened has the curves of the time before. It goes on by itself.
func TestPageThatWasJustOpenedHasItsCurves(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	w.join(edge(4)...)
	samples := func(least int) {
		t.Helper()
		xdstest.Eventually(t, "samples", func() error {
			var found struct {
				Items []struct {
					Clients int
					States  struct{ Synced int } `json:"types_by_state"`
				}
			}
			if err := xdstest.HTTPGetJSON(w.admin+"/history", &found); err != nil {
				return err
			}
			if n := len(found.Items); n < least || found.Items[n-1].Clients != 4 || found.Items[n-1].States.Synced != 4 {
				return fmt.Errorf("%+v", found)
			}
			return nil
		})
	}
	samples(2)
	p := w.open()
	p.visit("/ui/fleet")
	p.shows(".past", "Clients", "4 clients", "0 NACKED", "2 min ago")
	// Without waiting for the time of the next sample.
	p.is("performance.getEntriesByType('resource').find((e) => e.name.endsWith('/history')).startTime - performance.getEntriesByType('resource').find((e) => e.name.endsWith('/history.js')).responseEnd < 5000")
	points := "document.querySelector('.past path.all').getAttribute('d').split(/[ML]/).length"
	before := eval[int](p, points)
	// The greatest value is beside the plot, where no line crosses it.
	p.is("document.querySelectorAll('.past path:last-of-type + text:last-child').length === 3")
	p.is("[...document.querySelectorAll('.past text:last-child')].every((e) => e.getBBox().x + e.getBBox().width <= e.parentNode.querySelector('.grid').x1.baseVal.value)")
	w.nacking("no")
	w.clusters("2", "web")
	p.shows(".past", "1 NACKED") // of an event, or of the relay's next sample
	p.is(fmt.Sprintf("%s > %d", points, before))
}
