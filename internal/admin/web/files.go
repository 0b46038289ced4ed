package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
)

//go:embed assets
var assets embed.FS

// types are the media types of the files. mime.TypeByExtension would depend on the host.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// policy is the page's Content-Security-Policy: it may load its own files and ask its own server.
// trusted-types forbids markup and scripts made of strings. No other page can frame it. Without
// base and forms, injected markup could not send data away.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// file is a file of the page with its hash.
type file struct {
	content   []byte
	mediaType string
	tag       string
}

var files = read()

// read reads the embedded files. A failure would be a fault of the build.
func read() map[string]file {
	out := make(map[string]file)
	entries, err := fs.ReadDir(assets, "assets")
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		b, err := fs.ReadFile(assets, "assets/"+e.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(b)
		out[e.Name()] = file{content: b, mediaType: types[path.Ext(e.Name())], tag: `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	return out
}

// AcceptsHTML reports whether a request accepts HTML, as browsers do and curl does not.
func AcceptsHTML(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}

// ServePage answers with the page, which selects the view by its address. The address must be directly
// under /ui/: the page's own addresses are relative, because a proxy may add a prefix to all paths.
func ServePage(w http.ResponseWriter, r *http.Request) { serve(w, r, "index.html") }

// Redirect leads from / to the page.
func Redirect(w http.ResponseWriter, _ *http.Request) {
	w.Header().Add("Vary", "Accept")
	w.Header().Set("Location", "ui/fleet") // http.Redirect would make it absolute
	w.WriteHeader(http.StatusFound)
}

// views has the addresses behind /ui/ that the page knows.
var views = []string{"", "fleet", "clients", "keys", "key", "node", "nacks", "where", "members"}

// IsView reports whether the page has a view at an address behind /ui/.
func IsView(address string) bool { return slices.Contains(views, address) }

// ServeNoPage answers 404 with the page, which says that there is no such view.
func ServeNoPage(w http.ResponseWriter, r *http.Request) {
	head(w.Header(), files["index.html"])
	w.Header().Del("ETag")
	w.WriteHeader(http.StatusNotFound)
	if r.Method != http.MethodHead {
		_, _ = w.Write(files["index.html"].content) // an error means that the client has gone
	}
}

// ServeAsset answers with a file of the page. It returns false, and writes nothing, if there is
// none of this name.
func ServeAsset(w http.ResponseWriter, r *http.Request, name string) bool {
	if _, ok := files[name]; !ok {
		return false
	}
	serve(w, r, name)
	return true
}

func serve(w http.ResponseWriter, r *http.Request, name string) {
	head(w.Header(), files[name])
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(files[name].content))
}

func head(h http.Header, f file) {
	h.Set("Content-Type", f.mediaType)
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	// The browser asks again at each use, because another version of the relay has other files.
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", f.tag)
	h.Add("Vary", "Accept")
}
