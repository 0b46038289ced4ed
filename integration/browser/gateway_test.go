package browser

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
)

// errAway is the error of a check for which the page gets no answer at all.
var errAway = errors.New("the relay is away")

// gateway is an HTTP proxy between the page and the relay.
type gateway struct {
	server *httptest.Server
	check  atomic.Pointer[func(*http.Request) error]
}

// throughGateway makes the tabs of a fixture use a gateway, until the test ends.
func (f *fixture) throughGateway() *gateway {
	f.Helper()
	relay, err := url.Parse(f.admin)
	if err != nil {
		f.Fatal(err)
	}
	g := &gateway{}
	g.server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(relay)
			r.Out.Host = r.In.Host
		},
		FlushInterval: -1, // events must not wait
		ModifyResponse: func(r *http.Response) error {
			if check := g.check.Load(); check != nil {
				return (*check)(r.Request)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if errors.Is(err, errAway) {
				panic(http.ErrAbortHandler) // closes the connection
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	})
	f.Cleanup(g.server.Close)
	f.admin = g.server.URL
	return g
}

// A proxy may add a prefix to the paths of the relay, and decode them, as nginx does. The page then
// asks for no path without the prefix: see checkRequests.
func TestPageUnderAPrefix(t *testing.T) {
	t.Parallel()
	const prefix = "/ops/relay-1"
	w := serve(t, nil)
	g := w.throughGateway()
	relay := g.server.Config.Handler
	g.server.Config.Handler = http.StripPrefix(prefix, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		r.URL.RawPath = ""
		relay.ServeHTTP(rw, r)
	}))
	w.admin += prefix
	w.join(edge(4)...)
	p := w.open()
	p.visit("/")
	p.shows(".tiles", "4", "100 %")
	same := p.marked()
	for _, step := range []struct{ link, path, shows string }{
		{"header nav a[href='clients']", "/ui/clients", "edge-003"},
		{"main a[href='node?name=edge-003']", "/ui/node?name=edge-003", "Locality"},
		{"main a[href^='key?']", "/ui/key?name=edge%2Feu-2&type=CDS", "accounts"},
		{"header nav a[href='nacks']", "/ui/nacks", "No client has sent a NACK"},
		{"header nav a[href='where']", "/ui/where", "Which key does a node get?"},
		{"header a.home", "/ui/fleet", "edge/eu-1"},
	} {
		p.do(chromedp.Click(step.link))
		p.shows("main", step.shows)
		p.is("location.pathname + location.search === '" + prefix + step.path + "'")
	}
	same()
	p.visit("/ui/key?name=edge%2Feu-2&type=CDS")
	p.shows("main", "accounts")
	p.expect("404")
	p.visit("/ui/nonsense")
	p.shows("main", "There is no such page")
}

// answered calls check for each request that the relay has answered, before the page gets the
// answer. The page gets the status 502 instead if check returns an error. A check of nil passes all
// answers on.
func (g *gateway) answered(check func(*http.Request) error) {
	if check == nil {
		g.check.Store(nil)
		return
	}
	g.check.Store(&check)
}

// away makes the relay unreachable for the page until the returned function is called.
func (g *gateway) away() (back func()) {
	g.answered(func(*http.Request) error { return errAway })
	g.server.CloseClientConnections()
	return func() { g.answered(nil) }
}

// A view shows a change that comes between the relay's first answer and the view.
func TestChangeDuringTheFirstReadIsShown(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	g := w.throughGateway()
	w.join(edge(4)...)
	p := w.open()
	p.visit("/ui/fleet")
	p.shows("#live", "live")
	p.shows(".tiles", "100 %")
	answered, changed := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	g.answered(func(r *http.Request) error {
		if r.URL.Path == "/clients" && first.CompareAndSwap(false, true) {
			close(answered)
			<-changed
		}
		return nil
	})
	p.do(chromedp.Click("header nav a[href='clients']"))
	<-answered
	w.nacking("no such cluster")
	w.clusters("2", "web")
	p.shows("#nacked", "1") // the page has the overview with the change
	close(changed)
	p.shows(".clients tbody tr:first-child", "edge-000", "NACKED")
}

// A view says that a later read failed, and reads again although nothing changes any more.
func TestFailedReadIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	g := w.throughGateway()
	w.join(edge(4)...)
	p := w.open()
	p.expect("502")
	p.visit("/ui/clients")
	p.shows(".clients", "edge-003")
	p.shows("#live", "live")
	var failed atomic.Bool
	g.answered(func(r *http.Request) error {
		if r.URL.Path == "/clients" && failed.CompareAndSwap(false, true) {
			return errors.New("one failure")
		}
		return nil
	})
	w.nacking("no such cluster")
	w.clusters("2", "web")
	p.shows(".alarms", "The page may be out of date: Bad Gateway")
	p.shows(".clients tbody tr:first-child", "edge-000", "NACKED")
	p.is("document.querySelector('.alarms').textContent === ''")
}

// The answer to an older question does not replace that to a newer one.
func TestOlderAnswerIsIgnored(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	g := w.throughGateway()
	p := w.open()
	p.visit("/ui/where")
	first, late, passed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var asked atomic.Bool
	g.answered(func(r *http.Request) error {
		if r.URL.Path == "/explain" && asked.CompareAndSwap(false, true) {
			close(first)
			<-late
			defer close(passed)
		}
		return nil
	})
	p.do(chromedp.SetValue("#node", "cluster: edge\nlocality: {zone: eu-1}\n"), chromedp.Click("button.first"))
	<-first
	p.do(chromedp.SetValue("#node", "cluster: edge\nlocality: {zone: eu-2}\n"), chromedp.Click("button.first"))
	p.shows("#explained", "key edge/eu-2")
	close(late)
	<-passed
	eval[int](p, "fetch('/live').then((r) => r.status)") // a later answer has come
	p.shows("#explained", "key edge/eu-2")
}
