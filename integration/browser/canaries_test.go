package browser

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"
)

// canary begins each secret value of the test.
const canary = "Canary7"

// No view shows what is hidden in a resource or a node, nor a NACK that quotes it.
func TestPageHasNoSecrets(t *testing.T) {
	t.Parallel()
	w := serve(t, nil)
	metadata, err := structpb.NewStruct(map[string]any{"password": canary + "node", "zone": "the-zone"})
	if err != nil {
		t.Fatal(err)
	}
	n := node("edge-000", "edge", "eu-1")
	n.Metadata = metadata
	w.join(n)
	w.nacking(`Proto constraint validation failed: password: "` + canary + `file" equal to ` + canary + `file`)
	w.publish("clusters.yaml", fmt.Sprintf("type_url: %s\nversion_info: \"2\"\nresources:\n  - {\"@type\": %[1]q, name: web, metadata: {filter_metadata: {x: {password: %sfile, zone: the-zone}}}}\n",
		clusterType, canary))
	w.publish("bad.yaml", "resources: [{a: *"+canary+"bad}]")
	p := w.open()
	for _, view := range allViews {
		p.visit(view)
		p.shows("#live", "live")
		p.is("document.querySelector('h1') && !document.querySelector('main .loading')")
		if strings.HasPrefix(view, "/ui/node") || view == "/ui/nacks" {
			p.shows("main", "constraint validation failed")
			eval[int](p, "[...document.querySelectorAll('main details')].map((d) => d.open = true).length")
			p.shows(".difference", "[redacted]", "the-zone")
		}
		if strings.HasPrefix(view, "/ui/node") {
			p.shows("main", `"password": "[redacted]"`)
		}
		if html := eval[string](p, "document.documentElement.outerHTML"); strings.Contains(html, canary) {
			at := strings.Index(html, canary)
			t.Errorf("%s shows a canary: %s", view, html[max(0, at-300):min(len(html), at+50)])
		}
	}
}
