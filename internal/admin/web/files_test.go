package web

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func get(t *testing.T, serve func(http.ResponseWriter, *http.Request), headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	serve(w, r)
	return w
}

func asset(t *testing.T, name string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		if !ServeAsset(w, r, name) {
			t.Errorf("%s is not there", name)
		}
	}
}

func TestEveryFileHasThePolicy(t *testing.T) {
	for name, f := range files {
		if f.mediaType == "" {
			t.Errorf("%s has no type", name)
		}
		h := get(t, asset(t, name)).Header()
		csp := h.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: the policy has no %s: %s", name, want, csp)
			}
		}
		if strings.Contains(csp, "unsafe") || strings.Contains(csp, "http") || strings.Contains(csp, "*") {
			t.Errorf("%s: the policy is %s", name, csp)
		}
		for header, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache", "Content-Type": f.mediaType} {
			if h.Get(header) != want {
				t.Errorf("%s: %s is %q, want %q", name, header, h.Get(header), want)
			}
		}
		if w := get(t, asset(t, name), "If-None-Match", h.Get("ETag")); w.Code != http.StatusNotModified || w.Body.Len() != 0 {
			t.Errorf("%s: again: %d", name, w.Code)
		}
	}
}

// The page's files contain nothing that makes markup of text or asks other servers, nor what the
// policy refuses.
func TestNothingMakesMarkupOfTextsOrAsksOthers(t *testing.T) {
	forbidden := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|eval\(|new Function|setAttribute\('style'|\bstyle=|\bon[a-z]+="|https?://`)
	for name, f := range files {
		for i, line := range strings.Split(string(f.content), "\n") {
			if strings.Contains(line, "http://www.w3.org/2000/svg") {
				continue // a name, not an address
			}
			if found := forbidden.FindString(line); found != "" {
				t.Errorf("%s:%d: %s", name, i+1, found)
			}
		}
	}
}

// Each imported module and each file that the page names exists.
func TestFilesOfThePageExist(t *testing.T) {
	named := regexp.MustCompile(`(?:from '\./|"\.\./assets/)([a-z.]+)`)
	used := map[string]bool{"index.html": true}
	for name, f := range files {
		for _, m := range named.FindAllStringSubmatch(string(f.content), -1) {
			used[m[1]] = true
			if _, ok := files[m[1]]; !ok {
				t.Errorf("%s names %s, which is not there", name, m[1])
			}
		}
	}
	for name := range files {
		if !used[name] {
			t.Errorf("%s is not used", name)
		}
	}
	if ServeAsset(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), "../files.go") {
		t.Error("what is no asset is served")
	}
}

// The server knows exactly the views of the page.
func TestViewsAreThoseOfThePage(t *testing.T) {
	inPage := regexp.MustCompile(`case '([a-z]+)': return (name \? )?`)
	of := map[string]bool{"": true}
	for _, m := range inPage.FindAllStringSubmatch(string(files["app.js"].content), -1) {
		of[m[1]] = true
	}
	if len(of) != len(views) {
		t.Errorf("the page has %v, the server %v", of, views)
	}
	for address, want := range map[string]bool{
		"": true, "fleet": true, "keys": true, "key": true, "node": true, "nacks": true, "where": true,
		"fleet/": false, "keys/a": false, "flet": false, "x/keys": false, "index.html": false,
	} {
		if IsView(address) != want || want && !of[address] {
			t.Errorf("%q: %v", address, !want)
		}
	}
}

func TestBrowsersAreKnown(t *testing.T) {
	for accept, want := range map[string]bool{
		"": false, "*/*": false, "application/json": false,
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": true,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept", accept)
		if AcceptsHTML(r) != want {
			t.Errorf("%q: %v", accept, !want)
		}
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
