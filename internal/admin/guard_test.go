package admin

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"
)

// every path with its methods
var every = []struct {
	path  string
	allow string
	open  bool
}{
	{"/", "GET, HEAD", false},
	{"/ready", "GET, HEAD", true},
	{"/live", "GET, HEAD", true},
	{"/server_info", "GET, HEAD", false},
	{"/keys", "GET, HEAD", false},
	{"/keys/k", "GET, HEAD", false},
	{"/clients", "GET, HEAD", false},
	{"/clients/n", "GET, HEAD", false},
	{"/nacks", "GET, HEAD", false},
	{"/origins", "GET, HEAD", false},
	{"/members", "GET, HEAD", false},
	{"/members/m/keys", "GET, HEAD", false},
	{"/rules", "GET, HEAD", false},
	{"/explain", "GET, HEAD, POST", false},
	{"/metrics", "GET, HEAD", true},
	{"/logging", "GET, HEAD, POST", false},
	{"/reload", "POST", false},
	{"/drain", "POST", false},
	{"/debug/pprof/", "GET, HEAD", false},
	{"/debug/pprof/cmdline", "GET, HEAD", false},
	{"/debug/pprof/heap", "GET, HEAD", false},
	{"/debug/pprof/symbol", "GET, HEAD", false},
}

func TestMethods(t *testing.T) {
	r := serve(t, nil)
	r.SetReady(true)
	for _, p := range every {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
			if method == "POST" && p.path == "/drain" {
				continue // TestDrain
			}
			got := r.do(method, p.path, "")
			if allowed := strings.Contains(p.allow, method); !allowed {
				r.check(got, 405, nil)
				if a := got.Header.Get("Allow"); a != p.allow {
					t.Errorf("%s %s: Allow: %q, want %q", method, p.path, a, p.allow)
				}
			} else if got.StatusCode == 405 || got.StatusCode == 500 {
				t.Errorf("%s %s: %s", method, p.path, got.Status)
			}
			if c := got.Header.Get("Cache-Control"); c != "no-store" {
				t.Errorf("%s %s: Cache-Control: %q", method, p.path, c)
			}
		}
	}
	if len(r.drains) > 0 || r.phase.Load() != serving {
		t.Error("drained by something else than a POST")
	}
	r.want(404, "GET", "/nothing", nil)
	r.want(404, "POST", "/nothing", nil)
	r.want(405, "DELETE", "/nothing", nil)
}

func TestIndexHasAllPaths(t *testing.T) {
	r := serve(t, nil)
	got := string(r.get("/", nil).body)
	for _, p := range r.routes() {
		if !strings.Contains(got, " "+strings.ReplaceAll(p.path, "...", "")+" ") {
			t.Errorf("%s is not there:\n%s", p.path, got)
		}
	}
	for _, says := range []string{"Content-Type: application/json", `{"node": {…}, "peer": {…}}`, "second_upstream", "/clients/?name=.."} {
		if !strings.Contains(got, says) {
			t.Errorf("nothing is said of %s:\n%s", says, got)
		}
	}
}

// docs/configuration.md lists exactly the paths that need no token.
func TestConfigurationReferenceNamesWhatIsOpen(t *testing.T) {
	src := xdstest.Must(os.ReadFile("../../docs/configuration.md"))(t)
	_, said, _ := strings.Cut(string(src), "All requests must carry the token, except requests for:")
	said, _, ok := strings.Cut(said, "gRPC health")
	if !ok {
		t.Fatal("there is no such list")
	}
	var named []string
	for _, m := range regexp.MustCompile("`(/[a-z]*/?)`").FindAllStringSubmatch(said, -1) {
		named = append(named, m[1])
	}
	open := []string{"/"} // as HTML
	r := serve(t, func(o *Options) { o.Config.TokenFile = write(t, "token", "s3cret") })
	for _, p := range r.routes() {
		if path, _, _ := strings.Cut(p.path, "{"); p.open {
			open = append(open, path)
		}
	}
	slices.Sort(named)
	slices.Sort(open)
	if !slices.Equal(named, open) {
		t.Errorf("the list names\n%q, and open are\n%q", named, open)
	}
	if got := r.do(http.MethodGet, "/", "", "Accept", "text/html"); got.StatusCode != http.StatusFound || got.Header.Get("Location") != "ui/fleet" {
		t.Errorf("a browser gets %s, Location %s", got.Status, got.Header.Get("Location"))
	}
	r.want(http.StatusUnauthorized, http.MethodGet, "/", nil)
}

// Wrong tokens are counted and logged with their peer. A browser has no token at first.
func TestWrongTokensAreReported(t *testing.T) {
	var log bytes.Buffer
	r := serve(t, func(o *Options) {
		o.Config.TokenFile, o.Log = write(t, "token", "s3cret"), slog.New(slog.NewTextHandler(&log, nil))
	})
	for _, auth := range []string{"", "Bearer s3cret", "Bearer wr0ng", "Bearer wr0ng"} {
		r.do("GET", "/server_info", "", "Authorization", auth)
	}
	body := string(r.get("/metrics", nil).body)
	if err := r.stop(); err != nil { // after it nothing writes the log
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), `level=WARN msg="admin: a request has a wrong token" peer=127.0.0.1:`); n != 2 || strings.Contains(log.String(), "wr0ng") {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
	if !regexp.MustCompile(`(?m)^\w*admin_wrong_tokens_total 2$`).MatchString(body) {
		t.Errorf("metrics: %s", body)
	}
}

func TestToken(t *testing.T) {
	r := serve(t, func(o *Options) { o.Config.TokenFile = write(t, "token", " s3cret\n") })
	r.SetReady(true)
	for _, p := range every {
		method := "GET"
		if !strings.Contains(p.allow, method) {
			method = "POST"
		}
		if p.open {
			r.get(p.path, nil)
			continue
		}
		for _, auth := range []string{"", "Bearer", "Bearer ", "Bearer wrong", "Bearer s3cre", "Bearer s3crets", "s3cret", "Basic s3cret"} {
			got := r.want(401, method, p.path, nil, "Authorization", auth)
			if h := got.Header.Get("WWW-Authenticate"); !strings.HasPrefix(h, "Bearer") {
				t.Errorf("%s %s: WWW-Authenticate: %q", method, p.path, h)
			}
		}
		// Without the token the methods stay unknown.
		r.want(401, "DELETE", p.path, nil)
		if got := r.do(method, p.path+"?x=1", "", "Authorization", "bearer s3cret"); got.StatusCode == 401 || got.StatusCode == 403 {
			t.Errorf("%s %s with the token: %s", method, p.path, got.Status)
		}
	}
	r.want(401, "GET", "/nothing", nil)
	r.want(401, "GET", "/%2e%2e%2fready", nil)
	r.want(401, "POST", "/logging?level=debug", nil)
	if len(r.drains) > 1 || r.level.Level() != slog.LevelInfo {
		t.Error("something was done without the token")
	}
	// With a token any host name is allowed.
	r.want(200, "GET", "/keys", nil, "Authorization", "Bearer s3cret", "Host", "relay.example.com")
}

func TestTokenFile(t *testing.T) {
	for name, content := range map[string]string{"empty": " \n", "two": "a b", "lines": "a\nb", "binary": "\x00", "latin": "ä"} {
		r := newServer(t, nil)
		o := r.opts
		o.Config.TokenFile = write(t, "token", content)
		if _, err := New(o); err == nil || !strings.HasPrefix(err.Error(), "admin.token_file: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	o := newServer(t, nil).opts
	o.Config.TokenFile = t.TempDir() + "/missing"
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("missing: %v", err)
	}
	if _, err := New(Options{}); err == nil {
		t.Error("no options are taken")
	}
}

// Without a token a page whose name resolves here gets no answer.
func TestNameOfTheRelay(t *testing.T) {
	r := serve(t, nil)
	for host, ok := range map[string]bool{
		"localhost": true, "LOCALHOST:19000": true, "127.0.0.1": true, "127.0.0.1:1": true, "[::1]:19000": true, "[::1]": true, "10.0.0.1:9": true,
		"evil.example.com": false, "evil.example.com:19000": false, "localhost.example.com": false, "127.0.0.1.nip.io": false,
	} {
		want := 200
		if !ok {
			want = 403
		}
		r.want(want, "GET", "/keys", nil, "Host", host)
		r.want(200, "GET", "/live", nil, "Host", host)
	}
}

func TestPagesOfOtherOriginsChangeNothing(t *testing.T) {
	r := serve(t, nil)
	for _, h := range [][]string{
		{"Origin", "http://evil.example.com"}, {"Origin", "null"}, {"Origin", "http://127.0.0.1:1"},
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
	} {
		for _, path := range []string{"/drain", "/logging?level=debug", "/explain"} {
			r.want(403, "POST", path, nil, h...)
		}
		for _, path := range []string{"/", "/logging", "/events", "/debug/pprof/profile?seconds=1", "/metrics", "/clients", "/live", "/ui/fleet", "/assets/app.js"} {
			r.want(403, "GET", path, nil, h...)
		}
	}
	if len(r.drains) > 0 || r.level.Level() != slog.LevelInfo {
		t.Error("something was done")
	}
	// A user follows a link; a frame or a prefetch needs no user.
	link := []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}
	for _, path := range []string{"/", "/ui/keys", "/nacks", "/live"} {
		r.want(200, "GET", path, nil, link...)
		r.want(403, "GET", path, nil, append(link, "Sec-Purpose", "prefetch;prerender")...)
		r.want(403, "GET", path, nil, append(link[:5:5], "iframe")...)
	}
	r.want(403, "POST", "/logging?level=debug", nil, link...)
	for _, path := range []string{"/events", "/debug/pprof/heap", "/metrics"} {
		r.want(403, "GET", path, nil, link...)
	}
	for _, h := range [][]string{nil, {"Origin", r.url}, {"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors"}, {"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate"}} {
		r.want(200, "GET", "/clients", nil, h...)
		r.want(200, "GET", "/metrics", nil, h...)
	}
	for _, h := range [][]string{nil, {"Origin", r.url}, {"Sec-Fetch-Site", "same-origin"}, {"Sec-Fetch-Site", "none"}} {
		r.want(200, "POST", "/logging?level=info", nil, h...)
	}
}

// An address without a view answers 404: with the page for browsers, with an error for others.
func TestViewsThatAreNotThere(t *testing.T) {
	r := serve(t, nil)
	for _, path := range []string{"/ui/", "/ui/fleet", "/ui/key", "/ui/node"} {
		r.want(200, "GET", path, nil)
	}
	r.want(404, "GET", "/ui/keys/a", nil, "Accept", "text/html")
	for _, path := range []string{"/ui/flet", "/ui/index.html"} {
		if got := r.want(404, "GET", path, nil); got.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %s", path, got.Header.Get("Content-Type"))
		}
		got := r.want(404, "GET", path, nil, "Accept", "text/html")
		if !strings.HasPrefix(got.Header.Get("Content-Type"), "text/html") || !strings.Contains(string(got.body), "<html") || got.Header.Get("Content-Security-Policy") == "" {
			t.Errorf("%s: %v", path, got.Header)
		}
	}
}

func TestLogging(t *testing.T) {
	r := serve(t, nil)
	for name, want := range map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "ERROR": slog.LevelError} {
		var got logging
		r.want(200, "POST", "/logging?level="+name, &got)
		if r.level.Level() != want || got.Level != strings.ToLower(name) {
			t.Errorf("%s: %v, answered %q", name, r.level.Level(), got.Level)
		}
		got = logging{}
		if r.get("/logging", &got); got.Level != strings.ToLower(name) {
			t.Errorf("/logging is %q after %s", got.Level, name)
		}
	}
	was := r.level.Level()
	for _, q := range []string{"", "?level=", "?level=loud", "?level=info&level=debug", "?level=info&x=1", "?level=info&format=xml"} {
		r.want(400, "POST", "/logging"+q, nil)
	}
	// A GET of a change answers 405 with the right method, as /drain does.
	for _, method := range []string{"GET", "HEAD"} {
		if got := r.do(method, "/logging?level=debug", ""); got.StatusCode != 405 || got.Header.Get("Allow") != "POST" {
			t.Errorf("%s: %d, Allow %q", method, got.StatusCode, got.Header.Get("Allow"))
		}
	}
	r.want(400, "GET", "/logging?other=debug", nil)
	if r.level.Level() != was {
		t.Error("the level was set by what is wrong")
	}
}

// POST /reload passes force on. A rejected file has status 422, and its lists are never null.
func TestReload(t *testing.T) {
	var asked []bool
	answer, followed := Reload{}, true
	r := serve(t, func(o *Options) {
		o.Reload = func(force bool) (Reload, bool) { asked = append(asked, force); return answer, followed }
	})
	for _, c := range []struct {
		path   string
		out    Reload
		status int
		want   string
	}{
		{"/reload", Reload{Result: ReloadUnchanged}, 200, `{"result": "unchanged", "changed": [], "needs_restart": [], "faults": []}`},
		{"/reload?force=false", Reload{Result: ReloadDone, Changed: []string{"log.level"}}, 200, `"changed": ["log.level"]`},
		{"/reload?force=true", Reload{Result: ReloadRejected, Faults: []string{"f:1: x"}}, 422, `"faults": ["f:1: x"]`},
		{"/reload?force=1", Reload{}, 400, "force: must be true or false"},
	} {
		answer = c.out
		got := r.want(c.status, "POST", c.path, nil)
		if text := strings.NewReplacer("\n", "", "    ", "", "  ", "").Replace(string(got.body)); !strings.Contains(strings.ReplaceAll(text, ",\"", ", \""), c.want) {
			t.Errorf("%s: %s, want %s", c.path, text, c.want)
		}
	}
	if !slices.Equal(asked, []bool{false, false, true}) {
		t.Errorf("force is %v", asked)
	}
	followed = false
	r.want(409, "POST", "/reload", nil)
	r.want(405, "GET", "/reload?force=true", nil)
}

func TestDrain(t *testing.T) {
	r := serve(t, nil)
	r.SetReady(true)
	r.want(202, "POST", "/drain", nil)
	r.want(202, "POST", "/drain", nil)
	r.want(503, "GET", "/ready", nil)
	r.get("/live", nil)
	if len(r.drains) != 1 {
		t.Fatalf("drained %d times", len(r.drains))
	}
}

func TestMetrics(t *testing.T) {
	r := serve(t, nil)
	r.metrics.Keys.Set(42)
	if got := string(r.get("/metrics", nil).body); !strings.Contains(got, "\nxdsrelay_keys 42\n") {
		t.Errorf("%s", got)
	}
}

func TestProfiles(t *testing.T) {
	r := serve(t, nil)
	if got := string(r.get("/debug/pprof/", nil).body); !strings.Contains(got, "goroutine") {
		t.Errorf("%s", got)
	}
	began := time.Now()
	if got := string(r.get("/debug/pprof/goroutine?debug=1", nil).body); !strings.Contains(got, "goroutine profile:") {
		t.Errorf("%s", got)
	}
	r.get("/debug/pprof/cmdline", nil)
	if d := time.Since(began); d < profileRest {
		t.Errorf("after one that stops the program the next is had within %v", d)
	}
	r.want(404, "GET", "/debug/pprof/nothing", nil)
	if got := r.do("GET", "/debug/pprof", ""); got.StatusCode >= 400 {
		t.Errorf("/debug/pprof: %s", got.Status)
	}
}

// Reading requests take turns, and delay neither probes nor scrapes.
func TestReadsTakeTurns(t *testing.T) {
	r := serve(t, nil)
	r.shown.block, r.shown.asked = make(chan struct{}), make(chan struct{}, 20)
	r.SetReady(true)
	const readers = 4
	done := make(chan int, readers)
	for range readers {
		go func() {
			res, err := r.client.Get(r.url + "/clients")
			if err != nil {
				done <- 0
				return
			}
			_ = res.Body.Close()
			done <- res.StatusCode
		}()
	}
	<-r.shown.asked
	// Wait until the others wait as well.
	for len(r.held) < readers {
		r.get("/live", nil)
	}
	for _, path := range []string{"/ready", "/live", "/metrics", "/logging"} {
		r.get(path, nil)
	}
	if len(r.shown.asked) > 0 {
		t.Error("more than one reads at a time")
	}
	close(r.shown.block)
	for range readers {
		if status := <-done; status != 200 {
			t.Errorf("status %d", status)
		}
	}
	if len(r.held)+len(r.reads) != 0 {
		t.Error("turns were not given back")
	}
}

// stuck blocks writes until it is released.
type stuck struct {
	*httptest.ResponseRecorder
	writing, let chan struct{}
}

func (s *stuck) Write(b []byte) (int, error) {
	s.writing <- struct{}{}
	<-s.let
	return len(b), nil
}

// A client that reads its answer slowly does not hold the turn.
func TestSlowReadersHoldNobodyUp(t *testing.T) {
	r := serve(t, nil)
	w := &stuck{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	done := make(chan struct{})
	go func() {
		r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/clients", nil))
		done <- struct{}{}
	}()
	<-w.writing
	r.get("/clients", nil)
	r.get("/keys", nil)
	close(w.let)
	<-done
}

// Slow bodies delay only other requests with a body.
func TestSlowBodiesHoldUpNobodyWhoReads(t *testing.T) {
	r := serve(t, nil)
	var all sync.WaitGroup
	var sends []io.Closer
	for range 2 * maxBodies {
		body, send := io.Pipe()
		sends = append(sends, send)
		all.Go(func() {
			req := httptest.NewRequest("POST", "http://localhost/explain", body)
			req.Header.Set("Content-Type", "application/json")
			r.Handler().ServeHTTP(httptest.NewRecorder(), req)
		})
	}
	for len(r.bodies) < maxBodies {
		r.get("/live", nil)
	}
	r.get("/keys", nil)
	for _, s := range sends {
		_ = s.Close()
	}
	all.Wait()
	if len(r.bodies)+len(r.held) != 0 {
		t.Error("turns were not given back")
	}
}

func TestBodies(t *testing.T) {
	r := serve(t, nil)
	large := `{"id": "` + strings.Repeat("x", MaxBody) + `"}`
	r.check(r.do("POST", "/explain", large, "Content-Type", "application/json"), 413, nil)
	r.check(r.do("POST", "/explain", `{"id": "n", "cluster": "c"}`), 415, nil)
	r.check(r.do("POST", "/explain", `{"id": "n", "cluster": "c"}`, "Content-Type", "text/plain"), 415, nil)
	r.check(r.do("POST", "/explain", `{"id": "n", "cluster": "c"}`, "Content-Type", "application/json; charset=utf-8"), 200, nil)
	// An endpoint without a body does not read one.
	if got := r.do("POST", "/logging?level=info", "{}"); got.StatusCode != 200 {
		t.Errorf("%s", got.Status)
	}
	req, _ := http.NewRequest("GET", r.url+"/live", nil)
	req.Header.Set("X", strings.Repeat("x", 2*maxHeader))
	res := xdstest.Must(r.client.Do(req))(t)
	_ = res.Body.Close()
	if res.StatusCode != 431 {
		t.Errorf("a large header: %s", res.Status)
	}
}
