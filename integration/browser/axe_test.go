package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"xdsrelay/internal/xdstest"
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

// axe-core finds nothing serious in any view, on a desk and on a phone, light and dark.
func TestAxeFindsNothingSerious(t *testing.T) {
	t.Parallel()
	source := axe(t)
	w := serve(t, nil)
	w.join(edge(6)...)
	w.nacking("cluster web: no such transport socket")
	w.clusters("2", "web", "new")
	p := w.open()
	for _, width := range []int64{1280, 360} {
		p.size(width)
		for _, scheme := range []string{"light", "dark"} {
			p.prefers(scheme)
			for _, view := range allViews {
				p.visit(view)
				p.shows("#live", "live")
				p.is("document.querySelector('h1') && !document.querySelector('main .loading')")
				p.is("document.getElementById('nacked').hidden === false")
				eval[bool](p, source+"\n;true")
				if wrong := eval[[]string](p, findings); len(wrong) > 0 {
					t.Error(fmt.Sprintf("%s, %s, %d px:\n", view, scheme, width) + strings.Join(wrong, "\n"))
				}
			}
		}
	}
}
